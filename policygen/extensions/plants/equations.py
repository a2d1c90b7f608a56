"""The equations of plants: read from replies, and compiled to compute many states at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import ExpressionError, PolicyError
from policygen.extensions.plants.plant import ENDS, HIDDEN, NEXT, REWARD, START, Plant
from policygen.policies.features import decision_columns, parse_lets
from policygen.policies.lines import Line
from policygen.policies.parts import Parts
from policygen.quantities.codegen import compiled
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.text import NUMBER, is_name, next_of, parse_expression, to_digits, to_text, unknown_name
from policygen.quantities.tree import (
    NOTHING,
    Call,
    Name,
    Node,
    Number,
    constants,
    limits,
    names_in,
    needed_by,
    nodes_of,
    previous_of,
    read_by,
    remembered_in,
    substitute,
    with_constants,
    with_numbers,
    with_plain_signs,
)
from policygen.tasks.task import Task

SIGNIFICANT_DIGITS = 7  # of fitted numbers; errors add up over the steps of an episode
KEPT = (0.0, 1.0, -1.0, float(np.pi))  # numbers that are never fitted
MOST_HIDDEN = 8  # hidden states; the time of a fit grows with the square of their number
MOST_WORK = 20_000  # of a fit, see `Equations.work`; it then takes a few seconds
Column = npt.NDArray[np.float64]
Columns = Sequence[Any]  # numbers, or arrays that broadcast
Group = tuple[list[str], npt.NDArray[np.intp]]  # left-hand sides of lines, and the indices of the numbers in them


def read_plant(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Plant | None:
    """Return the plant that a text states, with the features that it needs; None if there are problems."""
    task, problems, before = parts.task, parts.problems, len(parts.problems)
    if task.text_names:
        line = min(stated.number for stated in lines.values())
        problems.add(line, "the environment is observed as text", "leave out `next`, `reward` and `ends`")
        return None
    features = {**dict(task.parsed_features), **parts.features, **parts.private}
    quantities = list(dict.fromkeys([*task.observation_names, *features]))
    hidden = tuple(name for word, name in lines if word == HIDDEN)
    if len(hidden) > MOST_HIDDEN:
        found = f"the plant has {len(hidden):,} hidden states"
        problems.add(lines[HIDDEN, hidden[MOST_HIDDEN]].number, found, f"write at most {MOST_HIDDEN}")
    states = (*task.observation_names, *hidden)
    nodes: dict[str, dict[str, Node]] = {NEXT: {}, REWARD: {}, ENDS: {}}
    starts: dict[str, str] = {}
    for (word, name), stated in lines.items():
        if word == HIDDEN:
            if stated.text:
                expected = f"write `hidden {name}` alone, and `start {name} = ...` on another line"
                problems.add(stated.number, f"`hidden {name}` has a right-hand side", expected)
            continue
        if name and name not in states:
            problems.refuse(stated.number, unknown_name(name, states, what="observation"))
            continue
        try:
            if word == START:
                read_start(stated.text)
                starts[name] = stated.text.strip()
            else:
                decided = task.decision_names if word != ENDS else ()
                after = [*map(next_of, quantities), ENDS] if word == REWARD else []
                nodes[word][name] = parse_expression(stated.text, [*quantities, *decided, *hidden, *after])
        except ExpressionError as error:
            problems.refuse(stated.number, error)
    if len(problems) > before:
        return None
    own = {name: node for name, node in features.items() if name not in dict(task.parsed_features)}
    read = read_by(node for some in nodes.values() for node in some.values())
    needed = parts.needed_features(own, own.keys() & {name.removeprefix("next(").removesuffix(")") for name in read})
    for name in (name for name, _ in needed if name in task.decision_names):
        problems.add(None, f"`let {name}`: `{name}` is the action of the step in a plant", "choose another name")
    if len(problems) > before:
        return None
    moved, reward, ends = ({name: to_text(node) for name, node in some.items()} for some in nodes.values())
    lets = tuple((name, to_text(node)) for name, node in needed)
    plant = Plant(lets, tuple(moved.items()), reward.get("", ""), ends.get("", ""), tuple(starts.items()), hidden)
    try:
        equations = Equations(task, plant)
    except PolicyError as error:
        problems.add(None, str(error), "define each quantity before the lines that need it, and none by itself")
        return None
    if (work := equations.work()) > MOST_WORK:
        found = f"a fit of the plant's {len(equations.values):,} numbers takes {work / MOST_WORK:.1f} times too long"
        problems.add(None, found, "write shorter lines with fewer numbers, or keep some as they are with `fixed(...)`")
        return None
    for name, _ in needed:
        parts.without_let.pop(name, None)  # a feature, not a misspelt output
    return plant


class Equations:
    """A compiled plant. Its numbers are arguments, so it also computes the plant with other numbers.

    Attributes:
        nodes: the lines of the plant, by left-hand side: `let x`, `next x`, `reward`, `ends`.
        values: the numbers that a fit may change, shape (K,), in the order of the lines: those in `tune(...)`, within
            their range, and all others except exponents, 0, 1, -1, pi, those in `fixed(...)`, and those of `ends` and
            `start`.
        limits: the lower and upper limits of `values`, shape (2, K); infinite without `tune(...)`.
        computed: the lines except `let`, as functions of observations, decisions, memory, values (`#0`, `#1`, ...) and
            `definitions`.
        definitions: the expressions of quantities; also, as `next(NAME)`, of quantities and hidden states after the
            step, and of `ends`. Each may read those before it.
        remembered: the names of the quantities and decisions whose previous values the plant reads.
        inputs: the names of the columns that the expressions in `computed` may read, except those after the step.
        inputs_after: the names of the columns after the step, which the reward may read.
        decided: a function from n actions, shape (n,) or (n, m), to a column of shape (n,) for each decision name.

    Raises:
        PolicyError: the plant does not fit the task.
    """

    def __init__(self, task: Task, plant: Plant) -> None:
        self.task, self.plant, decisions = task, plant, task.decision_names
        if task.text_names:
            raise PolicyError("an environment that is observed as text has no plant")
        taken = {*task.quantity_names, *decisions, *task.output_names, *dict(plant.lets)}
        for name in plant.hidden:
            if not is_name(name) or name in taken:
                raise PolicyError(f"`{name[:40]}` cannot name a hidden state; choose another name")
        for name, _ in (*plant.next, *plant.starts):
            if name not in (*task.observation_names, *plant.hidden):
                raise PolicyError(f"damaged plant: `{name[:40]}` is not observed")
        try:
            for _, text in plant.starts:
                read_start(text)
            lets, known = parse_lets(plant.lets, task, "plant", (*decisions, *plant.hidden))
            self.nodes: dict[str, Node] = {f"let {name}": node for name, node in lets}
            self.nodes |= {f"{NEXT} {name}": parse_expression(text, known) for name, text in plant.next}
            if plant.reward:
                after = [next_of(name) for name in (*task.quantity_names, *dict(plant.lets))]
                self.nodes[REWARD] = parse_expression(plant.reward, [*known, *after, ENDS])
            fitted = list(self.nodes.items())
            if plant.ends:
                self.nodes[ENDS] = parse_expression(plant.ends, [name for name in known if name not in decisions])
            self.values = np.array([value for _, node in fitted for value in constants(node, KEPT)])
            ranges = [one for _, node in fitted for one in limits(node, KEPT)]
            self.limits = np.array(ranges, np.float64).reshape(-1, 2).T
            self.computed, self.definitions = self._computed(known)
            read = needed_by(read_by(self.computed.values()), self.definitions)
            nodes = [*self.computed.values(), *(node for name, node in self.definitions.items() if name in read)]
            self.remembered = tuple(sorted(set[str]().union(*map(remembered_in, nodes))))
            if ENDS in self.remembered and ENDS not in known:
                raise PolicyError("`prev(ends)` is always 0, as no step follows an end; leave it out")
        except ExpressionError as error:
            raise PolicyError(f"damaged plant: {error}") from None
        before = [*task.observation_names, *map(previous_of, self.remembered), *plant.hidden]
        self.inputs = [*before, *decisions, *(f"#{i}" for i in range(len(self.values)))]
        self.inputs_after = [next_of(name) for name in task.observation_names]
        self.decided = decision_columns(task)

    def with_values(self, values: Column) -> Plant:
        """Return the plant with these numbers, rounded to 7 significant digits."""
        rounded = iter([to_digits(value, SIGNIFICANT_DIGITS) for value in values.tolist()])
        fitted = {line: node for line, node in self.nodes.items() if line != ENDS}
        texts = {line: to_text(with_plain_signs(with_constants(node, rounded, KEPT))) for line, node in fitted.items()}
        return replace(
            self.plant,
            lets=tuple((name, texts[f"let {name}"]) for name, _ in self.plant.lets),
            next=tuple((name, texts[f"{NEXT} {name}"]) for name, _ in self.plant.next),
            reward=texts.get(REWARD, ""),
        )

    # --- computing

    def _computed(self, known: Sequence[str]) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return `computed` and `definitions`; `known` are the names of all quantities, decisions and hidden states."""
        numbers = (f"#{i}" for i in itertools.count())
        # The lines, with `#0`, `#1`, ... in place of the numbers that a fit may change.
        numbered = {
            name: node if name == ENDS else with_numbers(node, lambda *_: Name(next(numbers)), KEPT)
            for name, node in self.nodes.items()
        }
        now = dict(self.task.parsed_features)
        now |= {name: numbered.pop(f"let {name}") for name, _ in self.plant.lets}
        observed, hidden = self.task.observation_names, self.plant.hidden
        after: dict[str, Node] = {name: Name(next_of(name)) for name in (*observed, *hidden, *now)}
        definitions = dict(now)
        definitions |= {next_of(name): numbered.get(f"{NEXT} {name}", Name(name)) for name in hidden}
        definitions |= {next_of(name): substitute(node, after) for name, node in now.items()}
        if ENDS in numbered:
            numbered[ENDS] = substitute(numbered[ENDS], after)
        if ENDS not in known:  # else the name means that quantity
            definitions[ENDS] = numbered.get(ENDS, Number(0.0))
        return numbered, definitions

    @cached_property
    def _advance(self) -> Any:
        moved, hidden = (
            [self.computed.get(f"{NEXT} {name}", Name(name)) for name in names]
            for names in (self.task.observation_names, self.plant.hidden)
        )
        return compiled([*moved, *map(Name, self.remembered), *hidden], self.inputs, self.definitions)

    @cached_property
    def _reward_and_end(self) -> Any:
        nodes = [self.computed.get(name, Number(0.0)) for name in (REWARD, ENDS)]
        return compiled(nodes, [*self.inputs, *self.inputs_after], self.definitions)

    def memory(self, hidden: Sequence[Column], n: int) -> list[Column]:
        """Return the memory at the start of n episodes: NaN for each name in `remembered`, then the hidden states."""
        return [*(np.full(n, np.nan) for _ in self.remembered), *hidden]

    @cached_property
    def hidden_starts(self) -> tuple[tuple[float, float], ...]:
        """The mean and standard deviation of each hidden state at the start; 0 and 1 without a `start` line."""
        moments = dict.fromkeys(self.plant.hidden, (0.0, 1.0))
        for name, text in self.plant.starts:
            if name in moments:
                word, first, second = read_start(text)
                uniform = (first + second) / 2, (second - first) / 12**0.5
                moments[name] = (first, second) if word == "normal" else uniform
        return tuple(moments.values())

    def step(self, observed: Columns, memory: Columns, decided: Columns, values: Any) -> tuple[list[Any], list[Any]]:
        """Return the observations after a step, and the memory for the next one.

        Args:
            observed: a column for each observation.
            memory: a column for each name in `remembered` and each hidden state; see `memory`.
            decided: the columns that `decided` returns.
            values: for each of `values` a number, or an array that broadcasts with the columns.
        """
        with np.errstate(all="ignore"):
            found = list(self._advance(_arrays(*observed, *memory, *decided, *values)))
        width = len(self.task.observation_names)
        return found[:width], found[width:]

    def outcome(
        self, observed: Columns, memory: Columns, decided: Columns, values: Any, after: Columns
    ) -> tuple[Any, Any]:
        """Return the reward of a step, and whether the episode ends after it: 1 or 0.

        The arguments are those of `step`, and the observations `after` it.
        """
        with np.errstate(all="ignore"):
            reward, ends = self._reward_and_end(_arrays(*observed, *memory, *decided, *values, *after))
        return reward, ends

    @cached_property
    def nearness_to_end(self) -> Any:
        """A function of columns of observations that grows towards the end of the episode: 0 or more where it ends.

        None if `ends` does not consist of comparisons of quantities after the step.
        """
        node = _nearness(self.computed[ENDS]) if ENDS in self.computed else None
        if node is None:
            return None
        other = needed_by(read_by([node]), self.definitions) - self.definitions.keys() - set(self.inputs_after)
        return None if other else compiled([node], self.inputs_after, self.definitions)

    def work(self) -> int:
        """Return the work of a fit: numbers times operations, summed over groups of lines that share numbers.

        A function or a power counts as four operations. With hidden states, all lines are one group, and the work is
        doubled.
        """
        groups, work = self.groups(), 0
        if self.plant.hidden:
            groups = [([*self.computed], np.arange(len(self.values)))] * 2
        for some, numbers in groups:
            lines = [self.computed[line] for line in some]
            read = needed_by(set().union(*map(names_in, lines)), self.definitions)
            nodes = [*lines, *(self.definitions.get(name, NOTHING) for name in read)]
            calls = [one.function for node in nodes for one in nodes_of(node) if isinstance(one, Call)]
            work += len(numbers) * sum(1 if OPERATIONS[name].level and name != "^" else 4 for name in calls)
        return work

    @property
    def predictions(self) -> list[str]:
        """The left-hand sides of the lines whose values are observed: the reward, then the observations."""
        seen = [REWARD, *(f"{NEXT} {name}" for name in self.task.observation_names)]
        return [line for line in seen if line in self.computed]

    def groups(self) -> list[Group]:
        """Return the groups of `predictions` that share numbers, with the indices of these numbers."""
        groups: list[tuple[list[str], set[int]]] = []
        for line in self.predictions:
            read = needed_by(names_in(self.computed[line]), self.definitions, now=True)
            some, numbers = [line], {int(name[1:]) for name in read if name.startswith("#")}
            for group in [group for group in groups if group[1] & numbers]:
                groups.remove(group)
                some, numbers = group[0] + some, group[1] | numbers
            groups.append((some, numbers))
        return [(some, np.array(sorted(numbers), np.intp)) for some, numbers in groups if numbers]


def _arrays(*values: Any) -> list[npt.NDArray[np.float64]]:
    return [np.asarray(value, np.float64) for value in values]


def _nearness(node: Node) -> Node | None:
    """Return an expression that is 0 or more where a condition holds, and grows towards it; None if there is none."""
    match node:
        case Call(">" | ">=", (left, right)):
            return Call("-", (left, right))
        case Call("<" | "<=", (left, right)):
            return Call("-", (right, left))
        case Call("and" | "or" as function, (left, right)):
            one, other = _nearness(left), _nearness(right)
            return None if one is None or other is None else Call("min" if function == "and" else "max", (one, other))
    return None


_DRAW = re.compile(rf"(normal|uniform)\(\s*({NUMBER.pattern})\s*,\s*({NUMBER.pattern})\s*\)")


def read_start(text: str) -> tuple[str, float, float]:
    """Return the word and the two numbers of `normal(MEAN, DEVIATION)` or `uniform(LOW, HIGH)`.

    Raises:
        ExpressionError: `text` has neither form, or its numbers are not finite or not in order.
    """
    if found := _DRAW.fullmatch(text.strip()):
        word, first, second = found[1], float(found[2]), float(found[3])
        is_ordered = second >= 0 if word == "normal" else first <= second
        if is_ordered and np.isfinite([first, second, second - first]).all():
            return word, first, second
    raise ExpressionError(f"`{text[:40]}` is not a start; write `normal(MEAN, DEVIATION)` or `uniform(LOW, HIGH)`")
