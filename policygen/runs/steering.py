"""The user's messages to a run in progress: comments for the model, pause and continue.

They are stored in an append-only file in the run's folder, to which the user's commands and the run itself write. The
run records which prompt carried which comments, so that a resumed run renders the same prompt for the recorded reply.
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
MOST_TOGETHER = 8_000  # characters of all comments that one prompt carries
POLL_SECONDS = 0.25  # between two reads of the file while a run is paused
_REMEDY = "delete it; the comments in it are then lost"

_Number = Annotated[int, Field(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `number` 1 is the first."""

    number: int
    text: str
    once: bool = False  # only one prompt carries it
    withdrawn: bool = False  # no further prompt carries it
    carried: tuple[int, ...] = ()  # the attempts whose prompts carried it

    @property
    def active(self) -> bool:
        """Whether the next prompt carries it."""
        return not self.withdrawn and not (self.once and self.carried)


@dataclass(frozen=True, slots=True)
class _NewComment:
    text: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class _Carried:
    attempt: _Number
    comments: tuple[_Number, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file; exactly one field is set."""

    comment: _NewComment | None = None
    withdraw: tuple[_Number, ...] = ()
    pause: bool | None = None
    carried: _Carried | None = None


_LINE = TypeAdapter(_Line)


@dataclass(frozen=True, slots=True)
class UserMessages:
    """The user's messages to a run so far."""

    comments: tuple[Comment, ...]
    carried: dict[int, tuple[int, ...]]  # numbers of the comments that each attempt's prompt carried, by attempt
    paused: bool


def _fitting(numbers: Sequence[int], comments: Sequence[Comment]) -> tuple[int, ...]:
    """Return the numbers of existing comments, each once, as far as they fit into a prompt; a file may list more."""
    known = [number for number in dict.fromkeys(numbers) if 0 < number <= len(comments)]
    lengths = itertools.accumulate(len(comments[number - 1].text) for number in known)
    return tuple(number for number, length in zip(known, lengths, strict=True) if length <= MOST_TOGETHER)


class Steering:
    """The user's messages to the run in a folder, read and written.

    Every method raises LogbookError if the file is damaged, or cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    # --- the user's side

    def say(self, text: str, *, once: bool = False) -> Comment:
        """Add a comment to the next prompt only (`once`), or to all further prompts until it is withdrawn.

        Raises UsageError if it is empty or too long, or all active comments together are too long for a prompt.
        """
        words = plain(text).strip()
        if not words:
            raise UsageError("the comment is empty; write a message to the model")
        if len(words) > MOST_CHARACTERS:
            raise UsageError(f"the comment has {len(words):,} characters, and may have {MOST_CHARACTERS:,}; shorten it")
        comments = self.read().comments
        together = len(words) + sum(len(comment.text) for comment in comments if comment.active)
        if together > MOST_TOGETHER:
            raise UsageError(
                f"the active comments would have {together:,} characters together, and may have {MOST_TOGETHER:,}; "
                "withdraw some first"
            )
        self._append({"comment": {"text": words, "once": once}})
        return Comment(len(comments) + 1, words, once)

    def withdraw(self, number: int | None = None) -> tuple[Comment, ...]:
        """Remove a comment, or all, from further prompts; return the withdrawn ones.

        Raises UsageError if there is no such active comment.
        """
        active = [comment for comment in self.read().comments if comment.active]
        chosen = tuple(comment for comment in active if number in (None, comment.number))
        if not chosen:
            if not active:
                raise UsageError("no comment is active: there is nothing to withdraw")
            known = ", ".join(str(comment.number) for comment in active)
            raise UsageError(f"comment {number} is not active; active: {known}")
        self._append({"withdraw": [comment.number for comment in chosen]})
        return chosen

    def pause(self, paused: bool = True) -> bool:
        """Pause the run before its next prompt, or let it continue; return whether that changed its state."""
        if self.read().paused == paused:
            return False
        self._append({"pause": paused})
        return True

    def _append(self, record: dict[str, object]) -> None:
        append_line(self.path, {**mark(KIND), **record})

    # --- both sides

    def read(self) -> UserMessages:
        """Read all messages."""
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
        attempts: list[list[int]] = [[] for _ in comments]
        for attempt, numbers in carried.items():
            for number in numbers:
                attempts[number - 1].append(attempt)
        found = tuple(replace(comment, carried=tuple(n)) for comment, n in zip(comments, attempts, strict=True))
        return UserMessages(found, carried, paused)

    def comments_for(self, number: int) -> tuple[Comment, ...]:
        """Return the comments for the prompt of attempt `number`, if rendered now: the newest that fit, in order."""
        chosen: list[Comment] = []
        room = MOST_TOGETHER
        for comment in reversed(self.read().comments):
            # A prompt that was rendered and never sent may carry it again.
            if not replace(comment, carried=tuple(n for n in comment.carried if n != number)).active:
                continue
            room -= len(comment.text)
            if room >= 0:
                chosen.append(comment)
        return tuple(reversed(chosen))

    # --- the run's side

    def for_prompt(self, number: int, *, answered: bool) -> tuple[str, ...]:
        """Return the comments for the prompt of attempt `number`, and record them before it is sent.

        Args:
            answered: whether a reply is on record from before an interruption; the comments are then the recorded ones.
        """
        messages = self.read()
        known = messages.carried.get(number, ())
        if answered:
            return tuple(comment.text for comment in messages.comments if comment.number in known)
        active = self.comments_for(number)
        numbers = tuple(comment.number for comment in active)
        if numbers != known:
            self._append({"carried": {"attempt": number, "comments": list(numbers)}})
        return tuple(comment.text for comment in active)

    def wait(self, tell: Callable[[bool], None]) -> None:
        """Wait while the run is paused; call `tell` with True when waiting begins and with False when it ends."""
        if not self.read().paused:
            return
        tell(True)
        size = -1
        while size == self._size() or self.read().paused:  # a file of the same size is not read again
            size = self._size()
            time.sleep(POLL_SECONDS)
        tell(False)

    def _size(self) -> int:
        try:
            return self.path.lstat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise LogbookError(f"cannot read {self.path}: {error.strerror}") from None
