"""Traces of a policy's memory over an episode, beside its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from policygen.episodes.simulator import Simulator
from policygen.errors import PolicygenError
from policygen.extensions.plots.maps import quantity_label
from policygen.extensions.plots.style import OKABE_ITO
from policygen.policies.policy import Policy
from policygen.quantities.compiled import slot_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.5  # inches that the traces add
MOST_TRACES, MOST_STEPS = 10, 300
SEED = 0  # of the played episode


def traces(policy: Policy) -> tuple[tuple[str, npt.NDArray[np.float64]], ...]:
    """Return name and value at each step of everything a policy remembers, over an episode; NaN before a value exists.

    Raises:
        PolicygenError: the environment cannot be made or played here.
    """
    with Simulator(policy.task) as simulator:
        [episode] = simulator.play(policy, [SEED])
    columns = policy.reader.along(episode.observations[:-1], episode.actions)
    named = dict(zip(policy.reader.names, columns, strict=True))
    return tuple((name, np.asarray(named[slot_of(name)], np.float64)) for name in policy.remembers)


def draw_memory(figure: Figure, policy: Policy) -> None:
    """Widen a finished picture by traces of memory, or by a message if no episode can be played."""
    if not policy.remembers:
        return
    width, height = figure.get_size_inches()
    left = width / (width + WIDTH)
    figure.set_size_inches(width + WIDTH, height)
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.set(rect=(0, 0, left, 1))  # type: ignore[call-arg]
    x, across = left + 1.3 / (width + WIDTH), (WIDTH - 1.5) / (width + WIDTH)
    try:
        shown = traces(policy)
    except PolicygenError as error:
        figure.text(x, 0.5, f"no traces of memory:\n{error}", fontsize=8, wrap=True)
        return
    rows, low, high = min(len(shown), MOST_TRACES), 0.5 / height, 1 - 0.65 / height
    each = (high - low) / rows
    first = None
    for i, (name, values) in enumerate(shown[:rows]):
        axes = figure.add_axes((x, high - (i + 1) * each + 0.12 * each, across, 0.76 * each), sharex=first)
        first = first or axes
        axes.plot(values[:MOST_STEPS], color=OKABE_ITO[0], linewidth=1)
        axes.set_ylabel(quantity_label(policy, name), rotation=0, ha="right", va="center", fontsize=8)
        axes.tick_params(labelsize=7, length=2, labelbottom=i == rows - 1)
        axes.locator_params(axis="y", nbins=3)
        axes.spines[["top", "right"]].set_visible(False)
    steps = len(shown[0][1])
    span = f"step, the first {MOST_STEPS} of {steps}" if steps > MOST_STEPS else "step"
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(span, fontsize=8)
    rest = f" ({len(shown) - rows} more)" if len(shown) > rows else ""
    figure.text(x, 1 - 0.45 / height, f"remembered, in one episode{rest}", fontsize=9)
