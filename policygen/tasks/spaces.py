"""Gymnasium spaces as named numbers: the entries of an observation row and of an action."""

# Imports inside functions: a saved policy acts where Gymnasium is not installed.

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.errors import TaskError
from policygen.quantities.words import columns_for, encoded

if TYPE_CHECKING:
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
class ObservedText:
    """An observed text; it takes `columns` of a row, after the numbers (see `policygen.quantities.words`)."""

    name: str
    about: str = ""
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Actuator:
    """One component of an action: a choice among `labels`, or a number between `low` and `high`.

    A `Discrete` action space has one actuator, a `MultiDiscrete` a choice per entry, a `Box` a number per entry.
    Tuples and Dicts have those of their parts, and are mixed if these include both choices and numbers.
    `levels` are names that a table may use instead of numbers.
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
        """Whether this actuator chooses among labels."""
        return bool(self.labels)


@dataclass(frozen=True, slots=True)
class Layout:
    """The nesting of an environment's observations: the parts of a `Tuple`, or of a `Dict` by their keys.

    A part that does not nest further (a number, an array of any shape) is None; a text is `Words`.
    """

    parts: tuple[Layout | Words | None, ...]
    keys: tuple[str | int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """A text within a layout, and the number of columns of a row that it takes."""

    columns: int


MOST_CHARACTERS = 4_000  # of an observed text


def layout_of(space: spaces.Space[Any]) -> Layout | Words | None:
    """Return the nesting of observations of `space`; None for a single array or number.

    Raises:
        TaskError: the keys of a Dict are neither texts nor integers, which a saved task could not hold, or a text may
            be too long.
    """
    parts = getattr(space, "spaces", None)  # of a Dict or a Tuple
    if parts is None:
        return Words(_columns(space)) if type(space).__name__ == "Text" else None
    if not isinstance(parts, Mapping):
        return Layout(tuple(map(layout_of, parts)))
    if not all(isinstance(key, str | int) for key in parts):
        raise TaskError("the keys of a Dict observation must be text or whole numbers; wrap the environment")
    return Layout(tuple(map(layout_of, parts.values())), tuple(parts))


def _columns(space: Any) -> int:
    if space.max_length > MOST_CHARACTERS:
        raise TaskError(
            f"it observes texts of up to {space.max_length:,} characters; the most is {MOST_CHARACTERS:,}: "
            "wrap the environment"
        )
    return columns_for(space.max_length, max((len(c.encode()) for c in space.character_set), default=1))


def _parts_of(space: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts of a space that do not nest further, with their names; the name of a space alone is empty."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        named = [(slug(key), part) for key, part in space.items()]
    elif isinstance(space, spaces.Tuple):
        named = [(f"{i}" if prefix else f"part{i}", part) for i, part in enumerate(space)]
    else:
        yield prefix, space
        return
    for name, part in named:
        yield from _parts_of(part, f"{prefix}_{name}" if prefix else name)


def texts_of(space: spaces.Space[Any]) -> list[ObservedText]:
    """Return one `ObservedText` per text of `space`, in the order of `flatten`."""
    found = ((name, layout_of(part)) for name, part in _parts_of(space))
    return [ObservedText(name or "text", columns=words.columns) for name, words in found if isinstance(words, Words)]


def check_spaces(env: Any, gym_id: str) -> None:
    """Refuse an environment without an observation or action space.

    Raises:
        TaskError: it lacks one of the two spaces.
    """
    from gymnasium import spaces

    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise TaskError(
                f"{gym_id} has no {name}: set `self.{name}` to a space of gymnasium.spaces where it is made (__init__)"
            )


def flat_names(space: spaces.Space[Any]) -> list[Observation]:
    """Return one `Observation` per number of `space`, in the order of `flatten`; `texts_of` returns the texts.

    Raises:
        TaskError: the space holds a picture, or something that is neither number nor text (graphs, sequences).
    """
    return [observation for name, part in _parts_of(space) for observation in _numbers_of(part, name)]


def _numbers_of(space: spaces.Space[Any], name: str) -> list[Observation]:
    """Return one `Observation` per number of a space that does not nest further."""
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            low = int(space.start)
            return [Observation(name or "state", low=low, high=low + int(space.n) - 1, integer=True)]
        case spaces.Box():
            _refuse_pictures(space)
            bounds = list(zip(np.ravel(space.low).tolist(), np.ravel(space.high).tolist(), strict=True))
            names = [name or "obs"] if len(bounds) == 1 else [_numbered(name, i) for i in range(len(bounds))]
            whole = bool(np.issubdtype(space.dtype, np.integer))
            pairs = zip(names, bounds, strict=True)
            return [Observation(one, low=float(low), high=float(high), integer=whole) for one, (low, high) in pairs]
        case spaces.MultiDiscrete():
            highest = [int(n) - 1 for n in np.ravel(space.nvec)]
        case spaces.MultiBinary():
            highest = [1] * int(np.prod(space.shape))
        case spaces.Text():
            return []
        case _:
            raise TaskError(f"observations of type {type(space).__name__} are not supported; wrap the environment")
    return [Observation(_numbered(name, i), low=0, high=high, integer=True) for i, high in enumerate(highest)]


def _refuse_pictures(space: spaces.Box) -> None:
    """Refuse pixels of any type and number: a policy of named numbers cannot use them."""
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


def flatten(layout: Layout | Words | None, observation: Any) -> npt.NDArray[Any]:
    """Flatten one observation, nested as `layout` says, to a row of shape (d,): numbers, then texts.

    Raises:
        TypeError: a text is expected and something else found.
        ValueError: a text is longer than its space allows.
    """
    if layout is None:
        return np.ravel(np.asarray(observation))
    found = list(_leaves(layout, observation))
    # Texts come last, so that numbers keep the order of their names.
    return np.concatenate(
        [np.ravel(np.asarray(value)) for part, value in found if part is None]
        + [encoded(value, part.columns) for part, value in found if part is not None]
    )


def leaves(layout: Layout | Words | None) -> Iterator[Words | None]:
    """Yield the parts of a layout that do not nest further, in order: numbers are None."""
    if not isinstance(layout, Layout):
        yield layout
        return
    for part in layout.parts:
        yield from leaves(part)


def _leaves(layout: Layout | Words | None, observation: Any) -> Iterator[tuple[Words | None, Any]]:
    if not isinstance(layout, Layout):
        yield layout, observation
        return
    values = observation if layout.keys is None else [observation[key] for key in layout.keys]
    for part, value in zip(layout.parts, values, strict=True):
        yield from _leaves(part, value)


def slug(text: object) -> str:
    """Convert `text` to a name of the policy language: lower case, at most 40 characters."""
    name = re.sub(r"[^a-z0-9]+", "_", str(text).lower()).strip("_")[:40].strip("_")
    return f"q_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name
