"""What all pictures share: their colours, their look, and how they become files.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; nothing is told by colour alone. Heavy
libraries are imported where they are used, so that importing a module of pictures costs nothing.
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
    "text.parse_math": False,  # a dollar sign in a name is one, and nothing here is a formula
    "svg.hashsalt": "policygen",  # the same picture is the same file
}


def check_suffix(path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Refuse a file name that does not say one of the `formats`, before anything is read or drawn.

    Raises:
        UsageError: it does not, or see `check_name`.
    """
    check_name(path)
    if path.suffix.lower().removeprefix(".") not in formats:
        raise UsageError(f"cannot write {path.name}: end the name in {', '.join('.' + f for f in formats)}")


def save(figure: Figure, path: Path, write: Callable[[Path, bytes], None] = write_named) -> Path:
    """Write a figure in the format that the name says; returns the path.

    Args:
        write: `write_atomically` in a run folder, where no pipe and no device is written into.

    Raises:
        LogbookError: it cannot be written.
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
    """Our look whatever the user's matplotlibrc says, and theirs again afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield
