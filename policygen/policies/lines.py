"""Conversion of a text to a draft: the contents of the lines of its last policy, and their problems.

Reading tolerates text around a policy (prose, code fences, headings) and markup in its lines.
`read_table` and `read_equations` check whether the lines make a whole policy.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policygen.errors import ExpressionError, UsageError
from policygen.policies.cells import NUMBER, ascii_signs, is_rule_line, looks_like_bins, split_comment
from policygen.policies.features import Lets
from policygen.policies.policy import Policy
from policygen.policies.shaping import OBJECTIVE, POTENTIAL
from policygen.quantities.grid import Dimension
from policygen.quantities.text import parse_expression, unknown_name
from policygen.quantities.tree import NOTHING, Node, names_in, remembered_in
from policygen.tasks.task import Task, decision_names, is_name, output_names

MAX_CHARACTERS = 400_000
MAX_LINE = 16_000
MOST_EDGES = 500  # bin edges of a quantity; their line is still readable when tuning adds digits
MOST_FEATURES = 100  # or two per observation if that is more, so that all can be standardised and summed
NOTHING_FOUND = "no policy was found"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a reply: the line, what was found, what was expected."""

    line: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.found}; {self.expected}"


@dataclass
class Draft:
    """The parts of a policy text read so far, and their context; a number beside a value is its line number.

    Attributes:
        incumbent: the policy that the text may revise.
        offered: features that the text may use without defining them.
        free_grid: whether `bins` lines may replace the grid.
        bare: features written without `let`.
        shaping: an objective and a potential, as text.
        besides: the quantities that objective and potential read.
        lines: the policy's own lines without decoration, "" for a blank one.
    """

    task: Task
    incumbent: Policy | None = None
    offered: Mapping[str, Node] = field(default_factory=dict)
    free_grid: bool = True
    lets: dict[str, Node] = field(default_factory=dict)
    bins: dict[str, tuple[int, Dimension]] = field(default_factory=dict)
    header: tuple[int, list[str]] | None = None
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    equations: dict[str, Node] = field(default_factory=dict)
    equation_lines: dict[str, int] = field(default_factory=dict)
    params: dict[int, tuple[int, float]] = field(default_factory=dict)
    bare: dict[str, int] = field(default_factory=dict)
    shaping: dict[str, tuple[int, str]] = field(default_factory=dict)
    besides: frozenset[str] = frozenset()
    lines: dict[int, str] = field(default_factory=dict)
    comments: dict[int, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def inherited(self) -> Mapping[str, Node]:
        """The incumbent's own features."""
        return dict(self.incumbent.lets) if self.incumbent is not None else {}

    @property
    def features(self) -> Mapping[str, Node]:
        """The features that the text may use; its own definitions come first, then those on offer."""
        return {**self.inherited, **self.offered, **self.lets}

    def problem(self, line: int | None, found: str, expected: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(line, found, expected))

    def refuse(self, line: int, error: ExpressionError | str) -> None:
        """Add a problem from a sentence of the form `what was found; what was expected`."""
        found, _, expected = str(error).partition("; ")
        self.problem(line, found, expected or "correct the expression")

    def used(self, lets: Mapping[str, Node], wanted: Iterable[str]) -> Lets:
        """Return the needed features, each after those whose current values it needs.

        Features that only `prev` reads may come anywhere, because their values are those of the previous step.
        """
        ordered: dict[str, Node] = {}
        open_names: list[str] = []

        def visit(name: str) -> None:
            if name in open_names:
                circle = " -> ".join([*open_names[open_names.index(name) :], name])
                remedy = f"rename one of them, or read `prev({name})`, its last value"
                self.problem(None, f"a value would need itself ({circle})", remedy)
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
            # Add the features that only `prev` reads, in sorted order: equal texts then give equal policies.
            remembered = frozenset().union(*(remembered_in(node) for node in ordered.values()))
            waiting = sorted(name for name in remembered if name in lets and name not in ordered and not self.problems)
        most = most_features(self.task)
        if len(ordered) > most:  # kept features count, too: the text of the policy must be readable
            self.problem(None, f"the policy has {len(ordered)} features", f"use at most {most}")
        return tuple(ordered.items())

    def all_params(self, count: int, what: str) -> list[tuple[int, float]] | None:
        """Return line and value of each of `count` params, or None if some are missing or surplus."""
        beyond = [index for index in self.params if index >= count]
        missing = [index for index in range(count) if index not in self.params]
        if beyond:
            self.problem(self.params[beyond[0]][0], f"found params[{beyond[0]}]", f"indices are 0 to {count - 1}")
        if missing:
            some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            expected = f"give one for each {what}, {count} in all"
            self.problem(None, f"{len(missing)} params are missing ({some})", expected)
        return None if beyond or missing else [self.params[index] for index in range(count)]


# The sentence of a reply without a policy; it must be alone in the last block or in the reply.
_RESIGNATION = re.compile(r"no improvement[.!]?", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(```+|~~~+)")
# Prose may start with `Let`: only `let NAME =` and a lower-case `let` are taken for a feature.
_LET = re.compile(r"(?:let|(?i:let)(?=\s+\w+\s*:?=))\s+(.*)")
_BINS = re.compile(r"bins\s+(\S+?)\s*[:=]\s*(.*)", re.IGNORECASE)
_ASSIGN = re.compile(r"([A-Za-z_]\w*(?:\s*[\[(]\s*\w+\s*[\])])?)\s*:?=(?!=)\s*(.+)")
_PARAM = re.compile(r"params?\s*\[\s*(\d{1,9})\s*\]\s*[:=]\s*([-+−–]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_ALIAS = re.compile(r"\b(obs|action)(\d{1,4}|(?<=action))\b")


def read_draft(
    text: str,
    task: Task,
    incumbent: Policy | None = None,
    offered: Mapping[str, Node] | None = None,
    *,
    free_grid: bool = True,
) -> Draft:
    """Read the lines of the last policy in `text`, a reply or a hand-written file; see `Draft` for the rest."""
    draft = Draft(task, incumbent, offered or {}, free_grid)
    if len(text) > MAX_CHARACTERS:
        draft.problem(None, f"the reply has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read")
    else:
        _read_lines(_policy_lines(with_names(text, task)), _Vocabulary(task, list(draft.features)), draft)
    return draft


def most_features(task: Task) -> int:
    """Return the maximum number of features that a policy may define."""
    return max(MOST_FEATURES, 2 * len(task.observations))


def with_names(text: str, task: Task) -> str:
    """Replace `obs3` by the name of observation 3, and `action3` by that of actuator 3.

    The only actuator may be called `action`. Names of the task and names defined in the text are unchanged; parts of a
    Dict or Tuple have no numbers.
    """
    numbered = len(task.actuators) == 1 or task.action_layout is None or task.action_layout.kind == "array"
    numbers = [actuator.name for actuator in task.actuators if not actuator.is_choice and numbered]
    known = {
        *task.quantity_names,
        *task.text_names,
        *(actuator.name for actuator in task.actuators),
        *output_names(task),
    }

    # Searched once, because a reply may have as many aliases as words; the word after `let` may be another `let`.
    defined = set(re.findall(r"\blet\s+(?=(\w+))", text))

    def named(match: re.Match[str]) -> str:
        names = task.observation_names if match[1] == "obs" else numbers
        index = int(match[2]) if match[2] else 0 if len(names) == 1 else len(names)
        stays = match[0] in known or index >= len(names) or match[0] in defined
        return match[0] if stays else names[index]

    return _ALIAS.sub(named, text)


def resigns(text: str) -> bool:
    """Whether the last block of the text, or a text without blocks, is just the line `no improvement`."""
    blocks, everything = _blocks(text[-MAX_CHARACTERS:])
    last = blocks[-1] if blocks else everything
    said = [cleaned for _, line in last if (cleaned := _cleaned(line[:MAX_LINE]))]
    return len(said) == 1 and _RESIGNATION.fullmatch(said[0]) is not None


# --- finding the policy in the text ----------------------------------------------------------------------------------


def _policy_lines(text: str) -> list[tuple[int, str]]:
    """Return the numbered lines of the last fenced block with policy lines; without such a block, of the whole text."""
    blocks, everything = _blocks(text)
    for block in reversed(blocks):
        if any("|" in line or "=" in line or _PARAM.search(line[:MAX_LINE]) for _, line in block):
            return block
    return everything


def _blocks(text: str) -> tuple[list[list[tuple[int, str]]], list[tuple[int, str]]]:
    """Return the numbered lines of each fenced block, and of the whole text without the fences."""
    blocks: list[list[tuple[int, str]]] = []
    current: list[tuple[int, str]] | None = None
    everything: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            if current is None:
                current = []
                blocks.append(current)
            else:
                current = None
            continue
        everything.append((number, line))
        if current is not None:
            current.append((number, line))
    return blocks, everything


@functools.lru_cache(maxsize=1_000)  # each line is read twice, and a rambling reply repeats itself
def _cleaned(line: str) -> str:
    """Return a line without comments, list bullets and emphasis around it."""
    line, _ = split_comment(line)
    line = re.sub(r"^(?:(?:[-•+]\s+|\d+[.)]\s+)(?=\D)|\*\s+(?=[^\d|]))", "", line)
    line = re.sub(r"^(\*\*|`)([\w() \[\]]+)\1", r"\2", line)  # **left** = ...
    line = line.strip("`").strip()
    if line.startswith("**") and line.endswith("**"):
        line = line[2:-2].strip()
    return line.rstrip(";").rstrip()


# --- reading lines ---------------------------------------------------------------------------------------------------


class _Vocabulary:
    """The names that lines may use, including features that a later line defines, because `parse` sorts them.

    Names in `later`, the parts of a decision, may only be used as `prev(NAME)`.
    """

    def __init__(self, task: Task, features: Sequence[str]) -> None:
        self.task = task
        self.base = task.quantity_names
        self.outputs = output_names(task)
        self.defined = dict.fromkeys(features)  # so far, in order
        self.known = [*dict.fromkeys((*self.base, *features))]
        self._listed = set(self.known)
        self.later = decision_names(task)
        self.unread: dict[str, int] = {}  # expressions that could not be read, and how many names were known
        self.columns = {"action", *(a.name.lower() for a in task.actuators)}

    def add(self, name: str) -> None:
        """Add a feature that some line defines."""
        if name not in self._listed:
            self._listed.add(name)
            self.known.append(name)

    def taken(self, name: str) -> str:
        """Return the description of the owner of a name, ignoring case like table headers; empty for a free name."""
        kinds = {"an action": self.outputs, "a quantity of the task": self.base}
        for kind, names in {**kinds, "a text that is observed": self.task.text_names}.items():
            if name.lower() in map(str.lower, names):
                return kind
        return next((f"a feature, `{o}`" for o in self.defined if o != name and o.lower() == name.lower()), "")

    def defined_alike(self, name: str, text: str) -> bool:
        """Whether the task defines the same feature; `to_text(whole=True)` repeats such definitions."""
        own = dict(self.task.parsed_features).get(name)
        try:
            return own is not None and own == parse_expression(text, self.known, self.later, self.task.text_names)
        except ExpressionError:
            return False


def _read_lines(lines: Sequence[tuple[int, str]], words: _Vocabulary, draft: Draft) -> None:
    for _, raw in lines:
        if len(raw) <= MAX_LINE and (match := _LET.match(_cleaned(raw))) and is_name(_let_name(match[1])):
            words.add(_let_name(match[1]))
    for number, raw in lines:
        if len(raw) > MAX_LINE:
            if "|" in raw or "=" in raw or _BINS.match(_cleaned(raw[:MAX_LINE])) or _PARAM.search(raw[:MAX_LINE]):
                draft.problem(number, f"the line has {len(raw):,} characters", f"write at most {MAX_LINE:,} a line")
            continue
        line = _cleaned(raw)
        _, draft.comments[number] = split_comment(raw)
        if not line:
            if not raw.lstrip().startswith("##"):  # a heading around a policy
                draft.lines[number] = ""
            continue
        if match := _LET.match(line):
            _read_let(number, match[1], words, draft)
        elif _PARAM.search(line) and not line.startswith("|"):
            for index, value in _PARAM.findall(line):
                draft.params[int(index)] = (number, float(ascii_signs(value)))
                if math.isinf(float(ascii_signs(value))):
                    draft.problem(number, f"params[{index}] is too large", "write a smaller number")
        elif match := _BINS.match(line):
            _read_bins(number, match[1], match[2], words.known, draft)
        elif line.startswith("|") or ("|" in line and not _ASSIGN.match(line)):
            _read_row(number, line, words, draft)
        elif match := _ASSIGN.match(line):
            _read_assignment(number, match[1], match[2], words, draft)
        if len(draft.lets) > (most := most_features(draft.task)):
            draft.problem(number, f"this is feature number {len(draft.lets)}", f"write at most {most}")
            return


def _let_name(text: str) -> str:
    return text.partition("=")[0].strip().rstrip(": ")


def _read_let(number: int, text: str, words: _Vocabulary, draft: Draft) -> None:
    name, (_, equals, expression) = _let_name(text), text.partition("=")
    if not equals or not is_name(name):
        draft.problem(number, f"found `let {text[:60]}`", "write `let NAME = EXPRESSION`")
    elif words.defined_alike(name, expression):
        draft.lines[number] = f"let {name} = {expression.strip()}"
    elif taken := words.taken(name):
        draft.problem(number, f"`{name}` is already {taken}", "choose another name for the feature")
    else:
        # Define the name even if its expression cannot be read: lines that use it then cause no further problem.
        draft.lets[name] = _read_expression(number, expression, words, draft) or NOTHING
        draft.lines[number] = f"let {name} = {expression.strip()}"
        words.defined[name] = None


def _read_expression(number: int, text: str, words: _Vocabulary, draft: Draft) -> Node | None:
    """Return the expression on a line, or None if the draft has a new problem."""
    try:
        return parse_expression(text, words.known, words.later, words.task.text_names)
    except ExpressionError as error:
        draft.refuse(number, error)
        return None


def _read_bins(number: int, name: str, text: str, known: Sequence[str], draft: Draft) -> None:
    if name not in known:
        draft.refuse(number, unknown_name(name, known))
        return
    draft.lines[number] = f"bins {name}:"
    edges = [part.strip() for part in text.strip("[] ").split(",") if part.strip()]
    if len(edges) > MOST_EDGES:
        draft.problem(number, f"{name} has {len(edges):,} bin edges", f"write at most {MOST_EDGES}")
        edges = edges[:MOST_EDGES]
    bad = [edge for edge in edges if not NUMBER.fullmatch(ascii_signs(edge))]
    # Keep the number of bins even if an edge cannot be read: rows that use them then cause no further problem.
    draft.bins[name] = (number, Dimension(name, tuple(map(float, range(len(edges))))))
    if bad:
        draft.problem(number, f"the bin edge `{bad[0][:40]}` is not a number", f"write `bins {name}: 0, 0.5, 1`")
        return
    try:
        draft.bins[name] = (number, Dimension(name, tuple(float(ascii_signs(edge)) for edge in edges)))
    except UsageError as error:
        draft.problem(number, str(error), "write the inner edges in increasing order")


def _read_row(number: int, line: str, words: _Vocabulary, draft: Draft) -> None:
    if is_rule_line(line):
        return
    cells = [_plain(cell) for cell in line.strip().strip("|").split("|")]
    lowered = [cell.lower() for cell in cells]
    names = {name.lower() for name in words.known} | words.columns
    if not line.startswith("|") and lowered[0] not in names and not looks_like_bins(lowered[0]):
        return  # prose with a pipe in it, such as |angle|
    if any(cell in names for cell in lowered) and not any(looks_like_bins(cell) for cell in lowered[:-1]):
        draft.header = (number, cells)
        draft.rows.clear()  # a second table replaces the first: models restate the old one before they improve it
        draft.lines = {n: text for n, text in draft.lines.items() if not text.startswith("|")}
    else:
        draft.rows.append((number, cells))
    draft.lines[number] = f"| {' | '.join(cells)} |"


def _plain(cell: str) -> str:
    """Return a cell without emphasis: `**right**`, `*right*` and code quotes."""
    match = re.fullmatch(r"(\*{1,3}|`+)([^*`]+)\1", cell.strip())
    return match[2].strip() if match else cell.strip()


def _read_assignment(number: int, left: str, right: str, words: _Vocabulary, draft: Draft) -> None:
    name = _output_called(left, words)
    if name is not None:
        node = _read_expression(number, right, words, draft)
        if name not in draft.equation_lines:
            draft.lines[number] = f"{name} = {right}"
        if node is not None and draft.equations.setdefault(name, node) != node:
            found = f"{name} has another equation than on line {draft.equation_lines[name]}"
            draft.problem(number, found, "write one equation for each output")
        draft.equation_lines.setdefault(name, number)
    elif left in (OBJECTIVE, POTENTIAL) and left not in words.known:
        draft.shaping[left] = (number, right)
    elif is_name(left) and not words.taken(left):
        # `let` left out: taken as a feature if it reads as one and something uses it.
        try:
            if words.unread.get(right) == len(words.known):  # a rambling reply repeats itself
                raise ExpressionError
            node = parse_expression(right, words.known, words.later, words.task.text_names)
        except ExpressionError:
            words.unread[right] = len(words.known)
            draft.bare.setdefault(left, number)
            return
        draft.bare[left] = number
        draft.lets[left] = node
        draft.lines[number] = f"let {left} = {right}"
        words.add(left)
        words.defined[left] = None


def _output_called(left: str, vocabulary: _Vocabulary) -> str | None:
    """Return the output named by a left-hand side: `left`, `score_left`, `score(left)`, `action[0]`, `action_0`."""
    outputs, task = vocabulary.outputs, vocabulary.task
    words = [word for word in re.split(r"[\s\[\]()]+", left) if word]
    candidates = ["_".join(words), words[-1]]
    for prefix in ("score_", "score"):
        candidates += [c.removeprefix(prefix) for c in candidates if c.lower().startswith(prefix)]
    lowered = {output.lower(): output for output in outputs}
    if len(task.actuators) == 1 and task.actuators[0].is_choice:
        actuator = task.actuators[0]
        for index, output in enumerate(outputs):
            lowered.setdefault(f"{actuator.name}_{actuator.labels[index]}".lower(), output)
            lowered.setdefault(f"action_{index}", output)
    return next((lowered[c.lower()] for c in candidates if c.lower() in lowered), None)
