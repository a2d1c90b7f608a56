"""The policies that a run has tried: updated from prompt to prompt, each attempt looked at once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from policygen.episodes.buffer import ReplayBuffer
from policygen.runs.state import Attempt, Context


class Tried:
    """The attempts by the texts of their policies, as proposed and as tuned; of a text only a digest is kept.

    `same_as` has for each attempt that proposed what an earlier one had, that attempt's number.
    """

    def __init__(self) -> None:
        self._followed = 0
        self._last: Attempt | None = None
        self._first: dict[bytes, int] = {}
        self.same_as: dict[int, int] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._first

    def follow(self, attempts: Sequence[Attempt]) -> None:
        """Take in the attempts made since the last call; with others than before, start again."""
        if len(attempts) < self._followed or (self._followed and attempts[self._followed - 1] is not self._last):
            self.__init__()  # type: ignore[misc]
        for attempt in attempts[self._followed :]:
            proposed, tuned = attempt.digests
            if proposed is not None:
                first = self._first.setdefault(proposed, attempt.number)
                if first != attempt.number:
                    self.same_as[attempt.number] = first
            if tuned is not None:
                self._first.setdefault(tuned, attempt.number)
            self._last = attempt
        self._followed = len(attempts)


_TRIED: weakref.WeakKeyDictionary[ReplayBuffer, Tried] = weakref.WeakKeyDictionary()


def tried(context: Context) -> Tried:
    """Return the policies that the attempts of a run have tried."""
    found = _TRIED.setdefault(context.buffer, Tried())
    found.follow(context.attempts)
    return found
