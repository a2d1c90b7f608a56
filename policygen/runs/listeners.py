"""The listeners of a run, which are told its events: the terminal, pictures, trackers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from policygen.llm.messages import Exchange, FailedExchange
from policygen.llm.retry import Wait
from policygen.runs.attempt import Attempt
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.records import Summary
from policygen.runs.state import Search


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """The progress of tuning the proposal of attempt `number`.

    Attributes:
        played, episodes: episodes played so far, and the most that it may play; a settled search ends earlier.
        mean: mean return of the candidates played last; None before the first.
        since: when it began, in seconds since the epoch.
    """

    number: int
    played: int
    episodes: int
    mean: float | None
    since: float


@dataclass(frozen=True, slots=True)
class Steered:
    """A message about the user's commands, in a sentence: the run is paused, or continues."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


Activity = Wait | TuningProgress | Steered
"""A long-running activity, shown as progress: tuning, waiting for a reply, waiting to retry."""


def tell_nobody(activity: Activity | None) -> None:
    """Ignore an activity; for runs that report no progress."""


class Watched(Protocol):
    """A read-only view of a run for listeners: its settings, its folder, its state and its spending."""

    config: RunConfig
    search: Search
    ledger: Ledger

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        ...


class Listener:
    """Is told what happens in a run; a subclass says what it does at the moments it cares for.

    Nothing depends on a listener: one that fails hears no more, and the run goes on. What must not be lost, the files
    of the run folder, is therefore written by the run itself, before the listeners are told.
    """

    def started(self, run: Watched) -> None:
        """The run begins, or goes on."""

    def doing(self, activity: Activity | None) -> None:
        """The run now does what takes long, or how far it is with that; with None it has ended that."""

    def exchanged(self, exchange: Exchange | FailedExchange) -> None:
        """A request was answered, or failed, and recorded; its attempt is not scored yet."""

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
                what = " ".join(str(error).split())[:300] or type(error).__name__
                warnings.warn(f"{type(listener).__name__} failed, and the run goes on without it: {what}", stacklevel=2)
