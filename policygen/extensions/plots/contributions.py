"""Pictures of linear policies: the contribution of each term, its weight times its usual size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.maps import quantity_label, weight_rows
from policygen.extensions.plots.played import usual_sizes
from policygen.extensions.plots.shades import MOST_TEXTS, two_hues, write_cells
from policygen.extensions.plots.style import OKABE_ITO, Numbers
from policygen.policies.linear import LinearPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TERMS = 40
LONGEST_TERM = 48  # characters
LONGEST_LEVEL = 8  # characters of an output name that fits horizontally under its column


@dataclass(frozen=True, slots=True)
class _Shown:
    """The data of the picture.

    Attributes:
        labels: the terms; the last one is the constant.
        amounts: shape (terms, outputs).
        meaning: what an amount measures, for the axis label.
    """

    labels: list[str]
    amounts: Numbers
    meaning: str
    note: str


def linear_figure(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> Figure:
    """Draw the contributions of all terms to all outputs; without episodes, only the weights."""
    from matplotlib.figure import Figure

    shown, outputs = _shown(policy, episodes), [name for name, _ in policy.equations]
    count = len(shown.labels)
    width = 7.5 if len(outputs) == 1 else min(4.0 + 0.9 * len(outputs), 16.0)
    figure = Figure(figsize=(width, max(1.3 + 0.3 * count, 2.5)), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(f"{policy.task.name}: linear policy{shown.note}", fontsize=11)
    rows = np.arange(count)
    if len(outputs) == 1:
        amounts = shown.amounts[:, 0]
        bars = axes.barh(rows, amounts, color=np.where(amounts < 0, OKABE_ITO[1], OKABE_ITO[0]), height=0.7)
        axes.bar_label(bars, [f"{amount + 0.0:.4g}" for amount in amounts], padding=3, fontsize=9)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.margins(x=0.15)
        axes.set_yticks(rows, shown.labels)
        axes.set_xlabel(f"{shown.meaning} in {outputs[0]}")
    else:
        _draw_matrix(figure, axes, shown, outputs)
        axes.set_yticks(rows + 0.5, shown.labels)
    axes.invert_yaxis()
    return figure


def _shown(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> _Shown:
    names, amounts = weight_rows(policy)
    sizes = np.append(usual_sizes(policy, episodes), 1.0) if episodes else np.ones(len(names))
    amounts = amounts * sizes[:, None]
    labels = [quantity_label(policy, name) for name in names]
    labels = [label if len(label) <= LONGEST_TERM else f"{label[: LONGEST_TERM - 3]}..." for label in labels]
    if episodes:
        labels = [f"{label}  ±{size:.2g}" for label, size in zip(labels[:-1], sizes, strict=False)] + labels[-1:]
    meaning = "weight × usual size" if episodes else "weight"
    note = f"\n±: usual size, the mean absolute value over {len(episodes)} episodes" if episodes else ""
    if len(names) > MOST_TERMS:
        kept = np.sort(np.argsort(-np.abs(amounts).max(axis=1), kind="stable")[:MOST_TERMS])
        note = f"\nthe {MOST_TERMS} largest of {len(names)} {'contributions' if episodes else 'weights'}{note}"
        labels, amounts = [labels[i] for i in kept], amounts[kept]
    return _Shown(labels, amounts, meaning, note)


def _draw_matrix(figure: Figure, axes: Axes, shown: _Shown, outputs: Sequence[str]) -> None:
    from matplotlib.colors import Normalize

    amounts = shown.amounts
    most = float(np.abs(amounts).max()) or 1.0
    colors, norm = two_hues(), Normalize(-most, most)
    mesh = axes.pcolormesh(amounts, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5)
    if amounts.size <= MOST_TEXTS:
        texts = np.array([f"{amount + 0.0:.3g}" for amount in amounts.ravel()]).reshape(amounts.shape)
        write_cells(axes, amounts, texts, colors, norm)
    figure.colorbar(mesh, ax=axes, label=shown.meaning)
    axes.set_xticks(
        np.arange(len(outputs)) + 0.5,
        outputs,
        rotation=0 if len(outputs) <= 6 and max(map(len, outputs)) <= LONGEST_LEVEL else 90,
    )
    axes.set_xlabel("output")
    axes.spines[:].set_visible(False)
