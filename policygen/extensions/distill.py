"""Distillation: a table or equations that imitate a teacher, such as a neural network.

The teacher plays first. In each further round the student of the round before plays, the teacher labels the states that
the student visits, and a new student is fitted to all labels so far (DAgger; Ross, Gordon and Bagnell 2011, arXiv
1011.0686). The student with the best mean return on held-out episodes is kept. If the teacher values its actions
(`episodes.guests.action_values`), a state weighs as much as its worst action would lose (VIPER; Bastani, Pu and
Solar-Lezama 2018, arXiv 1805.08328).

A cell of a table takes the label with most weight, or the mean of numbers; a cell without states copies the nearest
one. Equations weigh all terms on offer at first, and then ever fewer, without those that cost least (estimated as in
Hassibi and Stork 1992, "Second order derivatives for network pruning: Optimal brain surgeon", NIPS 5). Scores of labels
are fitted by multinomial logistic regression, numbers by least squares in which a label at its limit only bounds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.guests import action_values, play_labelled, score_guest
from policygen.episodes.players import Players, evaluate
from policygen.episodes.score import Score, difference, episode_seeds, sampled_score
from policygen.errors import UsageError
from policygen.llm import connect
from policygen.policies.features import Reader, cell_reader
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.rows import nearest_seen
from policygen.policies.table import TablePolicy
from policygen.proposers.make import make_proposer
from policygen.quantities.compiled import compile_batch, finite
from policygen.quantities.text import is_name, parse_expression
from policygen.quantities.tree import numbers
from policygen.runs.config import RunConfig
from policygen.runs.request_log import llm_options
from policygen.search.run import Run
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task, decision_names, output_names

DEFAULTS = {"iterations": 3, "refine": "auto"}  # of the run that tunes a student
ROUNDS, MOST_TERMS = 10, 12
STEPS_OF_A_ROUND, EPISODES_AT_A_TIME, MOST_EPISODES = 2_000, 5, 100
HELD_OUT = 50  # episodes that choose among the students
LABELLING, CHOOSING = "distillation", "distillation held-out"  # streams of seeds that runs do not use
DIGITS = 4  # significant ones of an equation's weights and a table's numbers
MOST_COMBINED = 12  # observations; of more, no further terms are made
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of an observation, where a term may begin to grow
MOST_ROWS = 5_000  # labelled states, drawn at random, to which equations are fitted
SPREAD = 1e-8  # least spread of a term
TOLERATED = 0.02  # what leaving terms out may add to the loss, as a share of the loss of constant outputs
PLAIN = 2.0  # factor on the cost of leaving out a quantity, which needs no definition
RIDGE = 1e-6  # weight of the squared weights in the loss
STEPS_OF_A_FIT = 500
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lessons:
    """The states that a teacher has labelled.

    Attributes:
        observations: flattened, shape (n, d).
        actions: the teacher's, one number per actuator, shape (n, m); a choice is the index of its label.
        weights: importance of each state, shape (n,), with mean 1.
    """

    observations: npt.NDArray[Any]
    actions: Array
    weights: Array


@dataclass(frozen=True, slots=True)
class Round:
    """A student: the fit to all labels up to a round.

    Attributes:
        labels: number of labelled states so far.
        steps: steps of the environment so far, also those of held-out episodes.
        agreement: share of these (by weight) in which it acts like the teacher; of numbers the coefficient of
            determination R^2.
        score: on the held-out episodes.
    """

    number: int
    policy: Policy
    labels: int
    steps: int
    agreement: float
    score: Score

    @property
    def rank(self) -> tuple[float, int]:
        """The order of students: the mean return, then the fewest numbers."""
        return self.score.mean, -count_numbers(self.policy)

    def __str__(self) -> str:
        return (
            f"round {self.number}: {self.score}, {count_numbers(self.policy)} numbers, agrees in {self.agreement:.1%} "
            f"of {self.labels:,} labels"
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """A teacher and its student on the same fresh episodes.

    Attributes:
        teacher, before, after: scores of the teacher and of the student before and after tuning.
        numbers: how many numbers the tuned student has.
        share: of the teacher's gain over random actions, what the tuned student keeps; None if that is unknown.
    """

    teacher: Score
    before: Score
    after: Score
    numbers: int
    share: float | None

    def lines(self) -> list[str]:
        """Describe them, a line each."""
        kept = f"; keeps {self.share:.1%} of the teacher's gain over random actions" if self.share is not None else ""
        return [
            f"teacher: {self.teacher}",
            f"student before tuning: {self.before}; difference {difference(self.before, self.teacher)}",
            f"student: {self.after}; difference {difference(self.after, self.teacher)}",
            f"the student has {self.numbers:,} numbers{kept}",
        ]


def distilled(
    teacher: Any,
    task: Task,
    config: RunConfig,
    *,
    rounds: int = ROUNDS,
    on_round: Callable[[Round], None] = lambda done: None,
) -> Round:
    """Return the best student of some rounds, with the labels and steps of all of them.

    Args:
        teacher: a policy, an object with `predict`, or a function; see `episodes.guests.play_guest`.
        config: settings of the run that will tune the student: its kind of policy, seed and processes.
        on_round: called with the student of each round.

    Raises:
        UsageError: the teacher cannot act in this task, the task has no grid for a table, or the run cannot be
            carried out.
        PolicyError: the teacher fails, or returns something that is not an action.
    """
    make_proposer(connect(config.llm, llm_options(config)), config).check(task)  # now, not after the rounds
    if config.policy == "table" and task.grid is None:
        raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy equations or add one")
    fit = fit_table if config.policy == "table" else fit_equations
    rng = np.random.default_rng([config.seed, 1])
    gathered: list[Lessons] = []
    best: Round | None = None
    choosing = 0
    student: Any = teacher
    seeds = episode_seeds(config.seed, CHOOSING, HELD_OUT)
    with Players(task, config.jobs, step_timeout=config.step_timeout) as players:
        for number in range(1, rounds + 1):
            gathered.append(_lessons(teacher, student, task, config.seed, number))
            lessons = _joined(gathered)
            student = fit(task, lessons, rng)
            played = players.play(student, seeds)
            choosing += sum(episode.length for episode in played)
            labels, score = len(lessons.weights), sampled_score(played, players.engine)
            done = Round(number, student, labels, labels + choosing, _agreement(student, lessons), score)
            on_round(done)
            best = done if best is None or done.rank > best.rank else best
    assert best is not None, "there is at least one round"
    return replace(best, labels=done.labels, steps=done.steps)


def text_of(student: Policy, teacher: str) -> str:
    """Return the text of a student with its origin, for the setting `start`."""
    return f"# distilled from {' '.join(teacher.split())}\n{student.to_text()}"


def compared(teacher: Any, student: Policy, run: Run) -> Kept:
    """Score a teacher and its student on the fresh episodes of a finished run that started from the student.

    If the run's final score is exact, the teacher plays as many episodes as a final score usually has.
    """
    tuned, after, random = run.search.incumbent, run.final, run.search.attempts[0].score
    assert tuned is not None, "the run began with a policy"
    assert after is not None, "the run is finished"
    seeds = after.seeds or episode_seeds(run.config.seed, "final", run.config.final_episodes)
    ours = isinstance(teacher, Policy)
    teaching = evaluate(teacher, seeds, task=run.task) if ours else score_guest(teacher, run.task, seeds)
    gain = teaching.mean - random.mean if random is not None else 0.0
    share = (after.mean - random.mean) / gain if random is not None and gain > 0 else None
    return Kept(teaching, evaluate(student, seeds), after, count_numbers(tuned), share)


def count_numbers(policy: Policy) -> int:
    """Count the numbers of a policy: in expressions, those of the task's features that it needs included.

    A table adds its bin edges, and one for each row and actuator.
    """
    named = [*policy.reader.needed, *policy.formulas()]
    count = sum(len(numbers(node, every=True)) for _, node in named)
    if isinstance(policy, TablePolicy):
        count += sum(len(dimension.edges) for dimension in policy.grid.dimensions)
        count += len(policy.rules) * len(policy.task.actuators)
    return count


# --- labels ----------------------------------------------------------------------------------------------------------


def _lessons(teacher: Any, student: Any, task: Task, seed: int, number: int) -> Lessons:
    """Play a round: episodes of the student until there are enough steps, labelled by the teacher."""
    seeds = episode_seeds(seed, LABELLING, MOST_EPISODES, MOST_EPISODES * (number - 1))
    rows: list[npt.NDArray[Any]] = []
    actions: list[npt.NDArray[Any]] = []
    seen: list[Any] = []
    for first in range(0, MOST_EPISODES, EPISODES_AT_A_TIME):
        played = play_labelled(teacher, student, task, seeds[first : first + EPISODES_AT_A_TIME])
        rows += [episode.observations[:-1] for episode in played.episodes]
        actions.append(played.actions.reshape(len(played.seen), -1))
        seen += played.seen
        if len(seen) >= STEPS_OF_A_ROUND:
            break
    values = action_values(teacher, task, seen) if task.action_space == "discrete" else None
    weights = np.ptp(values, axis=1) if values is not None else np.ones(len(seen))
    return Lessons(np.concatenate(rows), np.concatenate(actions).astype(np.float64), weights)


def _joined(parts: Sequence[Lessons]) -> Lessons:
    weights = np.concatenate([part.weights for part in parts])
    return Lessons(
        np.concatenate([part.observations for part in parts]),
        np.concatenate([part.actions for part in parts]),
        weights / weights.mean() if weights.any() else np.ones(len(weights)),
    )


def _agreement(student: Policy, lessons: Lessons) -> float:
    acted = np.asarray(student.act(lessons.observations), np.float64).reshape(lessons.actions.shape)
    if not student.task.has_numbers:
        return float(np.average((acted == lessons.actions).all(axis=1), weights=lessons.weights))
    left = ((acted - lessons.actions) ** 2).sum()
    return float(1 - left / (((lessons.actions - lessons.actions.mean(axis=0)) ** 2).sum() or 1.0))


# --- tables ----------------------------------------------------------------------------------------------------------


def fit_table(task: Task, lessons: Lessons, rng: np.random.Generator) -> Policy:
    """Return the table over the task's grid that fits the labels; see the module."""
    assert task.grid is not None
    cells, size = cell_reader(task, task.grid).cells(lessons.observations), task.grid.size
    decided = []
    for actuator, labels in zip(task.actuators, lessons.actions.T, strict=True):
        if actuator.is_choice:
            votes = [np.bincount(cells, lessons.weights * (labels == k), size) for k in range(len(actuator.labels))]
            decided.append(np.argmax(votes, axis=0).astype(np.float64))
        else:
            mean = np.bincount(cells, labels, size) / np.maximum(np.bincount(cells, minlength=size), 1)
            decided.append(np.clip([_rounded(value) for value in mean], actuator.low, actuator.high))
    seen = np.bincount(cells, minlength=size) > 0
    return TablePolicy.from_actions(task, nearest_seen(np.stack(decided, axis=1), seen, task.grid.shape))


# --- equations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """A candidate for an equation: its expression, its name as a feature, and its values, shape (n,)."""

    name: str
    text: str
    values: Array

    @property
    def standardised(self) -> Array:
        """Its values, with mean 0 and spread 1."""
        scaled: Array = (self.values - self.values.mean()) / self.values.std()
        return scaled


def fit_equations(task: Task, lessons: Lessons, rng: np.random.Generator) -> Policy:
    """Return equations over a few terms that fit the labels; see the module."""
    count = len(lessons.weights)
    some = rng.choice(count, min(MOST_ROWS, count), replace=False)
    lessons = Lessons(lessons.observations[some], lessons.actions[some], lessons.weights[some])
    terms = [term for term in candidates(task, lessons.observations) if term.values.std() > SPREAD]
    columns = np.stack([np.zeros(len(some)), *(term.standardised for term in terms)], axis=1)[:, 1:]
    needs_definition = np.array([term.name != term.text for term in terms])
    regression = _Regression(task, lessons)
    kept = np.arange(len(terms))
    fit = regression.fitted(columns)
    allowed = fit.loss + TOLERATED * regression.fitted(columns[:, :0]).loss
    while len(kept):
        costs = np.where(needs_definition[kept], 1.0, PLAIN) * regression.costs(columns[:, kept], fit)
        fewer = np.sort(np.argsort(costs)[max(1, len(kept) // 8) :])
        smaller = regression.fitted(columns[:, kept[fewer]], fit.weights[[0, *(fewer + 1)]])
        if smaller.loss > allowed and len(kept) <= MOST_TERMS:
            break
        kept, fit = kept[fewer], smaller
    return _policy(task, [terms[i] for i in kept], regression.in_units(fit.weights))


def candidates(task: Task, observations: npt.NDArray[Any]) -> list[Term]:
    """Return the terms on offer with their values in some states.

    They are the task's quantities and, of few observations, products of two, and the part of each above a quantile.
    """
    reader = Reader(task)
    columns = reader.columns(observations.T)
    texts = {name: name for name in task.quantity_names}
    few = task.observation_names if len(task.observations) <= MOST_COMBINED else ()
    for one, other in itertools.combinations_with_replacement(few, 2):
        texts[f"{one}_squared" if one == other else f"{one}_{other}"] = f"{one}*{other}"
    for name, column in zip(few, columns, strict=False):
        edges = dict.fromkeys(_rounded(float(edge)) for edge in np.quantile(column, QUANTILES))
        for k, edge in enumerate(edges, start=1):
            texts[f"{name}_above_{k}"] = f"max({name} - {edge:.10g}, 0)".replace("- -", "+ ")
    terms = []
    for name, text in texts.items():
        if name == text or (is_name(name) and name not in {*task.quantity_names, *decision_names(task)}):
            node = parse_expression(text, task.quantity_names)
            values = np.asarray(compile_batch(node, reader.names)(columns), np.float64)
            terms.append(Term(name, text, finite(np.broadcast_to(values, len(observations)))))
    return terms


@dataclass(frozen=True, slots=True)
class _Fit:
    """Weights of a constant and of some columns, shape (1 + columns, outputs), and their loss."""

    weights: Array
    loss: float


class _Regression:
    """Outputs of all actuators that are linear in a constant and some columns."""

    def __init__(self, task: Task, lessons: Lessons) -> None:
        self._weights = lessons.weights[:, None] / lessons.weights.sum()
        ends = itertools.accumulate(max(1, len(actuator.labels)) for actuator in task.actuators)
        spans = [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
        self._targets = list(zip(task.actuators, spans, lessons.actions.T, strict=True))
        self._outputs = len(output_names(task))

    def fitted(self, columns: Array, start: Array | None = None) -> _Fit:
        """Return the fit of standardised columns, shape (n, k), with the least loss."""
        from scipy.optimize import minimize  # start-up time

        inputs = _with_ones(columns)
        shape = (inputs.shape[1], self._outputs)

        def objective(flat: Array) -> tuple[float, Array]:
            loss, slopes, _ = self._loss(inputs @ flat.reshape(shape))
            return loss + RIDGE * float(flat @ flat), (inputs.T @ slopes).ravel() + 2 * RIDGE * flat

        begin = np.zeros(shape) if start is None else start
        found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS_OF_A_FIT})
        return _Fit(found.x.reshape(shape), float(found.fun))

    def costs(self, columns: Array, fit: _Fit) -> Array:
        """Return an estimate, from second derivatives, of what the loss grows by without each column, shape (k,)."""
        inputs = _with_ones(columns)
        _, _, curvatures = self._loss(inputs @ fit.weights)
        costs = np.zeros(len(fit.weights))
        for weights, curvature in zip(fit.weights.T, curvatures.T, strict=True):
            hessian = inputs.T @ (curvature[:, None] * inputs) + 2 * RIDGE * np.eye(len(weights))
            costs += weights**2 / np.diag(np.linalg.inv(hessian)) / 2
        return costs[1:]

    def _loss(self, outputs: Array) -> tuple[float, Array, Array]:
        """Return the mean loss of outputs of shape (n, outputs), and its first and second derivatives by each."""
        total, slopes, curvatures = 0.0, np.zeros_like(outputs), np.zeros_like(outputs)
        for actuator, span, labels in self._targets:
            part = outputs[:, span]
            if actuator.is_choice:
                scores = part - part.max(axis=1, keepdims=True)
                logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
                right = np.arange(part.shape[1]) == labels[:, None]
                total -= float((self._weights * logs * right).sum())
                slopes[:, span] = self._weights * (np.exp(logs) - right)
                curvatures[:, span] = self._weights * np.exp(logs) * (1 - np.exp(logs))
            else:
                wrong = part - labels[:, None] / _scale(actuator, labels)
                # The output is clipped, so beyond a limit it is as right as at the limit.
                bound = np.where(labels >= actuator.high, wrong[:, 0] > 0, (labels <= actuator.low) & (wrong[:, 0] < 0))
                wrong[bound] = 0.0
                total += float((self._weights * wrong**2).sum()) / 2
                slopes[:, span] = self._weights * wrong
                curvatures[:, span] = self._weights * ~bound[:, None]
        return total, slopes, curvatures

    def in_units(self, weights: Array) -> Array:
        """Return weights in the units of the actuators, with 0 for the first label of a choice and 1 as the largest."""
        scaled = weights.copy()
        for actuator, span, labels in self._targets:
            if actuator.is_choice:  # its scores decide by the signs of their differences
                scaled[:, span] -= weights[:, span.start : span.start + 1]
                scaled[:, span] /= np.abs(scaled[:, span]).max() or 1.0
            else:
                scaled[:, span] *= _scale(actuator, labels)
        return scaled


def _scale(actuator: Actuator, labels: Array) -> float:
    """Return the size of a number's labels, so that all actuators count alike: half its range if that is finite."""
    half = (actuator.high - actuator.low) / 2
    return half if np.isfinite(half) else float(labels.std()) or 1.0


def _with_ones(columns: Array) -> Array:
    return np.column_stack([np.ones(len(columns)), columns])


def _policy(task: Task, terms: Sequence[Term], weights: Array) -> Policy:
    """Return the equations for weights of a constant and of standardised terms, shape (1 + terms, outputs)."""
    spreads = np.array([term.values.std() for term in terms])
    means = np.array([term.values.mean() for term in terms])
    raw = weights[1:] / spreads[:, None]
    biases = weights[0] - means @ raw
    lines = [f"let {term.name} = {term.text}" for term in terms if term.name != term.text]
    for output, column, bias in zip(output_names(task), raw.T, biases, strict=True):
        parts = [f"{_rounded(w):.10g}*{term.name}" for term, w in zip(terms, column, strict=True) if w]
        parts += [f"{_rounded(bias):.10g}"] if bias or not parts else []
        lines.append(f"{output} = {' + '.join(parts)}".replace("+ -", "- "))
    policy = parse("\n".join(lines), task, LinearPolicy.kind).policy
    assert policy is not None, "it has been written here"
    return policy


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
