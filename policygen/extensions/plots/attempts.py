"""The family tree of the attempts of a run with lineages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from policygen.extensions.plots.style import OKABE_ITO, new_figure, style
from policygen.runs.attempt import Attempt, best_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 80  # a larger tree shows only attempts that were revised or became the best
_ROW, _STEP, _LABEL = 0.25, 0.42, 2.7  # inches: height of a row, width of a generation, room for a label
_COLORS = OKABE_ITO[:6]  # those that are visible as thin lines on white


def family_figure(attempts: Sequence[Attempt]) -> Figure | None:
    """Draw the attempts of a run, each in a row below the attempt that it revises; None without lineages."""
    if not (rows := _rows(attempts)):
        return None
    best, place = best_of(attempts), {attempt.number: (depth, row) for row, (attempt, depth) in enumerate(rows)}
    usual = min((attempt.score.episodes for attempt, _ in rows if attempt.score is not None), default=0)
    colors = {number: _COLORS[i % len(_COLORS)] for i, number in enumerate({a.lineage: 0 for a, _ in rows})}
    deepest = max(depth for _, depth in rows)
    with style():
        width = min(8.0, _LABEL + _STEP * deepest)
        step = (width - _LABEL) / max(1, deepest)
        figure = new_figure(width, _ROW * (len(rows) + 1))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), frameon=False, xticks=[], yticks=[])
        axes.set(xlim=(-0.2, width - 0.2), ylim=(len(rows), -1))
        for row, (attempt, depth) in enumerate(rows):
            score, color = attempt.score, colors[attempt.lineage]
            if attempt.parent in place:
                above, top = place[attempt.parent]
                axes.plot([step * above] * 2 + [step * depth], [top, row, row], color=color, linewidth=1.2, zorder=1)
            look: dict[str, Any] = {"marker": "o", "markersize": 7} if score is not None else {"marker": "x", "mew": 2}
            look |= {} if attempt.accepted else {"markerfacecolor": "white"}
            look |= {"marker": "*", "markersize": 14} if attempt is best else {}
            axes.plot(step * depth, row, color=color, **look)
            words = f"{attempt.number}: no score"
            if score is not None:  # a score on more episodes than usual is not comparable with the others
                more = f" on {score.episodes} episodes" * (score.episodes != usual)
                words = f"{attempt.number}: {score.prefix}{score.value:.5g}{more}{', best' * (attempt is best)}"
            weight = "bold" if attempt is best else "normal"
            axes.text(step * depth + 0.16, row, words, va="center", fontsize=9, fontweight=weight)
        return figure


def _rows(attempts: Sequence[Attempt]) -> list[tuple[Attempt, int]]:
    """Return the attempts of all lineages, each with its generation (0: without a parent), parents before children."""
    shown = [attempt for attempt in attempts if attempt.lineage]
    if len(shown) > MOST_ROWS:
        revised = {attempt.parent for attempt in shown}
        shown = [attempt for attempt in shown if attempt.accepted or attempt.number in revised]
    children: dict[int | None, list[Attempt]] = {}
    for attempt in reversed(shown):
        if attempt.parent is None or attempt.parent < attempt.number:  # else the log is damaged
            children.setdefault(attempt.parent, []).append(attempt)
    rows, waiting = [], [(attempt, 0) for attempt in children.get(None, [])]
    while waiting:
        attempt, depth = waiting.pop()
        rows.append((attempt, depth))
        waiting += [(child, depth + 1) for child in children.get(attempt.number, [])]
    return rows[: 5 * MOST_ROWS]
