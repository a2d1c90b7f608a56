"""Helpers for all plots: style, colours and files.

The colours are those of Okabe and Ito, which colour-blind people can distinguish; curves differ in line style, too.
"""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.errors import UsageError
from policygen.files import check_name, write_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = npt.NDArray[np.float64]

FORMATS = ("png", "svg", "pdf")
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
GREY = "#666666"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")
_RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "figure.dpi": 150,  # also the resolution of PNG files
    "pdf.fonttype": 42,  # TrueType, which journals ask for
    "text.parse_math": False,  # names may contain dollar signs
    "errorbar.capsize": 3,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "svg.hashsalt": "policygen",  # so that the same picture gives the same file
}


def check_suffix(path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Check that a file name ends in one of the `formats`, before anything is read or drawn.

    Raises:
        UsageError: it does not, or `check_name` rejects it.
    """
    check_name(path)
    if path.suffix.lower().removeprefix(".") not in formats:
        raise UsageError(f"cannot write {path.name}: end the name in {', '.join('.' + f for f in formats)}")


def rendered(figure: Figure, kind: str, **options: Any) -> bytes:
    """Return a figure as a `png`, `svg` or `pdf` without a date; `options` are those of `savefig`."""
    content = io.BytesIO()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with style():
        figure.savefig(content, format=kind, metadata=undated, **options)
    return content.getvalue()


def save(figure: Figure, path: Path, write: Callable[[Path, bytes], None] = write_named) -> Path:
    """Write a figure in the format of the file name; return the path.

    Args:
        write: `write_atomically` in a run folder, because `write_named` follows links.

    Raises:
        LogbookError: the file cannot be written.
    """
    write(path, rendered(figure, path.suffix.lower().removeprefix(".")))
    return path


def imported_matplotlib() -> Any:
    """Import and return Matplotlib, even if MPLBACKEND names an unknown backend, at which its import would fail."""
    if "matplotlib" in sys.modules:
        return sys.modules["matplotlib"]
    backend = os.environ.pop("MPLBACKEND", "")
    import matplotlib

    if backend:
        os.environ["MPLBACKEND"] = backend
        with suppress(ValueError):  # our plots need no backend
            matplotlib.rcParams["backend"] = backend
    return matplotlib


@contextmanager
def style(more: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Apply our style, whatever the user's matplotlibrc says, and restore the previous one afterwards.

    Args:
        more: rcParams that extend our style or override parts of it.
    """
    matplotlib = imported_matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC | dict(more or {}))
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches; call it within `style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def curve_style(index: int) -> dict[str, Any]:
    """Return colour, line style and marker of the curve with this index; the first 32 are distinct."""
    count = len(OKABE_ITO)
    line = _LINES[(index + index // count) % len(_LINES)]
    return {"color": OKABE_ITO[index % count], "linestyle": line, "marker": _MARKERS[index % count]}


def with_unit(name: str, unit: str) -> str:
    """Return the label of a quantity with its unit, if any: `angle [rad]`."""
    return f"{name} [{unit}]" if unit else name


def error_bar(mean: float, interval: tuple[float, float] | None) -> list[list[float]] | None:
    """Return how far an interval extends below and above its mean, in the form that `errorbar` takes."""
    # Rounding may put the mean of equal scores outside their interval.
    return [[max(0.0, mean - interval[0])], [max(0.0, interval[1] - mean)]] if interval is not None else None
