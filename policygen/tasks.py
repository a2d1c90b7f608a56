"""What is to be controlled: a task file, or any Gymnasium id, becomes a frozen `Task`."""

from __future__ import annotations

import keyword
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policygen.errors import ExpressionError, TaskError, UsageError
from policygen.expressions import Node, parse_expression
from policygen.facts import has_model, simulator_facts
from policygen.grid import MAX_CELLS, Dimension, Grid, integers
from policygen.spaces import ActionKind, Actuator, Observation, actuators_of, flat_names

PolicyKind = Literal["table", "linear"]

DEFAULT_MAX_STEPS = 1_000  # for environments that set no time limit of their own
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_LABEL = re.compile(r"[A-Za-z0-9_]{1,60}")


def is_name(text: str) -> bool:
    """Whether `text` may name a quantity: letters, digits and underscores, and no word of the expression language."""
    return _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best known expected return and where that figure comes from."""

    value: float
    source: str


@dataclass(frozen=True)
class Task:
    """An environment and the vocabulary policies are written in.

    `features` are named expressions over the observations and earlier features; `grid` bins observations and features.
    `start` and `step` indices of integer observation spaces are taken as they are. `assumed` lists, one sentence each,
    what was guessed rather than stated; a run prints it. `inputs` are the quantities that `builtin` searches
    linear policies over, all observations unless stated. `facts` are sentences about the system (masses, sizes,
    torques), those of the task file first, then those read from the simulator. `run` and `assumed` are about runs:
    equality leaves them out.
    """

    name: str
    gym_id: str
    observations: tuple[Observation, ...]
    actuators: tuple[Actuator, ...]
    action_space: ActionKind
    max_steps: int
    kwargs: tuple[tuple[str, Any], ...] = ()
    features: tuple[tuple[str, str], ...] = ()
    grid: Grid | None = None
    about: str = ""
    hints: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    discount: float = 0.99
    solved: float | None = None
    optimum: Optimum | None = None
    run: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Names of the flattened observation, in order."""
        return tuple(observation.name for observation in self.observations)

    @cached_property
    def parsed_features(self) -> tuple[tuple[str, Node], ...]:
        """The features as syntax trees, in order."""
        known = list(self.observation_names)
        parsed = []
        for name, text in self.features:
            try:
                parsed.append((name, parse_expression(text, known)))
            except ExpressionError as error:
                raise TaskError(f"task {self.name}: feature {name}: {error}") from None
            known.append(name)
        return tuple(parsed)

    @property
    def quantity_names(self) -> tuple[str, ...]:
        """Observations and features: everything a policy may read."""
        return self.observation_names + tuple(name for name, _ in self.features)

    @property
    def default_policy(self) -> PolicyKind:
        """The policy kind a run uses unless told otherwise."""
        stated = dict(self.run).get("policy")
        if stated in ("table", "linear"):
            return stated  # type: ignore[no-any-return]
        return "table" if self.grid is not None else "linear"


def output_names(task: Task) -> tuple[str, ...]:
    """Left-hand sides of a linear policy: one per number, one score per label of a choice."""
    names: list[str] = []
    for actuator in task.actuators:
        if not actuator.is_choice:
            names.append(actuator.name)
            continue
        alone = len(task.actuators) == 1 and all(label.isidentifier() for label in actuator.labels)
        names += [label if alone else f"{actuator.name}_{label}" for label in actuator.labels]
    return tuple(names)


def make_env(task: Task) -> gym.Env[Any, Any]:
    """A fresh Gymnasium environment of the task, cut at `task.max_steps`.

    Raises:
        TaskError: Gymnasium does not know the id, or a package the environment needs is missing.
    """
    return make(task.gym_id, dict(task.kwargs), task.max_steps)


# Which extra of ours brings what an environment family needs.
_EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "box2d", "swig": "box2d"}


def make(gym_id: str, kwargs: Mapping[str, Any], max_steps: int | None = None) -> gym.Env[Any, Any]:
    """`gymnasium.make` whose failures are sentences.

    Raises:
        TaskError: Gymnasium does not know the id or the kwargs, or a package the environment needs is missing.
    """
    arguments: dict[str, Any] = {**kwargs, "disable_env_checker": True}
    if max_steps is not None:
        arguments["max_episode_steps"] = max_steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "a newer version exists" is the task file's business
            return gym.make(gym_id, **arguments)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
        fix = f'run: pip install "policygen[{extra}]"' if extra else f"install what it names: {error}"
        raise TaskError(f"{gym_id} needs a package that is not installed; {fix}") from None
    except gym.error.Error as error:
        raise TaskError(f"Gymnasium cannot make {gym_id}: {error}") from None
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise TaskError(f"{gym_id} does not take these kwargs ({fault}); correct `kwargs` in the task file") from None


# --- task files ------------------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _ObservationEntry(_Strict):
    name: str
    unit: str = ""
    about: str = ""


class _ActionEntry(_Strict):
    name: str = "action"
    labels: list[str] = []
    levels: dict[str, float] = {}
    about: str = ""


class _OptimumEntry(_Strict):
    value: float
    source: str


class _TaskFile(_Strict):
    """The keys of `envs/*.toml`."""

    name: str
    gym_id: str
    kwargs: dict[str, Any] = {}
    about: str = ""
    hints: list[str] = []
    facts: list[str] = []
    max_steps: int | None = Field(default=None, gt=0)
    discount: float = Field(default=0.99, gt=0, le=1)
    solved: float | None = None
    optimum: _OptimumEntry | None = None
    observations: list[_ObservationEntry] = []
    actions: list[_ActionEntry] = []
    features: dict[str, str] = {}
    inputs: list[str] = []
    grid: dict[str, int | list[float]] = {}
    run: dict[str, Any] = {}


def task_from_file(path: Path) -> Task:
    """Read a task file.

    Raises:
        TaskError: it is malformed, or does not fit its environment; the message says what to write.
    """
    try:
        stated = _TaskFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{path.name} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise TaskError(f"{path.name} is not a UTF-8 text file") from None
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise TaskError(f"{path.name}: {explain(error)}") from None
    env = make(stated.gym_id, stated.kwargs)
    try:
        return _complete(stated, env, path.name)
    finally:
        env.close()


def explain(error: ValidationError) -> str:
    """All problems of a validated mapping in one line each, keys first."""
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"] if not re.match(r"(list|dict)\[|int$", str(part)))
        if problem["type"] == "extra_forbidden":
            parts.append(f"unknown key `{where}`")
        elif problem["type"] == "missing":
            parts.append(f"the key `{where}` is missing")
        else:
            parts.append(f"`{where}`: {problem['msg'][0].lower()}{problem['msg'][1:]}")
    return "; ".join(parts)


def _complete(stated: _TaskFile, env: gym.Env[Any, Any], where: str) -> Task:
    """The task of a file, with what the environment itself knows filled in."""
    kind, actuators = actuators_of(env.action_space)
    found = flat_names(env.observation_space)
    if stated.observations and len(stated.observations) != len(found):
        raise TaskError(
            f"{where}: `observations` names {len(stated.observations)} numbers, {stated.gym_id} gives {len(found)}"
        )
    if stated.observations:
        found = [
            replace(observation, name=entry.name, unit=entry.unit, about=entry.about)
            for observation, entry in zip(found, stated.observations, strict=True)
        ]
    if stated.actions:
        actuators = _named_actuators(stated.actions, actuators, where)
    spec_limit = env.spec.max_episode_steps if env.spec else None
    known = [observation.name for observation in found] + list(stated.features)
    _check_names(known, actuators, where)
    threshold = env.spec.reward_threshold if env.spec else None
    task = Task(
        name=stated.name,
        gym_id=stated.gym_id,
        kwargs=tuple(stated.kwargs.items()),
        observations=tuple(found),
        actuators=actuators,
        action_space=kind,
        max_steps=stated.max_steps or spec_limit or DEFAULT_MAX_STEPS,
        features=tuple(stated.features.items()),
        about=stated.about.strip(),
        hints=tuple(hint.strip() for hint in stated.hints),
        facts=(*(fact.strip() for fact in stated.facts), *_read_facts(stated, env, actuators)),
        discount=stated.discount,
        solved=stated.solved if stated.solved is not None else threshold,
        optimum=Optimum(stated.optimum.value, stated.optimum.source) if stated.optimum else None,
        run=tuple(stated.run.items()),
        inputs=_stated_inputs(stated.inputs, known, where),
        grid=_stated_grid(stated.grid, known, where),
    )
    _ = task.parsed_features  # a feature that does not parse is the file's fault: say so now
    return task


def _read_facts(stated: _TaskFile, env: gym.Env[Any, Any], actuators: Sequence[Actuator]) -> tuple[str, ...]:
    """What the simulator says: a model always, plain constants only where no author has stated those that matter."""
    if stated.about.strip() and not has_model(env):
        return ()
    return simulator_facts(env, [actuator.name for actuator in actuators])


def _stated_inputs(stated: Sequence[str], known: Sequence[str], where: str) -> tuple[str, ...]:
    unknown = [name for name in stated if name not in known]
    if unknown:
        raise TaskError(f"{where}: `inputs`: there is no quantity `{unknown[0]}`; known: {', '.join(known)}")
    return tuple(stated)


def _stated_grid(stated: Mapping[str, int | list[float]], known: Sequence[str], where: str) -> Grid | None:
    if not stated:
        return None
    dimensions = []
    for name, edges in stated.items():
        if name not in known:
            raise TaskError(
                f"{where}: `grid.{name}`: there is no such observation or feature; known: {', '.join(known)}"
            )
        if isinstance(edges, int) and not 1 <= edges <= MAX_CELLS:
            raise TaskError(f"{where}: `grid.{name}` has {edges:,} bins; give 1 to {MAX_CELLS:,}, or a list of edges")
        try:
            dimensions.append(integers(name, edges) if isinstance(edges, int) else Dimension(name, tuple(edges)))
        except UsageError as error:
            raise TaskError(f"{where}: {error}") from None
    try:
        return Grid(tuple(dimensions))
    except UsageError as error:
        raise TaskError(f"{where}: {error}") from None


def _named_actuators(
    stated: Sequence[_ActionEntry], actuators: tuple[Actuator, ...], where: str
) -> tuple[Actuator, ...]:
    if len(stated) != len(actuators):
        raise TaskError(f"{where}: `actions` has {len(stated)} entries, the environment takes {len(actuators)}")
    named = []
    for entry, actuator in zip(stated, actuators, strict=True):
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
            )
        )
    return tuple(named)


def _check_names(quantities: Sequence[str], actuators: Sequence[Actuator], where: str) -> None:
    """Refuse what a table or an equation could not name, or could not tell apart (case does not count in a table)."""
    columns = [*quantities, *(actuator.name for actuator in actuators)]
    for name in columns:
        if not is_name(name):
            raise TaskError(f"{where}: `{name}` is not a name; use letters, digits, underscores and no word of Python")
    for actuator in actuators:
        if actuator.name in ("step", "cell", "reward"):
            raise TaskError(f"{where}: an action cannot be called `{actuator.name}`, which is a column of every trace")
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
