"""Equations proposed by `builtin`, a search without a language model: weights of standardised quantities.

An evolution strategy with one parent and a self-adapting step (the 1/5th success rule; Rechenberg 1973) searches the
weights; after a failed step it tries the mirror image. Weights and biases of a number are relative to its range, so
that units do not matter. The first proposal has all weights 0: of a handful of constant actions, the search then takes
the best. With `--memory`, further terms are sine and cosine of a clock's phase and of twice the phase, which give every
output a rhythm with its own amplitude and shift, and an integral of each input.

With tuning (`--refine`), a proposal has all weights 0, or it is a tuned policy for further tuning. A numerical search
finds only the nearest local optimum. So `builtin` starts two searches from weights 0 and continues the better one. When
that one stalls, it starts another. The run keeps the best policy of all searches. (Restarts as in Auger and Hansen
2005, "A restart CMA evolution strategy with increasing population size", doi:10.1109/CEC.2005.1554902, but with the
same population.)

A search settles early which label (discrete action) wins for extreme observations, and no small step exchanges two
labels. So before a new search starts from weights 0, the best policy is tried with two labels exchanged. If that is a
new best policy, the search continues from it.

`n_NAME` is NAME minus its mean, divided by its standard deviation: the observation normalisation of augmented random
search (V2 in Mania, Guy and Recht, arXiv 1803.07055). It is an ordinary feature in the policy's text, such as
`let n_angle = (angle - 0.0123)/0.456`. So a policy needs nothing else to act, and a person can edit the numbers. Tuning
leaves them as they are.
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
from policygen.quantities.spelling import finite
from policygen.quantities.text import format_number, to_digits, to_text
from policygen.quantities.tree import (
    PREFIX,
    Name,
    Node,
    constants,
    is_definition,
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
_FIRST_SHARE = 0.3  # first relative change of the constants of a policy that a model or the user wrote
_RANDOM_STARTS = 4  # policies with random weights, before the evolution strategy begins
CLOCK, SUM = "clock", "sum_"
RATE = 0.3  # first rate of the clock in radians per step: a period of 21 steps
_WAVES = {f"{CLOCK}_{wave}{n}": f"{wave}({n}*{CLOCK})" for n in (1, 2) for wave in ("sin", "cos")}
_LOG_RATE_STEP = 0.5  # step of the logarithm of the clock's rate while the step of a weight is 1
# A quantity with a smaller spread, as a share of its largest value, counts as constant: it is centred, but not scaled.
LEAST_SPREAD = 1e-7  # the resolution of single precision
MOST_LABELS = 12  # of a choice that a search may begin with
MOST_STARTS = 64  # constant actions of several actuators that a search may begin with
SMALLEST_START = 1e-4  # the least of their numbers, as a share of the actuator's bound
FIRST_SEARCHES = 2  # started before the better one is continued
# A search stalls if its last proposals gained at most this share of its gain over random actions.
LEAST_GAIN = 0.03
STALL_LENGTH = 3  # number of these proposals
EXCHANGES = 3  # failed exchanges in a row before a new search starts from weights 0

Matrix = npt.NDArray[np.float64]  # weights of `terms_of`, and the bias as last row: shape (terms + 1, outputs)
SearchAttempts = list[Attempt]


def inputs_of(task: Task) -> Sequence[str]:
    """Return the quantities of a task that equations weigh."""
    return task.inputs or task.observation_names or task.quantity_names


def terms_of(task: Task, memory: bool) -> list[str]:
    """Return the names of an equation's terms: standardised inputs and, with memory, a clock's waves and integrals."""
    inputs = inputs_of(task)
    remembered = [*_WAVES, *(SUM + name for name in inputs)] if memory else []
    return [PREFIX + name for name in inputs] + remembered


def _rate_of(policy: Policy | None) -> float:
    """Return the rate of a policy's clock in radians per step; `RATE` if it has no clock."""
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
    tuned_before = context.best is not None and bool(context.best.tuned.refinement)  # its weights are no random ones
    if context.tuning is not None and context.tuning.episodes:
        # Tuning finds the numbers: it gets weights of 0 first, then tuned policies to continue from.
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
        return f"The best policy with each constant changed by about {step:.0%}.", _varied(best, step, rng)
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
    # Only differences between the scores of a choice matter: its first one stays 0.
    outputs = zip(context.task.actuators, context.task.output_slices, strict=True)
    matrix[:, [part.start for actuator, part in outputs if actuator.is_choice]] = 0.0
    if context.memory:
        rate = float(np.clip(rate * np.exp(_LOG_RATE_STEP * rate_step * rng.normal()), 0.01, 3.0))
    return note, _standardised_policy(context, matrix, rate)


def random_linear(context: Context, rng: np.random.Generator) -> str:
    """Return equations with normal random weights over standardised quantities, as text."""
    shape = (len(terms_of(context.task, context.memory)) + 1, len(context.task.output_names))
    return _standardised_policy(context, rng.normal(size=shape), RATE)


def _matrix_of(policy: Policy | None, terms: Sequence[str]) -> Matrix | None:
    """Return the numbers that `_equations` wrote as these equations; None for equations of another form."""
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
    """Return the middle of an actuator's range and half its length; 0 and 1 for a choice."""
    if actuator.is_choice:
        return 0.0, 1.0
    half = (actuator.high - actuator.low) / 2
    return (actuator.low + actuator.high) / 2, half if half > 0 else 1.0


def _varied(policy: LinearPolicy, step: float, rng: np.random.Generator) -> str:
    """Return the text of a policy with each constant changed at random by about the share `step` of its size."""

    def changed(node: Node) -> Node:
        values = np.array(constants(node))
        return with_constants(node, iter((values * (1 + step * rng.normal(size=len(values)))).tolist()))

    lets, equations = (tuple((name, changed(node)) for name, node in some) for some in (policy.lets, policy.equations))
    return replace(policy, lets=lets, equations=equations).to_text()


def _step_size(attempts: Sequence[Attempt]) -> float:
    """Return the step size: larger after each new best policy, smaller after other attempts (1/5th success rule)."""
    step = _FIRST_STEP
    for attempt in attempts[_RANDOM_STARTS + 1 :]:
        if attempt.score is not None:
            step *= 1.5 if attempt.accepted else 1.5**-0.25
    return float(np.clip(step, 0.02, 4.0))


def _standardised_policy(context: Context, matrix: Matrix, rate: float) -> str:
    """Return the text of equations over standardised quantities.

    Mean and spread are those in the episodes of random actions, so that weights of different attempts are comparable.
    Later searches take them from the first one, as the buffer may have evicted these episodes.

    Args:
        matrix: the weights. Those of a number are relative to its range; the range stands in `fixed`, so that tuning
            changes the relative numbers only.
        rate: the clock's rate in radians per step, if the policy has memory.
    """
    task, inputs = context.task, inputs_of(context.task)
    if earlier := _with_zero_weights(context.attempts):
        lines = [f"let {name} = {to_text(node)}" for name, node in earlier[0].lets if is_definition(name, node)]
    else:
        episodes = [e for e in context.buffer if e.attempt == 0] or list(context.buffer)
        lines = definitions(task, [e.trajectory.observations for e in episodes], inputs)
    if context.memory:  # the rate is their only number to tune
        lines.append(f"let {CLOCK} = mod(prev({CLOCK}) + {rate:.4g}, fixed(2*pi))")
        lines += [f"let {name} = fixed({wave})" for name, wave in _WAVES.items()]
        lines += [f"let {SUM}{name} = fixed(clip(prev({SUM}{name}) + 0.05*{PREFIX}{name}, -1, 1))" for name in inputs]
    rounded = np.array([[to_digits(value, 4) for value in row] for row in matrix.tolist()])
    return "\n".join([*lines, *_equations(task, terms_of(task, context.memory), rounded)])


def definitions(task: Task, observations: Sequence[npt.NDArray[np.generic]], quantities: Sequence[str]) -> list[str]:
    """Return the lines that define `n_NAME` of each quantity; means and spreads have 4 significant digits.

    Args:
        observations: flattened observations, one array of shape (rows, d) per episode. Without any episode, a single
            observation of zeros takes their place: spreads are 1, and plain observations stay unchanged.
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
            least = LEAST_SPREAD * float(np.abs(values).max(initial=0.0))
        mean = to_digits(mean, 4) if math.isfinite(mean) else 0.0
        spread = to_digits(spread, 4) if least < spread < math.inf else 1.0
        shift = f"{'+' if mean < 0 else '-'} {format_number(abs(mean))}"
        lines.append(f"let {PREFIX}{name} = ({name} {shift})/{format_number(spread)}")
    return lines


# --- restarts of the numerical search --------------------------------------------------------------------------------


def next_to_tune(
    attempts: Sequence[Attempt], best: Policy | None, rng: np.random.Generator
) -> tuple[Policy | None, bool]:
    """Return the policy to tune next, and whether it is the best one with two labels of a choice exchanged.

    It is the best policy of the search to continue. If that has stalled, labels are exchanged, but not after
    `EXCHANGES` failures in a row. None: a new search should start.

    Args:
        attempts: the attempts of the run so far; number 0 is random actions. A search starts with all weights 0, or
            with two labels exchanged.
    """
    scored = [one for one in attempts if one.number > 0 and one.score is not None]
    searches = _searches(scored)
    if len(searches) < FIRST_SEARCHES:
        return None, False
    exchanges = _exchanges_of_bests(scored)
    failed = [one[0].digests[0] in exchanges and not any(step.accepted for step in one) for one in searches]
    if len(searches) == len(scored):  # none has been continued yet
        current = max(searches, key=_best_score)
    else:
        continuing = (search for search, lost in zip(searches, failed, strict=True) if not lost)
        current = max(continuing, key=lambda search: search[-1].number)
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    gain = _best_score(current) - _best_score(current[:-STALL_LENGTH]) if len(current) > STALL_LENGTH else math.inf
    if gain > LEAST_GAIN * abs(_best_score(current) - random):
        return max(current, key=_score).policy, False
    if isinstance(best, LinearPolicy) and not all(failed[-EXCHANGES:]):
        known = {digest for one in scored for digest in one.digests}
        if others := [one for one in _exchanges(best) if text_digest(one) not in known]:
            return others[rng.integers(len(others))], True
    return None, False


def _exchanges_of_bests(attempts: Sequence[Attempt]) -> set[bytes]:
    """Return the text digests of all best policies so far with two labels exchanged."""
    bests = [one.policy for one in attempts if one.accepted and isinstance(one.policy, LinearPolicy)]
    return {text_digest(exchanged) for best in bests for exchanged in _exchanges(best)}


def _exchanges(policy: LinearPolicy) -> Iterator[LinearPolicy]:
    """Yield the policy with the equations of two labels exchanged, for each pair of labels of a choice.

    A choice between two labels is left out: an exchange would only reverse it.
    """
    nodes = dict(policy.equations)
    for outputs in policy.task.outputs_by_actuator:
        for one, other in combinations(outputs, 2) if len(outputs) > 2 else ():
            if nodes[one] != nodes[other]:
                exchanged = nodes | {one: nodes[other], other: nodes[one]}
                yield replace(policy, equations=tuple(exchanged.items()))


def constant_starts(policy: Policy) -> list[Policy]:
    """Return a table or equations with weights of 0, and others like it with a constant action; others stay alone.

    A single choice takes each of its first `MOST_LABELS`. Otherwise all actuators are at the same place of their
    ranges: in the middle, at an end, at a quarter, or at 0. Two or three of them also take all combinations of ends and
    middles, and points of a Halton sequence up to `MOST_STARTS`; of more, so few points would hit nothing.
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
    """Yield constant actions as places in the ranges: -1 is the low end or the first label, 1 the other."""
    count = len(actuators)
    if count == 1 and actuators[0].is_choice:
        labels = len(actuators[0].labels)
        yield from ([2 * label / max(1, labels - 1) - 1] for label in range(min(labels, MOST_LABELS)))
        return
    yield from ([place] * count for place in (-1.0, 1.0, -0.5, 0.5))
    ranges = [(0.0, 1.0) if one.is_choice else _middle_and_half(one) for one in actuators]
    zeros = [float(np.clip(-middle / half, -1, 1)) for middle, half in ranges]
    yield zeros
    if count > 1 and 3**count <= MOST_STARTS:
        from scipy.stats.qmc import Halton  # start-up time

        corners = list(product((-1.0, 0.0, 1.0), repeat=count))
        yield from corners
        # Bounds are often far wider than what helps, so half of the numbers have any order of magnitude.
        for point in Halton(2 * count, scramble=False).random(MOST_STARTS - len(corners) + 1)[1:].tolist():
            parts = zip(point[:count], point[count:], zeros, strict=True)
            yield [2 * at - 1 if kind < 0.5 else _near(zero, at) for at, kind, zero in parts]


def _near(zero: float, at: float) -> float:
    """Return a place on either side of `zero`; its distance has any order of magnitude; `at` is in [0, 1]."""
    share = (zero + 1) / 2  # of the range that lies below 0
    below = at < share
    exponent = at / share if below else (at - share) / (1 - share)
    return zero + (-1 - zero if below else 1 - zero) * math.pow(SMALLEST_START, exponent)


def starts_new_search(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a proposal starts a search: its weights are 0, it exchanges labels, or it is its model's first one."""
    own = [one for one in attempts if one.number > 0 and one.requests.model == attempt.requests.model]
    first = own[0] if own else attempt
    return has_zero_weights(attempt.policy) or attempt.digests[0] in {first.digests[0], *_exchanges_of_bests(own)}


def has_zero_weights(policy: Policy | None) -> bool:
    """Whether each quantity in equations has a weight, and all are 0, so that the action is constant."""
    if not isinstance(policy, LinearPolicy):
        return False
    for _, node in policy.equations:
        count = sum(isinstance(part, Name) for part in nodes_of(node))
        weights = constants(node)[:count]  # the last constant is the bias
        if len(weights) < count or any(weights):
            return False
    return True


def _with_zero_weights(attempts: Sequence[Attempt]) -> list[LinearPolicy]:
    """Return the proposals of `builtin` with all weights 0, one for each search."""
    proposed = (one.proposed or one.policy for one in attempts if one.number > 0 and one.requests.model in OWN)
    return [one for one in proposed if isinstance(one, LinearPolicy) and has_zero_weights(one)]


def _searches(attempts: Sequence[Attempt]) -> list[SearchAttempts]:
    """Return the attempts of each search, in order; an attempt belongs to the search whose policy it continued."""
    searches: list[SearchAttempts] = []
    by_policy: dict[bytes | None, SearchAttempts] = {}
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
