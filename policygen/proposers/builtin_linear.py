"""Equations proposed by `builtin`, a search without a language model: weights of standardised quantities.

Without tuning, an evolution strategy with one parent and a self-adapting step (the 1/5th success rule; Rechenberg 1973)
searches the weights; after a failed step it tries the mirror image. Weights and biases are relative to an actuator's
range, so units do not matter. The first proposal has all weights 0; the search starts with the best of some constant
actions. `--memory` adds terms: sine and cosine of a clock's phase and of twice the phase, which give every output a
rhythm with its own amplitude and shift, and an integral of each input.

With tuning (`--refine`), a proposal has all weights 0, or is a tuned policy for further tuning. A numerical search only
finds the nearest local optimum. So `builtin` starts two searches from weights 0 and continues the better one. When that
one stalls, it starts another. The run keeps the best policy of all searches. (Restarts as in Auger and Hansen 2005, "A
restart CMA evolution strategy with increasing population size", doi:10.1109/CEC.2005.1554902, but with the same
population.)

A search settles early which label (discrete action) wins for extreme observations, and small steps cannot exchange two
labels. So before a new search starts from weights 0, the best policy is tried with two labels exchanged. If that is a
new best policy, the search continues from it.

`n_NAME` is NAME minus its mean, divided by its standard deviation: the observation normalisation of augmented random
search (V2 in Mania, Guy and Recht, arXiv 1803.07055). It is an ordinary feature in the policy's text, such as
`let n_angle = (angle - 0.0123)/0.456`, so a policy needs nothing else to act. Tuning does not change these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from policygen.llm.messages import NO_MODEL
from policygen.policies.features import Reader
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.codegen import finite
from policygen.quantities.text import format_number, to_digits, to_text
from policygen.quantities.tree import (
    PREFIX,
    Name,
    Node,
    constants,
    is_standardised,
    nodes_of,
    signed_constants,
    with_constants,
    with_plain_signs,
)
from policygen.runs.attempt import Attempt, text_digest
from policygen.runs.state import Context
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

OWN = ("", NO_MODEL)  # `Requests.model` of attempts that no language model proposed
_FIRST_STEP = 1.0  # standard deviation of the first change of each weight
_FIRST_SHARE = 0.3  # first relative change of each constant of a policy by a model or the user
_RANDOM_STARTS = 4  # number of policies scored before the evolution strategy begins
CLOCK, SUM = "clock", "sum_"
RATE = 0.3  # first rate of the clock, in radians per step: a period of 21 steps
_WAVES = {f"{CLOCK}_{wave}{n}": f"{wave}({n}*{CLOCK})" for n in (1, 2) for wave in ("sin", "cos")}
_LOG_RATE_STEP = 0.5  # step of the logarithm of the clock's rate while the step of a weight is 1
# Spread relative to the largest value (the resolution of single precision); with less, a quantity counts as constant:
# it is centred, but not scaled.
MIN_SPREAD = 1e-7
MAX_LABELS = 12  # maximum number of labels of a single choice that are tried as constant actions
MAX_STARTS = 64  # maximum number of constant actions of several actuators
MIN_START = 1e-4  # smallest of their numbers, relative to the actuator's bound
FIRST_SEARCHES = 2  # number of searches that start before the better one is continued
# A search stalls if its last STALL_LENGTH proposals gained at most this share of its gain over random actions.
MIN_GAIN = 0.03
STALL_LENGTH = 3
MAX_FAILED_EXCHANGES = 3  # failed exchanges in a row before a new search starts from weights 0

Matrix = npt.NDArray[np.float64]  # weights of `terms_of`, and the bias as last row: shape (terms + 1, outputs)


def inputs_of(task: Task) -> Sequence[str]:
    """Return the quantities of a task that equations weigh."""
    return task.inputs or task.observation_names or task.quantity_names


def terms_of(task: Task, memory: bool) -> list[str]:
    """Return the names of an equation's terms: standardised inputs and, with memory, clock waves and integrals."""
    inputs = inputs_of(task)
    remembered = [*_WAVES, *(SUM + name for name in inputs)] if memory else []
    return [PREFIX + name for name in inputs] + remembered


def _rate_of(policy: Policy | None) -> float:
    """Return the rate of a policy's clock, in radians per step; `RATE` if it has no clock."""
    clock = dict(policy.lets).get(CLOCK) if policy is not None else None
    found = constants(clock) if clock is not None else ()
    return found[0] if len(found) == 1 else RATE


def next_linear(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    """Return a sentence about the next equations, and the equations as text."""
    terms = terms_of(context.task, context.memory)
    scored = [a for a in context.attempts if a.number > 0 and a.score is not None]
    best, own = context.incumbent, [one for one in context.attempts if one.requests.model in OWN]
    shape = (len(terms) + 1, len(context.task.output_names))
    rate, rate_step, parent = _rate_of(best), 0.0, _matrix_of(best, terms)
    tuned_before = context.best is not None and bool(context.best.tuned.refinement)
    if context.tuning is not None and context.tuning.episodes:
        # Tuning finds the numbers: it starts from weights of 0, later from tuned policies.
        of_a_model = context.best is not None and context.best.requests.model not in OWN
        tuned, exchanged = next_to_tune(own, best, rng) if not of_a_model else (best, False)
        if tuned is not None:
            words = "An earlier policy again, for the numerical search to tune further."
            if exchanged:
                words = "The best policy with two labels exchanged, for a numerical search to tune."
            return words, tuned.to_text()
        matrix, rate, another = np.zeros(shape), RATE, bool(_with_zero_weights(context.attempts))
        note = f"Weights of 0 over standardised quantities, for {'another' if another else 'a'} numerical search."
    elif not scored:
        matrix, note = np.zeros(shape), "Weights of 0 over standardised quantities: a constant action."
    elif isinstance(best, LinearPolicy) and parent is None:
        step = _FIRST_SHARE * _step_size(context.attempts)
        return f"The best policy with each constant changed by about {step:.0%}.", _randomly_changed(best, step, rng)
    elif (len(scored) < _RANDOM_STARTS and not tuned_before) or parent is None:
        matrix, rate_step = rng.normal(size=shape), 1.0
        note = "Random weights over standardised quantities."
    else:
        step = rate_step = _step_size(context.attempts) * (_FIRST_SHARE if tuned_before else 1.0)
        last = _matrix_of(scored[-1].policy, terms)
        if last is not None and not scored[-1].accepted and len(scored) % 2 == 1:
            matrix, rate_step = 2 * parent - last, 0.0
            rate *= rate / _rate_of(scored[-1].policy)
            note = "The mirror image of the last step, which did not help."
        else:
            matrix = parent + step * rng.normal(size=shape)
            note = f"A random step of size {step:.2g} from the best weights."
    # Only the differences between the scores of a choice matter, so its first score stays 0.
    outputs = zip(context.task.actuators, context.task.output_slices, strict=True)
    matrix[:, [part.start for actuator, part in outputs if actuator.is_choice]] = 0.0
    if context.memory:
        rate = float(np.clip(rate * np.exp(_LOG_RATE_STEP * rate_step * rng.normal()), 0.01, 3.0))
    return note, _standardised_policy(context, matrix, rate)


def random_linear(context: Context, rng: np.random.Generator) -> str:
    """Return equations with normally distributed weights of standardised quantities, as text."""
    shape = (len(terms_of(context.task, context.memory)) + 1, len(context.task.output_names))
    return _standardised_policy(context, rng.normal(size=shape), RATE)


def _matrix_of(policy: Policy | None, terms: Sequence[str]) -> Matrix | None:
    """Return the weights of equations that `_equations` wrote; None for equations of another form."""
    columns = [signed_constants(node) for _, node in policy.equations] if isinstance(policy, LinearPolicy) else []
    if policy is None or {*map(len, columns)} != {len(terms) + 1}:
        return None
    matrix = np.array(columns).T
    written = [f"{name} = {to_text(with_plain_signs(node))}" for name, node in policy.formulas()]
    return matrix if written == _equations(policy.task, terms, matrix) else None


def _equations(task: Task, terms: Sequence[str], matrix: Matrix) -> list[str]:
    lines, columns = [], iter(matrix.T.tolist())
    for actuator, outputs in zip(task.actuators, task.outputs_by_actuator, strict=True):
        middle, half = _middle_and_half(actuator)
        for output in outputs:
            *weights, bias = map(format_number, next(columns))
            weighed = [f"{weight}*{name}" for weight, name in zip(weights, terms, strict=True)]
            equation = " + ".join([*weighed, bias]).replace("+ -", "- ")
            if half != 1:
                equation = f"fixed({format_number(half)})*({equation})"
            if middle:
                equation += f" + fixed({format_number(middle)})"
            lines.append(f"{output} = {equation}")
    return lines


def _middle_and_half(actuator: Actuator) -> tuple[float, float]:
    """Return the middle and half the width of an actuator's range; 0 and 1 for a choice."""
    if actuator.is_choice:
        return 0.0, 1.0
    half = (actuator.high - actuator.low) / 2
    return (actuator.low + actuator.high) / 2, half if half > 0 else 1.0


def _randomly_changed(policy: LinearPolicy, step: float, rng: np.random.Generator) -> str:
    """Return a policy with each constant changed at random by about `step` times its size, as text."""

    def changed(node: Node) -> Node:
        values = np.array(constants(node))
        return with_constants(node, iter((values * (1 + step * rng.normal(size=len(values)))).tolist()))

    lets, equations = (tuple((name, changed(node)) for name, node in some) for some in (policy.lets, policy.equations))
    return replace(policy, lets=lets, equations=equations).to_text()


def _step_size(attempts: Sequence[Attempt]) -> float:
    """Return the step size: it grows with each new best policy and shrinks with other attempts (1/5th success rule)."""
    step = _FIRST_STEP
    for attempt in attempts[_RANDOM_STARTS + 1 :]:
        if attempt.score is not None:
            step *= 1.5 if attempt.accepted else 1.5**-0.25
    return float(np.clip(step, 0.02, 4.0))


def _standardised_policy(context: Context, matrix: Matrix, rate: float) -> str:
    """Return equations over standardised quantities, as text.

    Means and spreads are those of the episodes of random actions, so that weights of different attempts are comparable.
    Later searches take them from the first one, because the buffer may have evicted these episodes.

    Args:
        matrix: the weights, relative to the actuators' ranges, which are written as `fixed` numbers.
        rate: the clock's rate, in radians per step, if the policy has memory.
    """
    task, inputs = context.task, inputs_of(context.task)
    if earlier := _with_zero_weights(context.attempts):
        lines = [f"let {name} = {to_text(node)}" for name, node in earlier[0].lets if is_standardised(name, node)]
    else:
        episodes = [e for e in context.buffer if e.attempt == 0] or list(context.buffer)
        lines = definitions(task, [e.trajectory.observations for e in episodes], inputs)
    if context.memory:  # of these lines, tuning changes the rate only
        lines.append(f"let {CLOCK} = mod(prev({CLOCK}) + {rate:.4g}, fixed(2*pi))")
        lines += [f"let {name} = fixed({wave})" for name, wave in _WAVES.items()]
        lines += [f"let {SUM}{name} = fixed(clip(prev({SUM}{name}) + 0.05*{PREFIX}{name}, -1, 1))" for name in inputs]
    rounded = np.array([[to_digits(value, 4) for value in row] for row in matrix.tolist()])
    return "\n".join([*lines, *_equations(task, terms_of(task, context.memory), rounded)])


def definitions(task: Task, observations: Sequence[npt.NDArray[np.generic]], quantities: Sequence[str]) -> list[str]:
    """Return the lines that define `n_NAME` for each quantity; means and spreads have 4 significant digits.

    Args:
        observations: flattened observations, one array of shape (rows, d) per episode. Without episodes, means are
            those of a single observation of zeros, and spreads are 1.
        quantities: observations and features of the task.
    """
    rows = np.concatenate(observations) if observations else np.zeros((1, task.width), np.float32)
    reader = Reader(task)
    columns = dict(zip(reader.names, reader.columns(rows.T), strict=True))
    lines = []
    for name in quantities:
        with np.errstate(all="ignore"):
            values = finite(np.asarray(columns[name], np.float64))
            mean, spread = float(values.mean()), float(values.std())
            least = MIN_SPREAD * float(np.abs(values).max(initial=0.0))
        mean = to_digits(mean, 4) if math.isfinite(mean) else 0.0
        spread = to_digits(spread, 4) if least < spread < math.inf else 1.0
        shift = f"{'+' if mean < 0 else '-'} {format_number(abs(mean))}"
        lines.append(f"let {PREFIX}{name} = ({name} {shift})/{format_number(spread)}")
    return lines


# --- restarts of the numerical search --------------------------------------------------------------------------------


def next_to_tune(
    attempts: Sequence[Attempt], best: Policy | None, rng: np.random.Generator
) -> tuple[Policy | None, bool]:
    """Return the policy to tune next, and whether it is the run's best with two labels of a choice exchanged.

    It is the best policy of the current search or, if that has stalled, `best` with labels exchanged. None if a new
    search should start: at first, and after `MAX_FAILED_EXCHANGES` failed exchanges in a row.
    """
    scored = [one for one in attempts if one.number > 0 and one.score is not None]
    searches = _searches(scored)
    if len(searches) < FIRST_SEARCHES:
        return None, False
    exchanges = _digests_of_exchanges(scored)
    failed = [one[0].digests[0] in exchanges and not any(step.accepted for step in one) for one in searches]
    if len(searches) == len(scored):  # none has been continued yet
        current = max(searches, key=_best_score)
    else:
        continuing = (search for search, lost in zip(searches, failed, strict=True) if not lost)
        current = max(continuing, key=lambda search: search[-1].number)
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    gain = _best_score(current) - _best_score(current[:-STALL_LENGTH]) if len(current) > STALL_LENGTH else math.inf
    if gain > MIN_GAIN * abs(_best_score(current) - random):
        return max(current, key=_score).policy, False
    if isinstance(best, LinearPolicy) and not all(failed[-MAX_FAILED_EXCHANGES:]):
        known = {digest for one in scored for digest in one.digests}
        if others := [one for one in _exchanges(best) if text_digest(one) not in known]:
            return others[rng.integers(len(others))], True
    return None, False


def _digests_of_exchanges(attempts: Sequence[Attempt]) -> set[bytes]:
    """Return the text digests of all exchanges of two labels in policies that were the best."""
    bests = [one.policy for one in attempts if one.accepted and isinstance(one.policy, LinearPolicy)]
    return {text_digest(exchanged) for best in bests for exchanged in _exchanges(best)}


def _exchanges(policy: LinearPolicy) -> Iterator[LinearPolicy]:
    """Yield policies with the equations of two labels exchanged: each pair, if a choice has at least three labels."""
    nodes = dict(policy.equations)
    for outputs in policy.task.outputs_by_actuator:
        for one, other in combinations(outputs, 2) if len(outputs) > 2 else ():
            if nodes[one] != nodes[other]:
                exchanged = nodes | {one: nodes[other], other: nodes[one]}
                yield replace(policy, equations=tuple(exchanged.items()))


def constant_starts(policy: Policy) -> list[Policy]:
    """Return the policy and, if it is a table or all its weights are 0, variants of it with other constant actions.

    A single choice takes each of its first `MAX_LABELS`. Otherwise all actuators are at the same place of their
    ranges: an end, a quarter, or 0. Two or three actuators also take all combinations of ends and middles, and points
    of a Halton sequence, `MAX_STARTS` in all; among more actuators so few points would hit nothing.
    """
    actuators, starts = policy.task.actuators, [policy]
    if not isinstance(policy, TablePolicy) and not has_zero_weights(policy):
        return starts
    for places in _places(actuators):
        biases, action = list[float](), list[float]()
        for actuator, place in zip(actuators, places, strict=True):
            if actuator.is_choice:
                chosen = round((place + 1) / 2 * (len(actuator.labels) - 1))
                biases += [float(label == chosen) for label in range(len(actuator.labels))]
                action.append(float(chosen))
            else:
                middle, half = _middle_and_half(actuator)
                biases.append(to_digits(place, 4))
                action.append(to_digits(middle + half * place, 4))
        if isinstance(policy, TablePolicy):
            actions = np.tile(action, (policy.grid.size, 1))
            starts.append(TablePolicy.from_actions(policy.task, actions, policy.grid, policy.lets))
        elif isinstance(policy, LinearPolicy):
            equations = []
            for (name, node), bias in zip(policy.equations, biases, strict=True):
                values = [*constants(node)[:-1], bias]  # the bias is the last constant
                equations.append((name, with_constants(node, iter(values))))
            starts.append(replace(policy, equations=tuple(equations)))
    return list(dict.fromkeys(starts))


def _places(actuators: Sequence[Actuator]) -> Iterator[Sequence[float]]:
    """Yield constant actions as places in the ranges: -1 is the low end or first label, 1 the high end or last."""
    count = len(actuators)
    if count == 1 and actuators[0].is_choice:
        labels = len(actuators[0].labels)
        yield from ([2 * label / max(1, labels - 1) - 1] for label in range(min(labels, MAX_LABELS)))
        return
    yield from ([place] * count for place in (-1.0, 1.0, -0.5, 0.5))
    ranges = [(0.0, 1.0) if one.is_choice else _middle_and_half(one) for one in actuators]
    zeros = [float(np.clip(-middle / half, -1, 1)) for middle, half in ranges]
    yield zeros
    if count > 1 and 3**count <= MAX_STARTS:
        from scipy.stats.qmc import Halton  # start-up time

        corners = list(product((-1.0, 0.0, 1.0), repeat=count))
        yield from corners
        # Useful numbers are often far smaller than the bounds, so half of the numbers have any order of magnitude.
        for point in Halton(2 * count, scramble=False).random(MAX_STARTS - len(corners) + 1)[1:].tolist():
            parts = zip(point[:count], point[count:], zeros, strict=True)
            yield [2 * at - 1 if kind < 0.5 else _place_at(zero, at) for at, kind, zero in parts]


def _place_at(zero: float, at: float) -> float:
    """Map `at`, in [0, 1], to a place in the range; distances from `zero` have all orders of magnitude."""
    share = (zero + 1) / 2  # the part of the range below 0
    below = at < share
    exponent = at / share if below else (at - share) / (1 - share)
    return zero + (-1 - zero if below else 1 - zero) * math.pow(MIN_START, exponent)


def starts_new_search(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a proposal starts a search: its weights are 0, it exchanges labels, or its model made no earlier one."""
    own = [one for one in attempts if one.number > 0 and one.requests.model == attempt.requests.model]
    first = own[0] if own else attempt
    return has_zero_weights(attempt.policy) or attempt.digests[0] in {first.digests[0], *_digests_of_exchanges(own)}


def has_zero_weights(policy: Policy | None) -> bool:
    """Whether all quantities in the equations have a weight of 0, so that the action is constant."""
    if not isinstance(policy, LinearPolicy):
        return False
    for _, node in policy.equations:
        count = sum(isinstance(part, Name) for part in nodes_of(node))
        weights = constants(node)[:count]  # the last constant is the bias
        if len(weights) < count or any(weights):
            return False
    return True


def _with_zero_weights(attempts: Sequence[Attempt]) -> list[LinearPolicy]:
    """Return the proposals of `builtin` with all weights 0."""
    proposed = (one.proposed or one.policy for one in attempts if one.number > 0 and one.requests.model in OWN)
    return [one for one in proposed if isinstance(one, LinearPolicy) and has_zero_weights(one)]


def _searches(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group the attempts by search; an attempt belongs to the search whose policy it tunes further."""
    searches: list[list[Attempt]] = []
    by_policy: dict[bytes | None, list[Attempt]] = {}
    start = None
    for attempt in attempts:
        proposed, tuned = attempt.digests
        start = start or proposed
        is_start = proposed == start or has_zero_weights(attempt.proposed or attempt.policy)
        search = None if is_start else by_policy.get(proposed)
        if search is None:
            searches.append(search := [])
        search.append(attempt)
        by_policy[tuned] = search
    return searches


def _score(attempt: Attempt) -> float:
    assert attempt.score is not None
    return attempt.score.mean


def _best_score(search: Sequence[Attempt]) -> float:
    return max(map(_score, search))
