"""Gymnasium spaces as named numbers: what an observation row holds and what an action consists of."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.errors import TaskError

if TYPE_CHECKING:  # a policy reads observations where Gymnasium is not installed
    from gymnasium import spaces

ActionKind = Literal["discrete", "multidiscrete", "box", "mixed"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One number of the flattened observation."""

    name: str
    unit: str = ""
    about: str = ""
    low: float = -np.inf
    high: float = np.inf
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Actuator:
    """One component of an action: a choice among `labels`, or a number between `low` and `high`.

    A `Discrete` action space has one actuator, a `MultiDiscrete` one a choice per entry, a `Box` a number per entry;
    Tuples and Dicts have those of their parts, and are called mixed where some are choices and some are numbers.
    `levels` are names a table may use instead of numbers.
    """

    name: str
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    levels: tuple[tuple[str, float], ...] = ()
    about: str = ""

    @property
    def is_choice(self) -> bool:
        """Whether this actuator chooses among labels."""
        return bool(self.labels)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the observations of an environment nest: the parts of a `Tuple`, or of a `Dict` by their keys.

    A part that does not nest further (a number, an array of any shape) is None.
    """

    parts: tuple[Layout | None, ...]
    keys: tuple[str | int, ...] | None = None


def layout_of(space: spaces.Space[Any]) -> Layout | None:
    """How observations of `space` nest; None for a single array or number.

    Raises:
        TaskError: the keys of a Dict are neither text nor whole numbers, which no saved task could say.
    """
    parts = getattr(space, "spaces", None)  # of a Dict or a Tuple
    if parts is None:
        return None
    if not isinstance(parts, Mapping):
        return Layout(tuple(map(layout_of, parts)))
    if not all(isinstance(key, str | int) for key in parts):
        raise TaskError("the keys of a Dict observation must be text or whole numbers; wrap the environment")
    return Layout(tuple(map(layout_of, parts.values())), tuple(parts))


def flat_names(space: spaces.Space[Any], prefix: str = "") -> list[Observation]:
    """One `Observation` per number of `space`, in the order `flatten` uses.

    Raises:
        TaskError: the space holds something that is not a number (text, graphs, sequences), or a picture.
    """
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            low = int(space.start)
            return [Observation(prefix or "state", low=low, high=low + int(space.n) - 1, integer=True)]
        case spaces.Box():
            _refuse_pictures(space)
            lows, highs = np.ravel(space.low), np.ravel(space.high)
            names = [_numbered(prefix, i) for i in range(len(lows))] if len(lows) != 1 else [prefix or "obs"]
            whole = np.issubdtype(space.dtype, np.integer)
            return [
                Observation(name, low=float(low), high=float(high), integer=bool(whole))
                for name, low, high in zip(names, lows, highs, strict=True)
            ]
        case spaces.MultiDiscrete():
            counts = np.ravel(space.nvec)
            return [
                Observation(_numbered(prefix, i), low=0, high=int(n) - 1, integer=True) for i, n in enumerate(counts)
            ]
        case spaces.MultiBinary():
            size = int(np.prod(space.shape))
            return [Observation(_numbered(prefix, i), low=0, high=1, integer=True) for i in range(size)]
        case spaces.Tuple():
            parts = [flat_names(part, f"{prefix}_{i}" if prefix else f"part{i}") for i, part in enumerate(space)]
        case spaces.Dict():
            parts = [flat_names(part, f"{prefix}_{slug(key)}" if prefix else slug(key)) for key, part in space.items()]
        case _:
            raise TaskError(f"observations of type {type(space).__name__} are not supported; wrap the environment")
    return [observation for part in parts for observation in part]


def _refuse_pictures(space: spaces.Box) -> None:
    """A policy of named numbers has no use for pixels, however few they are, and of whatever type."""
    sides = sorted(space.shape)[-2:]
    rows_and_columns = len(space.shape) == 3 and sides[0] >= 5
    brightness = bool((space.low == 0).all() and ((space.high == 1).all() or (space.high == 255).all()))
    if rows_and_columns or (len(space.shape) == 2 and sides[0] >= 8 and brightness):
        size = " x ".join(map(str, space.shape))
        raise TaskError(
            f"it observes a picture ({size}); policygen is for small policies of named numbers: wrap the environment"
        )


def _numbered(prefix: str, index: int) -> str:
    return f"{prefix}_{index}" if prefix else f"obs{index}"


def flatten(layout: Layout | None, observation: Any) -> npt.NDArray[Any]:
    """One observation of the environment, nested as `layout` says, as a row of numbers of shape (d,)."""
    if layout is None:
        return np.ravel(np.asarray(observation))
    values = observation if layout.keys is None else [observation[key] for key in layout.keys]
    return np.concatenate([flatten(part, value) for part, value in zip(layout.parts, values, strict=True)])


def slug(text: object) -> str:
    """`text` as a name of the policy language: lower case, at most 40 characters."""
    name = re.sub(r"[^a-z0-9]+", "_", str(text).lower()).strip("_")[:40].strip("_")
    return f"q_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name
