"""Progress and learning curve of a run in a Jupyter notebook."""

from __future__ import annotations

import time
from pathlib import Path

from policygen.extensions.page.render import curve_picture
from policygen.outgoing import as_html
from policygen.progress import progress_rows
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.search.run import Run


class NotebookProgress(Listener):
    """Shows the progress of a run below its cell, in a table that is updated."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._done: list[Attempt] = []
        self._start_time = self._shown = time.monotonic()

    def started(self, run: RunView) -> None:
        """Show the table for the first time."""
        self._show(None, first=True)

    def attempted(self, attempt: Attempt) -> None:
        """Show the attempt in the row `last`."""
        self._done.append(attempt)
        self._show(None)

    def doing(self, activity: Activity | None) -> None:
        """Show an activity, at most four times a second."""
        if time.monotonic() - self._shown > 0.25:  # tuning reports its progress much more often
            self._show(activity)

    def ended(self) -> None:
        """Show the table for the last time."""
        self._show(None)

    def _show(self, activity: Activity | None, *, first: bool = False) -> None:
        from IPython.display import display  # exists only where a notebook runs

        self._shown = time.monotonic()
        rows = progress_rows(self._run, self._done, self._shown - self._start_time, activity)
        cells = [f"<tr><th>{name}</th><td style='text-align: left'>{as_html(text)}</td></tr>" for name, text in rows]
        content = {"text/html": f"<table>{''.join(cells)}</table>", "text/plain": "\n".join(map("  ".join, rows))}
        # The metadata let tools remove this output from a stored notebook.
        where = {"display_id": f"policygen-{id(self)}", "update": not first, "metadata": {"policygen": "progress"}}
        display(content, raw=True, **where)  # type: ignore[no-untyped-call]


def curve_html(folder: Path) -> str:
    """Return the learning curve of a run as an HTML image; empty if the folder has no readable run any more."""
    curve = curve_picture(folder)
    return '<img alt="{alt}" src="{url}" style="max-width: 48em">'.format(**curve) if curve is not None else ""
