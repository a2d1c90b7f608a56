"""A task for any environment: its documentation as it is, bins from warm-up episodes, and a list of assumptions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import find_highest_version, get_env_id

from policygen.errors import TaskError
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import slug, to_digits
from policygen.quantities.words import contains_batch, decoded
from policygen.tasks.actions import RESERVED, actuators_of, describe_layout, with_bounds
from policygen.tasks.documentation import documentation_of, model_facts, step_seconds_of
from policygen.tasks.environments import NAMESPACE, UserEnv, limit_of, make
from policygen.tasks.faults import STEP_TIMEOUT, TimeLimitExceeded, Watchdog, close
from policygen.tasks.spaces import (
    Actuator,
    Observation,
    ObservedText,
    distinct_names,
    layout_of,
    observations_of,
    texts_of,
)
from policygen.tasks.task import DEFAULT_MAX_STEPS, Task
from policygen.tasks.warmup import (
    LONGEST,
    MANY_STEPS,
    SECONDS,
    STILL,
    UNSEEDED,
    copies_of,
    found_limit,
    ignores_seed,
    warm_up,
)

# Attributes in which an environment may state the names of its observations, and of its actions.
_STATED_NAMES = ("observation_names", "obs_names", "state_names", "feature_names", "observation_labels")
_STATED_ACTIONS = ("action_names", "action_labels", "action_meanings", "ACTION_MEANING", "actions", "Actions")
CUT = "episodes are cut at"  # the beginning of the assumption on episodes without a known length
_CELLS_WANTED = 800  # of a grid with bins at quantiles
_MOST_DIMENSIONS = 8  # of a grid
_FEW_VALUES = 12  # of whole numbers
_LARGEST_STATE_SPACE = 2_000  # states of an environment that get one cell each
_MOST_NUMBERS = 400  # in an observation
_MOST_PHRASES = 8  # each has two bins: 256 cells
_WORD = re.compile(r"[a-z]{3,20}")
_RARE = 0.02  # a word is ignored if a smaller share of rows has it, or lacks it
_MOST_CORRELATED = 0.9  # a word is ignored if its correlation with a chosen one is at least this


def task_from_gym(
    gym_id: str, step_timeout: float = STEP_TIMEOUT, kwargs: Mapping[str, Any] | None = None, own: UserEnv | None = None
) -> Task:
    """Make a task for an environment without a task file: its documentation as it is, and bins from warm-up episodes.

    Args:
        step_timeout: limit in seconds on making the environment and on each step.
        kwargs: keyword arguments of the environment.
        own: the user's environment or factory, used instead of `gymnasium.make`.

    Raises:
        TaskError: Gymnasium cannot make the environment, or its spaces are not supported.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    try:
        with Watchdog(step_timeout, lambda: None):
            env = make(gym_id, kwargs or {}) if own is None else own.make(None)
    except TimeLimitExceeded as error:
        raise TaskError(f"{gym_id} cannot be made: {error}") from None
    try:
        task = _discovered(env, gym_id, step_timeout)
    finally:
        close(env, step_timeout)
    return replace(task, kwargs=tuple((kwargs or {}).items()), given=own)


def _discovered(env: gym.Env[Any, Any], gym_id: str, step_timeout: float) -> Task:
    found, texts = _observed(env, gym_id)
    observed = [*(o.name for o in found), *(text.name for text in texts)]
    names = ", ".join(observed[:8]) + ", ..." * (len(observed) > 8)
    assumed = [*_successor(gym_id), f"observations are called {names}"]
    kind, actuators, action_layout = actuators_of(env.action_space, observed)
    if action_layout is not None and not action_layout.is_row:
        assumed.append(describe_layout(action_layout, actuators))
    actuators = _named_actuators(actuators, env, observed)
    bounded, unbounded = with_bounds(actuators)
    actuators = tuple(
        replace(new, about="" if new == old else "the environment states no bounds, these are assumed")
        for new, old in zip(bounded, actuators, strict=True)
    )
    assumed += unbounded
    width, limit = len(found) + sum(text.columns for text in texts), limit_of(env)
    if limit is None:
        limit, played = found_limit(env, width, step_timeout)
        if limit is None:
            assumed.insert(
                0,
                f"{CUT} {DEFAULT_MAX_STEPS:,} steps: the environment sets no limit, and none was found "
                f"in {LONGEST:,} steps or {SECONDS:g} s; state `max_steps` in a task file",
            )
        else:
            assumed.insert(
                0, f"episodes have {limit:,} steps: of {played} played, each that did not end early ended there"
            )
    warm = warm_up(env, width, step_timeout)
    grid, remarks = _fitted_grid(found, warm.rows) if found else (None, [])
    assumed += remarks
    unseeded = ignores_seed(env, found, width, step_timeout, steps=MANY_STEPS)
    assumed += [UNSEEDED] * unseeded
    phrases: dict[str, str] = {}
    if texts:
        rows, binned = warm.rows[:, len(found) :], grid.dimensions if grid is not None else ()
        room = int(math.log2(_LARGEST_STATE_SPACE / (grid.size if grid is not None else 1)))
        phrases = _informative_phrases(texts, rows, [*observed, *(a.name for a in actuators)], min(_MOST_PHRASES, room))
    if phrases:
        grid = Grid((*binned, *(Dimension(name, (0.5,)) for name in phrases)))
        tells = ", ".join(phrases.values())
        assumed.append(f"a table distinguishes texts by words seen in {len(rows):,} steps of random actions: {tells}")
    continuous = kind in ("box", "mixed") or (grid is None or len(grid.dimensions) < len(observed))
    return Task(
        name=slug(gym_id.removeprefix(NAMESPACE).rpartition(":")[2]),
        gym_id=gym_id,
        observations=tuple(warm.told(found)),
        texts=tuple(texts),
        features=tuple(phrases.items()),
        layout=layout_of(env.observation_space),
        action_layout=action_layout,
        actuators=actuators,
        action_space=kind,
        max_steps=limit or DEFAULT_MAX_STEPS,
        grid=grid,
        documentation=documentation_of(env),
        facts=model_facts(env, [a.name for a in actuators]),
        solved=env.spec.reward_threshold if env.spec else None,
        step_seconds=step_seconds_of(env),
        unseeded=unseeded,
        run=(("policy", "linear" if continuous else "table"),),
        assumed=tuple(assumed),
    )


def _observed(env: gym.Env[Any, Any], gym_id: str) -> tuple[list[Observation], list[ObservedText]]:
    found, texts = observations_of(env.observation_space), texts_of(env.observation_space)
    if not (1 <= len(found) <= _MOST_NUMBERS or (texts and not found)):
        raise TaskError(
            f"{gym_id} observes {len(found):,} numbers; policygen is for small policies of 1 to {_MOST_NUMBERS}:"
            " wrap the environment in a gymnasium.ObservationWrapper that returns fewer"
        )
    if not texts and (names := _stated(env, _STATED_NAMES, len(found))):
        found = [replace(o, name=name) for o, name in zip(found, names, strict=True)]
    return found, texts


def _named_actuators(
    actuators: tuple[Actuator, ...], env: gym.Env[Any, Any], taken: Sequence[str]
) -> tuple[Actuator, ...]:
    """Return actuators with the names or labels that the environment states as an attribute, if they are free."""
    one_choice = len(actuators) == 1 and actuators[0].is_choice
    names = _stated(env, _STATED_ACTIONS, len(actuators[0].labels) if one_choice else len(actuators))
    if not names or {*names} & {name.lower() for name in (*taken, *RESERVED)}:
        return actuators
    if one_choice:
        return (replace(actuators[0], labels=tuple(names)),)
    return tuple(replace(a, name=name) for a, name in zip(actuators, names, strict=True))


def _stated(env: gym.Env[Any, Any], attributes: Sequence[str], count: int) -> list[str]:
    """Return the first of an environment's attributes, or values of its metadata, that names `count` things."""
    for attribute in attributes:
        value: Any = None
        with suppress(Exception):  # the environment's own code
            value = getattr(env.unwrapped, attribute, None) or env.metadata.get(attribute)
        if isinstance(value, type) and issubclass(value, Enum):  # numbered from 0
            value = {member.value: name for name, member in value.__members__.items()}
        if isinstance(value, Mapping):
            value = [value.get(i) for i in range(count)] if len(value) == count else None
        if isinstance(value, list | tuple) and len(value) == count and all(isinstance(one, str) for one in value):
            return distinct_names(value)
    return []


def _informative_phrases(
    texts: Sequence[ObservedText], rows: npt.NDArray[np.float64], taken: Sequence[str], most: int
) -> dict[str, str]:
    """Return at most `most` features by name: `contains` of words that tell texts apart.

    Words that nearer to half of the texts have come first; a word that is correlated with an earlier one is left out.

    Args:
        rows: text columns of recorded observations, shape (n, columns of all texts).
        taken: names that features cannot have.
    """
    rows = rows[:: max(1, len(rows) // 1_000)]
    found: list[tuple[float, str, str, npt.NDArray[np.float64]]] = []
    first = 0
    for text in texts:
        columns = rows[:, first : first + text.columns]
        first += text.columns
        words = {word for row in np.unique(columns, axis=0) for word in _WORD.findall(decoded(row).lower())}
        for word in sorted(words):
            has = contains_batch(list(columns.T), word)
            share = float(has.mean())
            if _RARE <= share <= 1 - _RARE:
                name = slug(f"{text.name}_{word}")
                found.append((share * (1 - share), name, f'contains({text.name}, "{word}")', has))
    kept: dict[str, str] = {}
    chosen: list[npt.NDArray[np.float64]] = []
    for _, name, expression, has in sorted(found, key=lambda one: -one[0]):
        unlike = all(abs(float(np.corrcoef(has, other)[0, 1])) < _MOST_CORRELATED for other in chosen)
        if len(kept) < most and name not in (*taken, *kept) and unlike:
            kept[name] = expression
            chosen.append(has)
    return kept


def _successor(gym_id: str) -> list[str]:
    """Return a sentence if Gymnasium has a newer version of the environment, else nothing."""
    name, _, version = gym_id.rpartition("-v")
    namespace, _, name = name.rpartition("/")
    newest = find_highest_version(namespace or None, name)
    if not version.isdigit() or newest is None or newest <= int(version):
        return []
    return [f"{gym_id} is out of date; its successor is {get_env_id(namespace or None, name, newest)}"]


def _fitted_grid(found: Sequence[Observation], rows: npt.NDArray[np.float64]) -> tuple[Grid | None, list[str]]:
    """Return a grid, if any, and remarks: one cell per state if these are few, else bins by quantile or by value.

    Args:
        rows: observations under random actions, shape (steps, columns); texts come after the numbers.
    """
    rows = rows[:, : len(found)]
    values = [_whole_numbers(o, column) for o, column in zip(found, rows.T, strict=True)]
    counts = [high - low + 1 for low, high in values]
    if all(o.integer for o in found) and math.prod(counts) <= _LARGEST_STATE_SPACE:
        grid = Grid(tuple(_one_bin_per_value(o, *range_) for o, range_ in zip(found, values, strict=True)))
        return grid, [f"one table row per state ({grid.size} cells)"]
    # With many quantities, the first ones that move, without copies of others.
    copies = copies_of(rows)
    chosen = [i for i in range(len(found)) if np.ptp(rows[:, i]) > STILL and i not in copies][:_MOST_DIMENSIONS]
    if not chosen:
        return None, ["no observation changed under random actions, so there is no grid"]
    # Whole numbers get one bin per value, those with few values first, as long as the grid stays small enough; there
    # each of the other quantities counts as two bins.
    one_bin_each: list[int] = []
    for most in sorted(counts[i] for i in chosen if counts[i] < math.inf):
        own = [i for i in chosen if counts[i] <= most]
        if math.prod(counts[i] if i in own else 2 for i in chosen) <= _LARGEST_STATE_SPACE:
            one_bin_each = own
    cells = math.prod(counts[i] for i in one_bin_each)
    bins = int(np.clip((_CELLS_WANTED / cells) ** (1 / max(len(chosen) - len(one_bin_each), 1)), 2, 8))
    dimensions = []
    for i in chosen:
        quantiles = np.quantile(rows[:, i], np.arange(1, bins) / bins)
        low, high = rows[:, i].min(), rows[:, i].max()
        edges = sorted({edge for value in quantiles if low < (edge := to_digits(value, 3)) <= high})
        edges = edges or [to_digits((low + high) / 2, 3)]  # most rows hold the lowest value
        dimensions.append(
            _one_bin_per_value(found[i], *values[i]) if i in one_bin_each else Dimension(found[i].name, tuple(edges))
        )
    grid = Grid(tuple(dimensions))
    shape = " x ".join(map(str, grid.shape))
    remarks = []
    size = f"({shape} = {grid.size} cells)"
    if len(one_bin_each) < len(chosen):
        remarks.append(f"a table's bins lie at quantiles of {len(rows):,} steps of random actions {size}")
    if one_bin_each:
        one_each = f"a table has one bin a value for {', '.join(found[i].name for i in one_bin_each)}"
        remarks.append(one_each if remarks else f"{one_each} {size}")
    if len(chosen) < len(found):
        remarks.append(f"a table looks at {', '.join(grid.names)} only")
    return grid, remarks


def _whole_numbers(observation: Observation, column: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the largest of whole numbers: those of an integer space, or a few that were seen.

    They are infinite for other numbers.
    """
    if observation.integer:
        return observation.low, observation.high
    low, high = float(column.min()), float(column.max())
    is_whole = bool((column == np.rint(column)).all()) and high - low < _FEW_VALUES
    return (low, high) if is_whole else (-math.inf, math.inf)


def _one_bin_per_value(observation: Observation, low: float, high: float) -> Dimension:
    return Dimension(observation.name, tuple(np.arange(low, high) + 0.5))
