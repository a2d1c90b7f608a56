"""A task for any Gymnasium id: names from its documentation, bins from warm-up episodes, and what was assumed."""

from __future__ import annotations

import inspect
import math
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.errors import TaskError
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.environments import make
from policygen.tasks.facts import simulator_facts
from policygen.tasks.spaces import Observation, actuators_of, flat_names, flatten, layout_of, slug
from policygen.tasks.task import DEFAULT_MAX_STEPS, Task

_WARM_UP_STEPS = 5_000
WARM_UP_SECONDS = 20.0
_CELLS_WANTED = 800
_MOST_DIMENSIONS = 8
_LARGEST_STATE_SPACE = 2_000
_MOST_NUMBERS = 400  # observed


def task_from_gym(gym_id: str) -> Task:
    """A task for an environment nobody described: names from its documentation, bins from warm-up episodes.

    Raises:
        TaskError: Gymnasium cannot make it, or its spaces are not supported.
    """
    env = make(gym_id, {})
    try:
        kind, actuators = actuators_of(env.action_space)
        found = flat_names(env.observation_space)
        if not 1 <= len(found) <= _MOST_NUMBERS:
            raise TaskError(
                f"{gym_id} observes {len(found):,} numbers; policygen is for small policies of 1 to {_MOST_NUMBERS}:"
                " wrap the environment first"
            )
        documentation = inspect.getdoc(type(env.unwrapped)) or ""
        assumed: list[str] = []
        names = _documented_names(documentation, len(found))
        if names:
            found = [replace(o, name=name) for o, name in zip(found, names, strict=True)]
            assumed.append(f"observations are named after the environment's documentation: {', '.join(names)}")
        else:
            assumed.append(
                f"observations are called {', '.join(o.name for o in found[:6])}{', ...' * (len(found) > 6)}"
            )
        if any(actuator.is_choice for actuator in actuators):
            assumed.append("actions are named by number")
        limit = env.spec.max_episode_steps if env.spec else None
        if limit is None:
            assumed.append(f"episodes are cut at {DEFAULT_MAX_STEPS} steps, because the environment sets no limit")
        grid, remarks = _fitted_grid(env, found)
        assumed.extend(remarks)
        continuous = kind == "box" or (grid is None or len(grid.dimensions) < len(found))
        return Task(
            name=slug(gym_id),
            gym_id=gym_id,
            observations=tuple(found),
            layout=layout_of(env.observation_space),
            actuators=actuators,
            action_space=kind,
            max_steps=limit or DEFAULT_MAX_STEPS,
            grid=grid,
            about=_prose(documentation),
            facts=simulator_facts(env, [actuator.name for actuator in actuators]),
            solved=env.spec.reward_threshold if env.spec else None,
            run=(("policy", "linear" if continuous else "table"),),
            assumed=tuple(assumed),
        )
    finally:
        env.close()


def _documented_names(documentation: str, count: int) -> list[str] | None:
    """Names from the table `| Num | Observation | Min | Max |` that Gymnasium's docstrings carry, if it is complete."""
    section = documentation.split("Observation Space", 1)[-1]
    rows = re.findall(r"^\s*\|\s*(\d+)\s*\|\s*([^|]+?)\s*\|", section, flags=re.MULTILINE)
    names: dict[int, str] = {}
    for number, text in rows:
        names.setdefault(int(number), slug(text))
    ordered = [names.get(i, "") for i in range(count)]
    return ordered if all(ordered) and len(set(ordered)) == count else None


# The sections of a docstring that a controller designer needs, most needed first: a long one is cut at its end, and
# the table of observations, which the task repeats by name, is the longest.
_WANTED = ("description", "reward", "episode", "terminat", "truncat", "transition", "action", "starting", "observation")
_LONGEST_PROSE = 6_000


def _prose(documentation: str) -> str:
    """The parts of an environment's docstring that a controller designer needs, the reward and the ending early."""
    opening, *sections = _sections(documentation)
    kept = [opening[1]] if opening[1] else []
    for wanted in _WANTED:
        kept += [f"{title}: {body}" for title, body in sections if title.lower().startswith(wanted) and body]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(kept))[:_LONGEST_PROSE]


def _sections(documentation: str) -> list[tuple[str, str]]:
    """Title and text of every section, its subsections within it; what comes before the first has an empty title.

    The highest level of headings makes the sections. Pictures go, and the spaces that align a table.
    """
    lines: list[tuple[int, str]] = []  # the level of a heading, 0 for text
    fenced = False
    for line in re.sub(r"^```\{figure\}.*?^```\n?", "", documentation, flags=re.DOTALL | re.MULTILINE).splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else re.match(r"(#+)\s*\S", line)
        if line.lstrip().startswith("|"):
            line = re.sub(r"-{3,}", "--", re.sub(r"\s*\|\s*", "|", line.strip()))
        lines.append((len(heading[1]) if heading else 0, line))
    highest = min((level for level, _ in lines if level), default=1)
    sections: list[tuple[str, list[str]]] = [("", [])]
    for level, line in lines:
        text = line.strip("#: ") if level else line
        if level == highest:
            sections.append((text, []))
        else:
            sections[-1][1].append(f"{text}:" if level else text)
    return [(title, "\n".join(body).strip()) for title, body in sections]


def _fitted_grid(env: gym.Env[Any, Any], found: Sequence[Observation]) -> tuple[Grid | None, list[str]]:
    """Bins at the quantiles of what random actions visit; whole numbers get one bin a value while there are few."""
    counts = [_values(o) for o in found]
    if math.prod(counts) <= _LARGEST_STATE_SPACE:
        grid = Grid(tuple(map(_one_bin_a_value, found)))
        return grid, [f"one table row per state ({grid.size} cells)"]
    rows = _warm_up(env)
    spread = rows.std(axis=0)
    moving = [i for i in range(len(found)) if spread[i] > 1e-9]
    if not moving:
        return None, ["nothing observed changed under random actions, so there is no grid"]
    # With many quantities, bin those that move most from step to step relative to their range.
    change = np.abs(np.diff(rows, axis=0)).mean(axis=0) / np.maximum(spread, 1e-9)
    chosen = sorted(sorted(moving, key=lambda i: -change[i])[:_MOST_DIMENSIONS])
    most = _most_values([counts[i] for i in chosen])
    whole = [i for i in chosen if counts[i] <= most]
    cells = math.prod(counts[i] for i in whole)
    bins = int(np.clip((_CELLS_WANTED / cells) ** (1 / max(len(chosen) - len(whole), 1)), 2, 8))
    dimensions = []
    for i in chosen:
        quantiles = np.quantile(rows[:, i], np.arange(1, bins) / bins)
        edges = sorted({float(f"{value:.3g}") for value in quantiles})
        dimensions.append(_one_bin_a_value(found[i]) if i in whole else Dimension(found[i].name, tuple(edges)))
    grid = Grid(tuple(dimensions))
    shape = " x ".join(map(str, grid.shape))
    remarks = []
    size = f"({shape} = {grid.size} cells)"
    if len(whole) < len(chosen):
        remarks.append(f"a table's bins lie at quantiles of {len(rows):,} steps of random actions {size}")
    if whole:
        one_each = f"a table has one bin a value for {', '.join(found[i].name for i in whole)}"
        remarks.append(one_each if remarks else f"{one_each} {size}")
    if len(chosen) < len(found):
        remarks.append(f"a table looks at {', '.join(grid.names)} only")
    return grid, remarks


def _values(observation: Observation) -> float:
    """How many values a whole number can have; infinitely many for any other number."""
    return observation.high - observation.low + 1 if observation.integer else math.inf


def _one_bin_a_value(observation: Observation) -> Dimension:
    return Dimension(observation.name, tuple(np.arange(observation.low, observation.high) + 0.5))


def _most_values(counts: Sequence[float]) -> float:
    """Up to how many values one bin for each is affordable, where whatever has more gets two bins."""

    def cells(most: float) -> float:
        return math.prod(count if count <= most else 2 for count in counts)

    return max((most for most in counts if most < math.inf and cells(most) <= _LARGEST_STATE_SPACE), default=0)


def _warm_up(env: gym.Env[Any, Any]) -> npt.NDArray[np.float64]:
    """Observations of random actions from fixed seeds: shape (steps, d); of a slow environment fewer.

    Warns:
        UserWarning: the time was up first.
    """
    begun = time.monotonic()
    env.action_space.seed(0)
    layout = layout_of(env.observation_space)
    rows: list[npt.NDArray[Any]] = []
    episode = 0
    while len(rows) < _WARM_UP_STEPS:
        observation, _ = env.reset(seed=episode)
        episode += 1
        for _ in range(DEFAULT_MAX_STEPS):
            rows.append(flatten(layout, observation))
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if time.monotonic() - begun > WARM_UP_SECONDS and len(rows) > 1:
                name = env.spec.id if env.spec else "the environment"
                warnings.warn(
                    f"{name} is slow: its bins come from {len(rows):,} steps of random actions, all that "
                    f"{WARM_UP_SECONDS:g} s sufficed for, and may be others next time; a task file fixes them",
                    stacklevel=2,
                )
                return np.asarray(rows, dtype=np.float64)
            if terminated or truncated or len(rows) >= _WARM_UP_STEPS:
                break
    return np.asarray(rows, dtype=np.float64)
