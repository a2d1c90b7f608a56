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

ActionKind = Literal["discrete", "multidiscrete", "box"]


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

    A `Discrete` action space has one actuator, a `MultiDiscrete` one a choice per entry, a `Box` a number per entry.
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
        TaskError: the space holds something that is not a number (text, graphs, sequences).
    """
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            low = int(space.start)
            return [Observation(prefix or "state", low=low, high=low + int(space.n) - 1, integer=True)]
        case spaces.Box():
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


def _numbered(prefix: str, index: int) -> str:
    return f"{prefix}_{index}" if prefix else f"obs{index}"


def flatten(layout: Layout | None, observation: Any) -> npt.NDArray[Any]:
    """One observation of the environment, nested as `layout` says, as a row of numbers of shape (d,)."""
    if layout is None:
        return np.ravel(np.asarray(observation))
    values = observation if layout.keys is None else [observation[key] for key in layout.keys]
    return np.concatenate([flatten(part, value) for part, value in zip(layout.parts, values, strict=True)])


def actuators_of(space: spaces.Space[Any]) -> tuple[ActionKind, tuple[Actuator, ...]]:
    """What an action of `space` consists of.

    Raises:
        TaskError: it is not Discrete, MultiDiscrete or a bounded, one-dimensional Box.
    """
    from gymnasium import spaces

    match space:
        case spaces.Discrete() if not int(space.start):
            return "discrete", (Actuator("action", tuple(map(str, range(int(space.n))))),)
        case spaces.MultiDiscrete() if space.nvec.ndim == 1 and not np.any(space.start):
            counts = [int(n) for n in space.nvec]
            return "multidiscrete", tuple(
                Actuator(f"action{i}", tuple(map(str, range(n)))) for i, n in enumerate(counts)
            )
        case spaces.Discrete() | spaces.MultiDiscrete():
            raise TaskError("actions must be counted from 0 and lie in one row; wrap the environment")
        case spaces.Box() if len(space.shape) == 1:
            bounds = list(zip(space.low.tolist(), space.high.tolist(), strict=True))
            if not np.all(np.isfinite(bounds)):
                raise TaskError(
                    "the action space has no bounds; wrap the environment with RescaleAction or a clipped one"
                )
            names = ["action"] if len(bounds) == 1 else [f"action{i}" for i in range(len(bounds))]
            return "box", tuple(
                Actuator(name, low=low, high=high) for name, (low, high) in zip(names, bounds, strict=True)
            )
    raise TaskError(f"actions of type {type(space).__name__} are not supported; use Discrete, MultiDiscrete or Box")


def slug(text: object) -> str:
    """`text` as a name of the policy language: lower case, at most 40 characters."""
    name = re.sub(r"[^a-z0-9]+", "_", str(text).lower()).strip("_")[:40].strip("_")
    return f"q_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name
