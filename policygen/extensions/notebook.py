"""Progress and results of a run, as a Jupyter notebook shows them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from policygen.errors import PolicygenError
from policygen.extensions.page.pictures import picture
from policygen.extensions.plots.curves import runs_figure
from policygen.outgoing import as_html
from policygen.progress import progress_rows
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.search.run import Run

_PAUSE = 0.25  # seconds between updates about one attempt: tuning tells its progress many times a second
MARK = {"policygen": {"progress": True}}  # metadata of the output, so that tools can leave it out of a stored notebook


class NotebookProgress(Listener):
    """Shows the progress of a run below its cell, as one small table that is updated."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._done: list[Attempt] = []
        self._activity: Activity | None = None
        self._handle: Any = None

    def started(self, run: RunView) -> None:
        """Show the table for the first time."""
        from IPython.display import display  # exists only where a notebook runs

        self._start_time = self._updated = time.monotonic()
        self._handle = display(self._content(), raw=True, display_id=True, metadata=MARK)  # type: ignore[no-untyped-call]

    def attempted(self, attempt: Attempt) -> None:
        """Show an attempt as the last one."""
        self._done.append(attempt)
        self._activity = None
        self._update()

    def doing(self, activity: Activity | None) -> None:
        """Show an activity, a few times a second."""
        self._activity = activity
        if time.monotonic() - self._updated > _PAUSE:
            self._update()

    def ended(self) -> None:
        """Show the table for the last time."""
        self._activity = None
        self._update()

    def _update(self) -> None:
        self._updated = time.monotonic()
        self._handle.update(self._content(), raw=True, metadata=MARK)

    def _content(self) -> dict[str, str]:
        rows = progress_rows(self._run, self._done, time.monotonic() - self._start_time, self._activity)
        cells = (
            f"<tr><th>{as_html(name)}</th><td style='text-align: left'>{as_html(text)}</td></tr>" for name, text in rows
        )
        return {
            "text/html": f"<table>{''.join(cells)}</table>",
            "text/plain": "\n".join(f"{name:9}  {text}" for name, text in rows),
        }


def curve_html(folder: Path) -> str:
    """Return the learning curve of a run as an HTML image; empty if the folder has no readable run any more."""
    with suppress(PolicygenError):
        drawn = picture(runs_figure([folder]), "Learning curve")
        return f'<img alt="{drawn.alt}" src="{drawn.wide}" style="max-width: 48em">'
    return ""
