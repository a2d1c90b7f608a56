"""Load a task by name, id or file, or make one for an environment without a task file, from random episodes."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from policygen.errors import EnvironmentFault, TaskError, UsageError, explain
from policygen.files import find_resource, list_resources, read, toml_of
from policygen.notices import announced_if_slow
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import slug, to_digits
from policygen.tasks.actions import RESERVED, actuators_of
from policygen.tasks.environments import (
    NAMESPACE,
    UserEnv,
    is_picklable,
    limit_of,
    limited_to,
    make,
    steps_left,
    steps_taken,
    user_env_of,
)
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory, TimeLimitExceeded, Watchdog, close
from policygen.tasks.measured import Measurements, cache_file, read_measurements, write_measurements
from policygen.tasks.spaces import Actuator, Observation, distinct_names, observed_in
from policygen.tasks.task import DEFAULT_MAX_STEPS, Task
from policygen.tasks.taskfile import ActionEntry, ObservationEntry, TaskFile, complete
from policygen.tasks.trust import check_names, is_shipped
from policygen.tasks.warmup import LONGEST, MANY_CHECKED, SECONDS, find_limit, ignores_seed, moving, warm_up

LEAST_STEPS = 10  # steps that loading a task may always take
# Attributes in which an environment may state the names of its observations, and of its actions.
_STATED_NAMES = ("observation_names", "obs_names", "state_names", "feature_names", "observation_labels")
_STATED_ACTIONS = ("action_names", "action_labels", "action_meanings", "ACTION_MEANING", "actions", "Actions")
CUT = "episodes are cut at"  # the beginning of the assumption for episodes of unknown length
_ROUNDING = 1e-6  # errors of single precision, as a share of a quantity's range
_RECURS = 0.005  # a value recurs if it has a larger share of the steps
_CLOSE = 0.7  # least similarity of a suggested name, from 0 to 1
_CELLS_WANTED = 800  # cells of a grid with bins at quantiles
_MOST_DIMENSIONS = 8  # dimensions of a grid
_FEW_VALUES = 12  # values of a whole number that get a bin each
_LARGEST_STATE_SPACE = 2_000  # states of an environment that get one cell each
_MOST_NUMBERS = 400  # numbers in an observation
_NO_BOUNDS = "the environment states no bounds; these are assumed"


def load_task(
    name: str, *, trust: bool = False, step_timeout: float = STEP_TIMEOUT, max_steps: int | None = None
) -> Task:
    """Load a task.

    Gymnasium's own ids have files in `envs/gymnasium`, with what its documentation and simulators say.

    Args:
        name: the name of a shipped or local task, a path to a task file, or a Gymnasium id.
        trust: whether a task file that is not shipped may name modules to import and files to read.
        step_timeout: limit in seconds on one step, if random actions are played to complete the task.
        max_steps: step limit of a run of the task; a tenth of it may be played to load the task.

    Raises:
        TaskError: there is no such task, its file is malformed, or its environment cannot be made.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    return _counted(lambda: _load(name, trust=trust, step_timeout=step_timeout), max_steps)


def _counted(load: Callable[[], Task], max_steps: int | None) -> Task:
    """Load a task in at most a tenth of the steps of its run, and note in it how many that took."""
    before = steps_taken()
    with limited_to(max(LEAST_STEPS, max_steps // 10) if max_steps is not None else None):
        return replace(load(), steps_taken=steps_taken() - before)


def _load(name: str, *, trust: bool, step_timeout: float) -> Task:
    path = find_resource("envs", name, ".toml") or harvested_file(name)
    if path is not None:
        with OwnDirectory():
            return task_from_file(path, trust=trust, step_timeout=step_timeout)
    if name.endswith(".toml") or ("/" in name and Path(name).suffix):
        raise TaskError(f"there is no task file {name}")
    if name in gym.registry or ":" in name or re.fullmatch(r".+-v\d+", name):
        with OwnDirectory():
            return task_from_gym(name, step_timeout)
    known = sorted(list_resources("envs", ".toml"))
    near = difflib.get_close_matches(name, known + sorted(gym.registry), n=3, cutoff=_CLOSE)
    meant = f"; did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""
    raise TaskError(
        f"there is no task `{name}`{meant} (`policygen tasks` lists the tasks; "
        f"you can also give a task file or a Gymnasium id)"
    )


def task_of(what: Any, step_timeout: float = STEP_TIMEOUT, max_steps: int | None = None) -> Task:
    """Make a task for an environment or an environment factory; see `load_task`.

    Raises:
        UsageError: `what` is neither.
        TaskError: the factory makes no environment, or one with unsupported spaces.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    own = user_env_of(what)
    if isinstance(own, str):
        return _counted(lambda: task_from_gym(own, step_timeout), max_steps)
    task = _counted(
        lambda: _shipped_task(own, step_timeout) or task_from_gym(f"{NAMESPACE}{own.name}", step_timeout, own=own),
        max_steps,
    )
    if own.env is not None:
        remark = (
            "an environment object plays its episodes one at a time, in this process (jobs = 1); a function that makes "
            "the environment plays them in parallel, with other random actions"
        )
    elif not is_picklable(own):
        remark = "the function that makes the environment cannot be pickled: only this process plays (jobs = 1)"
    else:
        return task
    return replace(task, assumed=(*task.assumed, remark))


def _shipped_task(own: UserEnv, step_timeout: float) -> Task | None:
    """Return the task of the shipped file if the environment is one that `gymnasium.make(ID)` makes; else None."""
    env = own.env if own.env is not None else own.make(None)
    spec, limit = env.spec, limit_of(env)
    if own.env is None:
        close(env, step_timeout)
    if spec is None or spec.additional_wrappers or set(spec.kwargs) - {"render_mode"}:
        return None
    path = harvested_file(spec.id)
    if path is None or not is_shipped(path):
        return None
    task = task_from_file(path, step_timeout=step_timeout)
    name = own.name
    return replace(task, name=slug(name), gym_id=f"{NAMESPACE}{name}", given=own, max_steps=limit or task.max_steps)


def harvested_file(gym_id: str) -> Path | None:
    """Return the shipped file for one of Gymnasium's own ids; None if there is none."""
    return find_resource("envs/gymnasium", gym_id, ".toml") if gym_id in gym.registry else None


def task_from_file(path: Path, *, trust: bool = False, step_timeout: float = STEP_TIMEOUT) -> Task:
    """Read a task file.

    Args:
        trust: whether the file may name modules to import and files to read; shipped files may.
        step_timeout: limit in seconds on one step, if random actions are played to complete the task.

    Raises:
        TaskError: the file is malformed, does not fit its environment, or is untrusted and names a module or file.
        EnvironmentFault: the environment fails or does not answer.
    """
    try:
        stated = TaskFile.model_validate(read(path, toml_of, named=TaskError))
    except ValidationError as error:
        raise TaskError(f"{path.name}: {explain(error, TaskFile.model_fields)}") from None
    if not (trust or is_shipped(path)):
        check_names(stated.gym_id, stated.kwargs, path.name)
    file = harvested_file(stated.gym_id)
    known = toml_of(file.read_text(encoding="utf-8")) if file is not None else {}
    env = make(stated.gym_id, stated.kwargs)
    try:
        return complete(stated, env, step_timeout, step_seconds=known.get("step_seconds"))
    except EnvironmentFault:
        raise
    except UsageError as error:
        raise TaskError(f"{path.name}: {error}") from None
    finally:
        close(env, step_timeout)


def task_from_gym(
    gym_id: str, step_timeout: float = STEP_TIMEOUT, kwargs: Mapping[str, Any] | None = None, own: UserEnv | None = None
) -> Task:
    """Make a task for an environment without a task file: quote its documentation, and choose bins by random episodes.

    Args:
        step_timeout: limit in seconds on making the environment and on each step.
        kwargs: keyword arguments of the environment.
        own: the user's environment or factory, used instead of `gymnasium.make`.

    Raises:
        TaskError: Gymnasium cannot make the environment, or its spaces are not supported.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    try:
        with Watchdog(step_timeout, lambda: None), announced_if_slow(f"making {gym_id}"):
            env = make(gym_id, kwargs or {}) if own is None else own.make(None)
    except TimeLimitExceeded as error:
        raise TaskError(f"{gym_id} cannot be made: {error}") from None
    try:
        task = _discovered(env, gym_id, kwargs or {}, step_timeout, is_own=own is not None)
        return replace(task, given=own)
    finally:
        close(env, step_timeout)


def _discovered(
    env: gym.Env[Any, Any], gym_id: str, kwargs: Mapping[str, Any], step_timeout: float, *, is_own: bool
) -> Task:
    found, texts = observed_in(env.observation_space)
    if not (1 <= len(found) <= _MOST_NUMBERS or (texts and not found)):
        raise TaskError(
            f"{gym_id} observes {len(found):,} numbers; policies read 1 to {_MOST_NUMBERS}:"
            " wrap the environment in a gymnasium.ObservationWrapper that returns fewer"
        )
    names = _names_stated_by(env, _STATED_NAMES, len(found)) if not texts else []
    observed = [*(names or (o.name for o in found)), *(text.name for text in texts)]
    actuators = actuators_of(env.action_space, observed)[1]
    stated = TaskFile(
        name=slug(gym_id.removeprefix(NAMESPACE).rpartition(":")[2]),
        gym_id=gym_id,
        kwargs=dict(kwargs),
        observations=[ObservationEntry(name=name) for name in names],
        actions=_stated_actions(actuators, env, observed),
    )
    width, assumed = len(found) + sum(text.columns for text in texts), list[str]()
    # With a limit of steps, fewer random actions are played; these are not cached.
    file = cache_file(env, gym_id, kwargs) if not is_own and steps_left() > sys.maxsize // 2 else None
    with announced_if_slow(f"playing random actions of {gym_id} to see ranges, lengths and the effect of seeds"):
        measured = read_measurements(file, width)
        if measured is None:
            limit, played = limit_of(env), 0
            if limit is None:
                limit, played = find_limit(env, width, step_timeout)
            warm = warm_up(env, width, step_timeout)
            named = [replace(o, name=name) for o, name in zip(found, observed, strict=False)]
            unseeded = ignores_seed(env, named, width, step_timeout, steps=MANY_CHECKED)
            measured = Measurements(limit, played, warm, unseeded)
            write_measurements(file, measured)
        task = complete(stated, env, step_timeout, warm=measured.warm, unseeded=measured.unseeded)
    limit, warm = measured.limit, measured.warm
    if limit is None:
        assumed.append(
            f"{CUT} {DEFAULT_MAX_STEPS:,} steps: the environment sets no limit, and none was found "
            f"in {LONGEST:,} steps or {SECONDS:g} s; state `max_steps` in a task file"
        )
    elif measured.played:
        assumed.append(
            f"episodes have {limit:,} steps: of {measured.played} played, all that did not end early ended there"
        )
    assumed.append(f"observations are called {', '.join(observed[:8])}" + ", ..." * (len(observed) > 8))
    grid, remark = _fitted_grid(task.observations, warm.rows) if found else (None, "")
    continuous = task.has_numbers or grid is None or len(grid.dimensions) < len(observed)
    return replace(
        task,
        actuators=tuple(
            a if (a.low, a.high) == (space.low, space.high) else replace(a, about=_NO_BOUNDS)
            for a, space in zip(task.actuators, actuators, strict=True)
        ),
        max_steps=limit or DEFAULT_MAX_STEPS,
        usual_steps=warm.usual_steps,
        grid=grid,
        run=(("policy", "linear" if continuous else "table"),),
        assumed=(*assumed, *([remark] if remark else []), *task.assumed),
    )


def _stated_actions(actuators: Sequence[Actuator], env: gym.Env[Any, Any], taken: Sequence[str]) -> list[ActionEntry]:
    """Return the names or labels of actuators that the environment states as an attribute, unless they are taken."""
    one_choice = len(actuators) == 1 and actuators[0].is_choice
    names = _names_stated_by(env, _STATED_ACTIONS, len(actuators[0].labels) if one_choice else len(actuators))
    if {*names} & {name.lower() for name in (*taken, *RESERVED)}:
        return []
    if one_choice and names:
        return [ActionEntry(name=actuators[0].name, labels=names)]
    return [ActionEntry(name=name) for name in names]


def _names_stated_by(env: gym.Env[Any, Any], attributes: Sequence[str], count: int) -> list[str]:
    """Return the names in the first of an environment's attributes, or metadata, that holds `count` of them."""
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


def _fitted_grid(found: Sequence[Observation], rows: npt.NDArray[np.float64]) -> tuple[Grid | None, str]:
    """Return a grid, if any, and a remark: one cell per state if there are few, else bins by quantile or by value."""
    rows = rows[:, : len(found)]
    values = [_whole_numbers(o, column) for o, column in zip(found, rows.T, strict=True)]
    counts = [high - low + 1 for low, high in values]
    if all(o.integer for o in found) and math.prod(counts) <= _LARGEST_STATE_SPACE:
        grid = Grid(tuple(_one_bin_per_value(o, *range_) for o, range_ in zip(found, values, strict=True)))
        return grid, f"one table row per state ({grid.size} cells)"
    chosen = moving(rows)[:_MOST_DIMENSIONS]
    if not chosen:
        return None, "no observation changed under random actions, so there is no grid"
    # Whole numbers get one bin per value, beginning with those of fewest values, while the grid stays small enough if
    # all other quantities get two bins.
    one_bin_each: list[int] = []
    for most in sorted(counts[i] for i in chosen if counts[i] < math.inf):
        own = [i for i in chosen if counts[i] <= most]
        if math.prod(counts[i] if i in own else 2 for i in chosen) <= _LARGEST_STATE_SPACE:
            one_bin_each = own
    cells = math.prod(counts[i] for i in one_bin_each)
    bins = int(np.clip((_CELLS_WANTED / cells) ** (1 / max(len(chosen) - len(one_bin_each), 1)), 2, 8))
    grid = Grid(
        tuple(
            _one_bin_per_value(found[i], *values[i])
            if i in one_bin_each
            else Dimension(found[i].name, _edges(rows[:, i], bins))
            for i in chosen
        )
    )
    remark = f"a table has {' x '.join(map(str, grid.shape))} = {grid.size} cells"
    if len(one_bin_each) < len(chosen):
        remark += f"; bins lie at quantiles of {len(rows):,} steps of random actions"
    if one_bin_each:
        remark += f"; each value of {', '.join(found[i].name for i in one_bin_each)} has its own bin"
    if len(chosen) < len(found):
        remark += f"; it reads only {', '.join(grid.names)}"
    return grid, remark


def _edges(column: npt.NDArray[np.float64], bins: int) -> tuple[float, ...]:
    """Return the edges of at most `bins` bins at quantiles of a column, which is not constant."""
    low, high = column.min(), column.max()
    quantiles = np.quantile(column, np.arange(1, bins) / bins)
    edges = sorted({edge for value in quantiles if low < (edge := _edge(value, column)) <= high})
    return tuple(edges or [to_digits((low + high) / 2, 3)])  # if most rows hold the lowest value


def _edge(quantile: float, column: npt.NDArray[np.float64]) -> float:
    """Return a quantile to three digits; if values recur, up to rounding errors, the middle between two of them."""
    noise = _ROUNDING * float(np.ptp(column))
    below = column[column < quantile - noise]
    if len(below) and np.count_nonzero(np.abs(column - quantile) <= noise) > _RECURS * len(column):
        return to_digits((quantile + float(below.max())) / 2, 3)
    return to_digits(quantile, 3)


def _whole_numbers(observation: Observation, column: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest and highest value of a whole number, in its space or among few seen; infinities for others."""
    if observation.integer:
        return observation.low, observation.high
    low, high = float(column.min()), float(column.max())
    is_whole = bool((column == np.rint(column)).all()) and high - low < _FEW_VALUES
    return (low, high) if is_whole else (-math.inf, math.inf)


def _one_bin_per_value(observation: Observation, low: float, high: float) -> Dimension:
    return Dimension(observation.name, tuple(np.arange(low, high) + 0.5))
