"""Combine statements into the named parts of a policy text, and note the line of each.

`read_table` and `read_equations` then make a policy from the parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from policygen.errors import ExpressionError, UsageError
from policygen.policies.cells import NUMBER, ascii_signs, looks_like_bins, row_line, with_comment
from policygen.policies.features import Lets
from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, PARAM, Problems, Statement, statements
from policygen.policies.policy import Policy
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD
from policygen.quantities.grid import Dimension
from policygen.quantities.text import is_name, parse_expression, unknown_name
from policygen.quantities.tree import NOTHING, Node, names_in, read_by, remembered_in
from policygen.tasks.task import Task, decision_names, output_names

MOST_EDGES = 500  # per quantity; then their line can still be read after tuning has added digits
MOST_FEATURES = 100  # or two per observation if that is more, so that all can be standardised and summed
ENDS = "ends"  # an equation of a plant, as `reward` is
HIDDEN = "hidden"  # the word of a line that names a hidden state of a plant
PLANT_WORDS = ("next", "start", "noise", HIDDEN)
NOTHING_FOUND = "no policy was found"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """The context for reading a policy: the arguments of `parse`.

    Attributes:
        task: gives the names of quantities and actions, and the grid.
        incumbent: the policy that the text may revise.
        offered: features that the text may use without defining them.
        free_grid: whether `bins` lines may replace the grid.
    """

    task: Task
    incumbent: Policy | None = None
    offered: Mapping[str, Node] = field(default_factory=dict)
    free_grid: bool = True

    @property
    def inherited(self) -> Mapping[str, Node]:
        """The incumbent's own features."""
        return dict(self.incumbent.lets) if self.incumbent is not None else {}

    def features(self, own: Mapping[str, Node]) -> Mapping[str, Node]:
        """Return the features that a text may use; `own`, those that it defines, take precedence over those offered."""
        return {**self.inherited, **self.offered, **own}


@dataclass(frozen=True, slots=True)
class Stated(Generic[T]):
    """A value, and the number of the line that states it."""

    line: int
    value: T


@dataclass(slots=True)
class Parts:
    """The named parts of a policy text; only `read_parts` changes them.

    Attributes:
        lets: the features that the text defines; one that cannot be read is `NOTHING`.
        bare: the line numbers of `NAME = EXPRESSION`, by name: features without `let`, and lines that cannot be read.
        bins: the new dimensions of the grid, by quantity.
        header: the header of the last table.
        rows: the rows of the last table.
        equations: by output; the first one counts.
        params: by index.
        shaping: an objective and a potential, as text.
        plant: the lines of a plant as text, by word (`next`, `start`, `noise`, `hidden`, `reward`, `ends`) and name.
        plant_lets: the features that read the action of the step or a hidden state; only a plant may use them.
        form: the policy's lines without markup, with the author's comments, by line number.
    """

    lets: dict[str, Node] = field(default_factory=dict)
    bare: dict[str, int] = field(default_factory=dict)
    bins: dict[str, Stated[Dimension]] = field(default_factory=dict)
    header: Statement | None = None
    rows: list[Statement] = field(default_factory=list)
    equations: dict[str, Node] = field(default_factory=dict)
    params: dict[int, Stated[float]] = field(default_factory=dict)
    shaping: dict[str, Stated[str]] = field(default_factory=dict)
    plant: dict[tuple[str, str], Stated[str]] = field(default_factory=dict)
    plant_lets: dict[str, Node] = field(default_factory=dict)
    form: dict[int, str] = field(default_factory=dict)

    def all_params(self, count: int, what: str, problems: Problems) -> list[Stated[float]] | None:
        """Return params 0 to `count` - 1, each for one `what`; None, and add problems, if there are fewer or more."""
        beyond = [index for index in self.params if index >= count]
        missing = [index for index in range(count) if index not in self.params]
        if beyond:
            problems.add(self.params[beyond[0]].line, f"found params[{beyond[0]}]", f"indices are 0 to {count - 1}")
        if missing:
            some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            problems.add(
                None, f"{len(missing)} params are missing ({some})", f"give one for each {what}, {count} in all"
            )
        return None if beyond or missing else [self.params[index] for index in range(count)]


@dataclass(frozen=True, slots=True)
class Reading:
    """A policy made from parts, or None if they have problems.

    Attributes:
        coverage: the share of cells, or of outputs, that the text itself decides.
        form: some lines of the text as a policy writes them, by line number.
    """

    policy: Policy | None = None
    coverage: float = 0.0
    form: Mapping[int, str] = field(default_factory=dict)


def read_parts(text: str, scope: Scope, problems: Problems) -> Parts:
    """Read the last policy in a reply or a hand-written file; add the problems of its lines to `problems`."""
    reader = _PartsReader(scope, problems)
    if len(text) > MAX_CHARACTERS:
        problems.add(None, f"the reply has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read")
    else:
        reader.read(list(statements(text, scope.task)))
    return reader.parts


def most_features(task: Task) -> int:
    """Return the maximum number of features that a policy may define."""
    return max(MOST_FEATURES, 2 * len(task.observations))


def in_order_of_need(lets: Mapping[str, Node], wanted: Iterable[str], task: Task, problems: Problems) -> Lets:
    """Return the features that the quantities `wanted` need, each after those whose current values it reads.

    A feature that is read only by `prev` may come anywhere, because that value is from the previous step. Problems are
    added for circles and for too many features.
    """
    ordered: dict[str, Node] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        if name in open_names:
            circle = " -> ".join([*open_names[open_names.index(name) :], name])
            remedy = f"rename one of them, or read `prev({name})`, its last value"
            problems.add(None, f"a value would need itself ({circle})", remedy)
        elif name in lets and name not in ordered:
            open_names.append(name)
            for used in sorted(names_in(lets[name])):
                visit(used)
            open_names.pop()
            ordered[name] = lets[name]

    waiting = sorted(wanted)
    while waiting:
        for name in waiting:
            visit(name)
        # Add the features that are read only by `prev`, sorted, so that equal texts give equal policies.
        remembered = frozenset().union(*(remembered_in(node) for node in ordered.values()))
        waiting = sorted(name for name in remembered if name in lets and name not in ordered and not problems)
    most = most_features(task)
    if len(ordered) > most:  # features kept from the incumbent count, too: the policy's own text must read back
        problems.add(None, f"the policy has {len(ordered)} features", f"use at most {most}")
    return tuple(ordered.items())


class _PartsReader:
    """A reader of statements, one after the other, that knows the names that they may use.

    `known` includes features that a later line defines; `in_order_of_need` sorts them. Names in `later`, parts of a
    decision, may be used in `prev(NAME)` only.
    """

    def __init__(self, scope: Scope, problems: Problems) -> None:
        task, self.problems = scope.task, problems
        self.task = task
        self.outputs = output_names(task)
        self.later = decision_names(task)
        self.action_columns = {"action", *(a.name.lower() for a in task.actuators)}
        self.features = dict.fromkeys(scope.features({}))  # so far, in order
        self.known = list(dict.fromkeys((*task.quantity_names, *self.features)))
        self.unread: dict[str, int] = {}  # expressions that could not be read, and how many names were known then
        self.states_plant = False
        self.hidden: list[str] = []
        self.equation_lines: dict[str, int] = {}  # by output
        self.parts = Parts()

    def read(self, lines: Sequence[Statement]) -> None:
        """Read the statements of a text into `parts`; stop at the first feature beyond the maximum."""
        defined = (line.name for line in lines if line.word == "let" and is_name(line.name))
        self.known = list(dict.fromkeys((*self.known, *defined)))
        self.hidden = [line.name for line in lines if line.word == HIDDEN]
        self.states_plant = any(line.word in PLANT_WORDS or self._is_reward_or_end(line) for line in lines)
        most = most_features(self.task) * (2 if self.states_plant else 1)  # as many again for the plant
        for line in lines:
            form = self._statement(line)
            if form is not None:
                self.parts.form[line.line] = with_comment(form, line.comment)
            if (count := len(self.parts.lets) + len(self.parts.plant_lets)) > most:
                self.problems.add(line.line, f"this is feature number {count}", f"write at most {most}")
                return
        self._refuse_plant_features()

    def _statement(self, line: Statement) -> str | None:
        """Read one statement; return its line without markup if it belongs to the policy's `form`."""
        match line.word:
            case "let":
                return self._let(line)
            case "params":
                self._params(line)
            case "bins":
                return self._bins(line)
            case "|":
                return self._row(line)
            case "=" if not self._is_reward_or_end(line):
                return self._assignment(line)
            case "=":
                self._plant_line(line, line.name, "")
            case "long":
                found = f"the line has {len(line.text):,} characters"
                self.problems.add(line.line, found, f"write at most {MAX_LINE:,} a line")
            case "":
                return ""
            case word:
                self._plant_line(line, word, line.name)
        return None

    def _let(self, line: Statement) -> str | None:
        name = line.name
        if not is_name(name):
            shown = " = ".join(filter(None, (name, line.text)))[:60]
            self.problems.add(line.line, f"found `let {shown}`", "write `let NAME = EXPRESSION`")
            return None
        if not self._task_defines(name, line.text):
            if taken := self._taken(name):
                self.problems.add(line.line, f"`{name}` is already {taken}", "choose another name for the feature")
                return None
            if self._add_plant_feature(line):
                return None
            # Define the name even if its expression cannot be read: lines that use it then cause no further problem.
            self.parts.lets[name] = self._expression(line) or NOTHING
            self.features[name] = None
        return f"let {name} = {line.text}"

    def _is_reward_or_end(self, line: Statement) -> bool:
        """Whether the line is the reward or the end of a plant."""
        return line.word == "=" and line.name in (REWARD, ENDS) and line.name not in (*self.known, *self.outputs)

    def _plant_line(self, line: Statement, word: str, name: str) -> None:
        first = self.parts.plant.setdefault((word, name), Stated(line.line, line.text))
        if first.value != line.text:
            found = f"`{word} {name}".strip() + f"` has another right-hand side than on line {first.line}"
            self.problems.add(line.line, found, "write it once")

    def _add_plant_feature(self, line: Statement) -> bool:
        """Add a feature to `plant_lets` if it reads the step's action or a hidden state; return whether it does."""
        if not self.states_plant:
            return False
        try:
            node = parse_expression(line.text, [*self.known, *self.later, *self.hidden], self.later)
        except ExpressionError:
            return False
        if not read_by([node]) & {*self.parts.plant_lets, *self.hidden} and not names_in(node) & {*self.later}:
            return False
        self.parts.plant_lets[line.name] = node
        return True

    def _refuse_plant_features(self) -> None:
        """Move features that read a feature of the plant to `plant_lets`; refuse a policy that uses one of these."""
        parts = self.parts
        moved = {name: node for name, node in parts.lets.items() if read_by([node]) & parts.plant_lets.keys()}
        while moved:  # after the features that they read
            parts.plant_lets |= moved
            parts.lets = {name: node for name, node in parts.lets.items() if name not in moved}
            moved = {name: node for name, node in parts.lets.items() if read_by([node]) & moved.keys()}
        read = [(self.equation_lines[name], read_by([node])) for name, node in parts.equations.items()]
        read += [(one.line, frozenset([name])) for name, one in parts.bins.items()]
        if parts.header is not None:
            read.append((parts.header.line, frozenset(parts.header.cells)))
        for line, names in read:
            for name in sorted(names & parts.plant_lets.keys()):
                found = f"`{name}` reads the action of the step or a hidden state, so only the plant may use it"
                self.problems.add(line, found, "give the policy features that read neither")

    def _params(self, line: Statement) -> None:
        for digits, number in PARAM.findall(line.text):
            index, value = int(digits), float(ascii_signs(number))
            self.parts.params[index] = Stated(line.line, value)
            if math.isinf(value):
                self.problems.add(line.line, f"params[{index}] is too large", "write a smaller number")

    def _bins(self, line: Statement) -> str | None:
        name, edges = line.name, line.cells
        if name not in self.known:
            self.problems.refuse(line.line, unknown_name(name, self.known))
            return None
        if len(edges) > MOST_EDGES:
            self.problems.add(line.line, f"{name} has {len(edges):,} bin edges", f"write at most {MOST_EDGES}")
            edges = edges[:MOST_EDGES]
        # Keep the number of bins even if an edge cannot be read, so that rows with these bins are no problem.
        dimension = Dimension(name, tuple(map(float, range(len(edges)))))
        bad = [edge for edge in edges if not NUMBER.fullmatch(ascii_signs(edge))]
        if bad:
            found = f"the bin edge `{bad[0][:40]}` is not a number"
            self.problems.add(line.line, found, f"write `bins {name}: 0, 0.5, 1`")
        else:
            try:
                dimension = Dimension(name, tuple(float(ascii_signs(edge)) for edge in edges))
            except UsageError as error:
                self.problems.add(line.line, str(error), "write the inner edges in increasing order")
        self.parts.bins[name] = Stated(line.line, dimension)
        return f"bins {name}:"

    def _row(self, line: Statement) -> str | None:
        lowered = [cell.lower() for cell in line.cells]
        names = {name.lower() for name in self.known} | self.action_columns
        if not line.text.startswith("|") and lowered[0] not in names and not looks_like_bins(lowered[0]):
            return None  # prose with a pipe in it, such as |angle|
        parts = self.parts
        if any(cell in names for cell in lowered) and not any(looks_like_bins(cell) for cell in lowered[:-1]):
            parts.header = line
            parts.rows.clear()  # the last table counts: models repeat the old one before they improve it
            parts.form = {number: text for number, text in parts.form.items() if not text.startswith("|")}
        else:
            parts.rows.append(line)
        return row_line(line.cells)

    def _assignment(self, line: Statement) -> str | None:
        name, text, parts = line.name, line.text, self.parts
        if (output := self._output(name)) is not None:
            return self._equation(line, output)
        if name in (OBJECTIVE, POTENTIAL) and name not in self.known:
            parts.shaping[name] = Stated(line.line, text)
        elif is_name(name) and not self._taken(name):
            # Without `let`: a feature if its expression can be read and something uses it.
            try:
                if self.unread.get(text) == len(self.known):  # a rambling reply repeats itself
                    raise ExpressionError
                node = self._parsed(text)
            except ExpressionError:
                self.unread[text] = len(self.known)
                parts.bare.setdefault(name, line.line)
                return None
            parts.bare[name] = line.line
            parts.lets[name] = node
            self.features[name] = None
            if name not in self.known:
                self.known.append(name)
            return f"let {name} = {text}"
        return None

    def _equation(self, line: Statement, name: str) -> str | None:
        node, repeated = self._expression(line), name in self.equation_lines
        first = self.equation_lines.setdefault(name, line.line)
        if node is not None and self.parts.equations.setdefault(name, node) != node:
            found = f"{name} has another equation than on line {first}"
            self.problems.add(line.line, found, "write one equation for each output")
        return None if repeated else f"{name} = {line.text}"

    def _parsed(self, text: str) -> Node:
        return parse_expression(text, self.known, self.later, self.task.text_names)

    def _expression(self, line: Statement) -> Node | None:
        """Return the expression on a line; None, and add a problem, if it cannot be parsed."""
        try:
            return self._parsed(line.text)
        except ExpressionError as error:
            self.problems.refuse(line.line, error)
            return None

    def _task_defines(self, name: str, text: str) -> bool:
        """Whether the task defines the same feature: `to_text(whole=True)` repeats its definitions."""
        own = dict(self.task.parsed_features).get(name)
        try:
            return own is not None and own == self._parsed(text)
        except ExpressionError:
            return False

    def _taken(self, name: str) -> str:
        """Describe what already has this name, ignoring case; empty if nothing does, or a feature of just this name."""
        kinds = {"an action": self.outputs, "a quantity of the task": self.task.quantity_names}
        for kind, names in {**kinds, "a text that is observed": self.task.text_names}.items():
            if name.lower() in map(str.lower, names):
                return kind
        return next((f"a feature, `{o}`" for o in self.features if o != name and o.lower() == name.lower()), "")

    def _output(self, left: str) -> str | None:
        """Return the output that a left-hand side means, such as `left`, `score_left`, `score(left)` or `action[0]`."""
        words = [word for word in re.split(r"[\s\[\]()]+", left) if word]
        candidates = ["_".join(words), words[-1]]
        for prefix in ("score_", "score"):
            candidates += [c.removeprefix(prefix) for c in candidates if c.lower().startswith(prefix)]
        lowered = {output.lower(): output for output in self.outputs}
        if len(self.task.actuators) == 1 and self.task.actuators[0].is_choice:
            actuator = self.task.actuators[0]
            for index, output in enumerate(self.outputs):
                lowered.setdefault(f"{actuator.name}_{actuator.labels[index]}".lower(), output)
                lowered.setdefault(f"action_{index}", output)
        return next((lowered[c.lower()] for c in candidates if c.lower() in lowered), None)
