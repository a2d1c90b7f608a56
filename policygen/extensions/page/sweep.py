"""The content of a sweep's page: comparison tables, curves, and every run with its score."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from policygen.errors import LogbookError, PolicygenError
from policygen.extensions.compare.contenders import read_scores
from policygen.extensions.compare.figure import comparison_figure
from policygen.extensions.compare.tables import report_of
from policygen.extensions.page.attempts import score_words
from policygen.extensions.page.pictures import Picture, embedded
from policygen.extensions.plots.reports import Report
from policygen.extensions.sweeps.plan import Cell, cells_of, read_plan
from policygen.llm.prices import dollars
from policygen.runs.logbook import Logbook
from policygen.runs.reading import best_policy
from policygen.runs.records import FinalScore

MOST_POLICIES = 24  # policies that are shown as text


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the sweep: its cell, state and cost, and its final score, which is None without a policy."""

    cell: Cell
    state: str
    final: FinalScore | None = None
    cost: str = ""


@dataclass(frozen=True, slots=True)
class SweepContent:
    """The content of a sweep's page; `report` is None until a run is finished.

    `policies` has the best policy of each task and contender, as text, by its title.
    """

    folder: Path
    title: str
    state: str
    report: Report | None
    curves: Picture | None
    runs: list[RunRow]
    policies: dict[str, str]
    settings: tuple[str, ...]


def read_sweep(folder: Path) -> SweepContent:
    """Read the content of a sweep's page.

    Raises:
        LogbookError: the manifest is damaged.
    """
    plan = read_plan(folder)
    rows = [_row(folder, cell) for cell in cells_of(plan)]
    finished = [row for row in rows if row.state == "finished"]
    count = f"all {len(rows)}" if len(finished) == len(rows) else f"{len(finished)} of {len(rows)}"
    report = curves = None
    if finished:
        with suppress(PolicygenError):  # damaged runs: the list of runs says so
            compared = read_scores([str(folder)])
            report = report_of(compared)
            curves = embedded(comparison_figure(compared), "Curves of all runs")
    task_names = ", ".join(dict.fromkeys(row.cell.entry.task for row in rows))
    policies = _policies(folder, finished)
    return SweepContent(folder, task_names, f"{count} runs are finished", report, curves, rows, policies, plan.settings)


def _row(folder: Path, cell: Cell) -> RunRow:
    own = folder / cell.key
    if not (own / "config.toml").is_file():
        return RunRow(cell, "not begun")
    try:
        summary = Logbook(own).summary()
    except LogbookError:
        return RunRow(cell, "damaged")
    if summary is None:
        return RunRow(cell, "unfinished")
    return RunRow(cell, "finished", summary.final, dollars(summary.usd) if summary.is_language_model else "")


def _policies(folder: Path, finished: list[RunRow]) -> dict[str, str]:
    best: dict[str, tuple[FinalScore, Cell]] = {}
    for row in finished:
        key = row.cell.configuration
        if row.final is not None and (key not in best or row.final.mean > best[key][0].mean):
            best[key] = row.final, row.cell
    found = {}
    for contender, (final, cell) in list(best.items())[:MOST_POLICIES]:
        with suppress(PolicygenError):
            text = best_policy(folder / cell.key).to_text(whole=True)
            found[f"{contender}, seed {cell.seed}: {score_words(final)}"] = text
    return found
