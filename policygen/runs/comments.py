"""The user's comments to a run: new lines of the file `comments.md` in its folder go into the next prompt, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from policygen.errors import LogbookError
from policygen.files import read
from policygen.llm.messages import Exchange
from policygen.llm.transcript import Transcript
from policygen.outgoing import shown

FILE = "comments.md"
MOST_CHARACTERS = 4_000  # of a line, and of all lines in one prompt; the others wait for the next one
_LARGEST = 2**20  # bytes of the file


class Comments:
    """The comments of a run.

    Args:
        used: the lines that earlier prompts had, of which the run has the replies.
        tell: called with sentences for the user.
    """

    def __init__(
        self, folder: Path, used: Iterable[str] = (), tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._path, self._used, self._tell = folder / FILE, Counter(used), tell
        self._unreadable = False

    def new(self) -> tuple[str, ...]:
        """Return the lines that no prompt has had, as many as one takes; from now on they count as used.

        An edited line is new. After a file that cannot be read, nothing is read any more.
        """
        chosen, room, left = list[str](), MOST_CHARACTERS, Counter(self._used)
        for line in self._lines():
            if left[line]:
                left[line] -= 1
            elif len(line) <= room:
                chosen.append(line)
                room -= len(line)
            else:
                most = f"{MOST_CHARACTERS:,} new characters"
                self._tell(f"{self._path} has more than {most}: the rest is for later prompts")
                break
        self._used.update(chosen)
        return tuple(chosen)

    def _lines(self) -> Iterator[str]:
        try:
            text = "" if self._unreadable else read(self._path, str, most=_LARGEST)
        except FileNotFoundError:
            return
        except LogbookError as error:
            self._unreadable = True
            self._tell(f"no prompt has comments from now on: {error}")
            return
        for line in text.splitlines():
            if words := shown(line).strip():
                yield words[:MOST_CHARACTERS]


def used_comments(transcript: Transcript) -> dict[int, tuple[str, ...]]:
    """Return the comments in the prompts that have a reply, by attempt."""
    exchanges = (one for one in transcript.exchanges() if isinstance(one, Exchange) and one.prompt.comments)
    return {exchange.attempt: exchange.prompt.comments for exchange in exchanges}
