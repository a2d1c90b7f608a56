"""Task files: their keys, the task that a file and its environment describe together, and the file of a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, TypeVar

import gymnasium as gym
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from policygen.errors import EnvironmentFault, TaskError
from policygen.quantities.grid import MAX_CELLS, Dimension, Grid, integer_dimension
from policygen.quantities.text import is_name
from policygen.tasks.actions import RESERVED, ActionLayout, actuators_of, limits_of, with_bounds
from policygen.tasks.documentation import documentation_of, has_model, model_facts, step_seconds_of
from policygen.tasks.environments import opened
from policygen.tasks.spaces import (
    Actuator,
    Height,
    Observation,
    ObservedText,
    alike,
    layout_of,
    observed_in,
    span,
)
from policygen.tasks.task import (
    DEFAULT_MAX_STEPS,
    MOST_REQUIREMENTS,
    Optimum,
    Perturbation,
    Requirement,
    Task,
    parsed_requirement,
    perturbation,
    steps_of,
)
from policygen.tasks.warmup import UNSEEDED, WarmUp, ignores_seed, moving, warm_up

_MOST_INPUTS = 60  # quantities in the equations of `builtin`, unless a file states them
_LABEL = re.compile(r"[A-Za-z0-9_]{1,60}")
_Named = TypeVar("_Named", Observation, ObservedText)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _TextEntry(_Strict):
    name: str
    about: str = ""


class ObservationEntry(_TextEntry):
    """An observed number in a task file."""

    unit: str = ""
    derived: str = ""
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


class ActionEntry(_TextEntry):
    """An actuator in a task file."""

    name: str = "action"
    unit: str = ""
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    labels: list[str] = []
    levels: dict[str, FiniteFloat] = {}


class _HeightEntry(_Strict):
    name: str
    body: str | int
    spheres: list[tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]] = Field(min_length=1)


class _HarvestedEntry(_Strict):
    gymnasium: str
    observation_space: str
    action_space: str
    facts: list[str] = []


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


class TaskFile(_Strict):
    """The keys of a task file, in the order in which they are written."""

    name: str
    gym_id: str
    kwargs: dict[str, Any] = {}
    about: str = ""
    hints: list[str] = []
    facts: list[str] = []
    inputs: list[str] = []
    reward: str = ""
    ends: str = ""
    starts: dict[str, str] = {}
    max_steps: int | None = Field(default=None, gt=0, le=10_000_000)
    discount: float = Field(default=0.99, gt=0, le=1)
    solved: FiniteFloat | None = None
    step_seconds: float | None = Field(default=None, gt=0)
    optimum: _OptimumEntry | None = None
    observations: list[ObservationEntry] = []
    texts: list[_TextEntry] = []
    actions: list[ActionEntry] = []
    features: dict[str, str] = {}
    grid: dict[str, int | list[float]] = {}
    requirements: list[_RequirementEntry] = Field(default=[], max_length=MOST_REQUIREMENTS)
    perturb: dict[str, float | list[float] | dict[str, float | list[float]]] = {}
    run: dict[str, Any] = {}
    heights: list[_HeightEntry] = []
    harvested: _HarvestedEntry | None = None


def _refuse_if(wrong: bool, sentence: str) -> None:
    if wrong:
        raise TaskError(sentence)


def complete(
    stated: TaskFile,
    env: gym.Env[Any, Any],
    step_timeout: float,
    *,
    warm: WarmUp | None = None,
    unseeded: bool | None = None,
    step_seconds: float | None = None,
) -> Task:
    """Return the task of a file, with omitted keys filled in from the environment.

    Args:
        warm: recorded random episodes; if None, they are played now, unless the file has an `about`.
        unseeded: whether the environment ignores its seed; if None, two short episodes are played to see.
        step_seconds: the length of a step, if neither the file nor a MuJoCo model states it.
    """
    found, texts = observed_in(env.observation_space)
    found = _with_stated_names(found, stated.observations, "`observations` names {} numbers", stated.gym_id)
    texts = _with_stated_names(texts, stated.texts, "`texts` names {} texts", stated.gym_id)
    observed = [observation.name for observation in found]
    kind, actuators, action_layout = actuators_of(env.action_space, [*observed, *(text.name for text in texts)])
    if stated.actions:
        actuators = _named_actuators(stated.actions, actuators, action_layout)
    actuators, assumed = with_bounds(actuators)
    known = [*observed, *stated.features]
    _check_task_names([*known, *(text.name for text in texts)], actuators)
    unknown = [name for name in stated.inputs if name not in known]
    _refuse_if(bool(unknown), f"`inputs`: there is no quantity `{', '.join(unknown)}`; known: {', '.join(known)}")
    width = len(found) + sum(text.columns for text in texts)
    if unseeded is None:
        unseeded = ignores_seed(env, found, width, step_timeout)
    facts = [*stated.facts, *(stated.harvested.facts if stated.harvested is not None else ())]
    if not facts and stated.harvested is None:
        facts = list(model_facts(env, [a.name for a in actuators]))
    documentation, inputs = "", stated.inputs
    if not stated.about.strip():
        with suppress(EnvironmentFault):  # the search records a later failure, and continues
            warm = warm or warm_up(env, width, step_timeout)
            found = warm.described(found)
            if len(found) > _MOST_INPUTS and not inputs:
                inputs = [found[i].name for i in moving(warm.rows[:, : len(found)])[:_MOST_INPUTS]]
                words = f"equations of builtin read the first {len(inputs)} quantities that move; `inputs` names others"
                assumed = [*assumed, words]
        documentation = documentation_of(env)
    spec = env.spec
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
        max_steps=stated.max_steps or (spec and spec.max_episode_steps) or DEFAULT_MAX_STEPS,
        features=tuple(stated.features.items()),
        reward=stated.reward.strip(),
        ends=stated.ends.strip(),
        starts=tuple(stated.starts.items()),
        about=stated.about.strip(),
        hints=tuple(hint.strip() for hint in stated.hints),
        documentation=documentation,
        facts=tuple(fact.strip() for fact in facts),
        heights=_stated_heights(stated.heights, env),
        discount=stated.discount,
        solved=spec.reward_threshold if spec and stated.solved is None else stated.solved,
        optimum=Optimum(**stated.optimum.model_dump()) if stated.optimum else None,
        step_seconds=stated.step_seconds or step_seconds_of(env) or step_seconds,
        run=tuple(stated.run.items()),
        inputs=tuple(inputs),
        grid=_stated_grid(stated.grid, known),
        assumed=(*assumed, *([UNSEEDED] if unseeded else ())),
        unseeded=unseeded,
    )
    _ = task.parsed_features  # raises if a feature cannot be parsed
    if stated.perturb:
        task = replace(task, perturb=_stated_perturbations(stated))
        with opened(task):  # raises if a perturbation does not fit
            pass
    return replace(task, requirements=_stated_requirements(stated, task)) if stated.requirements else task


def _with_stated_names(found: list[_Named], entries: Sequence[_TextEntry], what: str, gym_id: str) -> list[_Named]:
    """Return the environment's observations or texts with the names, units and meanings that a file states, if any."""
    if not entries:
        return found
    _refuse_if(len(entries) != len(found), f"{what.format(len(entries))}; {gym_id} has {len(found)}")
    return [replace(one, **entry.model_dump(exclude_none=True)) for one, entry in zip(found, entries, strict=True)]


def _stated_heights(entries: Sequence[_HeightEntry], env: Any) -> tuple[Height, ...]:
    _refuse_if(
        bool(entries) and not has_model(env),
        "`heights` needs a MuJoCo model, which this environment does not have; leave it out",
    )
    for entry in entries:
        try:
            env.unwrapped.model.body(entry.body)
        except (KeyError, IndexError) as error:
            raise TaskError(f"`heights`: the model has no body {entry.body!r}: {error}") from None
    return tuple(Height(one.name, one.body, tuple(one.spheres)) for one in entries)


def _stated_requirements(stated: TaskFile, task: Task) -> tuple[Requirement, ...]:
    """Return the requirements of a file; raise TaskError if one cannot be parsed."""
    read: dict[str, Requirement] = {}
    decisions = [name for name in task.decision_names if name not in task.quantity_names]
    for entry in stated.requirements:
        name = entry.name
        _refuse_if(name in read, f"two requirements are called `{name}`; give each a name of its own")
        not_one_condition = bool(entry.always) == bool(entry.at_end)
        _refuse_if(not_one_condition, f"requirement `{name}` needs one condition: `always` or `finally`")
        steps = steps_of(entry.within, task.step_seconds) if entry.within else None
        read[name] = Requirement(**{**entry.model_dump(), "within": steps})
        parsed_requirement(read[name], [*task.quantity_names, *decisions], task.text_names)
    return tuple(read.values())


def _stated_perturbations(stated: TaskFile) -> tuple[Perturbation, ...]:
    found = []
    for name, value in stated.perturb.items():
        inner = {f"{name}.{key}": size for key, size in value.items()} if isinstance(value, dict) else {name: value}
        for full_name, size in inner.items():
            sizes = size if isinstance(size, list) else [size, size]
            _refuse_if(len(sizes) != 2, f"`perturb.{full_name}` is one number, or two: lowest and highest")
            found.append(perturbation(full_name, sizes[0], sizes[1]))
    return tuple(found)


def _stated_grid(stated: Mapping[str, int | list[float]], known: Sequence[str]) -> Grid | None:
    dimensions = []
    for name, edges in stated.items():
        remedy = f"name one of {', '.join(known)}, or delete the line"
        _refuse_if(name not in known, f"`grid.{name}`: there is no such observation or feature; {remedy}")
        if isinstance(edges, list):
            dimensions.append(Dimension(name, tuple(edges)))
        else:
            wrong = f"`grid.{name}` has {edges:,} bins; give 1 to {MAX_CELLS:,}, or a list of edges"
            _refuse_if(not 1 <= edges <= MAX_CELLS, wrong)
            dimensions.append(integer_dimension(name, edges))
    return Grid(tuple(dimensions)) if dimensions else None


def _named_actuators(
    stated: Sequence[ActionEntry], actuators: tuple[Actuator, ...], layout: ActionLayout | None
) -> tuple[Actuator, ...]:
    """Return the actuators with the names, labels, levels and bounds that a file states."""
    count = len(actuators)
    _refuse_if(len(stated) != count, f"`actions` has {len(stated)} entries; the environment needs {count}")
    named = []
    for entry, given, (*_, integer) in zip(stated, actuators, limits_of(actuators, layout).bounds, strict=True):
        name, choices = entry.name, len(given.labels)
        actuator = replace(given, name=name, about=entry.about, unit=entry.unit)
        if given.is_choice:
            bounds = entry.low is not None or entry.high is not None
            _refuse_if(bounds, f"action {name} is a choice; `low` and `high` are for numbers")
            _refuse_if(bool(entry.levels), f"action {name} is a choice; give `labels` instead of `levels`")
            wrong = len(entry.labels) not in (0, choices)
            _refuse_if(wrong, f"action {name} has {len(entry.labels)} labels for {choices} choices")
            named.append(replace(actuator, labels=tuple(entry.labels) or given.labels))
        else:
            _refuse_if(bool(entry.labels), f"action {name} is a number; give `levels` instead of `labels`")
            named.append(_with_stated_range(entry, actuator, integer=integer))
    return tuple(named)


def _with_stated_range(entry: ActionEntry, actuator: Actuator, *, integer: bool) -> Actuator:
    """Return the actuator with the levels and bounds of a file; these must lie within the environment's bounds."""
    stated = [bound for bound in (entry.low, entry.high) if bound is not None]
    has_fractions = integer and any(not bound.is_integer() for bound in stated)
    _refuse_if(has_fractions, f"action {entry.name} takes whole numbers; write whole numbers for `low` and `high`")
    # A file may round a single-precision bound.
    slack = 1e-6 * max([1.0, *map(abs, stated)])
    _refuse_if(
        any(not actuator.low - slack <= bound <= actuator.high + slack for bound in stated),
        f"action {entry.name} goes from {actuator.low:g} to {actuator.high:g} in the environment; state `low` and "
        "`high` within that",
    )
    low = actuator.low if entry.low is None else max(entry.low, actuator.low)
    high = actuator.high if entry.high is None else min(entry.high, actuator.high)
    is_empty = bool(stated) and low >= high
    _refuse_if(is_empty, f"action {entry.name} goes from {low:g} to {high:g}: state a `low` below its `high`")
    for name, value in entry.levels.items():
        _refuse_if(not low <= value <= high, f"level {name} of {entry.name} is outside {low:g} to {high:g}")
    return replace(actuator, low=low, high=high, levels=tuple(entry.levels.items()))


def _check_task_names(quantities: Sequence[str], actuators: Sequence[Actuator]) -> None:
    """Refuse names of quantities, actions and labels that are invalid, or that differ only in case."""
    columns = [*quantities, *(actuator.name for actuator in actuators)]
    for name in columns:
        wrong = (
            f"`{name:.60}` is not a name; use letters, digits and underscores, and no word with a meaning in policies"
        )
        _refuse_if(not is_name(name), wrong)
    outputs = actuators[0].labels if len(actuators) == 1 else ()
    _check_distinct([*quantities, *outputs])
    _check_distinct(columns)
    for a in actuators:
        _refuse_if(a.name in RESERVED, f"an action cannot be called `{a.name}`, which is a column of every trace")
        for word in a.names:
            wrong = f"the label `{word}` is not one word; use letters, digits and underscores"
            _refuse_if(not _LABEL.fullmatch(word), wrong)
        _check_distinct(a.names)


def _check_distinct(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        _refuse_if(name.lower() in seen, f"the name `{name}` is used twice")
        seen.add(name.lower())


def _stated_form(grid: Grid) -> dict[str, Any]:
    return {d.name: d.bins if d.has_integer_bins or not d.edges else list(d.edges) for d in grid.dimensions}


def draft_of(task: Task) -> str:
    """Return the text of a task file that loads to the same task, with the assumptions as comments above."""
    with opened(task, cut=False) as env:
        given, (observed, _) = actuators_of(env.action_space)[1], observed_in(env.observation_space)
    other_forms = {
        "about": task.about and f"{task.about}\n",
        "optimum": asdict(task.optimum) if task.optimum else None,
        "observations": [
            _without_empty(name=o.name, unit=o.unit, about=o.about, derived=o.derived) | _other_bounds(o, space)
            for o, space in zip(task.observations, observed, strict=True)
        ],
        "texts": [_without_empty(name=t.name, about=t.about) for t in task.texts],
        "actions": [
            _without_empty(name=a.name, unit=a.unit, about=a.about, labels=list(a.labels), levels=dict(a.levels))
            | _other_bounds(a, space)
            for a, space in zip(task.actuators, given, strict=True)
        ],
        "grid": _stated_form(task.grid) if task.grid is not None else {},
        "requirements": [
            _without_empty(
                **{"name": r.name, "always": r.always, "finally": r.at_end, "after": r.after},
                within=f"{r.within} steps" if r.within is not None else "",
                hard=r.hard,
                allowed=r.allowed,
            )
            for r in task.requirements
        ],
        "perturb": {one.name: [one.low, one.high] for one in task.perturb},
        "heights": list(map(asdict, task.heights)),
        "harvested": None,
    }
    for name in ("kwargs", "starts", "features", "run"):
        other_forms[name] = dict(getattr(task, name))
    stated = _without_empty(
        **{key: other_forms[key] if key in other_forms else getattr(task, key) for key in TaskFile.model_fields}
    )
    assumed = "".join(f"# Assumed: {sentence}.\n" for sentence in task.assumed)
    return assumed + tomli_w.dumps(stated, multiline_strings=True).rstrip()


def file_to_edit(task: Task) -> str:
    """Return the text of a task file to edit, with comments on what was found and assumed, and on optional keys."""
    groups = [(span(group), group[0]) for group in alike(task.observations)]
    found = [f"{name}, {'whole, ' if o.integer else ''}{o.low:g} to {o.high:g}" for name, o in groups]
    found += [f"{t.name}, a text" for t in task.texts]
    seen = [f"{name}: {o.seen}" for name, o in groups if o.seen]
    takes = [
        f"{a.name}, {f'one of {len(a.labels)} choices' if a.is_choice else f'{a.low:g} to {a.high:g}'}"
        for a in task.actuators
    ]
    lines = [
        f"{task.gym_id} as a task of policygen, ready to edit; models read all of it except comments.",
        f"Observations ({len(task.observations) + len(task.texts)}): {_listed(found)}.",
        f"Actions ({len(takes)}): {_listed(takes)}.",
        *(("Seen under random actions (sd: standard deviation):", *seen, *_TO_NAME) if seen else ()),
    ]
    # In comments, bins do not refer to names that the user may change.
    hidden = task.grid if task.default_policy == "linear" else None
    draft = draft_of(replace(task, grid=None) if hidden is not None else task)
    if hidden is not None:
        draft += "\n\n# Bins for --policy table; use the names of `observations`:\n"
        draft += "".join(f"# {line}\n" for line in tomli_w.dumps({"grid": _stated_form(hidden)}).splitlines())
    return "".join(f"# {line}\n" for line in lines) + draft + _OPTIONAL_KEYS


_MOST_SHOWN = 12
_TO_NAME = (
    "Name each of `observations` below, but keep their order. Without an `about`, prompts quote the environment's",
    "documentation.",
)
_OPTIONAL_KEYS = """

# Optional keys; keys outside a [table] go before the first [table] above:
# about = "What the system is, what is rewarded, how an episode ends."
# hints = ["Close the valve before the heater is on."]
# For --refine model, known parts of the system, in the language of plants:
# reward = "-(level - 1)^2"               the reward of a step
# ends = "level > 2"                      the condition that ends an episode
# starts = { level = "uniform(0, 1)" }    distributions of observations at the start of an episode
# In `observations`: unit = "m/s", about = "positive to the right".
# In `actions`: unit, about; for a choice labels = ["left", "right"]; for a number levels = { off = 0.0, full = 1.0 },
# and low = 0.0, high = 0.5, to which policies are clipped. Change names as you like, but keep the order.
# [features]        quantities computed from others, for policies and bins
# energy = "0.5*velocity^2 + 9.81*height"
# [grid]            bins of a table: edges, or a number of bins for whole numbers from 0
# velocity = [-1.0, 0.0, 1.0]
# [kwargs]          arguments of the environment
# [run]             settings of every run: policy = "linear", iterations = 40, ...
# step_seconds = 0.05                     the length of a step, for requirements such as `within = "0.4 s"`
# [[requirements]]  conditions on episodes; a policy that violates a hard one too often loses every comparison
# name = "no overflow"
# always = "level < 1.5"                  or finally = "abs(level - 1) < 0.1"
# [perturb]         differences of the real system, drawn anew in each episode
# action_delay = 1
# sensor_noise = 0.02
"""


def _other_bounds(stated: Observation | Actuator, found: Observation | Actuator) -> dict[str, float]:
    """Return the stated bounds that differ from those of the environment."""
    return {side: getattr(stated, side) for side in ("low", "high") if getattr(stated, side) != getattr(found, side)}


def _listed(words: Sequence[str]) -> str:
    return "; ".join(words[:_MOST_SHOWN]) + f"; and {len(words) - _MOST_SHOWN} more" * (len(words) > _MOST_SHOWN)


def _without_empty(**entry: Any) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value or value == 0}
