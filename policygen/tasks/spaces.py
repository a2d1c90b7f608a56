"""Named observations and actuators, and the conversion of observations to flat rows."""

# Imports inside functions: a saved policy acts where Gymnasium is not installed.

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.errors import EnvironmentFault, TaskError
from policygen.quantities.operations import columns_for, encoded
from policygen.quantities.text import slug

if TYPE_CHECKING:
    from gymnasium import spaces

MOST_CHARACTERS = 4_000  # characters of an observed text
MOST_SINGLE = 24  # observations that are described one by one; with more, similar ones share a description
LEAST_ALIKE = 4  # observations that share a description
_NAMED = "name a function that returns the wrapped environment: policygen run MODULE:FUNCTION"
_HOW_TO_WRAP = f"wrap the environment in a gymnasium.ObservationWrapper that returns a Box, and {_NAMED}"
HOW_TO_WRAP_ACTIONS = (
    f"wrap the environment in a gymnasium.ActionWrapper whose action_space is one of these, and {_NAMED}"
)

ActionKind = Literal["discrete", "multidiscrete", "box", "mixed"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One number of the flattened observation.

    `derived` names the body (or `joint`) whose force or motion it gives, if it follows from observed positions and
    velocities. `seen` describes its values under random actions; it is empty if the task has prose of its own.
    """

    name: str
    unit: str = ""
    about: str = ""
    low: float = -np.inf
    high: float = np.inf
    integer: bool = False
    derived: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Height:
    """The height of the lowest point of spheres that are fixed to a body of a MuJoCo model.

    `body` is the name or number of the body. A sphere is (x, y, z, radius) in m, in the body's own axes.
    """

    name: str
    body: str | int
    spheres: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class ObservedText:
    """An observed text: `columns` numbers of a row, after all plain numbers (see `policygen.quantities.operations`)."""

    name: str
    about: str = ""
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Actuator:
    """One component of an action: a choice among `labels`, or a number between `low` and `high`.

    A `Discrete` action space has one actuator, a `MultiDiscrete` or `Box` one per entry, a `Tuple` or `Dict` those of
    its parts. `levels` are named values that a table may use instead of numbers.
    """

    name: str
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    levels: tuple[tuple[str, float], ...] = ()
    about: str = ""
    unit: str = ""

    @property
    def is_choice(self) -> bool:
        """Whether it is a choice among labels."""
        return bool(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels of a choice, or the names of the levels of a number."""
        return self.labels or tuple(name for name, _ in self.levels)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a nested observation: of a `Tuple`, or of a `Dict` with its keys.

    A part is a `Layout`, a `TextPart` for a text, or None for a number or an array of any shape.
    """

    parts: tuple[Layout | TextPart | None, ...]
    keys: tuple[str | int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text in a layout, which takes `columns` numbers of a row."""

    columns: int


def layout_of(space: Any) -> Layout | TextPart | None:
    """Return the layout of the observations of `space`: None for one array or number, a `TextPart` for one text.

    Raises:
        TaskError: a text is too long, or a key of a Dict is neither text nor a whole number, as files require.
    """
    parts = getattr(space, "spaces", None)  # of a Dict or a Tuple
    if type(space).__name__ == "Text":
        if space.max_length > MOST_CHARACTERS:
            raise TaskError(
                f"it observes texts of up to {space.max_length:,} characters; the maximum is {MOST_CHARACTERS:,}: "
                "shorten them with a gymnasium.ObservationWrapper"
            )
        bytes_per_character = max((len(c.encode()) for c in space.character_set), default=1)
        return TextPart(columns_for(space.max_length, bytes_per_character))
    if parts is None:
        return None
    if not isinstance(parts, Mapping):
        return Layout(tuple(map(layout_of, parts)))
    if not all(isinstance(key, str | int) for key in parts):
        raise TaskError(f"the keys of a Dict observation must be text or whole numbers; {_HOW_TO_WRAP}")
    return Layout(tuple(map(layout_of, parts.values())), tuple(parts))


def parts_of(space: Any, prefix: str = "", word: str = "part") -> list[tuple[str, Any]] | None:
    """Return name and space of each part of a `Dict` or `Tuple`; None for any other space.

    Parts of a `Dict` are named after their keys, those of a `Tuple` by `word` and number; all names begin with
    `prefix`.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        names = distinct_names(space)
    elif isinstance(space, spaces.Tuple):
        names = [f"{'' if prefix else word}{i}" for i in range(len(space))]
    else:
        return None
    parts = space.values() if isinstance(space, spaces.Dict) else space
    return [(f"{prefix}_{name}" if prefix else name, part) for name, part in zip(names, parts, strict=True)]


def _leaves_of(space: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and space of each part that is not a `Dict` or `Tuple`; the name is empty for `space` itself."""
    parts = parts_of(space, name)
    if parts is None:
        yield name, space
        return
    for inner, part in parts:
        yield from _leaves_of(part, inner)


def alike(observations: Sequence[Observation]) -> list[list[Observation]]:
    """Group many observations: neighbours without a description whose names differ only in their number."""

    def kind(o: Observation) -> Observation:
        is_one = len(observations) <= MOST_SINGLE or o.about
        return o if is_one else replace(o, name=o.name.rstrip("0123456789"))

    groups = [list(group) for _, group in itertools.groupby(observations, kind)]
    return [part for group in groups for part in ([group] if len(group) >= LEAST_ALIKE else [[o] for o in group])]


def span(group: Sequence[Observation]) -> str:
    """Return the name of an observation, or the first and the last name of several."""
    return group[0].name if len(group) == 1 else f"{group[0].name} to {group[-1].name} ({len(group)})"


def distinct_names(keys: Iterable[object]) -> list[str]:
    """Return a distinct name for each key or label; other alphabets are spelled out: theta for θ."""
    names: list[str] = []
    for key in keys:
        spelled = (unicodedata.name(c, "").split(" WITH ")[0].split() if ord(c) > 127 else [c] for c in str(key))
        name = wanted = slug("".join(words[-1] if words else "" for words in spelled))
        count = 1
        while name in names:
            name = f"{wanted}_{(count := count + 1)}"
        names.append(name)
    return names


def check_spaces(env: Any, gym_id: str) -> None:
    """Raise TaskError if an environment lacks an observation or action space."""
    from gymnasium import spaces

    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise TaskError(f"{gym_id} has no {name}: set `self.{name}` to a gymnasium.spaces.Space in `__init__`")


def observed_in(space: spaces.Space[Any]) -> tuple[list[Observation], list[ObservedText]]:
    """Return one `Observation` per number of `space` and one `ObservedText` per text, in the order of `flatten`.

    Raises:
        TaskError: the space holds an image, or something other than numbers and texts, such as a Sequence.
    """
    from gymnasium import spaces

    found, texts = list[Observation](), list[ObservedText]()
    for name, part in _leaves_of(space):
        words = layout_of(part)
        if isinstance(words, TextPart):
            texts.append(ObservedText(name or "text", columns=words.columns))
            continue
        bounds = bounds_of(part)
        if bounds is None:
            raise TaskError(f"observations of type {type(part).__name__} are not supported; {_HOW_TO_WRAP}")
        names = [f"{name}_{i}" if name else f"obs{i}" for i in range(len(bounds))]
        if len(part.shape or ()) > 1:  # of a matrix, with row and column
            names = [f"{name or 'obs'}_{'_'.join(map(str, index))}" for index in np.ndindex(part.shape)]
        if isinstance(part, spaces.Discrete):
            names = [name or "state"]
        if isinstance(part, spaces.Box):
            _refuse_images(part)
            names = [name or "obs"] if len(bounds) == 1 else names
        integer = bool(np.issubdtype(part.dtype, np.integer))
        pairs = zip(names, bounds, strict=True)
        found += [Observation(one, low=float(low), high=float(high), integer=integer) for one, (low, high) in pairs]
    return found, texts


def bounds_of(space: spaces.Space[Any]) -> list[tuple[Any, Any]] | None:
    """Return the lowest and highest value of each number of a space without parts; None if it holds no numbers."""
    from gymnasium import spaces

    match space:
        case spaces.Discrete() | spaces.MultiDiscrete():
            counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).tolist()
            starts = np.ravel(space.start).tolist()
            return [(start, start + count - 1) for start, count in zip(starts, counts, strict=True)]
        case spaces.MultiBinary():
            return [(0, 1)] * int(np.prod(space.shape))
        case spaces.Box():
            return list(zip(np.ravel(space.low).tolist(), np.ravel(space.high).tolist(), strict=True))
    return None


def _refuse_images(space: spaces.Box) -> None:
    """Refuse an image of any dtype and number of channels: a policy of named numbers cannot use its pixels."""
    # An image has three dimensions, two of which are 5 or more; or two that are 8 or more, with grey values.
    second_largest = sorted(space.shape)[-2:][0] if space.shape else 0
    is_grey = (
        len(space.shape) == 2 and (space.low == 0).all() and ((space.high == 1).all() or (space.high == 255).all())
    )
    if (len(space.shape) == 3 and second_largest >= 5) or (is_grey and second_largest >= 8):
        size = " x ".join(map(str, space.shape))
        raise TaskError(
            f"it observes an image ({size}), but a policy reads named numbers: wrap the environment in a "
            f"gymnasium.ObservationWrapper that computes a Box of few numbers from the image, and {_NAMED}"
        )


def flatten(layout: Layout | TextPart | None, observation: Any) -> npt.NDArray[Any]:
    """Flatten one observation, nested as `layout` says, to a row of shape (d,): numbers, then texts.

    Raises:
        TypeError: the observation has something else in place of a text.
        ValueError: a text is longer than its space allows.
    """
    if layout is None:
        return np.ravel(np.asarray(observation))
    found = list(leaves(layout, observation))
    # Texts come last, so that numbers keep the order of their names.
    return np.concatenate(
        [np.ravel(np.asarray(value)) for part, value in found if part is None]
        + [encoded(value, part.columns) for part, value in found if part is not None]
    )


def row_of(layout: Layout | TextPart | None, observation: Any, width: int) -> npt.NDArray[Any]:
    """Flatten an observation; raise EnvironmentFault if it does not have `width` numbers."""
    row = flatten(layout, observation)
    if row.shape != (width,):
        raise EnvironmentFault(
            f"an observation has {np.size(row)} numbers instead of {width}; `reset` has to return (observation, info), "
            "and observations have to fit observation_space"
        )
    return row


def leaves(layout: Layout | TextPart | None, observation: Any = None) -> Iterator[tuple[TextPart | None, Any]]:
    """Yield the innermost parts of a layout (None for numbers, a `TextPart` for a text) with their values, in order."""
    if not isinstance(layout, Layout):
        yield layout, observation
        return
    keys = range(len(layout.parts)) if layout.keys is None else layout.keys
    for part, key in zip(layout.parts, keys, strict=True):
        yield from leaves(part, observation[key] if observation is not None else None)
