"""Equations proposed by `builtin`, a plain search without a language model: weights of quantities.

An evolution strategy with one parent and a self-adapting step (the 1/5th success rule; Rechenberg 1973) searches the
weights of observations scaled to unit spread; after a failed step it tries the mirror image. With tuning (`--refine`),
it proposes the plain structure, then tuned policies for further tuning. A stalled search is restarted from the best
policy with two labels exchanged, or from the plain structure (`starts`).

With `--memory`, further terms are the phase of a clock and an integral of each input. Sine and cosine of the phase, and
of twice the phase, give every output a rhythm of its own amplitude and shift. If outputs and inputs have names of a
left and a right side, as those of a walker's legs, every other search begins with equations that are mirror images of
each other, the left ones half a period later and all without integrals. Tuning keeps them so (`Tunable`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.llm.messages import NO_MODEL
from policygen.policies.linear import LinearPolicy
from policygen.policies.normalise import PREFIX, definitions, is_definition
from policygen.policies.policy import Policy
from policygen.proposers.starts import is_plain, policy_to_continue, with_labels_exchanged
from policygen.quantities.text import MAX_CHARACTERS, MAX_NODES, format_number, sides, to_text, with_names
from policygen.quantities.tree import Name, Node, constants, with_constants
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context
from policygen.tasks.task import Task, output_names

OWN = ("", NO_MODEL)  # `Requests.model` of attempts that no language model proposed
_FIRST_STEP = 1.0
_FIRST_SHARE = 0.3  # first relative change of the constants of a policy that a model or the user wrote
_RANDOM_STARTS = 4
_NODES, _WEIGHT = 4, "-0.12345*"  # of a term in an equation: its name, a weight, a product, a sum
CLOCK, SUM = "clock", "sum_"
RATE = 0.3  # first rate of the clock in radians a step: a rhythm of 21 steps
_WAVES = tuple((f"{CLOCK}_{wave}{n}", f"{wave}({n}*{CLOCK})") for n in (1, 2) for wave in ("sin", "cos"))
_LEFT_WAVES = tuple((f"left_{name}", wave.replace(CLOCK, f"({CLOCK} + pi)")) for name, wave in _WAVES)
_FASTER = 0.5  # step of the logarithm of the clock's rate, where the step of a weight is 1


def inputs_of(task: Task) -> Sequence[str]:
    """Return the quantities of a task that equations read."""
    return task.inputs or task.observation_names or task.quantity_names


def terms_of(task: Task, remembering: bool) -> list[str]:
    """Return the terms of equations: the standardised inputs and, with memory, a clock's waves and integrals."""
    inputs = inputs_of(task)
    return [PREFIX + name for name in inputs] + list(_memory_terms(inputs) if remembering else ())


def _memory_terms(inputs: Sequence[str]) -> tuple[str, ...]:
    return (*(name for name, _ in _WAVES), *(SUM + name for name in inputs))


def memory_names(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return all names that memory defines."""
    return (CLOCK, *(name for name, _ in _LEFT_WAVES), *_memory_terms(inputs))


def _memory_lines(inputs: Sequence[str], rate: float) -> list[str]:
    """Return the definitions of `memory_names`; tuning changes only the clock's rate in them."""
    return [
        f"let {CLOCK} = mod(prev({CLOCK}) + {rate:.4g}, fixed(2*pi))",
        *(f"let {name} = fixed({wave})" for name, wave in (*_WAVES, *_LEFT_WAVES)),
        *(f"let {SUM}{name} = fixed(clip(prev({SUM}{name}) + 0.05*{PREFIX}{name}, -1, 1))" for name in inputs),
    ]


def rate_of(policy: Policy | None) -> float:
    """Return the rate of a policy's clock in radians per step; `RATE` if it has no clock."""
    clock = dict(policy.lets).get(CLOCK) if policy is not None else None
    found = constants(clock) if clock is not None else ()
    return found[0] if len(found) == 1 else RATE


def too_many(task: Task, remembering: bool) -> int:
    """Return the number of terms of an equation if it is too long to parse, else 0."""
    terms = terms_of(task, remembering)
    too_long = sum(len(f"{name} + {_WEIGHT}") for name in terms) > MAX_CHARACTERS
    return len(terms) if too_long or len(terms) * _NODES > MAX_NODES else 0


def next_linear(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    """Return a note, and the next equations as text."""
    inputs = inputs_of(context.task)
    terms = terms_of(context.task, context.memory)
    scored = [a for a in context.attempts if a.number > 0 and a.score is not None]
    best = context.incumbent
    shape = (len(terms) + 1, len(output_names(context.task)))
    rate, faster, mirrored = rate_of(best), 0.0, False
    if context.tuning is not None:
        # Tuning finds the numbers: it gets the plain structure first, then tuned policies to continue from.
        if (tuned := _policy_to_tune(context)) is not None:
            return "An earlier policy again, for the numerical search to tune further.", tuned.to_text()
        if (exchanged := with_labels_exchanged(_own(context), best, rng)) is not None:
            return "The best policy with two labels exchanged, for a numerical search to tune.", exchanged.to_text()
        searches = len(_plain_structures(context))
        mirrored = context.memory and searches % 2 == 0 and _has_sides(context.task)
        terms = [term for term in terms if not (mirrored and term.startswith(SUM))]
        matrix, rate = np.zeros((len(terms) + 1, shape[1])), RATE
        note = (
            f"A linear map over standardised quantities, for {'another' if searches else 'a'} numerical search to tune."
        )
    elif isinstance(best, LinearPolicy) and not _is_own(best, terms):
        step = _FIRST_SHARE * _step_size(context)
        return f"The best policy with each constant changed by about {step:.0%}.", _varied(best, step, rng)
    elif len(scored) < _RANDOM_STARTS or not isinstance(best, LinearPolicy):
        matrix, faster = rng.normal(size=shape), 1.0
        note = "Random weights over standardised quantities."
    else:
        parent = _weights(best, terms)
        step = faster = _step_size(context)
        last = scored[-1].policy
        if isinstance(last, LinearPolicy) and not scored[-1].accepted and len(scored) % 2 == 1:
            matrix, faster = 2 * parent - _weights(last, terms), 0.0
            rate *= rate / rate_of(last)
            note = "The mirror image of the last step, which did not help."
        else:
            matrix = parent + step * rng.normal(size=shape)
            note = f"A random step of size {step:.2g} from the best weights."
    matrix[:, ~_free_outputs(context)] = 0.0
    remembered: list[str] = []
    if context.memory:
        remembered = _memory_lines(inputs, float(np.clip(rate * np.exp(_FASTER * faster * rng.normal()), 0.01, 3.0)))
    text = _standardised_policy(context, inputs, remembered, terms, matrix)
    return note, _mirrored(text) if mirrored else text


def _has_sides(task: Task) -> bool:
    """Whether numbers among the actions, and inputs, have names of a left and a right side."""
    numbers = {actuator.name for actuator in task.actuators if not actuator.is_choice}
    return bool(sides(numbers) and sides({*inputs_of(task)}))


def _mirrored(text: str) -> str:
    """Return the equations with those of the left outputs as mirror images of the right ones."""
    lines = dict(line.split(" = ", 1) for line in text.splitlines())
    pairs = sides({name.removeprefix("let ") for name in lines})
    right = [name for name in lines if name in pairs and "left" not in name.split("_")]
    lines |= {pairs[name]: with_names(lines[name], pairs) for name in right}
    return "\n".join(f"{name} = {line}" for name, line in lines.items())


def random_linear(context: Context, rng: np.random.Generator) -> str:
    """Return equations with normal random weights over standardised quantities, as text."""
    inputs, terms = inputs_of(context.task), terms_of(context.task, context.memory)
    remembered = _memory_lines(inputs, RATE) if context.memory else []
    matrix = rng.normal(size=(len(terms) + 1, len(output_names(context.task))))
    return _standardised_policy(context, inputs, remembered, terms, matrix)


def _policy_to_tune(context: Context) -> Policy | None:
    """Return the policy to tune further: the best one if not proposed here, else an own one; None to restart."""
    best = context.incumbent
    if context.best is not None and context.best.requests.model not in OWN and isinstance(best, LinearPolicy):
        return best
    return policy_to_continue(_own(context))


def _plain_structures(context: Context) -> list[LinearPolicy]:
    """Return the policies proposed so far from which searches started."""
    proposed = (one.proposed or one.policy for one in _own(context) if one.number > 0)
    return [one for one in proposed if isinstance(one, LinearPolicy) and is_plain(one)]


def _own(context: Context) -> list[Attempt]:
    return [one for one in context.attempts if one.requests.model in OWN]


def _free_outputs(context: Context) -> npt.NDArray[np.bool_]:
    """Return which outputs are free: only differences between a choice's scores matter, so its first score stays 0."""
    free: list[bool] = []
    for actuator in context.task.actuators:
        free += [False] + [True] * (len(actuator.labels) - 1) if actuator.is_choice else [True]
    return np.array(free)


def _is_own(policy: LinearPolicy, terms: Sequence[str]) -> bool:
    return {to_text(term) for term in policy.terms} <= {*terms}


def _varied(policy: LinearPolicy, step: float, rng: np.random.Generator) -> str:
    """Return a policy that a model or the user wrote, with its constants changed in proportion to their size."""

    def changed(node: Node) -> str:
        values = np.array(constants(node))
        return to_text(with_constants(node, iter((values * (1 + step * rng.normal(size=len(values)))).tolist())))

    lets = [f"let {name} = {changed(node)}" for name, node in policy.lets]
    return "\n".join([*lets, *(f"{name} = {changed(node)}" for name, node in policy.equations)])


def _weights(policy: LinearPolicy, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the weights of the terms `names`, then the bias: shape (terms + 1, outputs)."""
    weights = np.zeros((len(names), len(policy.equations)))
    for term, row in zip(policy.terms, policy.weights, strict=True):
        if isinstance(term, Name) and term.name in names:
            weights[names.index(term.name)] = row
    return np.vstack([weights, policy.bias])


def _step_size(context: Context) -> float:
    """Return the step size: smaller after failures, larger after successes (1/5th rule)."""
    step = _FIRST_STEP
    for attempt in context.attempts[_RANDOM_STARTS + 1 :]:
        if attempt.score is not None:
            step *= 1.5 if attempt.accepted else 1.5**-0.25
    return float(np.clip(step, 0.02, 4.0))


def _standardised_policy(
    context: Context,
    inputs: Sequence[str],
    remembered: Sequence[str],
    terms: Sequence[str],
    matrix: npt.NDArray[np.float64],
) -> str:
    """Return equations over `n_NAME = (NAME - mean) / spread`, with mean and spread of random actions.

    These features (see `normalise`) stay the same for a whole run, so that weights stay comparable. `remembered` holds
    the definitions that follow them.
    """
    task = context.task
    if plain := _plain_structures(context):  # the buffer may have lost the episodes that scaled it
        lines = [f"let {name} = {to_text(node)}" for name, node in plain[0].lets if is_definition(name, node)]
    else:
        first = [e.trajectory.observations for e in context.buffer if e.attempt == 0]
        first = first or [e.trajectory.observations for e in context.buffer]
        lines = [f"let {d.name} = {to_text(d.node)}" for d in definitions(task, first, inputs)]
    lines += remembered
    for output, column in zip(output_names(task), matrix.T.tolist(), strict=True):
        weighed = [f"{_digits(weight)}*{name}" for weight, name in zip(column, terms, strict=False)]
        lines.append(f"{output} = {' + '.join([*weighed, _digits(column[-1])])}".replace("+ -", "- "))
    return "\n".join(lines)


def _digits(value: float) -> str:
    return format_number(float(f"{value:.4g}"))
