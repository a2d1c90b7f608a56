"""The user's messages to a run in progress: comments for the model, pause and continue.

They are stored in an append-only file of the run's folder. The user's commands and the run itself write to it. The run
records which prompt carried which comments, so that a resumed run renders the same prompt to the same reply.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from policygen.errors import LogbookError, UsageError, explain
from policygen.files import append_line, check_mark, damaged, mark, read_lines
from policygen.outgoing import plain

FILE = "comments.jsonl"
KIND = "comments"
MOST_CHARACTERS = 2_000  # of a comment
MOST_TOGETHER = 8_000  # characters of those that one prompt carries
SECONDS_BETWEEN_LOOKS = 0.25  # of a paused run
_REMEDY = "delete it; what was said to the run is then forgotten"

_Number = Annotated[int, Field(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `number` 1 is the first.

    Attributes:
        once: only one prompt carries it.
        withdrawn: no further prompt carries it.
        carried: the attempts whose prompts carried it.
    """

    number: int
    text: str
    once: bool = False
    withdrawn: bool = False
    carried: tuple[int, ...] = ()

    @property
    def standing(self) -> bool:
        """Whether the next prompt carries it."""
        return not self.withdrawn and not (self.once and self.carried)


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class _Carried:
    attempt: _Number
    comments: tuple[_Number, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file, which says one of these."""

    comment: _Said | None = None
    withdraw: tuple[_Number, ...] = ()
    pause: bool | None = None
    carried: _Carried | None = None


_LINE = TypeAdapter(_Line)


@dataclass(frozen=True, slots=True)
class UserComment:
    """All that was said to a run so far; `carried` has, for each attempt, the comments that its prompt carried."""

    comments: tuple[Comment, ...]
    carried: dict[int, tuple[int, ...]]
    paused: bool


def _fitting(numbers: Sequence[int], comments: Sequence[Comment]) -> tuple[int, ...]:
    """Those of the numbered comments that exist and that one prompt has room for: a file may list many, many times."""
    known = [number for number in dict.fromkeys(numbers) if 0 < number <= len(comments)]
    lengths = itertools.accumulate(len(comments[number - 1].text) for number in known)
    return tuple(number for number, length in zip(known, lengths, strict=True) if length <= MOST_TOGETHER)


class Steering:
    """The user's messages to the run in a folder, read and written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    # --- the user's side

    def say(self, text: str, *, once: bool = False) -> Comment:
        """Add a comment: from the next prompt on the model is told, once or until it is withdrawn.

        Raises:
            UsageError: it is empty or too long, or with those that stand it is too much for a prompt.
            LogbookError: it cannot be written.
        """
        words = plain(text).strip()
        if not words:
            raise UsageError("the comment is empty; write what the model should be told")
        if len(words) > MOST_CHARACTERS:
            raise UsageError(f"the comment has {len(words):,} characters, and may have {MOST_CHARACTERS:,}; shorten it")
        comments = self.read().comments
        together = len(words) + sum(len(comment.text) for comment in comments if comment.standing)
        if together > MOST_TOGETHER:
            raise UsageError(
                f"with those that stand the model would be told {together:,} characters, and {MOST_TOGETHER:,} are the "
                "most; withdraw some first"
            )
        self._append({"comment": {"text": words, "once": once}})
        return Comment(len(comments) + 1, words, once)

    def withdraw(self, number: int | None = None) -> tuple[Comment, ...]:
        """Tell the model no more of a comment, or of all; returns those that were withdrawn.

        Raises:
            UsageError: no comment of that number stands, or none at all.
            LogbookError: it cannot be written.
        """
        standing = [comment for comment in self.read().comments if comment.standing]
        chosen = tuple(comment for comment in standing if number in (None, comment.number))
        if not chosen:
            known = ", ".join(str(comment.number) for comment in standing)
            raise UsageError(
                f"no comment of number {number} stands; there {'are' if len(standing) > 1 else 'is'} {known}"
                if standing and number is not None
                else "no comment stands: there is nothing to withdraw"
            )
        self._append({"withdraw": [comment.number for comment in chosen]})
        return chosen

    def pause(self, paused: bool = True) -> bool:
        """Let the run wait before its next prompt, or go on; returns whether that changes anything.

        Raises:
            LogbookError: it cannot be written.
        """
        if self.read().paused == paused:
            return False
        self._append({"pause": paused})
        return True

    def _append(self, record: dict[str, object]) -> None:
        append_line(self.path, {**mark(KIND), **record})

    # --- both sides

    def read(self) -> UserComment:
        """All that was said so far.

        Raises:
            LogbookError: the file is damaged.
        """
        comments: list[Comment] = []
        carried: dict[int, tuple[int, ...]] = {}
        paused = False
        for record in read_lines(self.path, _REMEDY):
            check_mark(record, self.path, KIND, _REMEDY)
            try:
                line = _LINE.validate_python({key: value for key, value in record.items() if key != "format"})
            except ValidationError as error:
                raise damaged(self.path, explain(error), _REMEDY) from None
            if line.comment is not None:
                text = line.comment.text[:MOST_CHARACTERS]
                comments.append(Comment(len(comments) + 1, text, line.comment.once))
            for number in line.withdraw:
                if 0 < number <= len(comments):
                    comments[number - 1] = replace(comments[number - 1], withdrawn=True)
            if line.pause is not None:
                paused = line.pause
            if line.carried is not None:
                carried[line.carried.attempt] = line.carried.comments
        carried = {attempt: _fitting(numbers, comments) for attempt, numbers in sorted(carried.items())}
        told: list[list[int]] = [[] for _ in comments]
        for attempt, numbers in carried.items():
            for number in numbers:
                told[number - 1].append(attempt)
        found = tuple(replace(comment, carried=tuple(n)) for comment, n in zip(comments, told, strict=True))
        return UserComment(found, carried, paused)

    def standing(self, number: int) -> tuple[Comment, ...]:
        """Return the comments for the prompt of attempt `number`, if rendered now: the newest that fit, in order.

        Raises:
            LogbookError: the file is damaged.
        """
        chosen: list[Comment] = []
        room = MOST_TOGETHER
        for comment in reversed(self.read().comments):
            # A prompt that was rendered and never sent may carry it again.
            if not replace(comment, carried=tuple(n for n in comment.carried if n != number)).standing:
                continue
            room -= len(comment.text)
            if room >= 0:
                chosen.append(comment)
        return tuple(reversed(chosen))

    # --- the run's side

    def for_prompt(self, number: int, *, answered: bool) -> tuple[str, ...]:
        """The comments that the prompt of attempt `number` carries, written down before it is sent.

        Args:
            answered: an interrupted run was left with the reply: the prompt is what it was, whatever was said since.

        Raises:
            LogbookError: the file is damaged, or cannot be written.
        """
        said = self.read()
        known = said.carried.get(number, ())
        if answered:
            return tuple(comment.text for comment in said.comments if comment.number in known)
        standing = self.standing(number)
        numbers = tuple(comment.number for comment in standing)
        if numbers != known:
            self._append({"carried": {"attempt": number, "comments": list(numbers)}})
        return tuple(comment.text for comment in standing)

    def wait(self, tell: Callable[[bool], None]) -> None:
        """Return when the run is not paused; `tell` hears when it begins to wait and when it goes on.

        Raises:
            LogbookError: the file is damaged.
        """
        if not self.read().paused:
            return
        tell(True)
        size = -1
        while size == self._size() or self.read().paused:
            size = self._size()
            time.sleep(SECONDS_BETWEEN_LOOKS)
        tell(False)

    def _size(self) -> int:
        try:
            return self.path.lstat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise LogbookError(f"cannot read {self.path}: {error.strerror}") from None
