"""Colours of actions and amounts, and texts in the cells of a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.extensions.plots.style import OKABE_ITO, Numbers
from policygen.tasks.spaces import Actuator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize

MOST_TEXTS = 2_500  # cells; larger maps have colours only
NO_ACTION = "#e4e4e4"  # cells in which no action is taken


def shades(actuator: Actuator) -> tuple[Colormap, Normalize]:
    """Return a colour for each choice; for numbers two hues around zero if both signs occur, else one scale."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, TwoSlopeNorm

    count = len(actuator.labels)
    if actuator.is_choice:
        few = count <= len(OKABE_ITO)
        colors = OKABE_ITO[:count] if few else matplotlib.colormaps["viridis"](np.linspace(0, 1, count))
        return ListedColormap(colors), BoundaryNorm(np.arange(count + 1) - 0.5, count)
    if actuator.low < 0 < actuator.high:
        return two_hues(), TwoSlopeNorm(0.0, actuator.low, actuator.high)
    return matplotlib.colormaps["viridis"], Normalize(actuator.low, actuator.high)


def two_hues() -> Colormap:
    """Return orange over white to purple, without the nearly black ends."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["PuOr"](np.linspace(0.1, 0.9, 256)))


def write_cells(
    axes: Axes, block: Numbers, texts: npt.NDArray[Any], colors: Colormap, norm: Normalize, *, size: float = 9.0
) -> None:
    """Write a text into each cell, black or white, whichever is readable on its colour."""
    for (row, column), text in np.ndenumerate(texts):
        if not text:
            continue
        if np.isnan(block[row, column]):
            red, green, blue, _ = 1.0, 1.0, 1.0, 1.0
        else:
            red, green, blue, _ = colors(norm(block[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        color = "white" if dark else "black"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, color=color)
