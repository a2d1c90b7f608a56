"""Who is told what happens in a run: the terminal, pictures, trackers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.records import Summary
from policygen.runs.state import Attempt, Search


class Watched(Protocol):
    """What a listener may look at, and must not change: a run's settings, its folder, what it has so far and spent."""

    config: RunConfig
    search: Search
    ledger: Ledger

    @property
    def folder(self) -> Path:
        """Where the run's files are."""
        ...


class Listener:
    """Is told what happens in a run; a subclass says what it does at the moments it cares for.

    Nothing depends on a listener: one that fails hears no more, and the run goes on. What must not be lost, the files
    of the run folder, is therefore written by the run itself, before the listeners are told.
    """

    def started(self, run: Watched) -> None:
        """The run begins, or goes on."""

    def attempted(self, attempt: Attempt) -> None:
        """An attempt was scored and recorded."""

    def finished(self, summary: Summary) -> None:
        """The best policy has its final score, and all files are written."""

    def ended(self) -> None:
        """Nothing more will happen, whether the run is finished, was interrupted or failed."""


class Audience:
    """Several listeners, told one after the other."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listening = list(listeners)

    def tell(self, event: Callable[[Listener], None]) -> None:
        """Tell every listener.

        Warns:
            UserWarning: one failed; it hears no more.
        """
        for listener in tuple(self._listening):
            try:
                event(listener)
            except Exception as error:
                self._listening.remove(listener)
                what = str(error) or type(error).__name__
                warnings.warn(f"{type(listener).__name__} failed, and the run goes on without it: {what}", stacklevel=2)
