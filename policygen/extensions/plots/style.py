"""Colours, style and files of all pictures.

The colours are those of Okabe and Ito, which colour-blind people can distinguish; no meaning depends on colour alone.
Heavy libraries are imported where they are used, so that importing a module of pictures is fast.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "text.parse_math": False,  # names may contain dollar signs
    "svg.hashsalt": "policygen",  # the same picture gives the same file
}


def check_suffix(path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Check that a file name ends in one of the `formats`, before anything is read or drawn.

    Raises:
        UsageError: it ends otherwise, or see `check_name`.
    """
    check_name(path)
    if path.suffix.lower().removeprefix(".") not in formats:
        raise UsageError(f"cannot write {path.name}: end the name in {', '.join('.' + f for f in formats)}")


def save(figure: Figure, path: Path, write: Callable[[Path, bytes], None] = write_named) -> Path:
    """Write a figure in the format of the file name; return the path.

    Args:
        write: `write_atomically` in a run folder, where pipes and devices are never written to.

    Raises:
        LogbookError: the file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with style():
        figure.savefig(content, format=kind, metadata=undated)
    write(path, content.getvalue())
    return path


@contextmanager
def style() -> Iterator[None]:
    """Apply our style whatever the user's matplotlibrc says, and restore theirs afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield
