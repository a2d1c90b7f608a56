"""Conversion of action spaces to actuators, and of the values of actuators to actions for `step`."""

# Imports inside functions: a saved policy acts where Gymnasium is not installed.

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError, TaskError
from policygen.tasks.spaces import HOW_TO_WRAP_ACTIONS, ActionKind, Actuator, bounds_of, parts_of

if TYPE_CHECKING:
    from gymnasium import spaces

RESERVED = ("step", "cell", "reward")  # columns of every trace in a prompt


@dataclass(frozen=True, slots=True)
class ActionLayout:
    """The structure of an environment's actions, if they are not simply rows of actuators.

    Attributes:
        kind: `choice` for one choice, `array` for choices or numbers, `parts` for a `Tuple` or `Dict`.
        dtype: numpy dtype of a choice or an array.
        shape: shape of an array.
        start: the first value of each choice; empty if all start at 0.
        parts: the layouts of the parts of a `Tuple` or `Dict`.
        keys: the keys of a `Dict`; otherwise None.
    """

    kind: Literal["choice", "array", "parts"]
    dtype: str = "int64"
    shape: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    parts: tuple[ActionLayout, ...] = ()
    keys: tuple[str | int, ...] | None = None

    @property
    def is_row(self) -> bool:
        """Whether an action is an array with one number per actuator, and numbers are not choices."""
        return self.kind == "array" and len(self.shape) == 1 and np.dtype(self.dtype).kind == "f"

    @property
    def size(self) -> int:
        """Number of actuators."""
        return sum(part.size for part in self.parts) if self.kind == "parts" else int(np.prod(self.shape))


def shaped(layout: ActionLayout, row: npt.ArrayLike) -> Any:
    """Return the environment's action for a row of label indices and numbers, shape (actuators,)."""
    values = np.ravel(np.asarray(row))
    if layout.kind == "parts":
        ends = np.cumsum([part.size for part in layout.parts]).tolist()
        firsts = [0, *ends[:-1]]
        made = [shaped(p, values[i:j]) for p, i, j in zip(layout.parts, firsts, ends, strict=True)]
        return tuple(made) if layout.keys is None else dict(zip(layout.keys, made, strict=True))
    dtype = np.dtype(layout.dtype)
    if dtype.kind in "biu":
        values = np.rint(values).astype(np.int64)
    if layout.start:
        values = values + np.array(layout.start)
    return dtype.type(values[0]) if layout.kind == "choice" else values.astype(dtype).reshape(layout.shape)


@dataclass(frozen=True)
class Limits:
    """The bounds to which decisions are clipped.

    Attributes:
        bounds: for each actuator (low, high, whether it is rounded); a choice is the index of its label.
    """

    bounds: tuple[tuple[float, float, bool], ...]

    @cached_property
    def _columns(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_] | None]:
        low, high, integer = zip(*self.bounds, strict=True)
        return np.array(low, np.float64), np.array(high, np.float64), np.array(integer) if any(integer) else None

    def to_actions(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Clip and round finite numbers in place, shape (n, actuators), and return them as float32."""
        low, high, integer = self._columns
        np.clip(numbers, _each_row(low, numbers), _each_row(high, numbers), out=numbers)
        if integer is not None:
            np.rint(numbers, out=numbers, where=integer)
            numbers += 0.0  # turns -0.0 into 0.0
        return numbers.astype(np.float32, copy=False)

    def to_action(self, numbers: Sequence[float]) -> npt.NDArray[np.float32]:
        """Apply `to_actions` to one action, without the overhead of a batch."""
        inside = [min(max(v, low), high) for v, (low, high, _) in zip(numbers, self.bounds, strict=True)]
        if self._columns[2] is not None:  # `round` rounds halves to even, like `rint`
            inside = [float(round(v)) if integer else v for v, (_, _, integer) in zip(inside, self.bounds, strict=True)]
        return np.array(inside, np.float32)


# For many rows, numpy is ten times faster with arrays of equal shape than when it broadcasts a row of three numbers.
_MANY_ROWS = 4_096


def _each_row(values: npt.NDArray[np.float64], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one number per actuator in the shape that combines fastest with `like`, shape (n, actuators)."""
    one = values.astype(like.dtype)
    if (one == one[0]).all():
        return one[0]  # type: ignore[no-any-return]
    return np.tile(one, (len(like), 1)) if len(like) >= _MANY_ROWS else one


def limits_of(actuators: Sequence[Actuator], layout: ActionLayout | None) -> Limits:
    """Return the limits of these actuators."""
    types = [leaf.dtype for leaf in _leaf_layouts(layout) for _ in range(leaf.size)] if layout is not None else []

    def limits(a: Actuator, dtype: str) -> tuple[float, float, bool]:
        if a.is_choice:
            return 0.0, len(a.labels) - 1.0, True
        if dtype == "float64":  # a float32 must not exceed the bound
            return _float32_within(a.low, 1), _float32_within(a.high, -1), False
        return a.low, a.high, np.dtype(dtype).kind in "biu"

    return Limits(tuple(map(limits, actuators, types or ["float32"] * len(actuators))))


def check_layout(layout: ActionLayout, actuators: int) -> None:
    """Raise PolicyError if no space has this layout, or it has another number of actuators."""
    valid = all(
        re.fullmatch(r"bool|u?int(8|16|32|64)|float(16|32|64)", leaf.dtype)
        and min(leaf.shape, default=1) >= 0
        and len(leaf.start) in (0, leaf.size)
        and (leaf.kind == "array" or not leaf.shape)
        for leaf in _leaf_layouts(layout)
    )
    if not valid or layout.size != actuators:
        raise PolicyError("damaged task: `action_layout` does not fit its actuators")


def _leaf_layouts(layout: ActionLayout) -> list[ActionLayout]:
    if layout.kind != "parts":
        return [layout]
    if layout.keys is not None and len(layout.keys) != len(layout.parts):
        raise PolicyError("damaged task: `action_layout` needs one key for each part")
    return [leaf for part in layout.parts for leaf in _leaf_layouts(part)]


def action_builder(space: spaces.Space[Any]) -> Callable[[Any], Any]:
    """Return a function from a row of actuators to an action with the type, shape and dtype of `space.sample()`."""
    layout, _ = _parts(space, "")
    if layout.kind == "choice" and not layout.start:
        return np.dtype(layout.dtype).type
    return partial(np.array, dtype=layout.dtype) if layout.is_row else partial(shaped, layout)


def random_actions(space: spaces.Space[Any], rng: np.random.Generator) -> Callable[[], Any]:
    """Return a function that draws uniformly random actions of the type, shape and dtype of `space.sample()`.

    They are drawn from `rng`, because the environment may replace its space or use the space's own generator. Numbers
    without bounds are drawn from the range that a task assumes for them (`with_bounds`).
    """
    kind, actuators, layout = actuators_of(space)
    actuators, _ = with_bounds(actuators)
    limits, build = limits_of(actuators, layout), action_builder(space)

    def draw() -> Any:
        numbers = [int(rng.integers(len(a.labels))) if a.is_choice else rng.uniform(a.low, a.high) for a in actuators]
        return build(numbers[0] if kind == "discrete" else limits.to_action(numbers))

    return draw


def actuators_of(
    space: spaces.Space[Any], taken: Sequence[str] = ()
) -> tuple[ActionKind, tuple[Actuator, ...], ActionLayout | None]:
    """Return the kind of an action space, its actuators, and the layout of its actions.

    The layout is None for a `Discrete` or one-row `MultiDiscrete` of int64 that starts at 0, and for a one-row `Box` of
    float32. Everything else is flattened; parts are named after keys, or numbered.

    Args:
        taken: names already in use; a part of a Dict with such a key gets the suffix `_action`.

    Raises:
        TaskError: a part has an unsupported type.
    """
    from gymnasium import spaces

    layout, found = _parts(space, "")
    if not found:
        raise TaskError("the action space has no parts; wrap the environment in a gymnasium.ActionWrapper")
    one_row = len(layout.shape) == 1 and not layout.start
    if isinstance(space, spaces.Discrete) and not layout.start:
        return "discrete", tuple(found), None
    if one_row and isinstance(space, spaces.MultiDiscrete):
        found = [replace(a, name=f"action{i}") for i, a in enumerate(found)]
        if space.dtype == np.int64:
            return "multidiscrete", tuple(found), None
    if one_row and isinstance(space, spaces.Box) and space.dtype == np.float32:
        return "box", tuple(found), None
    names: list[str] = []
    for actuator in found:
        name = actuator.name if actuator.name not in (*taken, *RESERVED) else f"{actuator.name}_action"
        while name in names:
            name = f"{name}_2"
        names.append(name)
    choices = [actuator.is_choice for actuator in found]
    kind: ActionKind = "multidiscrete" if all(choices) else "mixed" if any(choices) else "box"
    return kind, tuple(replace(a, name=name) for a, name in zip(found, names, strict=True)), layout


def _parts(space: spaces.Space[Any], prefix: str) -> tuple[ActionLayout, list[Actuator]]:
    """Return the layout and the actuators of a space; the names of the latter begin with `prefix`."""
    from gymnasium import spaces

    named = parts_of(space, prefix, "action")
    if named is None:
        return _numbers(space, prefix)
    keys = tuple(space) if isinstance(space, spaces.Dict) else None
    if not all(isinstance(key, str | int) for key in keys or ()):
        wrap = "wrap the environment in a gymnasium.ActionWrapper"
        raise TaskError(f"the keys of a Dict action must be text or whole numbers; {wrap}")
    made = [_parts(part, name) for name, part in named]
    parts = tuple(layout for layout, _ in made)
    return ActionLayout("parts", parts=parts, keys=keys), [actuator for _, actuators in made for actuator in actuators]


def _numbers(space: spaces.Space[Any], prefix: str) -> tuple[ActionLayout, list[Actuator]]:
    """Return the layout of a space without parts, and an actuator for each of its numbers."""
    from gymnasium import spaces

    bounds = bounds_of(space)
    if bounds is None:
        raise TaskError(
            f"actions of type {type(space).__name__} are not supported; use Discrete, MultiDiscrete, MultiBinary "
            f"or Box, or a Tuple or Dict of these: {HOW_TO_WRAP_ACTIONS}"
        )
    names = [f"{prefix}_{i}" if prefix else f"action{i}" for i in range(len(bounds))]
    if len(bounds) == 1:
        names = [prefix or "action"]
    layout = ActionLayout(
        "choice" if isinstance(space, spaces.Discrete) else "array", str(space.dtype), space.shape or ()
    )
    integer = np.issubdtype(space.dtype, np.integer)
    if isinstance(space, spaces.Box) and (not integer or any(high - low >= _MOST_LABELS for low, high in bounds)):
        if integer:
            bounds = [(_float32_within(low, 1), _float32_within(high, -1)) for low, high in bounds]
        return layout, [Actuator(name, low=low, high=high) for name, (low, high) in zip(names, bounds, strict=True)]
    count = sum(high - low + 1 for low, high in bounds)
    if count > _MOST_CHOICES:
        raise TaskError(
            f"an action is chosen among {count:,} values; the maximum is {_MOST_CHOICES:,}: "
            "if they are the steps of a number, wrap the environment in a gymnasium.ActionWrapper that takes a Box and "
            "rounds it; otherwise in one that takes fewer choices"
        )
    starts = tuple(low for low, _ in bounds)
    labels = [tuple(str(i) if i >= 0 else f"minus{-i}" for i in range(low, high + 1)) for low, high in bounds]
    layout = replace(layout, start=starts if any(starts) else ())
    return layout, [Actuator(name, own) for name, own in zip(names, labels, strict=True)]


_MOST_CHOICES = 2_000  # labels of an action in all; policies have a line for each
_MOST_LABELS = 20  # labels of an integer in a Box; with more values, it is a number
_UNBOUNDED = 1e30  # a larger bound, such as the largest float, is none


def with_bounds(actuators: Sequence[Actuator]) -> tuple[tuple[Actuator, ...], list[str]]:
    """Replace missing bounds of actuators, usually with -1 and 1; return all actuators, and a sentence per change."""
    found, assumed = [], []
    for a in actuators:
        low, high = (None if abs(bound) > _UNBOUNDED else bound for bound in (a.low, a.high))
        if low is None or high is None:
            low = low if low is not None else min(-1.0, -1.0 if high is None else high - 1)
            high = high if high is not None else max(1.0, low + 1)
            assumed.append(
                f"{a.name} goes from {low:g} to {high:g}, because the environment states no bounds; give its `low` "
                "and `high` in a task file (policygen new)"
            )
        found.append(replace(a, low=low, high=high))
    return tuple(found), assumed


def _float32_within(bound: float, inwards: int) -> float:
    """Return the nearest float32 within a bound; `inwards` is 1 for a lower bound, -1 for an upper one."""
    value = np.float32(bound)
    while (float(value) > bound) if inwards < 0 else (float(value) < bound):
        value = np.nextafter(value, np.float32(inwards * np.inf))
    return float(value)
