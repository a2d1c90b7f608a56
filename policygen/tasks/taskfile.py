"""Read task files (`envs/*.toml`), check them against their environment, and fill in what they omit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from policygen.errors import TaskError, UsageError, explain
from policygen.files import read_toml
from policygen.quantities.grid import MAX_CELLS, Dimension, Grid, integers
from policygen.tasks.actions import RESERVED, Limits, actuators_of, bounded, limits_of
from policygen.tasks.environments import make
from policygen.tasks.facts import simulator_facts
from policygen.tasks.faults import STEP_TIMEOUT, close
from policygen.tasks.mujoco import has_model
from policygen.tasks.perturb import Perturbation, perturbation
from policygen.tasks.perturbed_env import PerturbedEnv
from policygen.tasks.requirements import MOST_REQUIREMENTS, Requirement, parsed, steps_of
from policygen.tasks.spaces import Actuator, flat_names, layout_of, texts_of
from policygen.tasks.task import DEFAULT_MAX_STEPS, Optimum, Task, decision_names, is_name
from policygen.tasks.trial import UNSEEDED, ignores_seed
from policygen.tasks.trust import check_names, is_shipped

_LABEL = re.compile(r"[A-Za-z0-9_]{1,60}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _ObservationEntry(_Strict):
    name: str
    unit: str = ""
    about: str = ""


class _TextEntry(_Strict):
    name: str
    about: str = ""


class _ActionEntry(_Strict):
    name: str = "action"
    unit: str = ""
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    labels: list[str] = []
    levels: dict[str, FiniteFloat] = {}
    about: str = ""


class _OptimumEntry(_Strict):
    value: FiniteFloat
    source: str


class _RequirementEntry(_Strict):
    name: str = Field(min_length=1, max_length=60)
    always: str = ""
    at_end: str = Field(default="", alias="finally")
    after: str = ""
    within: str = ""
    hard: bool = True
    allowed: float = Field(default=0.01, ge=0, lt=1)


class _TaskFile(_Strict):
    """The keys of `envs/*.toml`."""

    name: str
    gym_id: str
    kwargs: dict[str, Any] = {}
    about: str = ""
    hints: list[str] = []
    facts: list[str] = []
    max_steps: int | None = Field(default=None, gt=0, le=10_000_000)
    discount: float = Field(default=0.99, gt=0, le=1)
    solved: FiniteFloat | None = None
    optimum: _OptimumEntry | None = None
    observations: list[_ObservationEntry] = []
    texts: list[_TextEntry] = []
    actions: list[_ActionEntry] = []
    features: dict[str, str] = {}
    reward: str = ""
    ends: str = ""
    starts: dict[str, str] = {}
    requirements: list[_RequirementEntry] = Field(default=[], max_length=MOST_REQUIREMENTS)
    perturb: dict[str, float | list[float] | dict[str, float | list[float]]] = {}
    step_seconds: float | None = Field(default=None, gt=0)
    inputs: list[str] = []
    grid: dict[str, int | list[float]] = {}
    run: dict[str, Any] = {}


def task_from_file(path: Path, *, trust: bool = False, step_timeout: float = STEP_TIMEOUT) -> Task:
    """Read a task file.

    Args:
        trust: whether the file may name modules to import and paths to read; shipped files may.
        step_timeout: limit on one step in seconds, if the environment must be played to complete the task.

    Raises:
        TaskError: it is malformed, does not fit its environment, or is untrusted and names a module or path.
    """
    try:
        stated = _TaskFile.model_validate(read_toml(path))
    except UsageError as error:
        raise TaskError(str(error)) from None
    except ValidationError as error:
        raise TaskError(f"{path.name}: {explain(error, _TaskFile.model_fields)}") from None
    if not (trust or is_shipped(path)):
        check_names(stated.gym_id, stated.kwargs, path.name, path.parent)
    env = make(stated.gym_id, stated.kwargs)
    try:
        return _complete(stated, env, path.name, step_timeout)
    finally:
        close(env, step_timeout)


def _complete(stated: _TaskFile, env: gym.Env[Any, Any], where: str, step_timeout: float) -> Task:
    """Make the task of a file, filling in omissions from the environment."""
    found = flat_names(env.observation_space)
    taken = [entry.name for entry in stated.observations] or [observation.name for observation in found]
    kind, actuators, action_layout = actuators_of(env.action_space, taken)
    if stated.observations and len(stated.observations) != len(found):
        raise TaskError(
            f"{where}: `observations` names {len(stated.observations)} numbers, {stated.gym_id} gives {len(found)}"
        )
    if stated.observations:
        found = [
            replace(observation, name=entry.name, unit=entry.unit, about=entry.about)
            for observation, entry in zip(found, stated.observations, strict=True)
        ]
    texts = texts_of(env.observation_space)
    if stated.texts and len(stated.texts) != len(texts):
        raise TaskError(f"{where}: `texts` names {len(stated.texts)} texts, {stated.gym_id} observes {len(texts)}")
    if stated.texts:
        texts = [replace(text, name=e.name, about=e.about) for text, e in zip(texts, stated.texts, strict=True)]
    if stated.actions:
        actuators = _named_actuators(stated.actions, actuators, limits_of(actuators, action_layout), where)
    actuators, assumed = bounded(actuators)
    spec_limit = env.spec.max_episode_steps if env.spec else None
    known = [observation.name for observation in found] + list(stated.features)
    _check_names([*known, *(text.name for text in texts)], actuators, where)
    width = len(found) + sum(text.columns for text in texts)
    unseeded = ignores_seed(env, found, width, step_timeout)
    threshold = env.spec.reward_threshold if env.spec else None
    task = Task(
        name=stated.name,
        gym_id=stated.gym_id,
        kwargs=tuple(stated.kwargs.items()),
        observations=tuple(found),
        texts=tuple(texts),
        layout=layout_of(env.observation_space),
        action_layout=action_layout,
        actuators=actuators,
        action_space=kind,
        max_steps=stated.max_steps or spec_limit or DEFAULT_MAX_STEPS,
        features=tuple(stated.features.items()),
        reward=stated.reward.strip(),
        ends=stated.ends.strip(),
        starts=tuple(stated.starts.items()),
        about=stated.about.strip(),
        hints=tuple(hint.strip() for hint in stated.hints),
        facts=(*(fact.strip() for fact in stated.facts), *_read_facts(stated, env, actuators, step_timeout)),
        discount=stated.discount,
        solved=stated.solved if stated.solved is not None else threshold,
        optimum=Optimum(stated.optimum.value, stated.optimum.source) if stated.optimum else None,
        run=tuple(stated.run.items()),
        inputs=_stated_inputs(stated.inputs, known, where),
        grid=_stated_grid(stated.grid, known, where),
        assumed=(*assumed, *([UNSEEDED] if unseeded else [])),
        unseeded=unseeded,
    )
    _ = task.parsed_features  # report a feature that does not parse now
    requirements = _stated_requirements(stated, task, env, where)
    perturb = _stated_perturbations(stated, env, where)
    return replace(task, requirements=requirements, perturb=perturb) if requirements or perturb else task


def _stated_requirements(stated: _TaskFile, task: Task, env: gym.Env[Any, Any], where: str) -> tuple[Requirement, ...]:
    """Return the requirements of a file; each is read once, so that a mistake is reported now."""
    read: list[Requirement] = []
    for entry in stated.requirements:
        if entry.name in (one.name for one in read):
            raise TaskError(f"{where}: two requirements are called `{entry.name}`; give each a name of its own")
        if bool(entry.always) == bool(entry.at_end):
            raise TaskError(f"{where}: requirement `{entry.name}` needs one condition: `always` or `finally`")
        try:
            steps = steps_of(entry.within, stated.step_seconds or _seconds_per_step(env)) if entry.within else None
            requirement = Requirement(
                entry.name, entry.always, entry.at_end, entry.after, steps, entry.hard, entry.allowed
            )
            decisions = [name for name in decision_names(task) if name not in task.quantity_names]
            parsed(requirement, [*task.quantity_names, *decisions], (), task.text_names)
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
        read.append(requirement)
    return tuple(read)


def _stated_perturbations(stated: _TaskFile, env: gym.Env[Any, Any], where: str) -> tuple[Perturbation, ...]:
    found = []
    for name, value in stated.perturb.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, size in inner:
            full_name = f"{name}.{key}" if key else name
            sizes = size if isinstance(size, list) else [size, size]
            if len(sizes) != 2:
                raise TaskError(f"{where}: `perturb.{full_name}` is one number, or two: lowest and highest")
            try:
                found.append(perturbation(full_name, *sizes))
            except UsageError as error:
                raise TaskError(f"{where}: {error}") from None
    try:
        PerturbedEnv(env, found, lambda keywords: make(stated.gym_id, {**stated.kwargs, **keywords}))
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from None
    return tuple(found)


def _seconds_per_step(env: gym.Env[Any, Any]) -> float | None:
    """Return the length of a step as MuJoCo's (`dt`) and the classic environments (`dt`, `tau`) hold it."""
    for name in ("dt", "tau"):
        try:
            seconds = float(getattr(env.unwrapped, name))
        except Exception:  # the environment's own code
            continue
        if 0 < seconds < float("inf"):
            return seconds
    return None


def _read_facts(
    stated: _TaskFile, env: gym.Env[Any, Any], actuators: Sequence[Actuator], step_timeout: float
) -> tuple[str, ...]:
    """Read facts from the simulator: always from a MuJoCo model, constants only if the file states no facts."""
    if stated.about.strip() and not has_model(env):
        return ()
    return simulator_facts(env, [actuator.name for actuator in actuators], step_timeout=step_timeout)


def _stated_inputs(stated: Sequence[str], known: Sequence[str], where: str) -> tuple[str, ...]:
    unknown = [name for name in stated if name not in known]
    if unknown:
        raise TaskError(f"{where}: `inputs`: there is no quantity `{unknown[0]}`; known: {', '.join(known)}")
    return tuple(stated)


def _stated_grid(stated: Mapping[str, int | list[float]], known: Sequence[str], where: str) -> Grid | None:
    if not stated:
        return None
    for name, edges in stated.items():
        if name not in known:
            raise TaskError(
                f"{where}: `grid.{name}`: there is no such observation or feature; known: {', '.join(known)}"
            )
        if isinstance(edges, int) and not 1 <= edges <= MAX_CELLS:
            raise TaskError(f"{where}: `grid.{name}` has {edges:,} bins; give 1 to {MAX_CELLS:,}, or a list of edges")
    try:
        return Grid(
            tuple(
                integers(name, edges) if isinstance(edges, int) else Dimension(name, tuple(edges))
                for name, edges in stated.items()
            )
        )
    except UsageError as error:
        raise TaskError(f"{where}: {error}") from None


def _named_actuators(
    stated: Sequence[_ActionEntry], actuators: tuple[Actuator, ...], limits: Limits, where: str
) -> tuple[Actuator, ...]:
    if len(stated) != len(actuators):
        raise TaskError(f"{where}: `actions` has {len(stated)} entries, the environment takes {len(actuators)}")
    named = []
    for entry, given, (*_, whole) in zip(stated, actuators, limits.bounds, strict=True):
        actuator = _within(entry, given, where, whole=whole)
        if actuator.is_choice and entry.labels and len(entry.labels) != len(actuator.labels):
            raise TaskError(
                f"{where}: action {entry.name} has {len(entry.labels)} labels for {len(actuator.labels)} choices"
            )
        if actuator.is_choice and entry.levels:
            raise TaskError(f"{where}: action {entry.name} is a choice; give `labels` instead of `levels`")
        if not actuator.is_choice and entry.labels:
            raise TaskError(f"{where}: action {entry.name} is a number; give `levels` instead of `labels`")
        outside = [name for name, value in entry.levels.items() if not actuator.low <= value <= actuator.high]
        if outside:
            raise TaskError(
                f"{where}: level {outside[0]} of {entry.name} is outside {actuator.low:g} to {actuator.high:g}"
            )
        named.append(
            replace(
                actuator,
                name=entry.name,
                labels=tuple(entry.labels) or actuator.labels,
                levels=tuple(entry.levels.items()),
                about=entry.about,
                unit=entry.unit,
            )
        )
    return tuple(named)


def _within(entry: _ActionEntry, actuator: Actuator, where: str, *, whole: bool) -> Actuator:
    """Return the actuator with the file's bounds, which must lie within the environment's."""
    stated = [bound for bound in (entry.low, entry.high) if bound is not None]
    if stated and actuator.is_choice:
        raise TaskError(f"{where}: action {entry.name} is a choice; `low` and `high` are for numbers")
    if whole and any(not bound.is_integer() for bound in stated):
        raise TaskError(f"{where}: action {entry.name} takes whole numbers; write whole numbers for `low` and `high`")
    # A single-precision bound may be written with fewer digits.
    slack = 1e-6 * max([1.0, *map(abs, stated)])
    if any(not actuator.low - slack <= bound <= actuator.high + slack for bound in stated):
        raise TaskError(
            f"{where}: action {entry.name} goes from {actuator.low:g} to {actuator.high:g} in the environment; state "
            "`low` and `high` within that"
        )
    low = actuator.low if entry.low is None else max(entry.low, actuator.low)
    high = actuator.high if entry.high is None else min(entry.high, actuator.high)
    if stated and low >= high:
        raise TaskError(f"{where}: action {entry.name} goes from {low:g} to {high:g}: state a `low` below its `high`")
    return replace(actuator, low=low, high=high)


def _check_names(quantities: Sequence[str], actuators: Sequence[Actuator], where: str) -> None:
    """Refuse names that are invalid or ambiguous in a table or an equation (tables ignore case)."""
    columns = [*quantities, *(actuator.name for actuator in actuators)]
    for name in columns:
        if not is_name(name):
            raise TaskError(
                f"{where}: `{name:.60}` is not a name; use letters, digits, underscores and no word of Python"
            )
    for actuator in actuators:
        if actuator.name in RESERVED:
            raise TaskError(f"{where}: an action cannot be called `{actuator.name}`, a column of every trace")
    outputs = actuators[0].labels if len(actuators) == 1 else ()
    _check_distinct([*quantities, *outputs], where)
    _check_distinct(columns, where)
    for actuator in actuators:
        words = actuator.labels or [name for name, _ in actuator.levels]
        for word in words:
            if not _LABEL.fullmatch(word):
                raise TaskError(f"{where}: the label `{word}` is not one word; use letters, digits and underscores")
        _check_distinct(words, where)


def _check_distinct(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TaskError(f"{where}: the name `{name}` is used twice")
        seen.add(name.lower())
