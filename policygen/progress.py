"""The progress of a run: a live panel on a terminal, a plain line per attempt elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from policygen.episodes.score import number as number_words
from policygen.llm.retry import Wait
from policygen.notices import notices
from policygen.outgoing import shown
from policygen.runs.attempt import Attempt
from policygen.runs.facts import duration, spending
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.runs.notes import UNSTABLE, violations_of
from policygen.search.run import Run


def is_terminal() -> bool:
    """Whether standard output is a terminal, where a `Panel` can be shown."""
    return Console().is_terminal


class Panel(Live):
    """A panel below the printed lines, redrawn `per_second` times a second; `draw` returns its content.

    Only the thread that draws the panel prints lines. If another thread printed one, both would move the cursor up by
    the height of the same previous panel, and parts of that panel would stay on the screen.
    """

    def __init__(self, draw: Callable[[], RenderableType], per_second: float) -> None:
        self._draw, self._lines = draw, deque[Text]()
        console = Console(markup=False, emoji=False, highlight=False)  # `compatible:m:` is not an emoji
        super().__init__(console=console, refresh_per_second=per_second)

    def get_renderable(self) -> RenderableType:
        """Print the waiting lines and return the present content of the panel; rich calls this whenever it draws."""
        while self._lines:
            self.console.print(self._lines.popleft())
        return self._draw()

    def print(self, line: str, *, whole: bool = False) -> None:
        """Print a line above the panel: cut at the width of the terminal or, if `whole`, wrapped."""
        self._lines.append(Text(line) if whole else Text(line, no_wrap=True, overflow="ellipsis"))
        self.refresh()


class Terminal(Listener):
    """A listener that shows each attempt as it is scored: in a panel if standard output is a terminal."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._done: list[Attempt] = []
        self._activity: Activity | None = None
        self._panel: Panel | None = None
        self._told_by: Callable[[str], None] | None = None

    def started(self, run: RunView) -> None:
        """Open the panel."""
        if is_terminal():
            start_time = time.monotonic()
            self._panel = Panel(lambda: _panel(self._run, self._done, time.monotonic() - start_time, self._activity), 4)
            self._panel.start(refresh=True)
            self._told_by, notices.say = notices.say, None  # the panel shows it

    def attempted(self, attempt: Attempt) -> None:
        """Print a line; with a panel, only for random actions and each new best."""
        self._done.append(attempt)
        self._activity = None
        if self._panel is None:
            with contextlib.suppress(BrokenPipeError):  # the reader has closed the pipe; the run continues
                click.echo(attempt_line(self._run, attempt))
        elif attempt.accepted or attempt.number == 0:
            self._panel.print(attempt_line(self._run, attempt))

    def doing(self, activity: Activity | None) -> None:
        """Show an activity in the panel; print pauses, and waits after errors, even without a panel."""
        self._activity = activity
        if isinstance(activity, str) or (isinstance(activity, Wait) and activity.reason):
            self._warn(shown(str(activity)))

    def _warn(self, line: str) -> None:
        if self._panel is None:
            click.echo(line, err=True)
        else:
            self._panel.print(line, whole=True)

    def ended(self) -> None:
        """Close the panel."""
        if self._panel is not None:
            self._panel.stop()
            notices.say = self._told_by


def attempt_line(run: Run, attempt: Attempt) -> str:
    """Describe an attempt in one line, with control characters made visible."""
    line = _result_line(run, attempt)
    if violated := [one for one in violations_of(attempt) if one.violated]:
        line += "; violates " + ", ".join(f"{one.name} in {one.violated}" for one in violated)
        line += f" of {violated[0].episodes} episodes"
    if unstable := UNSTABLE.of(attempt):
        line += f"; the simulation became unstable in {unstable} of {len(attempt.played)} episodes"
    return shown(line)


def _result_line(run: Run, attempt: Attempt) -> str:
    later = "" if attempt.is_asked else f", {'tuned further' if attempt.kind == 'tuning' else attempt.kind}:"
    number = f"attempt {attempt.number}{later}" if later else f"{attempt.number:>3}/{run.config.iterations}"
    if attempt.number == 0:
        if attempt.score is None:
            return f"{number}  random actions: none played"
        return f"{number}  random actions: {attempt.score} (mean return, 95% interval)"
    if (shared := attempt.shared_score) is None:
        problems = attempt.problems[:1] if attempt.failed else ()
        return f"{number}  {': '.join(map(str, (attempt.verdict, *problems)))}"
    untuned = attempt.tuned.proposed_score
    before = f"{number_words(untuned.mean)} before tuning" if untuned is not None else ""
    if untuned is not None and (worst := max(untuned.violations, key=lambda one: one.excess, default=None)):
        before += f", violating {worst.name} in {worst.violated} of {worst.episodes}" * bool(worst.excess)
    score, details = str(shared), [before]
    standing = attempt.standing
    if attempt.accepted and standing.validated_mean is not None:
        held_out = f"on {standing.validated_episodes} held-out episodes"
        score = f"{number_words(standing.validated_mean)} {held_out}"
        details = [f"search score {number_words(shared.mean)} over {shared.episodes} episodes", before]
    beside = f" ({'; '.join(filter(None, details))})" if any(details) else ""
    spent = f"  [so far {words}]" if (words := _spending(run)) else ""
    best = "new best: " * (attempt.accepted and attempt.kind != "simplified")
    return f"{number}  {best}{score}{beside}  ({attempt.verdict}){spent}"


def _spending(run: Run) -> str:
    """Return the number of requests to a language model and their cost; empty if there were none."""
    any_reply = run.llm_calls or run.ledger.cached
    return ", ".join(f"{one.short} {one.name}" for one in spending(run.ledger)) if any_reply else ""


def _panel(run: Run, done: list[Attempt], elapsed: float, activity: Activity | None) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", width=9, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # cut long lines
    table.add_row("done", ProgressBar(total=run.config.iterations, completed=done[-1].number if done else 0, width=60))
    for row in progress_rows(run, done, elapsed, activity)[1:]:
        table.add_row(*row)
    return table


def progress_rows(run: Run, done: list[Attempt], elapsed: float, activity: Activity | None) -> list[tuple[str, str]]:
    """Describe the progress of a run, `elapsed` seconds after its start, in rows of a name and a text."""
    planned, number = run.config.iterations, done[-1].number if done else 0
    best = run.search.best
    rows = {"done": f"{number} of {planned}"}
    rows["best"] = f"attempt {best.number}: {run.search.reported_score}" if best is not None else "none yet"
    rows["last"] = attempt_line(run, done[-1]).strip() if done else "playing random actions"
    if activity is not None:
        rows["now"] = activity_line(activity, time.time())
    spent = _spending(run)
    rows["model" if spent else "proposals"] = run.proposer.introduction + f": {spent}" * bool(spent)
    counted = [attempt for attempt in done if attempt.number > 0]
    left = f", about {duration(elapsed / len(counted) * (max(0, planned - number)))} left" if counted else ""
    rows["time"] = f"{duration(elapsed)}{left}"
    return [(name, shown(text)) for name, text in rows.items()]


def activity_line(activity: Activity, now: float) -> str:
    """Describe an activity in one line; `now` is in seconds since the epoch."""
    if isinstance(activity, Wait):
        left = activity.until - now if activity.until is not None else 0.0
        return f"{activity} ({duration(left)} left)" if left > 0 else str(activity)
    if isinstance(activity, str):
        return activity
    line = f"tuning attempt {activity.number}: {activity.played:,} of {activity.episodes:,} episodes"
    if activity.mean is not None:
        line += f", mean {number_words(activity.mean)} now"
    if activity.played:
        left = (now - activity.since) / activity.played * (activity.episodes - activity.played)
        line += f", at most about {duration(max(0.0, left))} left"
    return line
