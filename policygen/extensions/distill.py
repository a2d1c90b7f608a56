"""Distillation: a table or equations that imitate a teacher, such as a neural network.

The teacher plays the first round. In each later round the last student plays, the teacher labels the states visited,
and a new student is fitted to all labels so far (DAgger; Ross, Gordon and Bagnell 2011, arXiv 1011.0686). The student
with the best mean return on held-out episodes is kept. If the teacher has action values
(`episodes.agents.action_values`), the weight of a state is the value of its best action minus that of its worst (VIPER;
Bastani, Pu and Solar-Lezama 2018, arXiv 1805.08328).

A cell of a table takes the label with most weight, or the mean of numbers; a cell without states copies the nearest
one. Equations start with all candidate terms; then those that cost least to leave out are removed, a few at a time
(costs as in Hassibi and Stork 1992, "Second order derivatives for network pruning: Optimal brain surgeon", NIPS 5).
Choices are fitted by multinomial logistic regression, numbers by least squares. Actions are clipped at their limits: if
a label is at a limit, an output beyond that limit is no error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.agents import action_values, play_labelled, score_agent
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
from policygen.proposers.proposer import Proposer
from policygen.quantities.compiled import compile_batch, finite
from policygen.quantities.text import is_name, parse_expression, to_digits
from policygen.quantities.tree import numbers
from policygen.runs.config import RunConfig
from policygen.runs.request_log import llm_options
from policygen.search.run import Run
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task, decision_names, output_names, output_slices

DEFAULTS = {"iterations": 3, "refine": "auto"}  # settings of the run that tunes a student
ROUNDS, MOST_TERMS = 10, 12  # rounds of labels, and terms of a student's equations
STEPS_OF_A_ROUND, EPISODES_AT_A_TIME, MOST_EPISODES = 2_000, 5, 100  # a round ends at the steps or the episodes
HELD_OUT_EPISODES = 50  # the best student on these is kept
LABELLING, HELD_OUT = "distillation", "distillation held-out"  # streams of seeds that runs do not use
DIGITS = 4  # significant digits of an equation's weights and a table's numbers
MOST_COMBINED = 12  # observations; with more, there are no products and thresholds of them
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of an observation: the thresholds of terms `max(x - threshold, 0)`
MOST_ROWS = 5_000  # labelled states, drawn at random, to which equations are fitted
SPREAD = 1e-8  # least standard deviation of a term
MAX_LOSS_INCREASE = 0.02  # by leaving terms out, as a share of the loss of constant outputs
PLAIN_FACTOR = 2.0  # on the cost of leaving out a plain quantity, which needs no definition
RIDGE = 1e-6  # weight of the squared weights in the loss
STEPS_OF_A_FIT = 500  # maximum number of optimiser steps
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelledStates:
    """The states that a teacher has labelled.

    Attributes:
        observations: flattened, shape (n, d).
        actions: the teacher's, one number per actuator, shape (n, m); a choice is the index of its label.
        weights: importance of each state, shape (n,).
    """

    observations: npt.NDArray[Any]
    actions: Array
    weights: Array


@dataclass(frozen=True, slots=True)
class Student:
    """A policy fitted to all labels up to a round, with its score.

    Attributes:
        number: the round, from 1.
        labels: number of labelled states so far.
        steps: number of environment steps so far, held-out episodes included.
        agreement: weighted share of the labels that the policy repeats; for actions with numbers, the coefficient of
            determination R^2.
        score: the score on the held-out episodes.
    """

    number: int
    policy: Policy
    labels: int
    steps: int
    agreement: float
    score: Score

    @property
    def rank(self) -> tuple[float, int]:
        """The sort key of students, best last: the mean return, then the fewest numbers."""
        return self.score.mean, -count_numbers(self.policy)

    def __str__(self) -> str:
        has_numbers = self.policy.task.has_numbers
        fit = f"R^2 {self.agreement:.3f} on" if has_numbers else f"agrees in {self.agreement:.1%} of"
        size = count_numbers(self.policy)
        return f"round {self.number}: {self.score}, {size} numbers, {fit} {self.labels:,} labels"


@dataclass(frozen=True, slots=True)
class TeacherComparison:
    """A comparison of a teacher and its student on the same fresh episodes.

    Attributes:
        teacher, before, after: scores of the teacher and of the student before and after tuning.
        numbers: number of numbers in the tuned student; see `count_numbers`.
        share: the tuned student's gain over random actions, as a share of the teacher's; None if unknown.
    """

    teacher: Score
    before: Score
    after: Score
    numbers: int
    share: float | None

    def lines(self) -> list[str]:
        """Return the scores, their differences and the student's size in words, a line each."""
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
    on_round: Callable[[Student], None] = lambda student: None,
) -> Student:
    """Return the best student of `rounds` rounds; its `labels` and `steps` are those of all rounds.

    Args:
        teacher: a policy, an object with `predict`, or a function; see `episodes.agents.play_agent`.
        config: settings of the run that will tune the student; its `policy`, `seed` and `jobs` apply here, too.
        on_round: called with the student of each round.

    Raises:
        UsageError: the teacher cannot act in this task, the task has no grid for a table, or the run is refused.
        PolicyError: the teacher fails, or returns something that is not an action.
    """
    Proposer(connect(config.llm, llm_options(config)), config).check(task)  # refuse now, not after the rounds
    if config.policy == "table" and task.grid is None:
        raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy equations or add one")
    fit = fit_table if config.policy == "table" else fit_equations
    rng = np.random.default_rng([config.seed, 1])
    gathered: list[LabelledStates] = []
    best: Student | None = None
    held_out_steps = 0
    policy: Any = teacher
    seeds = episode_seeds(config.seed, HELD_OUT, HELD_OUT_EPISODES)
    with Players(task, config.jobs, step_timeout=config.step_timeout) as players:
        for number in range(1, rounds + 1):
            gathered.append(_label_round(teacher, policy, task, config.seed, number))
            weights = np.concatenate([part.weights for part in gathered])
            labelled = LabelledStates(
                np.concatenate([part.observations for part in gathered]),
                np.concatenate([part.actions for part in gathered]),
                weights / weights.mean() if weights.any() else np.ones(len(weights)),
            )
            policy = fit(task, labelled, rng)
            played = players.play(policy, seeds)
            held_out_steps += sum(episode.length for episode in played)
            labels, score = len(labelled.weights), sampled_score(played, players.engine)
            student = Student(number, policy, labels, labels + held_out_steps, _agreement(policy, labelled), score)
            on_round(student)
            best = student if best is None or student.rank > best.rank else best
    assert best is not None, "there is at least one round"
    return replace(best, labels=student.labels, steps=student.steps)


def text_of(student: Policy, teacher: str) -> str:
    """Return the text of a student, with a comment that names the teacher, for the setting `start`."""
    return f"# distilled from {' '.join(teacher.split())}\n{student.to_text()}"


def compare_with_teacher(teacher: Any, student: Policy, run: Run) -> TeacherComparison:
    """Score a teacher and its student on the fresh episodes of a finished run that started from the student.

    If the run's final score is exact, the teacher plays as many episodes as a final score usually has.
    """
    tuned, after, random = run.search.incumbent, run.final, run.search.attempts[0].score
    assert tuned is not None, "the run began with a policy"
    assert after is not None, "the run is finished"
    seeds = after.seeds or episode_seeds(run.config.seed, "final", run.config.final_episodes)
    is_policy = isinstance(teacher, Policy)
    teacher_score = evaluate(teacher, seeds, task=run.task) if is_policy else score_agent(teacher, run.task, seeds)
    gain = teacher_score.mean - random.mean if random is not None else 0.0
    share = (after.mean - random.mean) / gain if random is not None and gain > 0 else None
    return TeacherComparison(teacher_score, evaluate(student, seeds), after, count_numbers(tuned), share)


def count_numbers(policy: Policy) -> int:
    """Count the numbers in a policy's expressions, and in those of the task's features that it reads.

    For a table also count its bin edges, and one number for each row and actuator.
    """
    named = [*policy.reader.needed, *policy.formulas()]
    count = sum(len(numbers(node, every=True)) for _, node in named)
    if isinstance(policy, TablePolicy):
        count += sum(len(dimension.edges) for dimension in policy.grid.dimensions)
        count += len(policy.rules) * len(policy.task.actuators)
    return count


# --- labels ----------------------------------------------------------------------------------------------------------


def _label_round(teacher: Any, student: Any, task: Task, seed: int, number: int) -> LabelledStates:
    """Play episodes of the student until a round has enough steps; return its states with the teacher's labels."""
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
    return LabelledStates(np.concatenate(rows), np.concatenate(actions).astype(np.float64), weights)


def _agreement(student: Policy, labelled: LabelledStates) -> float:
    acted = np.asarray(student.act(labelled.observations), np.float64).reshape(labelled.actions.shape)
    if not student.task.has_numbers:
        return float(np.average((acted == labelled.actions).all(axis=1), weights=labelled.weights))
    squared_error = ((acted - labelled.actions) ** 2).sum()
    return float(1 - squared_error / (((labelled.actions - labelled.actions.mean(axis=0)) ** 2).sum() or 1.0))


# --- tables ----------------------------------------------------------------------------------------------------------


def fit_table(task: Task, labelled: LabelledStates, rng: np.random.Generator) -> Policy:
    """Return the table over the task's grid that fits the labels; the module's docstring says how."""
    assert task.grid is not None
    cells, size = cell_reader(task, task.grid).cells(labelled.observations), task.grid.size
    decided = []
    for actuator, labels in zip(task.actuators, labelled.actions.T, strict=True):
        if actuator.is_choice:
            votes = [np.bincount(cells, labelled.weights * (labels == k), size) for k in range(len(actuator.labels))]
            decided.append(np.argmax(votes, axis=0).astype(np.float64))
        else:
            mean = np.bincount(cells, labels, size) / np.maximum(np.bincount(cells, minlength=size), 1)
            decided.append(np.clip([to_digits(value, DIGITS) for value in mean], actuator.low, actuator.high))
    seen = np.bincount(cells, minlength=size) > 0
    return TablePolicy.from_actions(task, nearest_seen(np.stack(decided, axis=1), seen, task.grid.shape))


# --- equations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """A candidate for an equation: its expression, its name as a feature, and its values, shape (n,)."""

    name: str
    text: str
    values: Array


def fit_equations(task: Task, labelled: LabelledStates, rng: np.random.Generator) -> Policy:
    """Return equations of a few terms that fit the labels; the module's docstring says how."""
    count = len(labelled.weights)
    some = rng.choice(count, min(MOST_ROWS, count), replace=False)
    labelled = LabelledStates(labelled.observations[some], labelled.actions[some], labelled.weights[some])
    terms = [term for term in candidates(task, labelled.observations) if term.values.std() > SPREAD]
    means = np.array([term.values.mean() for term in terms])
    spreads = np.array([term.values.std() for term in terms])
    # A column of ones for the constants, and the terms with mean 0 and spread 1.
    standardised = ((term.values - mean) / spread for term, mean, spread in zip(terms, means, spreads, strict=True))
    inputs = np.column_stack([np.ones(len(some)), *standardised])
    needs_definition = np.array([term.name != term.text for term in terms])
    regression = _Regression(task, labelled)
    kept = np.arange(len(terms))
    fit = regression.fitted(inputs)
    allowed = fit.loss + MAX_LOSS_INCREASE * regression.fitted(inputs[:, :1]).loss
    while len(kept):
        costs = np.where(needs_definition[kept], 1.0, PLAIN_FACTOR) * regression.costs(inputs[:, [0, *(kept + 1)]], fit)
        fewer = np.sort(np.argsort(costs)[max(1, len(kept) // 8) :])
        smaller = regression.fitted(inputs[:, [0, *(kept[fewer] + 1)]], fit.weights[[0, *(fewer + 1)]])
        if smaller.loss > allowed and len(kept) <= MOST_TERMS:
            break
        kept, fit = kept[fewer], smaller
    terms = [terms[i] for i in kept]
    weights = regression.in_units(fit.weights)
    raw = weights[1:] / spreads[kept, None]
    lines = [f"let {term.name} = {term.text}" for term in terms if term.name != term.text]
    for output, column, bias in zip(output_names(task), raw.T, weights[0] - means[kept] @ raw, strict=True):
        parts = [f"{to_digits(w, DIGITS):.10g}*{term.name}" for term, w in zip(terms, column, strict=True) if w]
        parts += [f"{to_digits(bias, DIGITS):.10g}"] if bias or not parts else []
        lines.append(f"{output} = {' + '.join(parts)}".replace("+ -", "- "))
    policy = parse("\n".join(lines), task, LinearPolicy.kind).policy
    assert policy is not None, "the lines are valid equations"
    return policy


def candidates(task: Task, observations: npt.NDArray[Any]) -> list[Term]:
    """Return the candidate terms of an equation, with their values for these observations.

    They are the task's quantities and, for at most `MOST_COMBINED` observations, `x*y` and `max(x - quantile, 0)`.
    """
    reader = Reader(task)
    columns = reader.columns(observations.T)
    texts = {name: name for name in task.quantity_names}
    few = task.observation_names if len(task.observations) <= MOST_COMBINED else ()
    for one, other in itertools.combinations_with_replacement(few, 2):
        texts[f"{one}_squared" if one == other else f"{one}_{other}"] = f"{one}*{other}"
    for name, column in zip(few, columns, strict=False):
        edges = dict.fromkeys(to_digits(float(edge), DIGITS) for edge in np.quantile(column, QUANTILES))
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
    """The weights of a constant and of some terms, shape (1 + terms, outputs), and their loss."""

    weights: Array
    loss: float


class _Regression:
    """The regression of the outputs of all actuators on a column of ones and some standardised terms."""

    def __init__(self, task: Task, labelled: LabelledStates) -> None:
        self._weights = labelled.weights[:, None] / labelled.weights.sum()
        self._targets = list(zip(task.actuators, output_slices(task), labelled.actions.T, strict=True))
        self._outputs = len(output_names(task))

    def fitted(self, inputs: Array, start: Array | None = None) -> _Fit:
        """Return the fit with the least loss to inputs of shape (n, 1 + terms)."""
        from scipy.optimize import minimize  # start-up time

        shape = (inputs.shape[1], self._outputs)

        def objective(flat: Array) -> tuple[float, Array]:
            loss, slopes, _ = self._loss(inputs @ flat.reshape(shape))
            return loss + RIDGE * float(flat @ flat), (inputs.T @ slopes).ravel() + 2 * RIDGE * flat

        begin = np.zeros(shape) if start is None else start
        found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS_OF_A_FIT})
        return _Fit(found.x.reshape(shape), float(found.fun))

    def costs(self, inputs: Array, fit: _Fit) -> Array:
        """Return how much the loss grows without each term, estimated from second derivatives: shape (terms,)."""
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
                # Outputs are clipped: one beyond the limit is no error if the label is at the limit.
                bound = np.where(labels >= actuator.high, wrong[:, 0] > 0, (labels <= actuator.low) & (wrong[:, 0] < 0))
                wrong[bound] = 0.0
                total += float((self._weights * wrong**2).sum()) / 2
                slopes[:, span] = self._weights * wrong
                curvatures[:, span] = self._weights * ~bound[:, None]
        return total, slopes, curvatures

    def in_units(self, weights: Array) -> Array:
        """Return weights in actuator units; those of a choice are relative to its first label, the largest being 1."""
        scaled = weights.copy()
        for actuator, span, labels in self._targets:
            if actuator.is_choice:  # only the order of its scores matters
                scaled[:, span] -= weights[:, span.start : span.start + 1]
                scaled[:, span] /= np.abs(scaled[:, span]).max() or 1.0
            else:
                scaled[:, span] *= _scale(actuator, labels)
        return scaled


def _scale(actuator: Actuator, labels: Array) -> float:
    """Return the unit of an actuator's errors, so that all weigh alike: half its range, or its labels' spread."""
    half = (actuator.high - actuator.low) / 2
    return half if np.isfinite(half) else float(labels.std()) or 1.0
