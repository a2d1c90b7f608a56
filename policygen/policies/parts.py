"""Combine statements into the named parts of a policy's text; `parse` makes a policy from these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from policygen.errors import ExpressionError, UsageError
from policygen.policies.cells import ascii_signs, looks_like_bins, row_line, with_comment
from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, STATEMENTS, Line, Problems, statements
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import NUMBER, WORDS, is_name, parse_expression, unknown_name
from policygen.quantities.tree import NOTHING, Lets, Node, names_in, read_by, remembered_in
from policygen.tasks.task import Task

MOST_EDGES = 500  # per quantity, so that the line can still be read when tuning has added digits
Rewrite = Callable[[Node, Node], Node]
MOST_FEATURES = 100  # or two per observation if that is more, so that a policy can standardise and sum them all


def most_features(task: Task) -> int:
    """Return how many features a policy may define."""
    return max(MOST_FEATURES, 2 * len(task.observations))


def refusal(found: str, expected: str) -> ExpressionError:
    """Return an error to raise for a line, in the form that `Problems.refuse` takes."""
    return ExpressionError(f"{found}; {expected}")


class Parts:
    """The named parts of the last policy in a reply or a file, and the context in which it is read.

    Args:
        text, task, incumbent, free_grid, learner, policy_only: the arguments of `parse`.
    """

    def __init__(
        self,
        text: str,
        task: Task,
        incumbent: Policy | None = None,
        *,
        free_grid: bool = True,
        learner: bool = False,
        policy_only: bool = False,
    ) -> None:
        self.task, self.incumbent, self.free_grid, self.learner = task, incumbent, free_grid, learner
        self.inherited = dict(incumbent.lets) if incumbent is not None else {}  # the incumbent's own features
        self.problems = Problems()
        self.lets: dict[str, Node] = {}  # features that the text defines; `NOTHING` for those that cannot be read
        # Line numbers of `NAME = EXPRESSION` for names that are not outputs: features without `let`, misspelt outputs.
        self.without_let: dict[str, int] = {}
        self.bins: dict[str, Dimension] = {}  # the dimensions that `bins` lines state, by quantity
        self.header: Line | None = None  # of the last table
        self.rows: list[Line] = []  # of the last table
        self.equations: dict[str, Node] = {}  # by output
        # By feature, output, `bins NAME` and `WORD NAME`, the number of the line that defines it first.
        self.first_lines: dict[str, int] = {}
        # For each entry of `STATEMENTS` that the text uses, its lines by word and name.
        self.stated: dict[str, dict[tuple[str, str], Line]] = {}
        # Statements that change equations: the line, the output, the function, and the expression on the line.
        self.rewrites: list[tuple[Line, str, Rewrite, Node]] = []
        self.private: dict[str, Node] = {}  # features that only statements may read (`Statement.private`)
        self.clean_lines: dict[int, str] = {}  # by line number: lines of the policy without markup, with comments

        self._outputs, self._action_parts = task.output_names, task.decision_names
        self._action_columns = {"action", *(a.name.lower() for a in task.actuators)}
        # Names that expressions may read, including features that later lines define; `needed_features` sorts them.
        # Parts of the action may only be read as `prev(NAME)`.
        self._known = list(dict.fromkeys((*task.quantity_names, *self.inherited)))
        self._private_names: set[str] = set()
        if len(text) > MAX_CHARACTERS:
            self.problems.add(None, f"the reply has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read")
        else:
            lines, self.in_block = statements(text, task, policy_only=policy_only)
            self._read(lines)

    @property
    def features(self) -> dict[str, Node]:
        """The features that the text may use: its own and the incumbent's."""
        return {**self.inherited, **self.lets}

    @property
    def states_no_policy(self) -> bool:
        """Whether the text has statements but no line of a policy, so that the incumbent is kept."""
        if self.incumbent is None or not self.stated or self.rewrites:
            return False
        if self.equations or self.rows or self.header or self.bins:
            return False
        if self.without_let.keys() - read_by(self.lets.values()):  # a misspelt output
            return False
        needed = dict(self.incumbent.reader.needed)
        return all(needed.get(name, node) == node for name, node in self.lets.items())

    def needed_features(self, lets: Mapping[str, Node], wanted: Iterable[str]) -> Lets:
        """Return the features that the `wanted` quantities need, each after those whose current values it reads.

        A feature that is read only by `prev` may come anywhere, because its value is from the previous step. Circular
        definitions and too many features are added to the problems.
        """
        ordered: dict[str, Node] = {}
        open_names: list[str] = []

        def visit(name: str) -> None:
            if name in open_names:
                circle = " -> ".join([*open_names[open_names.index(name) :], name])
                remedy = f"rename one of them, or read `prev({name})`, its value at the previous step"
                self.problems.add(None, f"`{name}` depends on itself ({circle})", remedy)
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
            # Add features that are read only by `prev`, in sorted order, so that equal texts give equal policies.
            remembered = frozenset().union(*(remembered_in(node) for node in ordered.values())) & lets.keys()
            waiting = sorted(remembered - ordered.keys()) if not self.problems else []
        most = most_features(self.task)
        if len(ordered) > most:  # including those of the incumbent, because the policy's own text must read back
            self.problems.add(None, f"the policy has {len(ordered)} features", f"use at most {most}")
        return tuple(ordered.items())

    def _read(self, lines: Sequence[Line]) -> None:
        """Read all statements; stop at the first feature beyond the maximum."""
        lines = self._with_own_names(lines)
        defined = (line.name for line in lines if line.word == "let" and is_name(line.name))
        self._known = list(dict.fromkeys((*self._known, *defined)))
        for key in STATEMENTS:
            own = [line for line in lines if self._owner(line) == key]
            if own and (names := STATEMENTS[key].private) is not None:
                self._private_names |= {*names(self.task, own)}
        most = most_features(self.task) * (2 if self._private_names else 1)
        for line in lines:
            try:
                if (form := self._statement(line)) is not None:
                    self.clean_lines[line.number] = with_comment(form, line.comment)
            except ExpressionError as error:
                self.problems.refuse(line.number, error)
            if (count := len(self.lets)) > most:
                self.problems.add(line.number, f"this is feature number {count}", f"define at most {most}")
                return
        self._separate()

    def _with_own_names(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Rename each feature of the task that the lines define in another way.

        `let turn = 2*turn` becomes `let turn_2 = 2*turn`, and other lines then read `turn_2`. A table without a header
        has the task's own columns, so nothing is renamed and `_let` refuses the definition.
        """
        names, features = {name.lower() for name in self._known}, dict(self.task.features)
        header = any(line.word == "|" and not names.isdisjoint(map(str.lower, line.cells)) for line in lines)
        whole = header or any(line.word == "=" and self._output(line.name) for line in lines)
        defined = (line for line in lines if line.word in ("let", "=") and line.name in features)
        new = {line.name: f"{line.name}_2" for line in defined if not self._task_defines(line.name, line.text)}
        new = {name: other for name, other in new.items() if whole or other in self.inherited}
        if not new:
            return lines
        read = re.compile(rf"(prev\(\s*)?\b({'|'.join(new)})\b")

        def renamed(line: Line) -> Line:
            # In its own definition, the name means the task's feature, except in `prev`.
            text = read.sub(lambda m: m[0] if m[2] == line.name and not m[1] else f"{m[1] or ''}{new[m[2]]}", line.text)
            return replace(
                line,
                name=new.get(line.name, line.name),
                text=text,
                cells=tuple(new.get(cell, cell) for cell in line.cells),
            )

        return list(map(renamed, lines))

    def _statement(self, line: Line) -> str | None:
        """Read one statement; return its line without markup if it is a line of the policy.

        Raise ExpressionError if it cannot be read.
        """
        if (key := self._owner(line)) is not None:
            left = (line.name, "") if line.word == "=" else (line.word, line.name)
            first = self.stated.setdefault(key, {}).setdefault(left, line)
            self._once(line, " ".join(left).strip(), first.text == line.text)
            if first is line and (rewrite := STATEMENTS[key].rewrite) is not None:
                if (output := self._output(line.name)) is None:
                    raise ExpressionError(unknown_name(line.name, self._outputs, what="output"))
                self.rewrites.append((line, output, rewrite, self._parsed(line.text)))
            return None
        match line.word:
            case "let":
                return self._let(line)
            case "bins":
                return self._bins(line)
            case "|":
                return self._row(line)
            case "=":
                return self._assignment(line)
            case "long":
                raise refusal(f"the line has {len(line.text):,} characters", f"write at most {MAX_LINE:,} a line")
            case "":
                return ""
            case "?":
                raise self._prose(line)
            case "cut":
                found = "the block of the policy is not closed, so its end may be missing"
                raise refusal(found, "write the whole policy, and ``` after its last line")
            case word if self.in_block or line.name in self._known or self._output(line.name) is not None:
                found = f"there is no statement `{word} NAME = EXPRESSION`"
                words = ", ".join(["let", "bins", *(word for one in STATEMENTS.values() for word in one.words)])
                raise refusal(found, f"known: {words}; others need their extension")
        return None

    def _prose(self, line: Line) -> ExpressionError:
        found = f"`{' '.join(line.text.split())[:60]}` is not a line of a policy"
        return refusal(found, "write `NAME = EXPRESSION` or a row `| ... |`, and prose outside the block or after `#`")

    def _owner(self, line: Line) -> str | None:
        """Return the key in `STATEMENTS` of the statement on a line; None for a line of the policy itself."""
        for key, one in STATEMENTS.items():
            if line.word == "=" and line.name in one.names:
                return key if line.name not in self._known and self._output(line.name) is None else None
            if line.word in one.words or line.word in one.declares:
                return key
        return None

    def _let(self, line: Line) -> str | None:
        name = line.name
        if not is_name(name):
            shown = " = ".join(filter(None, (name, line.text)))[:60]
            if name in WORDS:
                raise refusal(f"`{name}` is a word of the language", "choose another name for the feature")
            raise refusal(f"found `let {shown}`", "write `let NAME = EXPRESSION`")
        if not self._task_defines(name, line.text):
            if taken := self._taken(name):
                raise refusal(f"`{name}` is already {taken}", "choose another name for the feature")
            # Define the name even if its expression cannot be read, so that its uses are not problems, too.
            self.lets.setdefault(name, NOTHING)
            self._define(line, self._parsed(line.text, self._private_names))
        return f"let {name} = {line.text}"

    def _define(self, line: Line, node: Node) -> None:
        self._once(line, line.name, self.lets.get(line.name, NOTHING) in (NOTHING, node))
        self.lets[line.name] = node

    def _once(self, line: Line, left: str, is_same: bool) -> None:
        """Note the first line with this left-hand side; refuse a later line that is not the same."""
        first = self.first_lines.setdefault(left, line.number)
        if not is_same:
            raise refusal(f"`{left}` is defined differently on line {first}", "write it once")

    def _separate(self) -> None:
        """Move features that need private names to `private`; a policy that reads these is a problem."""
        names = self._private_names
        hidden = names - {*self._action_parts}  # `prev(ACTION)` is for everyone
        moved = {n: node for n, node in self.lets.items() if names_in(node) & names or read_by([node]) & hidden}
        while moved:
            self.private |= moved
            self.lets = {name: node for name, node in self.lets.items() if name not in moved}
            moved = {name: node for name, node in self.lets.items() if read_by([node]) & moved.keys()}
        used = read_by(self.equations.values()) | self.bins.keys() | {*(self.header.cells if self.header else ())}
        for name in sorted(used & self.private.keys()):
            found = f"`{name}` reads the action of the step or another value that a policy cannot know"
            self.problems.add(self.first_lines[name], found, "use other features in the policy")

    def _bins(self, line: Line) -> str:
        name, edges = line.name, line.cells[:MOST_EDGES]
        if name not in self._known:
            raise ExpressionError(unknown_name(name, self._known))
        earlier = self.bins.get(name)
        self.first_lines.setdefault(f"bins {name}", line.number)
        # Keep the number of bins even if an edge cannot be read, so that rows with these bins are not problems, too.
        self.bins[name] = Dimension(name, tuple(map(float, range(len(edges)))))
        if len(line.cells) > MOST_EDGES:
            raise refusal(f"{name} has {len(line.cells):,} bin edges", f"write at most {MOST_EDGES}")
        if bad := [edge for edge in edges if not NUMBER.fullmatch(ascii_signs(edge))]:
            raise refusal(f"the bin edge `{bad[0][:40]}` is not a number", f"write `bins {name}: 0, 0.5, 1`")
        try:
            self.bins[name] = Dimension(name, tuple(float(ascii_signs(edge)) for edge in edges))
        except UsageError as error:
            raise refusal(str(error), "write the inner edges in increasing order") from None
        self._once(line, f"bins {name}", earlier in (None, self.bins[name]))
        return f"bins {name}:"

    def _row(self, line: Line) -> str | None:
        lowered = [cell.lower() for cell in line.cells]
        names = {name.lower() for name in self._known} | self._action_columns
        if not line.text.startswith("|") and lowered[0] not in names and not looks_like_bins(lowered[0]):
            if self.in_block:
                raise self._prose(line)
            return None  # prose with a pipe in it, such as |angle|
        if not names.isdisjoint(lowered) and not any(map(looks_like_bins, lowered[:-1])):
            self.header = line
            self.rows.clear()  # the last table counts, because models repeat the old one before they improve it
            self.clean_lines = {number: text for number, text in self.clean_lines.items() if not text.startswith("|")}
        else:
            self.rows.append(line)
        return row_line(line.cells)

    def _assignment(self, line: Line) -> str | None:
        name, text = line.name, line.text
        if (output := self._output(name)) is not None:
            return self._equation(line, output)
        if is_name(name) and not self._taken(name):
            # A feature without `let`, if its expression can be read and something uses it.
            if name in self.without_let and name not in self.lets:  # a rambling reply repeats itself
                return None
            self.without_let.setdefault(name, line.number)
            try:
                node = self._parsed(text)
            except ExpressionError:
                return None
            self._define(line, node)
            if name not in self._known:
                self._known.append(name)
            return f"let {name} = {text}"
        if self.in_block:
            taken = self._taken(name) if is_name(name) else ""
            found = f"`{name}` is already {taken}" if taken else f"`{name}` is no output"
            raise refusal(found, "choose another name for the feature")
        return None

    def _equation(self, line: Line, name: str) -> str | None:
        node = self._parsed(line.text)
        self._once(line, name, self.equations.setdefault(name, node) == node)
        return f"{name} = {line.text}" if self.first_lines[name] == line.number else None

    def _parsed(self, text: str, further: Set[str] = frozenset()) -> Node:
        known = [*self._known, *sorted(further)]
        return parse_expression(text, known, self._action_parts, self.task.text_names)

    def _task_defines(self, name: str, text: str) -> bool:
        """Whether the task defines the same feature, as in texts of `to_text(whole=True)`."""
        own = dict(self.task.parsed_features).get(name)
        try:
            return own is not None and own == self._parsed(text)
        except ExpressionError:
            return False

    def _taken(self, name: str) -> str:
        """Describe what has this name already, ignoring case; empty if the name is free.

        A feature with exactly this name does not count.
        """
        kinds = {"an action": self._outputs, "a quantity of the task": self.task.quantity_names}
        for kind, names in {**kinds, "an observed text": self.task.text_names}.items():
            if name.lower() in map(str.lower, names):
                return kind
        same = (other for other in self.features if other != name and other.lower() == name.lower())
        return next((f"a feature, `{other}`" for other in same), "")

    def _output(self, left: str) -> str | None:
        """Return the output meant by a left-hand side such as `left`, `score_left`, `score(left)` or `action[0]`."""
        words = [word for word in re.split(r"[\s\[\]()]+", left) if word]
        candidates = ["_".join(words), words[-1]]
        for prefix in ("score_", "score"):
            candidates += [c.removeprefix(prefix) for c in candidates if c.lower().startswith(prefix)]
        lowered = {output.lower(): output for output in self._outputs}
        if len(self.task.actuators) == 1 and self.task.actuators[0].is_choice:
            actuator = self.task.actuators[0]
            for index, output in enumerate(self._outputs):
                lowered.setdefault(f"{actuator.name}_{actuator.labels[index]}".lower(), output)
                lowered.setdefault(f"action_{index}", output)
        return next((lowered[c.lower()] for c in candidates if c.lower() in lowered), None)
