"""A task for any Gymnasium id: names from its documentation, bins from warm-up episodes, and a list of assumptions."""

from __future__ import annotations

import inspect
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import find_highest_version, get_env_id

from policygen.errors import TaskError
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import slug, to_digits
from policygen.quantities.words import contains_batch, decoded
from policygen.tasks.actions import actuators_of, describe_layout, with_bounds
from policygen.tasks.documentation import Section, listed, prose, section_of, sections_of
from policygen.tasks.environments import make
from policygen.tasks.facts import simulator_facts
from policygen.tasks.faults import STEP_TIMEOUT, TimeLimitExceeded, Watchdog, close
from policygen.tasks.spaces import Observation, ObservedText, layout_of, observations_of, texts_of
from policygen.tasks.stated import arguments_in_force, describe_arguments, encoding_of, with_limits
from policygen.tasks.task import DEFAULT_MAX_STEPS, Task
from policygen.tasks.trial import MANY_STEPS, UNSEEDED, ignores_seed, random_episode
from policygen.tasks.user_env import NAMESPACE, UserEnv, is_picklable, limit_of, user_env_of
from policygen.tasks.vocabulary import named_actuators, named_observations

_DEFAULT_NAME = re.compile(r"(obs|action|x)_?\d*")  # names by position, if the environment gives none
_WARM_UP_STEPS = 5_000  # of random actions
WARM_UP_SECONDS = 20.0
_CELLS_WANTED = 800  # of a grid with bins at quantiles
_MOST_DIMENSIONS = 8  # of a grid
_LARGEST_STATE_SPACE = 2_000  # states of an environment that get one cell each
_MOST_NUMBERS = 400  # in an observation
_MOST_PHRASES = 8  # each has two bins: 256 cells
_WORD = re.compile(r"[a-z]{3,20}")
_RARE = 0.02  # a word is ignored if a smaller share of rows has it, or lacks it
_MOST_CORRELATED = 0.9  # a word is ignored if its correlation with a chosen one is at least this


def task_from_gym(
    gym_id: str, step_timeout: float = STEP_TIMEOUT, kwargs: Mapping[str, Any] | None = None, own: UserEnv | None = None
) -> Task:
    """Make a task for an environment without a task file: names from its documentation, bins from warm-up episodes.

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
    documentation = _documentation(env)
    sections = sections_of(documentation)
    found, texts, named, remark = _observed(env, gym_id, documentation, sections)
    assumed = [*_successor(gym_id), remark]
    observed = [*(o.name for o in found), *(text.name for text in texts)]
    kind, actuators, action_layout = actuators_of(env.action_space, observed)
    if action_layout is not None:
        assumed.append(describe_layout(action_layout, actuators))
    actuators, actions_documented = named_actuators(actuators, section_of(sections, "action"), observed, env)
    if not actions_documented and all(_DEFAULT_NAME.fullmatch(a.name) and not a.is_choice for a in actuators):
        items = listed(documentation, "action", len(actuators))
        if items and not {one.name.lower() for one in items} & {name.lower() for name in observed}:
            pairs = zip(actuators, items, strict=True)
            actuators = tuple(replace(a, name=one.name, unit=one.unit, about=one.about) for a, one in pairs)
    actuators, unbounded = with_bounds(actuators)
    assumed += unbounded
    if any(actuator.is_choice for actuator in actuators):
        assumed.append(f"actions are named {'after the documentation' if actions_documented else 'by number'}")
    encoding, remark = encoding_of(found, section_of(sections, "observation"), env)
    if encoding:
        found = [replace(o, about=o.about or encoding) for o in found]
    elif remark:
        assumed.append(remark)

    width, cut_lengths = len(found) + sum(text.columns for text in texts), list[int]()
    warm_up = cache(lambda: _warm_up(env, width, step_timeout, cut_lengths))
    grid, remarks = _fitted_grid(found, warm_up) if found else (None, [])
    limit = limit_of(env)
    if limit is None and len(cut_lengths) > 1 and len(set(cut_lengths)) == 1:
        limit = cut_lengths[0]
        assumed.append(f"episodes have {limit} steps: the environment truncated {len(cut_lengths)} random ones there")
    elif limit is None:
        assumed.append(f"episodes are cut at {DEFAULT_MAX_STEPS} steps, because the environment sets no limit")
    assumed += remarks
    unseeded = ignores_seed(env, found, width, step_timeout, steps=MANY_STEPS)
    assumed += [UNSEEDED] * unseeded
    phrases: dict[str, str] = {}
    if texts:
        rows, binned = warm_up()[:, len(found) :], grid.dimensions if grid is not None else ()
        room = int(math.log2(_LARGEST_STATE_SPACE / (grid.size if grid is not None else 1)))
        phrases = _informative_phrases(texts, rows, [*observed, *(a.name for a in actuators)], min(_MOST_PHRASES, room))
    if phrases:
        grid = Grid((*binned, *(Dimension(name, (0.5,)) for name in phrases)))
        tells = ", ".join(phrases.values())
        assumed.append(f"a table distinguishes texts by words seen in {len(rows):,} steps of random actions: {tells}")
    continuous = kind in ("box", "mixed") or (grid is None or len(grid.dimensions) < len(observed))
    is_one_choice = actuators[0].is_choice and len(actuators) == 1
    action_names = actuators[0].labels if is_one_choice else [a.name for a in actuators]
    arguments = arguments_in_force(env)
    about = prose(sections, arguments, [*["observation"] * named, *["action"] * actions_documented])
    return Task(
        name=slug(gym_id.removeprefix(NAMESPACE).rpartition(":")[2]),
        gym_id=gym_id,
        observations=tuple(found),
        texts=tuple(texts),
        features=tuple(phrases.items()),
        layout=layout_of(env.observation_space),
        action_layout=action_layout,
        actuators=actuators,
        action_space=kind,
        max_steps=limit or DEFAULT_MAX_STEPS,
        grid=grid,
        about=about,
        facts=(
            *([remark] if encoding else []),
            *describe_arguments(arguments, env, about),
            *simulator_facts(env, action_names, observed, arguments, step_timeout),
        ),
        solved=env.spec.reward_threshold if env.spec else None,
        step_seconds=seconds_per_step(env),
        unseeded=unseeded,
        run=(("policy", "linear" if continuous else "table"),),
        assumed=tuple(assumed),
    )


def _observed(
    env: gym.Env[Any, Any], gym_id: str, documentation: str, sections: Sequence[Section]
) -> tuple[list[Observation], list[ObservedText], bool, str]:
    """Return the observed numbers and texts, whether the documentation names all numbers, and a sentence on names."""
    found, texts, named = observations_of(env.observation_space), texts_of(env.observation_space), False
    if not (1 <= len(found) <= _MOST_NUMBERS or (texts and not found)):
        raise TaskError(
            f"{gym_id} observes {len(found):,} numbers; policygen is for small policies of 1 to {_MOST_NUMBERS}:"
            " wrap the environment in a gymnasium.ObservationWrapper that returns fewer"
        )
    if not texts:  # a table in the documentation is about numbers
        described = section_of(sections, "observation"), section_of(sections, "starting")
        found, named = named_observations(found, *described, env)
        unnamed = not named and all(_DEFAULT_NAME.fullmatch(o.name) for o in found)
        if unnamed and (items := listed(documentation, "observation", len(found))):
            pairs = zip(found, items, strict=True)
            named, found = True, [replace(o, name=one.name, unit=one.unit, about=one.about) for o, one in pairs]
    observed = [*(o.name for o in found), *(text.name for text in texts)]
    names = ", ".join(observed[:8]) + ", ..." * (len(observed) > 8)
    after = "named after the environment's documentation:" if named else "called"
    found = [with_limits(o) for o in found] if named else found
    return found, texts, named, f"observations are {after} {names}"


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


def task_of(what: Any, step_timeout: float = STEP_TIMEOUT) -> Task:
    """Make a task for an environment or an environment factory.

    Raises:
        UsageError: `what` is neither.
        TaskError: the factory makes no environment, or one with unsupported spaces.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    own = user_env_of(what)
    if isinstance(own, str):
        return task_from_gym(own, step_timeout)
    task = task_from_gym(f"{NAMESPACE}{own.name}", step_timeout, own=own)
    if own.is_single_env:
        remark = (
            "one environment object plays its episodes one after the other, in this process (jobs = 1); if you pass a "
            "function that makes the environment instead, random actions differ, and so does the run"
        )
    elif not is_picklable(own):
        remark = "the function that makes the environment cannot be pickled: only this process plays (jobs = 1)"
    else:
        return task
    return replace(task, assumed=(*task.assumed, remark))


def _documentation(env: gym.Env[Any, Any]) -> str:
    """Return the docstring of the environment or of its nearest documented base class; empty if there is none."""
    for owner in type(env.unwrapped).__mro__:
        if owner.__name__ in ("Env", "MujocoEnv", "EzPickle"):
            return ""
        if owner.__doc__:
            return inspect.cleandoc(owner.__doc__)
    return ""


def _successor(gym_id: str) -> list[str]:
    """Return a sentence if Gymnasium has a newer version of the environment, else nothing."""
    name, _, version = gym_id.rpartition("-v")
    namespace, _, name = name.rpartition("/")
    newest = find_highest_version(namespace or None, name)
    if not version.isdigit() or newest is None or newest <= int(version):
        return []
    return [f"{gym_id} is out of date; its successor is {get_env_id(namespace or None, name, newest)}"]


def _fitted_grid(
    found: Sequence[Observation], warm_up: Callable[[], npt.NDArray[np.float64]]
) -> tuple[Grid | None, list[str]]:
    """Return a grid, if any, and remarks: one cell per state if these are few, else bins by quantile or by value."""
    counts = [o.high - o.low + 1 if o.integer else math.inf for o in found]
    if math.prod(counts) <= _LARGEST_STATE_SPACE:
        grid = Grid(tuple(map(_one_bin_per_value, found)))
        return grid, [f"one table row per state ({grid.size} cells)"]
    rows = warm_up()[:, : len(found)]
    spread = rows.std(axis=0)
    moving = [i for i in range(len(found)) if spread[i] > 1e-9]
    if not moving:
        return None, ["no observation changed under random actions, so there is no grid"]
    # With many quantities, bin those that move most from step to step relative to their range.
    change = np.abs(np.diff(rows, axis=0)).mean(axis=0) / np.maximum(spread, 1e-9)
    chosen = sorted(sorted(moving, key=lambda i: -change[i])[:_MOST_DIMENSIONS])
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
        edges = sorted({to_digits(value, 3) for value in quantiles})
        dimensions.append(_one_bin_per_value(found[i]) if i in one_bin_each else Dimension(found[i].name, tuple(edges)))
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


def _one_bin_per_value(observation: Observation) -> Dimension:
    return Dimension(observation.name, tuple(np.arange(observation.low, observation.high) + 0.5))


def _warm_up(
    env: gym.Env[Any, Any], width: int, step_timeout: float, cut_lengths: list[int]
) -> npt.NDArray[np.float64]:
    """Play random actions on fixed seeds; return the observations, shape (steps, width).

    The lengths of truncated episodes are appended to `cut_lengths`. A slow environment is played for `WARM_UP_SECONDS`
    only, with a warning.
    """
    kept: list[npt.NDArray[np.float64]] = []
    until, episode = time.monotonic() + WARM_UP_SECONDS, 0
    env.action_space.seed(0)
    while len(kept) < _WARM_UP_STEPS:
        most = min(DEFAULT_MAX_STEPS, _WARM_UP_STEPS - len(kept))
        rows, truncated = random_episode(env, episode, width, step_timeout, steps=most, until=until)
        kept += [row[:width] for row in rows[:-1]]
        cut_lengths += [len(rows) - 1] * truncated
        episode += 1
        if time.monotonic() > until and len(kept) < _WARM_UP_STEPS:
            name = env.spec.id if env.spec else "the environment"
            warnings.warn(
                f"{name} is slow: its bins come from only {len(kept):,} steps of random actions (in "
                f"{WARM_UP_SECONDS:g} s), and may differ next time; a task file fixes them",
                stacklevel=2,
            )
            break
    return np.asarray(kept)


def seconds_per_step(env: gym.Env[Any, Any]) -> float | None:
    """Return the length of a step in seconds, from the attribute `dt` or `tau` of the environment; None without one."""
    for name in ("dt", "tau"):
        with suppress(Exception):  # the environment's own code
            if 0 < (seconds := float(getattr(env.unwrapped, name))) < float("inf"):
                return seconds
    return None
