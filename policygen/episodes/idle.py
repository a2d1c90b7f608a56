"""Parts of a policy without effect in its episodes: small terms, constant conditions, outputs at a limit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.linear import LinearPolicy
from policygen.policies.normalise import is_definition
from policygen.policies.policy import Policy
from policygen.quantities.compiled import compile_batch, finite
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Contains, Node, Number, names_in
from policygen.tasks.task import outputs_by_actuator

SMALL = 0.01  # a term has no effect if it changes an output by less than this share of its range in the episodes
LEAST_STEPS = 100  # fewer steps do not show that a part has no effect
SAMPLED_STEPS = 200  # steps that show the effect of most terms; the other terms are tried on all steps
_CONDITIONS = frozenset(["<", "<=", ">", ">=", "==", "!=", "and", "or", "not"])
_HOW = ("limit", "never", "always", "small")  # the most telling first
_Columns = list[npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Idle:
    """A part of a policy that had no effect in the steps it played.

    Attributes:
        line: name of the feature or output whose line has it.
        part: the term or condition as text. For `limit`: the label that is always chosen, or empty for a number.
        how: `small`: without the term no output changes by 1% of the range of its values in these steps, and no choice
            changes; `never`, `always`: the condition never or always holds; `limit`: the number is always at a limit,
            or the choice always the same.
    """

    line: str
    part: str
    how: Literal["small", "never", "always", "limit"]

    def __str__(self) -> str:
        """The part and why it has no effect, in words."""
        match self.how:
            case "small":
                return f"`{self.part}` in {self.line} (changes no output by 1% of its range)"
            case "limit":
                return f"{self.line} (always {self.part or 'at a limit'})"
        return f"`{self.part}` in {self.line} ({self.how} true)"


def undefined_and_idle(
    policy: Policy, trajectories: Sequence[Trajectory]
) -> tuple[tuple[tuple[str, float], ...], tuple[Idle, ...]]:
    """Return the features and outputs that were not finite, each with its share of the steps, and the idle parts.

    Decisions use 0 for NaN, and -1,000,000 or 1,000,000 for infinite values. A term of a line that feeds the memory is
    never idle, because small changes add up. With fewer than `LEAST_STEPS` steps, no idle parts are returned.
    """
    formulas = [*policy.reader.needed, *policy.formulas()]
    steps = sum(t.length for t in trajectories)
    if not formulas or not steps:
        return (), ()
    parts = [policy.reader.along(t.observations[:-1], t.actions) for t in trajectories]
    joined = (np.concatenate(column).astype(np.float64) for column in zip(*parts, strict=True))
    # A quantity that nothing reads has one number per episode.
    columns = [column if len(column) == steps else np.zeros(steps) for column in joined]
    names, undefined = policy.reader.names, []
    idle: list[Idle] = []
    with np.errstate(all="ignore"):
        for name, node in formulas:
            share = float(np.mean(~np.isfinite(np.asarray(compile_batch(node, names)(columns)))))
            if share > 0:
                undefined.append((name, share))
        if steps >= LEAST_STEPS:
            # Lines that the policy's author did not write; conditions and terms in them are not reported.
            given = {name for name, node in policy.lets if is_definition(name, node)}
            given |= {name for name, _ in policy.task.parsed_features}
            for name, node in formulas:
                if name not in given:
                    idle += [Idle(name, to_text(c), how) for c, how in _constant_conditions(node, names, columns)]
            if isinstance(policy, LinearPolicy):
                # Lines with undefined values or constant conditions are left out: they are reported already.
                known = given | {name for name, _ in undefined} | {one.line for one in idle}
                idle += _idle_outputs_and_terms(policy, formulas, columns, known)
    return tuple(undefined), tuple(sorted(dict.fromkeys(idle), key=lambda one: _HOW.index(one.how)))


def _constant_conditions(
    node: Node, names: Sequence[str], columns: _Columns
) -> Iterator[tuple[Node, Literal["never", "always"]]]:
    """Yield the outermost conditions that are never or always true.

    If one decides a `where`, conditions in the branch that is never used are left out.
    """
    branches = node.arguments if isinstance(node, Call) else ()
    is_where = isinstance(node, Call) and node.function == "where"
    if is_where or isinstance(node, Contains) or (isinstance(node, Call) and node.function in _CONDITIONS):
        test = branches[0] if is_where else node
        held = np.asarray(compile_batch(test, names)(columns)) != 0
        if held.all() or not held.any():
            yield test, "always" if held.all() else "never"
            branches = (branches[1] if held.all() else branches[2],) if is_where else ()
    for branch in branches:
        yield from _constant_conditions(branch, names, columns)


def _idle_outputs_and_terms(
    policy: LinearPolicy, formulas: Sequence[tuple[str, Node]], columns: _Columns, known: Collection[str]
) -> Iterator[Idle]:
    """Yield the outputs that are always at a limit, and the terms without effect on the other outputs.

    Terms of the lines `known` are left out.
    """
    names = policy.reader.names
    outputs = {name: _values(node, names, columns) for name, node in policy.equations}
    actions = _actions(policy, outputs)
    at_a_limit = set[str]()
    for actuator, lines, values in zip(policy.task.actuators, outputs_by_actuator(policy.task), actions.T, strict=True):
        if actuator.is_choice and np.ptp(values) == 0:
            at_a_limit.update(lines)
            yield Idle(actuator.name, actuator.labels[int(values[0])], "limit")
        elif not actuator.is_choice and ((values <= actuator.low) | (values >= actuator.high)).all():
            at_a_limit.update(lines)
            yield Idle(actuator.name, "", "limit")
    if at_a_limit == set(outputs):
        return
    sampled = np.unique(np.linspace(0, len(actions) - 1, SAMPLED_STEPS).astype(int))
    samples = [sampled, np.arange(len(actions))]
    choices = [actuator.is_choice for actuator in policy.task.actuators]
    allowed = np.where(choices, 0.0, SMALL * np.ptp(actions, axis=0))
    skipped = at_a_limit | _feeding_memory(policy, formulas) | set(known)
    for name, node in formulas:
        for term, without in _terms(node) if name not in skipped else ():
            for rows in samples:
                some = [column[rows] for column in columns]
                changed = _changed(formulas, name, without, names, some)
                decided = _actions(policy, {line: changed.get(line, outputs[line][rows]) for line in outputs})
                if (np.abs(decided - actions[rows]) > allowed).any():
                    break
            else:
                yield Idle(name, to_text(term), "small")


def _changed(
    formulas: Sequence[tuple[str, Node]], line: str, node: Node, names: Sequence[str], columns: _Columns
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the values of a changed line and of all that read it in the same step, by name."""
    columns, changed = list(columns), dict[str, npt.NDArray[np.float64]]()
    for name, formula in formulas:
        if name == line or names_in(formula) & changed.keys():
            changed[name] = _values(node if name == line else formula, names, columns)
            if name in names:
                columns[names.index(name)] = changed[name]
    return changed


def _values(node: Node, names: Sequence[str], columns: _Columns) -> npt.NDArray[np.float64]:
    return np.broadcast_to(finite(np.asarray(compile_batch(node, names)(columns))), columns[0].shape)


def _actions(policy: LinearPolicy, outputs: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    rows = np.stack(list(outputs.values()), axis=1)
    return np.asarray(policy.chosen(rows), np.float64).reshape(len(rows), -1)


def _feeding_memory(policy: Policy, formulas: Sequence[tuple[str, Node]]) -> set[str]:
    """Return the names of the lines whose values, or values computed from them, are remembered."""
    remembered = set(policy.reader.remembered)
    if remembered - set(policy.reader.names):  # a decision is remembered, and every output is part of one
        remembered |= {name for name, _ in policy.formulas()}
    for name, node in reversed(formulas):
        if name in remembered:
            remembered |= names_in(node)
    return remembered


def _terms(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the terms of all sums in an expression, from left to right, each with the expression without it."""
    if not isinstance(node, Call) or node.function == "fixed":
        return
    for i, argument in enumerate(node.arguments):
        match argument:
            case Call("+" | "-") | Number(0.0) | Call("*", (Number(0.0), _)):
                pass  # a sum is not a term itself; 0 and `0*x` obviously have no effect
            case _ if node.function in ("+", "-"):
                other = node.arguments[1 - i]
                yield argument, Call("neg", (other,)) if node.function == "-" and i == 0 else other
        for term, without in _terms(argument):
            yield term, Call(node.function, (*node.arguments[:i], without, *node.arguments[i + 1 :]))
