"""The immutable `Task`: an environment, with names for policies, requirements and perturbations."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from policygen.errors import ExpressionError, TaskError, UsageError
from policygen.quantities.grid import MAX_CELLS, Grid, integer_dimension
from policygen.quantities.operations import column_of
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Node
from policygen.tasks.actions import ActionLayout, Limits, limits_of
from policygen.tasks.spaces import ActionKind, Actuator, Height, Layout, Observation, ObservedText, TextPart

PolicyKind = Literal["table", "linear"]
# Words for users: equations need not be linear in the observations.
KIND_WORDS = {"table": "table", "linear": "equations"}

_NAME_OR_QUOTED = re.compile(r'"[^"]*"|[A-Za-z_]\w*')
DEFAULT_MAX_STEPS = 1_000  # for environments that set no time limit of their own

_CHANGES = re.compile(r"([A-Za-z_]\w*)\s+changes")
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(steps?|s|ms)")
_INFO = re.compile(r"\binfo_([A-Za-z_]\w*)")
MOST_REQUIREMENTS = 50

SENSORS = {
    "sensor_noise": "standard deviation of normal noise on each observation, as a share of its spread",
    "sensor_bias": "constant offset of each observation, of random sign, as a share of its spread",
    "sensor_dropout": "probability that a step repeats the previous observation",
}
PHYSICS = {
    "mass": "factor on the masses and inertias of a MuJoCo model",
    "friction": "factor on the friction of a MuJoCo model",
    "motor": "factor on the forces of a MuJoCo model's motors",
}
PERTURBATIONS = {
    **SENSORS,
    "action_delay": "number of steps by which actions are delayed; until the first one acts, numbers are 0",
    "actuator_gain": "factor on the action",
    "random_start": "number of random actions before an episode begins",
    **PHYSICS,
}
OF_SPREAD = ("sensor_noise", "sensor_bias")  # sizes are shares; that of `NAME.SIGNAL` has the unit of the signal
NOMINAL = dict.fromkeys(("actuator_gain", *PHYSICS), 1.0)  # sizes that change nothing; 0 for the others
STEP_COUNTS = ("action_delay", "random_start")  # sizes are whole numbers
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_OPTION = re.compile(rf"([\w.]+)=({_NUMBER})(?:\.\.({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on the steps of an episode, in the language of policies: either `always` or `at_end`.

    Attributes:
        always: a condition that must hold at every step; with `after` or `within`, at every step that is at least
            `within` steps after an event.
        at_end: a condition that must hold at the last observation (`finally` in task files).
        after: a condition, which may be `NAME changes`; each step at which it holds is an event. If it is empty, the
            only event is the start of the episode.
        within: number of steps.
        hard: whether a policy that violates it too often cannot become the best.
        allowed: share of episodes that may violate it.
    """

    name: str
    always: str = ""
    at_end: str = ""
    after: str = ""
    within: int | None = None
    hard: bool = True
    allowed: float = 0.01

    @property
    def condition(self) -> str:
        """The text of the condition."""
        return self.always or self.at_end

    def __str__(self) -> str:
        """Return it in words: `always error < 0.1, from 20 steps after reference changes on`."""
        words = f"{'always' if self.always else 'finally'} {self.condition}"
        if self.after or self.within is not None:
            words += f", from {self.within or 0} step{'s' * (self.within != 1)} after {self.after or 'the start'} on"
        return words

    @property
    def info_names(self) -> frozenset[str]:
        """The keys of the environment's `info` that it reads as `info_KEY`."""
        return frozenset(_INFO.findall(f"{self.condition} {self.after}"))


def parsed_requirement(
    requirement: Requirement, names: Sequence[str], texts: Sequence[str]
) -> tuple[Node, Node | None]:
    """Return the condition and the event of a requirement as expressions; the event is None without `after`.

    Args:
        names: names of quantities and of parts of the decision; `info_KEY` may be read, too.
        texts: names of observed texts.

    Raises:
        TaskError: an expression cannot be parsed, or `after` or `within` is given for a condition at the end.
    """
    if requirement.at_end and (requirement.after or requirement.within is not None):
        raise TaskError(f"requirement `{requirement.name}`: `after` and `within` are for `always`; leave them out")
    names = [*names, *(f"info_{key}" for key in sorted(requirement.info_names) if f"info_{key}" not in names)]
    event = _CHANGES.sub(r"(\1 != prev(\1, \1))", requirement.after)
    try:
        condition = parse_expression(requirement.condition, names, texts=texts)
        return condition, parse_expression(event, names, texts=texts) if event else None
    except ExpressionError as error:
        raise TaskError(f"requirement `{requirement.name}`: {error}") from None


def steps_of(duration: str, seconds: float | None) -> int:
    """Convert a duration such as `20 steps` or `0.4 s` to a number of steps.

    Args:
        seconds: the length of a step in seconds; None if unknown.

    Raises:
        TaskError: `duration` is not a duration, or is a time while the length of a step is unknown.
    """
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise TaskError(f"`within = {duration!r:.40}` is not a duration; write `20 steps` or `0.4 s`")
    if match[2].startswith("step"):
        return round(float(match[1]))
    if seconds is None:
        what = "the length of a step is unknown; write `step_seconds = 0.02` in the task file, or `within` in steps"
        raise TaskError(what)
    return round(float(match[1]) * (0.001 if match[2] == "ms" else 1) / seconds)


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A perturbation whose size is drawn uniformly between `low` and `high` in each episode.

    Attributes:
        name: one of `PERTURBATIONS`; one of `OF_SPREAD` with a signal, as in `sensor_noise.position`; or `kwargs.NAME`
            for a keyword argument of the environment.
        spread: the spread of each observed number, of which the size is a share; empty if not measured yet.
    """

    name: str
    low: float
    high: float
    spread: tuple[float, ...] = field(default=(), compare=False)

    @property
    def kind(self) -> str:
        """The name without a signal: one of `PERTURBATIONS`, or `kwargs`."""
        return self.name.partition(".")[0]

    @property
    def signal(self) -> str:
        """The observation or keyword argument that is perturbed; empty if the name has none."""
        return self.name.partition(".")[2]

    @property
    def described(self) -> str:
        """The name, size and meaning, for a prompt."""
        meaning = f"the environment's argument {self.signal}" if self.kind == "kwargs" else PERTURBATIONS[self.kind]
        if self.signal and self.kind in OF_SPREAD:
            meaning = f"{meaning.partition(', as a share')[0]}, in the unit of {self.signal}"
        size = f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f"{self.name} {size} ({meaning})"

    @property
    def in_words(self) -> str:
        """Its name and size with the unit: `sensor_noise=0.02 standard deviations`."""
        steps = f" step{'s' * (self.high != 1)}" if self.name in STEP_COUNTS else ""
        return f"{self}{' standard deviations' if self.name in OF_SPREAD else steps}"

    def __str__(self) -> str:
        size = f"{self.low:g}" if self.low == self.high else f"{self.low:g}..{self.high:g}"
        return f"{self.name}={size}"


def perturbation(name: str, low: float, high: float, spread: tuple[float, ...] = ()) -> Perturbation:
    """Return a perturbation; raise UsageError if there is none of this name, or its size is not allowed."""
    kind, dot, signal = name.partition(".")
    if not (signal.isidentifier() and kind in (*OF_SPREAD, "kwargs") if dot else name in PERTURBATIONS):
        raise UsageError(
            f"there is no perturbation `{name:.60}`; known are {', '.join(PERTURBATIONS)}, kwargs.NAME, and for one "
            f"signal {', '.join(f'{share}.NAME' for share in OF_SPREAD)}"
        )
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"perturbation {name}: {low:g} to {high:g} is not a range; write the lower number first")
    if kind in PERTURBATIONS and low < 0:
        raise UsageError(f"perturbation {name}: {low:g} is below 0; write 0 or more")
    if name == "sensor_dropout" and high > 1:
        raise UsageError(f"perturbation {name}: {high:g} is above 1; write 1 or less")
    if name in STEP_COUNTS and (low != round(low) or high != round(high)):
        raise UsageError(f"perturbation {name} is a number of steps; write whole numbers")
    return Perturbation(name, low, high, spread)


def read_perturbation(text: str) -> Perturbation:
    """Read `NAME=SIZE` or `NAME=LOW..HIGH`; raise UsageError for anything else, as `perturbation` does."""
    match = _OPTION.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f"--perturb {text:.60}: write NAME=SIZE or NAME=LOW..HIGH, for example action_delay=1..3")
    return perturbation(match[1], float(match[2]), float(match[3] or match[2]))


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best known expected return, and its source."""

    value: float
    source: str


@dataclass(frozen=True)
class Task:
    """An environment, with names for policies, requirements and perturbations.

    Attributes:
        observations: the observed numbers.
        actuators: the components of an action.
        kwargs: keyword arguments of the environment.
        texts: observed texts, in which features search for phrases.
        features: named expressions of observations and earlier features.
        reward, ends: the documented reward of a step, and the documented condition that ends an episode, in the
            language of plants (see `policygen.extensions.plants.equations`); if empty, they are fitted to data.
        starts: documented distributions of observations at the start of an episode: `uniform(LOW, HIGH)` or
            `normal(MEAN, DEVIATION)`.
        requirements: conditions that episodes must meet, whatever their return.
        perturb: perturbations of the environment, whose sizes are drawn in each episode.
        grid: bins of observations and features.
        about, hints: prose for the model.
        documentation: the documentation of the environment and its package; empty if there is `about`.
        facts: sentences about the system (masses, sizes, torques): first the task file's, then the simulator's.
        heights: heights of parts of a MuJoCo model, such as feet, to be shown in the rows of episodes.
        inputs: quantities that the equations of the provider `builtin` read; if empty, all observations.
        layout: the nesting of the environment's observations; None for one array or number.
        action_layout: the structure of the environment's actions; None if an action is an array with one number per
            actuator, or the number itself for a single choice.
        solved: the mean return at or above which the task counts as solved.
        step_seconds: the length of a step in seconds, if known.
        run: default settings of a run of this task.
        assumed: guesses, one sentence each; a run prints them.
        untrusted: the file that the task is from, if the user does not trust it (see `policygen.tasks.trust`).
        unseeded: whether two episodes with the same seed differ.
        steps_taken: number of steps of the environment taken to load the task and to prepare a run of it.
        usual_steps: mean length of the random episodes that ended while the task was loaded; None if there were too
            few, or if longer ones return more, because better policies then play longer episodes.
        given: an environment or factory of this Python program (`UserEnv` of `policygen.tasks.environments`), used
            instead of `gym_id`; never saved.
    """

    name: str
    gym_id: str
    observations: tuple[Observation, ...]
    actuators: tuple[Actuator, ...]
    action_space: ActionKind
    max_steps: int
    kwargs: tuple[tuple[str, Any], ...] = ()
    texts: tuple[ObservedText, ...] = ()
    features: tuple[tuple[str, str], ...] = ()
    reward: str = ""
    ends: str = ""
    starts: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()
    perturb: tuple[Perturbation, ...] = ()
    grid: Grid | None = None
    about: str = ""
    hints: tuple[str, ...] = ()
    documentation: str = ""
    facts: tuple[str, ...] = ()
    heights: tuple[Height, ...] = ()
    inputs: tuple[str, ...] = ()
    layout: Layout | TextPart | None = None
    action_layout: ActionLayout | None = None
    discount: float = 0.99
    solved: float | None = None
    step_seconds: float | None = field(default=None, compare=False)
    optimum: Optimum | None = None
    run: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)
    untrusted: str = field(default="", compare=False)
    unseeded: bool = field(default=False, compare=False)
    steps_taken: int = field(default=0, compare=False)
    usual_steps: int | None = field(default=None, compare=False)
    given: Any = field(default=None, compare=False, repr=False)

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Names of the numbers of the flattened observation, in order."""
        return tuple(observation.name for observation in self.observations)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Names of the observed texts."""
        return tuple(text.name for text in self.texts)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a flattened observation: the numbers, then the columns of each text."""
        return self.observation_names + tuple(column_of(t.name, i) for t in self.texts for i in range(t.columns))

    @cached_property
    def width(self) -> int:
        """Number of columns of a flattened observation, texts included."""
        return len(self.observations) + sum(text.columns for text in self.texts)

    @cached_property
    def outputs_by_actuator(self) -> tuple[tuple[str, ...], ...]:
        """The `output_names` of each actuator: one for a number, one per label for a choice."""
        outputs: list[tuple[str, ...]] = []
        for actuator in self.actuators:
            is_only_choice = len(self.actuators) == 1 and all(label.isidentifier() for label in actuator.labels)
            labels = (label if is_only_choice else f"{actuator.name}_{label}" for label in actuator.labels)
            outputs.append(tuple(labels) if actuator.is_choice else (actuator.name,))
        return tuple(outputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The left-hand sides of equations: one per number, and one per label of a choice (its score)."""
        return tuple(itertools.chain.from_iterable(self.outputs_by_actuator))

    @property
    def output_slices(self) -> list[slice]:
        """The slice of each actuator's outputs in `output_names`."""
        ends = itertools.accumulate(map(len, self.outputs_by_actuator))
        return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]

    @cached_property
    def decision_names(self) -> tuple[str, ...]:
        """Names of the parts of a decision that `prev` can read: outputs and actuators.

        The output of a label is 1 if it was chosen, else 0; the actuator of a choice is the index of its label.
        """
        return tuple(dict.fromkeys([*self.output_names, *(actuator.name for actuator in self.actuators)]))

    @property
    def environment_words(self) -> str:
        """The environment and its arguments: `FrozenLake-v1 with is_slippery = True`."""
        made_with = ", ".join(f"{name} = {value}" for name, value in self.kwargs)
        return f"{self.gym_id} with {made_with}" if made_with else self.gym_id

    @property
    def has_numbers(self) -> bool:
        """Whether an action holds real numbers (float32), and not only indices of choices."""
        return self.action_space in ("box", "mixed")

    @cached_property
    def limits(self) -> Limits:
        """The bounds to which actions are clipped."""
        return limits_of(self.actuators, self.action_layout)

    @cached_property
    def parsed_features(self) -> tuple[tuple[str, Node], ...]:
        """The features as expressions, in order."""
        known = list(self.observation_names)
        later = [*(name for name, _ in self.features), *self.decision_names]
        parsed = []
        for name, text in self.features:
            try:
                parsed.append((name, parse_expression(text, known, later, self.text_names)))
            except ExpressionError as error:
                raise TaskError(f"task {self.name}: feature {name}: {error}") from None
            known.append(name)
        return tuple(parsed)

    @property
    def quantity_names(self) -> tuple[str, ...]:
        """Names of the numbers that a policy may read: observations and features."""
        return self.observation_names + tuple(name for name, _ in self.features)

    @cached_property
    def info_names(self) -> tuple[str, ...]:
        """The keys of `info` that the requirements read, sorted."""
        return tuple(sorted(frozenset().union(*(one.info_names for one in self.requirements))))

    @property
    def most_steps(self) -> int:
        """The largest number of steps of an episode, including the random ones before it."""
        return self.max_steps + max((int(one.high) for one in self.perturb if one.name == "random_start"), default=0)

    @property
    def needs_spread(self) -> bool:
        """Whether a perturbation is a share of a spread that has not been measured yet."""
        return any(one.name in OF_SPREAD and not one.spread for one in self.perturb)

    def trusted(self) -> Task:
        """Return the task, marked as trusted by the user."""
        return replace(self, untrusted="")

    @property
    def default_policy(self) -> PolicyKind:
        """The kind of policy in a run whose settings do not state one."""
        stated = dict(self.run).get("policy")
        if stated in ("table", "linear"):
            return stated  # type: ignore[no-any-return]
        return "table" if self.grid is not None and stated != "equations" else "linear"


def without_knowledge(task: Task) -> Task:
    """Return the task without names, units, prose, hints, facts, features and known optimum.

    This is the numbers-only setting of ProPS (NeurIPS 2025). The known `reward`, `ends` and `starts` are left out, too.
    Observations are called x0, x1, ..., texts t0, t1, ..., actuators a0, a1, ...; labels are numbers. The grid loses
    its features; if nothing remains, integer observations get one bin per value. Requirements use the new names.
    """
    names = {observation.name: f"x{i}" for i, observation in enumerate(task.observations)}
    observations = tuple(
        Observation(names[o.name], low=o.low, high=o.high, integer=o.integer) for o in task.observations
    )
    texts = tuple(ObservedText(f"t{i}", columns=text.columns) for i, text in enumerate(task.texts))
    actuators = tuple(
        Actuator(f"a{i}", tuple(str(k) for k in range(len(a.labels))), a.low, a.high)
        for i, a in enumerate(task.actuators)
    )
    dimensions = [
        replace(d, name=names[d.name]) for d in (task.grid.dimensions if task.grid else ()) if d.name in names
    ]
    if task.grid is not None and not dimensions:
        whole = (o for o in observations if o.integer and o.low == 0 and o.high < MAX_CELLS)
        dimensions = [integer_dimension(o.name, int(o.high) + 1) for o in whole]
    bare = replace(
        task,
        observations=observations,
        texts=texts,
        actuators=actuators,
        features=(),
        reward="",
        ends="",
        starts=(),
        inputs=(),
        grid=Grid(tuple(dimensions)) if dimensions else None,
        about="",
        hints=(),
        documentation="",
        facts=(),
        heights=(),
        optimum=None,
        assumed=(*task.assumed, "names, prose and features are withheld (--ablate knowledge)"),
    )
    return replace(bare, requirements=tuple(_renamed(task.requirements, task, bare)))


def _renamed(requirements: Sequence[Requirement], task: Task, bare: Task) -> Iterator[Requirement]:
    """Yield the requirements with the names of `bare`, and with the features of `task` written out."""
    old, new = ((*one.observation_names, *one.text_names, *one.decision_names) for one in (task, bare))
    values = dict(zip(old, new, strict=True))

    def renamed(text: str) -> str:
        return _NAME_OR_QUOTED.sub(lambda found: values.get(found[0], found[0]), text)

    for name, text in task.features:
        values[name] = f"({renamed(text)})"
    for i, one in enumerate(requirements, 1):
        always, at_end, after = (renamed(text) for text in (one.always, one.at_end, one.after))
        yield replace(one, name=f"requirement{i}", always=always, at_end=at_end, after=after)
