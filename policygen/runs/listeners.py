"""The listeners of a run, called at its events: the terminal, pictures, trackers."""

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
    """The progress of tuning attempt `number`.

    Attributes:
        played, episodes: episodes played so far, and their maximum; a converged search ends earlier.
    """

    number: int
    played: int
    episodes: int
    mean: float | None  # mean return of the candidates played last; None before the first
    since: float  # start of the tuning, in seconds since the epoch


Activity = Wait | TuningProgress | str
"""A long-running activity, shown as progress: tuning, waiting for a reply, waiting to retry.

A text is a sentence for the user, for example that prompts do not show comments.
"""


class RunView(Protocol):
    """The settings, folder, state and spending of a run, for listeners, which only read them."""

    config: RunConfig
    search: Search
    ledger: Ledger

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        ...


class Listener:
    """A listener to the events of a run; a subclass overrides the methods of the events that it needs.

    A listener that raises is removed, and the run continues. Therefore the run itself writes the files of its folder,
    before it calls the listeners.
    """

    def started(self, run: RunView) -> None:
        """Called when the run starts or is resumed."""

    def doing(self, activity: Activity | None) -> None:
        """Called at the start and at steps of a long-running activity; None: the activity has ended."""

    def exchanged(self, exchange: Exchange | FailedExchange) -> None:
        """Called when a request was answered or failed, and is recorded; its attempt is not scored yet."""

    def attempted(self, attempt: Attempt) -> None:
        """Called when an attempt was scored and recorded."""

    def finished(self, summary: Summary) -> None:
        """Called when the best policy has its final score, and all files are written."""

    def ended(self) -> None:
        """Called last, whether the run finished, was interrupted or failed."""


def notify(listeners: list[Listener], event: Callable[[Listener], None]) -> None:
    """Call every listener; remove one that fails from the list, with a UserWarning."""
    for listener in tuple(listeners):
        try:
            event(listener)
        except Exception as error:
            listeners.remove(listener)
            what = " ".join(str(error).split())[:300] or type(error).__name__
            warnings.warn(f"{type(listener).__name__} failed, and the run continues without it: {what}", stacklevel=2)
