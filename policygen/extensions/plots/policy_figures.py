"""Pictures of policies: maps of a table's actions, contributions of a linear policy's terms."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.plots import maps
from policygen.extensions.plots.gains import effects
from policygen.extensions.plots.played import add_beside, play_episodes
from policygen.extensions.plots.style import (
    MOST_TEXTS,
    NO_ACTION,
    OKABE_ITO,
    Numbers,
    check_suffix,
    new_figure,
    save,
    shades,
    style,
    two_hues,
    write_cells,
)
from policygen.policies.linear import LinearPolicy
from policygen.policies.normalise import is_definition
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import to_text
from policygen.quantities.tree import read_by
from policygen.tasks.spaces import Actuator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

ROOM = (10.0, 7.5)  # inches: largest width and height of the cells of one actuator
MOST_PER_LINE, MOST_LINES = 6, 6  # facets in a line, and lines
MOST_IN_STRIP = 25  # cells; a single dimension with more is folded into rows
CHARACTERS_PER_INCH, LINE = 12, 0.16  # of the definitions below a picture: characters, and height of a line in inches
MOST_TERMS = 40
LONGEST_TERM = 48  # characters
LONGEST_OUTPUT = 8  # characters of an output's name that fits horizontally below its column


def plot_policy(policy: Policy, path: str | Path) -> Path:
    """Draw a policy into `path`: a map of a table's actions, or the contributions of a linear policy's terms.

    Beside it, a map shows the actions over the one or two quantities that determine them or, for equations, that matter
    most. For a policy with memory, traces show its memory over an episode.

    Raises:
        UsageError: the suffix is unknown, or this kind of policy has no picture.
        LogbookError: `path` cannot be written.
    """
    check_suffix(Path(path))
    return save(policy_figure(policy), Path(path))


def policy_figure(policy: Policy, *, alone: bool = True) -> Figure:
    """Build the figure that `plot_policy` saves; see there for contents and errors.

    Unless `alone`, it lacks the definitions of features and the map of the actions, which a page shows elsewhere.
    """
    with style():
        if isinstance(policy, LinearPolicy):
            episodes, why = play_episodes(policy)
            figure = _linear_figure(policy, episodes)
        elif isinstance(policy, TablePolicy):
            episodes, why = play_episodes(policy) if policy.reader.needed or policy.remembers else ([], "")
            figure = _table_figure(policy)
        else:
            raise UsageError(f"there is no picture of a {policy.kind} policy")
        # Definitions of the features in use are a strip below the picture, which keeps its size.
        across = int(figure.get_figwidth() * CHARACTERS_PER_INCH)
        needed = [f"{name} = {to_text(node)}" for name, node in policy.reader.needed] if alone else []
        lines = [line for text in needed for line in textwrap.wrap(text, across, subsequent_indent="    ")]
        if lines:
            figure.set_figheight(figure.get_figheight() + LINE * len(lines) + 0.1)
            figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=9, family="monospace")
        add_beside(figure, policy, episodes, why, with_map=alone)
        return figure


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facet:
    """One map of a picture: the index of its cells in an array of the grid's shape, and its labels."""

    index: tuple[Any, ...]
    above: str = ""
    beside: str = ""


@dataclass(frozen=True)
class _View:
    """The drawn part of a table and its layout, the same for each actuator."""

    facets: tuple[_Facet, ...]  # in reading order, `per_line` in each line
    per_line: int
    down: Dimension | None  # the dimensions of a facet; `down` is None for a table of one dimension
    across: Dimension
    shape: tuple[int, int]  # rows and columns of cells in a facet; a long single dimension is folded into rows
    cell: tuple[float, float]  # width and height of a cell, in inches
    notes: tuple[str, ...]  # remarks about omitted parts, one line each
    marked: Mapping[int, maps.Letter]  # the symbols of cells in which no action is ever taken, by cell number

    @property
    def lines(self) -> int:
        """Number of lines of facets."""
        return math.ceil(len(self.facets) / self.per_line)

    @property
    def panel(self) -> tuple[float, float]:
        """Width and height of a facet, in inches."""
        return self.cell[0] * self.shape[1], self.cell[1] * self.shape[0]


def _view(policy: TablePolicy) -> _View:
    """Choose the part to draw: all dimensions or, of more than four, the four along which the actions change most."""
    dimensions = policy.grid.dimensions
    shown = sorted(sorted(range(len(dimensions)), key=lambda i: -_splits(policy, i))[:4])
    held = {i: d.bins // 2 for i, d in enumerate(dimensions) if i not in shown}
    notes = [f"{_in_words(policy, i, at).replace(': ', ' held at ', 1)}" for i, at in held.items()]
    outer, inner = shown[:-2], shown[-2:]
    limits = (MOST_LINES, MOST_PER_LINE) if len(outer) == 2 else (MOST_LINES * MOST_PER_LINE,)
    chosen = []
    for i, most in zip(outer, limits, strict=False):
        count = dimensions[i].bins
        chosen.append(np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist())
        if count > most:
            notes.append(f"{most} of {count} bins of {dimensions[i].name} are shown")
    if len(outer) == 2 and not dimensions[outer[0]].has_integer_bins:
        chosen[0].reverse()  # like the rows of a facet: quantities grow upwards
    facets = []
    for bins in itertools.product(*chosen):
        at = {**held, **dict(zip(outer, bins, strict=True))}
        index = tuple(at.get(i, slice(None)) for i in range(len(dimensions)))
        above = _in_words(policy, outer[-1], bins[-1]) if bins and (len(bins) == 1 or bins[0] == chosen[0][0]) else ""
        beside = _in_words(policy, outer[0], bins[0]) if len(bins) == 2 and bins[1] == chosen[1][-1] else ""
        facets.append(_Facet(index, above, beside))
    per_line = len(chosen[-1]) if chosen else 1
    if len(outer) == 1:
        per_line = math.ceil(per_line / math.ceil(per_line / 4))
    down, across = ([None] * (2 - len(inner)) + [dimensions[i] for i in inner])[-2:]
    assert across is not None
    shape = (down.bins, across.bins) if down else (1, across.bins)
    if down is None and across.bins > MOST_IN_STRIP:
        columns = MOST_IN_STRIP * math.ceil(math.sqrt(across.bins) / MOST_IN_STRIP)
        shape = (math.ceil(across.bins / columns), columns)
    lines = math.ceil(len(facets) / per_line)
    side = min(0.6, ROOM[0] / (shape[1] * per_line), ROOM[1] / (shape[0] * lines))
    # Small tables get room for their labels.
    cell = max(side, 3.0 / (shape[1] * per_line)), max(side, (2.5 if down else 0.5) / (shape[0] * lines))
    return _View(tuple(facets), per_line, down, across, shape, cell, tuple(notes), maps.marks(policy))


def _splits(policy: TablePolicy, axis: int) -> float:
    """Return the share of lines along an axis of the grid that hold more than one action."""
    lines = [np.moveaxis(actions, axis, 0) for _, actions in maps.action_grids(policy)]
    return float(np.any([(line != line[:1]).any(axis=0) for line in lines], axis=0).mean())


def _in_words(policy: TablePolicy, axis: int, index: int) -> str:
    dimension = policy.grid.dimensions[axis]
    return f"{maps.quantity_label(policy, dimension.name)}: {dimension.label(index)}"


def _table_figure(policy: TablePolicy) -> Figure:
    view = _view(policy)
    grids = maps.action_grids(policy)
    width, height = view.panel[0] * view.per_line + 2.0, (view.panel[1] + 0.2) * view.lines + 1.5
    figure = new_figure(max(width, 5.5), height * len(grids) + 0.3)
    title = f"{policy.task.name}: table policy over {', '.join(policy.grid.names)}"
    lines = [line for text in (title, *view.notes) for line in textwrap.wrap(text, int(11 * figure.get_figwidth()))]
    figure.suptitle("\n".join(lines), fontsize=11)
    parts = figure.subfigures(len(grids), 1, squeeze=False).ravel()
    for part, (actuator, actions) in zip(parts, grids, strict=True):
        _draw_table(part, policy, view, actuator, actions)
    return figure


def _draw_table(part: SubFigure, policy: TablePolicy, view: _View, actuator: Actuator, actions: Numbers) -> None:
    letters = maps.alphabet(actuator, actions)
    texts = maps.cell_texts(actions, letters, view.marked)
    actions = actions.copy()
    actions.ravel()[list(view.marked)] = np.nan  # no action is ever taken there, so no colour
    colors, norm = shades(actuator)
    longest = max(map(len, texts.ravel().tolist()))
    fits = view.cell[0] >= 0.1 + 0.08 * longest and view.cell[1] >= 0.17
    written = fits and len(view.facets) * math.prod(view.shape) <= MOST_TEXTS
    places = part.subplots(view.lines, view.per_line, sharex=True, sharey=True, squeeze=False)
    for axes in places.ravel()[len(view.facets) :]:
        axes.set_visible(False)
    for axes, facet in zip(places.ravel(), view.facets, strict=False):
        block = _folded(actions[facet.index], view.shape, np.nan)
        axes.pcolormesh(block, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5 if min(view.cell) > 0.1 else 0)
        if written:
            size = min(16.0, max(8.0, 25 * min(view.cell[1], view.cell[0] / longest)))
            write_cells(axes, block, _folded(texts[facet.index], view.shape, ""), colors, norm, size=size)
        axes.set_title(_broken(facet.above, view.panel[0]), fontsize=9)
        beside = _broken(facet.beside, view.panel[1])
        axes.annotate(beside, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center", fontsize=9)
        axes.tick_params(length=2.5, labelsize=8)
        axes.spines[:].set_visible(False)
        axes.set_facecolor(NO_ACTION if view.marked else "white")
    first = places[0, 0]
    folded = view.down is None and view.shape[0] > 1
    _bin_ticks(places, "x", None if folded else view.across, view.shape[1], view.panel[0])
    if folded:
        first.set_yticks(np.arange(view.shape[0]) + 0.5, [str(row * view.shape[1]) for row in range(view.shape[0])])
    elif view.down is None:
        first.set_yticks([])
    else:
        _bin_ticks(places, "y", view.down, view.shape[0], view.panel[1])
        part.supylabel(maps.quantity_label(policy, view.down.name), fontsize=10)
    if view.down is None or view.down.has_integer_bins:
        first.invert_yaxis()  # folded rows and whole numbers go downwards, other quantities upwards
    part.supxlabel(
        maps.quantity_label(policy, view.across.name) + (" (number at the left plus number below)" if folded else ""),
        fontsize=10,
    )
    _add_legend(part, places, actuator, [*(letters or ()), *dict.fromkeys(view.marked.values())])


def _broken(text: str, inches: float) -> str:
    """Break the heading of a facet after the name if it is wider than the facet."""
    return text.replace(": ", ":\n", 1) if len(text) > 13 * inches else text


def _folded(block: npt.NDArray[Any], shape: tuple[int, int], fill: Any) -> npt.NDArray[Any]:
    """Fold a block into rows and columns of cells, padded at the end."""
    padded = np.full(math.prod(shape), fill, dtype=block.dtype)
    padded[: block.size] = block.ravel()
    return padded.reshape(shape)


def _bin_ticks(
    places: npt.NDArray[Any], which: Literal["x", "y"], dimension: Dimension | None, count: int, inches: float
) -> None:
    """Label the edges between cells or, for whole numbers, the middle of cells; as many labels as fit."""
    if dimension is None or dimension.has_integer_bins:
        positions, labels = np.arange(count) + 0.5, [str(i) for i in range(count)]
    else:
        positions, labels = np.arange(1.0, count), [f"{edge:.3g}" for edge in dimension.edges]
    high, wide = 0.17, 0.1 + 0.07 * max(map(len, labels), default=0)
    upright = which == "x" and len(labels) * wide > inches
    step = max(1, math.ceil(len(labels) * (wide if which == "x" and not upright else high) / inches))
    first = places[0, 0]
    (first.xaxis if which == "x" else first.yaxis).set_ticks(positions[::step], labels[::step])
    for axes in places.ravel():
        axes.tick_params(axis=which, labelrotation=90 if upright else 0)


def _add_legend(part: SubFigure, places: npt.NDArray[Any], actuator: Actuator, letters: Sequence[maps.Letter]) -> None:
    """Add a legend of the choices or, for numbers, a colour bar with the named levels."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Patch

    colors, norm = shades(actuator)
    if not actuator.is_choice:
        bar = part.colorbar(ScalarMappable(norm, colors), ax=places, label=actuator.name, fraction=0.05, pad=0.02)
        if actuator.levels:
            bar.set_ticks([level for _, level in actuator.levels], labels=[f"{n} ({v:g})" for n, v in actuator.levels])
        return
    handles = [
        Patch(
            color=NO_ACTION if letter.value is None else colors(norm(letter.value)),
            label=" ".join(dict.fromkeys((letter.symbol, letter.name))),
        )
        for letter in letters
    ]
    columns = math.ceil(len(handles) / 20)
    part.legend(handles=handles, loc="outside right upper", title=actuator.name, ncols=columns, alignment="left")


# --- linear policies -------------------------------------------------------------------------------------------------


def _linear_figure(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> Figure:
    """Draw the contributions of all terms to all outputs; without episodes, only the weights.

    If outputs read features, the rows are the observations and remembered values that these read, each with its mean
    slope times its spread.
    """
    names, amounts = maps.weight_rows(policy)
    # The weight of a term that reads a feature does not show the effects of the observations in it.
    features = {name for name, node in policy.reader.needed if not is_definition(name, node)}
    if episodes and any(read_by([term]) & features for term in policy.terms):
        names, amounts = effects(policy, episodes)
        return _bars_or_matrix(
            policy, [maps.quantity_label(policy, name) for name in names], amounts, "slope × spread", ""
        )
    labels = [maps.quantity_label(policy, name) for name in names]
    labels = [label if len(label) <= LONGEST_TERM else f"{label[: LONGEST_TERM - 3]}..." for label in labels]
    meaning, note = "weight", ""
    if episodes:
        meaning = "weight × usual size"
        note = f"\n±: usual size, the mean absolute value over {len(episodes)} episodes"
        values = [policy.term_columns(policy.reader.along(e.observations[:-1], e.actions)) for e in episodes]
        sizes = np.abs(np.concatenate(values, axis=1)).mean(axis=1)
        amounts[:-1] *= sizes[:, None]
        labels = [f"{label}  ±{size:.2g}" for label, size in zip(labels, sizes, strict=False)] + labels[-1:]
    return _bars_or_matrix(policy, labels, amounts, meaning, note)


def _bars_or_matrix(policy: LinearPolicy, labels: Sequence[str], amounts: Numbers, meaning: str, note: str) -> Figure:
    """Draw amounts of shape (labels, outputs): bars for a single output, else a matrix."""
    if len(labels) > MOST_TERMS:
        kept = np.sort(np.argsort(-np.abs(amounts).max(axis=1), kind="stable")[:MOST_TERMS])
        what = {"weight": "weights", "weight × usual size": "contributions"}.get(meaning, "effects")
        note = f"\nthe {MOST_TERMS} largest of {len(labels)} {what}{note}"
        labels, amounts = [labels[i] for i in kept], amounts[kept]
    outputs = [name for name, _ in policy.equations]
    width = 7.5 if len(outputs) == 1 else min(4.0 + 0.9 * len(outputs), 16.0)
    figure = new_figure(width, max(1.3 + 0.3 * len(labels), 2.5))
    figure.suptitle(f"{policy.task.name}: equations{note}", fontsize=11)
    axes, rows = figure.add_subplot(), np.arange(len(labels))
    if len(outputs) == 1:
        colors = np.where(amounts[:, 0] < 0, OKABE_ITO[1], OKABE_ITO[0])
        bars = axes.barh(rows, amounts[:, 0], color=colors, height=0.7)
        axes.bar_label(bars, [f"{amount + 0.0:.4g}" for amount in amounts[:, 0]], padding=3, fontsize=9)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.margins(x=0.15)
        axes.set_yticks(rows, labels)
        axes.set_xlabel(f"{meaning} in {outputs[0]}")
    else:
        _draw_matrix(axes, amounts, outputs, meaning)
        axes.set_yticks(rows + 0.5, labels)
    axes.invert_yaxis()
    return figure


def _draw_matrix(axes: Axes, amounts: Numbers, outputs: Sequence[str], meaning: str) -> None:
    from matplotlib.colors import Normalize

    most = float(np.abs(amounts).max()) or 1.0
    colors, norm = two_hues(), Normalize(-most, most)
    mesh = axes.pcolormesh(amounts, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5)
    if amounts.size <= MOST_TEXTS:
        texts = np.array([f"{amount + 0.0:.3g}" for amount in amounts.ravel()]).reshape(amounts.shape)
        write_cells(axes, amounts, texts, colors, norm)
    axes.figure.colorbar(mesh, ax=axes, label=meaning)
    upright = len(outputs) > 6 or max(map(len, outputs)) > LONGEST_OUTPUT
    axes.set_xticks(np.arange(len(outputs)) + 0.5, outputs, rotation=90 if upright else 0)
    axes.set_xlabel("output")
    axes.spines[:].set_visible(False)
