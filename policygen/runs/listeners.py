"""Listeners, which are called at the events of a run: the terminal, pictures, trackers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from policygen.llm.messages import Exchange, FailedExchange
from policygen.llm.retry import Wait
from policygen.runs.attempt import Attempt
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Summary
from policygen.runs.state import Search


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """The progress of tuning attempt `number`: `played` of at most `episodes` episodes."""

    number: int
    played: int
    episodes: int
    mean: float | None  # mean return of the candidates played last; None before the first
    since: float  # start of the tuning, in seconds since the epoch


Activity = Wait | TuningProgress | str
"""A long-running activity to show as progress (tuning, waiting), or a sentence for the user."""


class RunView(Protocol):
    """A run as its listeners see it: settings, folder, state and spending, which they only read."""

    config: RunConfig
    search: Search
    ledger: Ledger

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        ...


class Listener:
    """A listener to the events of a run; a subclass overrides the methods of the events that it needs.

    A listener that raises an exception is removed, and the run continues. The run writes the files of its folder
    itself, before it calls the listeners.
    """

    def started(self, run: RunView) -> None:
        """Called when the run starts or is resumed."""

    def doing(self, activity: Activity | None) -> None:
        """Called when a long-running activity starts or progresses; None: it has ended."""

    def exchanged(self, exchange: Exchange | FailedExchange) -> None:
        """Called when a request was answered or failed, after it was recorded and before its attempt is scored."""

    def attempted(self, attempt: Attempt) -> None:
        """Called when an attempt was scored and recorded."""

    def finished(self, summary: Summary) -> None:
        """Called when the best policy has its final score and all files are written."""

    def ended(self) -> None:
        """Called last, whether the run finished, was interrupted or failed."""


def notify(listeners: list[Listener], event: Callable[[Listener], None]) -> None:
    """Call every listener; remove those that fail from the list, with a UserWarning."""
    for listener in tuple(listeners):
        try:
            event(listener)
        except Exception as error:
            listeners.remove(listener)
            what = " ".join(str(error).split())[:300] or type(error).__name__
            warnings.warn(f"{type(listener).__name__} failed, and the run continues without it: {what}", stacklevel=2)
