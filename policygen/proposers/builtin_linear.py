"""Equations proposed by `builtin`, a search without a language model: weights of quantities.

An evolution strategy with one parent and a self-adapting step (the 1/5th success rule; Rechenberg 1973) searches the
weights of standardised observations; after a failed step it tries the mirror image. Weights and biases of a number are
relative to its range, so that units do not matter. The first proposal has all weights 0: of a handful of constant
actions, the search then takes the best.

With tuning (`--refine`), the first proposal has all weights 0, and later ones are tuned policies for further tuning. A
stalled search is restarted from the best policy with two labels exchanged, or from weights 0 (see `starts`).

With `--memory`, further terms are sine and cosine of a clock's phase and of twice the phase, which give every output a
rhythm with its own amplitude and shift, and an integral of each input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.llm.messages import NO_MODEL
from policygen.policies.linear import LinearPolicy, middle_and_half, relative_to_range
from policygen.policies.normalise import PREFIX, definitions, is_definition
from policygen.policies.policy import Policy
from policygen.proposers.starts import has_zero_weights, policy_to_continue, with_labels_exchanged
from policygen.quantities.text import MAX_CHARACTERS, MAX_NODES, format_number, to_digits, to_text
from policygen.quantities.tree import Node, constants, with_constants
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context
from policygen.tasks.task import Task, output_names, output_slices

OWN = ("", NO_MODEL)  # `Requests.model` of attempts that no language model proposed
_FIRST_STEP = 1.0  # standard deviation of the first change of each weight
_FIRST_SHARE = 0.3  # first relative change of the constants of a policy that a model or the user wrote
_RANDOM_STARTS = 4  # policies with random weights, before the evolution strategy begins
_NODES_PER_TERM = 4  # of an equation's tree: a name, a weight, a product, a sum
_LONGEST_WEIGHT = "-0.12345*"
CLOCK, SUM = "clock", "sum_"
RATE = 0.3  # first rate of the clock in radians per step: a period of 21 steps
_WAVES = tuple((f"{CLOCK}_{wave}{n}", f"{wave}({n}*{CLOCK})") for n in (1, 2) for wave in ("sin", "cos"))
_LOG_RATE_STEP = 0.5  # step of the logarithm of the clock's rate while the step of a weight is 1


def inputs_of(task: Task) -> Sequence[str]:
    """Return the quantities of a task that equations weigh."""
    return task.inputs or task.observation_names or task.quantity_names


def terms_of(task: Task, memory: bool) -> list[str]:
    """Return the names of an equation's terms: standardised inputs and, with memory, a clock's waves and integrals."""
    inputs = inputs_of(task)
    return [PREFIX + name for name in inputs] + list(_memory_terms(inputs) if memory else ())


def _memory_terms(inputs: Sequence[str]) -> tuple[str, ...]:
    return (*(name for name, _ in _WAVES), *(SUM + name for name in inputs))


def memory_names(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all features that `--memory` defines."""
    return (CLOCK, *_memory_terms(inputs))


def rate_of(policy: Policy | None) -> float:
    """Return the rate of a policy's clock in radians per step; `RATE` if it has no clock."""
    clock = dict(policy.lets).get(CLOCK) if policy is not None else None
    found = constants(clock) if clock is not None else ()
    return found[0] if len(found) == 1 else RATE


def is_too_long(terms: Sequence[str]) -> bool:
    """Whether an equation with these terms is too long to parse."""
    characters = sum(len(f"{name} + {_LONGEST_WEIGHT}") for name in terms)
    return characters > MAX_CHARACTERS or len(terms) * _NODES_PER_TERM > MAX_NODES


def next_linear(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    """Return a sentence about the next equations, and the equations as text."""
    terms = terms_of(context.task, context.memory)
    scored = [a for a in context.attempts if a.number > 0 and a.score is not None]
    best = context.incumbent
    shape = (len(terms) + 1, len(output_names(context.task)))
    rate, rate_step = rate_of(best), 0.0
    tuned_before = context.best is not None and bool(context.best.tuned.refinement)  # its weights are no random ones
    if context.tuning is not None and context.tuning.episodes:
        # Tuning finds the numbers: it gets weights of 0 first, then tuned policies to continue from.
        of_a_model = context.best is not None and context.best.requests.model not in OWN
        tuned = best if of_a_model and isinstance(best, LinearPolicy) else policy_to_continue(_own(context))
        if tuned is not None:
            return "An earlier policy again, for the numerical search to tune further.", tuned.to_text()
        if (exchanged := with_labels_exchanged(_own(context), best, rng)) is not None:
            return "The best policy with two labels exchanged, for a numerical search to tune.", exchanged.to_text()
        matrix, rate, number = np.zeros(shape), RATE, len(_with_zero_weights(context))
        note = f"Weights of 0 over standardised quantities, for {'another' if number else 'a'} numerical search."
    elif not scored:
        matrix, note = np.zeros(shape), "Weights of 0 over standardised quantities: a constant action."
    elif isinstance(best, LinearPolicy) and not {to_text(term) for term in best.terms} <= {*terms}:
        step = _FIRST_SHARE * _step_size(context)
        return f"The best policy with each constant changed by about {step:.0%}.", _varied(best, step, rng)
    elif (len(scored) < _RANDOM_STARTS and not tuned_before) or not isinstance(best, LinearPolicy):
        matrix, rate_step = rng.normal(size=shape), 1.0
        note = "Random weights over standardised quantities."
    else:
        parent = _matrix_of(best, terms)
        step = rate_step = _step_size(context) * (_FIRST_SHARE if tuned_before else 1.0)
        last = scored[-1].policy
        if isinstance(last, LinearPolicy) and not scored[-1].accepted and len(scored) % 2 == 1:
            matrix, rate_step = 2 * parent - _matrix_of(last, terms), 0.0
            rate *= rate / rate_of(last)
            note = "The mirror image of the last step, which did not help."
        else:
            matrix = parent + step * rng.normal(size=shape)
            note = f"A random step of size {step:.2g} from the best weights."
    # Only differences between the scores of a choice matter: its first one stays 0.
    outputs = zip(context.task.actuators, output_slices(context.task), strict=True)
    matrix[:, [part.start for actuator, part in outputs if actuator.is_choice]] = 0.0
    if context.memory:
        rate = float(np.clip(rate * np.exp(_LOG_RATE_STEP * rate_step * rng.normal()), 0.01, 3.0))
    return note, _standardised_policy(context, matrix, rate)


def random_linear(context: Context, rng: np.random.Generator) -> str:
    """Return equations with normal random weights over standardised quantities, as text."""
    terms = terms_of(context.task, context.memory)
    return _standardised_policy(context, rng.normal(size=(len(terms) + 1, len(output_names(context.task)))), RATE)


def _matrix_of(policy: LinearPolicy, terms: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return weights and biases as `_standardised_policy` takes them."""
    return relative_to_range(policy.task, np.vstack([policy.plain_weights(terms), policy.bias]))


def _with_zero_weights(context: Context) -> list[LinearPolicy]:
    """Return the proposals with all weights 0, one for each search."""
    proposed = (one.proposed or one.policy for one in _own(context) if one.number > 0)
    return [one for one in proposed if isinstance(one, LinearPolicy) and has_zero_weights(one)]


def _own(context: Context) -> list[Attempt]:
    return [one for one in context.attempts if one.requests.model in OWN]


def _varied(policy: LinearPolicy, step: float, rng: np.random.Generator) -> str:
    """Return the text of a policy with each constant changed at random by about the share `step` of its size."""

    def changed(node: Node) -> str:
        values = np.array(constants(node))
        return to_text(with_constants(node, iter((values * (1 + step * rng.normal(size=len(values)))).tolist())))

    lets = [f"let {name} = {changed(node)}" for name, node in policy.lets]
    return "\n".join([*lets, *(f"{name} = {changed(node)}" for name, node in policy.equations)])


def _step_size(context: Context) -> float:
    """Return the step size: larger after each new best policy, smaller after other attempts (1/5th success rule)."""
    step = _FIRST_STEP
    for attempt in context.attempts[_RANDOM_STARTS + 1 :]:
        if attempt.score is not None:
            step *= 1.5 if attempt.accepted else 1.5**-0.25
    return float(np.clip(step, 0.02, 4.0))


def _standardised_policy(context: Context, matrix: npt.NDArray[np.float64], rate: float) -> str:
    """Return the text of equations over `n_NAME = (NAME - mean) / spread` (see `policies.normalise`).

    Mean and spread are those of NAME in the episodes of random actions, so that weights of different attempts are
    comparable. Later searches take them from the first one, as the buffer may have evicted these episodes.

    Args:
        matrix: the weights of `terms_of`, and the bias as last row: shape (terms + 1, outputs). Those of a number are
            relative to its range; the range stands in `fixed`, so that tuning changes the relative numbers only.
        rate: the clock's rate in radians per step, if the policy has memory.
    """
    task, inputs = context.task, inputs_of(context.task)
    if earlier := _with_zero_weights(context):  # the buffer may have lost the episodes of random actions
        lines = [f"let {name} = {to_text(node)}" for name, node in earlier[0].lets if is_definition(name, node)]
    else:
        first = [e.trajectory.observations for e in context.buffer if e.attempt == 0]
        first = first or [e.trajectory.observations for e in context.buffer]
        lines = [f"let {name} = {to_text(node)}" for name, node in definitions(task, first, inputs).items()]
    if context.memory:  # the lines that define `memory_names`; the rate is their only number to tune
        lines.append(f"let {CLOCK} = mod(prev({CLOCK}) + {rate:.4g}, fixed(2*pi))")
        lines += [f"let {name} = fixed({wave})" for name, wave in _WAVES]
        lines += [f"let {SUM}{name} = fixed(clip(prev({SUM}{name}) + 0.05*{PREFIX}{name}, -1, 1))" for name in inputs]
    terms = terms_of(task, context.memory)
    ranges = (
        middle_and_half(actuator) if not actuator.is_choice else (0.0, 1.0)
        for actuator, part in zip(task.actuators, output_slices(task), strict=True)
        for _ in range(part.start, part.stop)
    )
    for output, column, (middle, half) in zip(output_names(task), matrix.T.tolist(), ranges, strict=True):
        *weights, bias = (format_number(to_digits(value, 4)) for value in column)
        weighed = [f"{weight}*{name}" for weight, name in zip(weights, terms, strict=True)]
        equation = " + ".join([*weighed, bias]).replace("+ -", "- ")
        if half != 1:
            equation = f"fixed({format_number(half)})*({equation})"
        if middle:
            equation += f" + fixed({format_number(middle)})"
        lines.append(f"{output} = {equation}")
    return "\n".join(lines)
