"""Text -> policy, or the list of everything that is wrong with it.

The language is described for users in the README and for models in `templates/`. Reading is tolerant of what surrounds
a policy (prose, code fences, headings) and strict about the policy itself: nothing is guessed, and all problems are
reported at once, each with its line, what was found and what was expected.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policygen.errors import ExpressionError, UsageError
from policygen.expressions import Node, Number, format_number, names_in, parse_expression, unknown_name
from policygen.grid import Dimension, Grid
from policygen.policies import (
    Lets,
    LinearPolicy,
    Policy,
    Rule,
    TablePolicy,
    dense_table,
    output_names,
)
from policygen.spaces import Actuator
from policygen.tasks import PolicyKind, Task, is_name

MAX_CHARACTERS = 400_000
MAX_LINE = 4_000
MOST_PROBLEMS = 20
MOST_FEATURES = 100
MOST_CELL_CHARACTERS = 80  # of an action


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a reply: where, what was found, what was expected."""

    line: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.found}; {self.expected}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says: a policy, or why not.

    `coverage` is the share of cells (of outputs, for a linear policy) that the text itself decides; the others keep
    the incumbent's action.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    coverage: float = 0.0


@dataclass
class _Draft:
    """What has been read so far."""

    lets: dict[str, Node] = field(default_factory=dict)
    bins: dict[str, tuple[int, Dimension]] = field(default_factory=dict)
    header: tuple[int, list[str]] | None = None
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    equations: dict[str, Node] = field(default_factory=dict)
    params: dict[int, tuple[int, float]] = field(default_factory=dict)
    bare: dict[str, int] = field(default_factory=dict)  # features written without `let`, and their lines
    problems: list[Problem] = field(default_factory=list)

    def problem(self, line: int | None, found: str, expected: str) -> None:
        self.problems.append(Problem(line, found, expected))


_FENCE = re.compile(r"^\s*(```+|~~~+)")
# Prose may start with `Let`: only `let NAME =` and a lower-case `let` are taken for a feature.
_LET = re.compile(r"(?:let|(?i:let)(?=\s+\w+\s*:?=))\s+(.*)")
_BINS = re.compile(r"bins\s+(\S+?)\s*[:=]\s*(.*)", re.IGNORECASE)
_ASSIGN = re.compile(r"([A-Za-z_]\w*(?:\s*[\[(]\s*\w+\s*[\])])?)\s*:?=(?!=)\s*(.+)")
_PARAM = re.compile(r"params?\s*\[\s*(\d{1,9})\s*\]\s*[:=]\s*([-+−–]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_RULE_LINE = re.compile(r"[\s|:+=-]*")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def parse(
    text: str,
    task: Task,
    kind: PolicyKind | None = None,
    incumbent: Policy | None = None,
    *,
    free_grid: bool = True,
    definitions: Mapping[str, Node] | None = None,
) -> Parsed:
    """Read a policy.

    Args:
        text: a reply or a hand-written file.
        task: gives the names of quantities and actions, and the grid.
        kind: "table" or "linear"; by default whichever the text looks like.
        incumbent: the policy that the text may revise: what it leaves out is kept from here.
        free_grid: whether `bins` lines may replace the grid.
        definitions: features that the text may use without defining them, each over quantities of the task; those it
            uses become features of the policy. A definition in the text itself comes first. Where equations or
            features that are kept from the incumbent read such a feature, all of the incumbent's definitions stay, so
            that kept weights keep their meaning; a text that rewrites whatever reads them gets those given here.

    Returns:
        The policy, or None and every problem found (20 at most).
    """
    draft = _Draft()
    if len(text) > MAX_CHARACTERS:
        draft.problem(None, f"the reply has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read")
        return Parsed(None, tuple(draft.problems))
    lines = _policy_lines(text)
    base = list(task.quantity_names)
    inherited: dict[str, Node] = dict(incumbent.lets) if incumbent is not None else {}
    offered = dict(definitions or {})
    _read_lines(lines, task, base, {**inherited, **offered}, draft)
    if kind is None:
        tabular = draft.rows or draft.header or (draft.params and not draft.equations and task.grid)
        kind = "table" if tabular else "linear"
    if kind == "table":
        policy, coverage = _table(draft, task, incumbent, {**offered, **inherited}, free_grid)
    else:
        policy, coverage = _linear(draft, task, incumbent, inherited, offered)
    if draft.problems:
        problems = draft.problems[:MOST_PROBLEMS]
        if len(draft.problems) > MOST_PROBLEMS:
            problems.append(
                Problem(None, f"there are {len(draft.problems) - MOST_PROBLEMS} more problems", "correct these first")
            )
        return Parsed(None, tuple(problems), coverage)
    return Parsed(policy, (), coverage)


# --- finding the policy in the text ----------------------------------------------------------------------------------


def _policy_lines(text: str) -> list[tuple[int, str]]:
    """Numbered lines of the last fenced block that holds policy lines; without such a block, of the whole text."""
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
    for block in reversed(blocks):
        if any("|" in line or "=" in line or _PARAM.search(line[:MAX_LINE]) for _, line in block):
            return block
    return everything


def _cleaned(line: str) -> str:
    """A line without comments, list bullets and emphasis around it."""
    # A `#` before a pipe heads a column; `//` divides, so that it starts a comment at the start of a line only.
    line = re.sub(r"^\s*(?:#|//).*$|\s#[^|]*$", "", line).strip()
    line = re.sub(r"^(?:(?:[-•+]\s+|\d+[.)]\s+)(?=\D)|\*\s+(?=[^\d|]))", "", line)
    line = re.sub(r"^(\*\*|`)([\w() \[\]]+)\1", r"\2", line)  # **left** = ...
    line = line.strip("`").strip()
    if line.startswith("**") and line.endswith("**"):
        line = line[2:-2].strip()
    return line.rstrip(";").rstrip()


def _ascii_signs(number: str) -> str:
    return number.replace("−", "-").replace("–", "-")


def _read_lines(
    lines: Sequence[tuple[int, str]], task: Task, base: list[str], features: Mapping[str, Node], draft: _Draft
) -> None:
    outputs = output_names(task)
    action_names = {"action", *(a.name.lower() for a in task.actuators)}
    known = base + [name for name in features if name not in base]
    for number, raw in lines:
        if len(raw) > MAX_LINE:
            if "|" in raw or "=" in raw:
                draft.problem(number, f"the line has {len(raw):,} characters", f"write at most {MAX_LINE:,} a line")
            continue
        line = _cleaned(raw)
        if not line:
            continue
        if _PARAM.search(line) and not line.startswith("|"):
            for index, value in _PARAM.findall(line):
                draft.params[int(index)] = (number, float(_ascii_signs(value)))
                if math.isinf(float(_ascii_signs(value))):
                    draft.problem(number, f"params[{index}] is too large", "write a smaller number")
        elif match := _LET.match(line):
            _read_let(number, match[1], known, base, outputs, draft)
        elif match := _BINS.match(line):
            _read_bins(number, match[1], match[2], known, draft)
        elif line.startswith("|") or ("|" in line and not _ASSIGN.match(line)):
            _read_row(number, line, action_names, known, draft)
        elif match := _ASSIGN.match(line):
            _read_assignment(number, match[1], match[2], outputs, task, known, base, draft)
        known += [name for name in list(draft.lets)[-1:] if name not in known]
        if len(draft.lets) > MOST_FEATURES:
            draft.problem(number, f"this is feature number {len(draft.lets)}", f"write at most {MOST_FEATURES}")
            return


def _read_let(number: int, text: str, known: list[str], base: list[str], outputs: Sequence[str], draft: _Draft) -> None:
    name, equals, expression = text.partition("=")
    name = name.strip()
    name = name.rstrip(": ")
    if not equals or not is_name(name):
        draft.problem(number, f"found `let {text[:60]}`", "write `let NAME = EXPRESSION`")
    elif taken := _taken(name, base, outputs, known):
        draft.problem(number, f"`{name}` is already {taken}", "choose another name for the feature")
    else:
        # A feature that cannot be read still has its name: what uses it is not wrong for that.
        draft.lets[name] = _expression(number, expression, known, draft) or Number(0.0)


def _taken(name: str, base: Sequence[str], outputs: Sequence[str], known: Sequence[str]) -> str:
    """What else has the name, if anything: a table's header does not tell capitals apart. Redefining is allowed."""
    if name.lower() in {output.lower() for output in outputs}:
        return "an action"
    if name.lower() in {quantity.lower() for quantity in base}:
        return "a quantity of the task"
    return next((f"a feature, `{other}`" for other in known if other != name and other.lower() == name.lower()), "")


def _expression(number: int, text: str, known: Sequence[str], draft: _Draft) -> Node | None:
    try:
        return parse_expression(text, known)
    except ExpressionError as error:
        found, _, expected = str(error).partition("; ")
        draft.problem(number, found, expected or "correct the expression")
        return None


def _read_bins(number: int, name: str, text: str, known: Sequence[str], draft: _Draft) -> None:
    if name not in known:
        found, _, expected = unknown_name(name, known).partition("; ")
        draft.problem(number, found, expected)
        return
    edges = [part.strip() for part in text.strip("[] ").split(",") if part.strip()]
    bad = [edge for edge in edges if not _NUMBER.fullmatch(_ascii_signs(edge))]
    # Bins that cannot be read are still so many bins: rows that use them are not wrong for that.
    draft.bins[name] = (number, Dimension(name, tuple(map(float, range(len(edges))))))
    if bad:
        draft.problem(number, f"the bin edge `{bad[0][:40]}` is not a number", f"write `bins {name}: 0, 0.5, 1`")
        return
    try:
        draft.bins[name] = (number, Dimension(name, tuple(float(_ascii_signs(edge)) for edge in edges)))
    except UsageError as error:
        draft.problem(number, str(error), "write the inner edges in increasing order")


def _read_row(number: int, line: str, action_names: set[str], known: Sequence[str], draft: _Draft) -> None:
    if _RULE_LINE.fullmatch(line):
        return
    cells = [_plain(cell) for cell in line.strip().strip("|").split("|")]
    lowered = [cell.lower() for cell in cells]
    names = {name.lower() for name in known} | action_names
    if not line.startswith("|") and lowered[0] not in names and not _looks_like_bins(lowered[0]):
        return  # prose with a pipe in it, such as |angle|
    if any(cell in names for cell in lowered) and not any(_looks_like_bins(cell) for cell in lowered[:-1]):
        draft.header = (number, cells)
        draft.rows.clear()  # a second table replaces the first: models restate the old one before they improve it
    else:
        draft.rows.append((number, cells))


def _plain(cell: str) -> str:
    """A cell without emphasis: `**right**`, `*right*` and code quotes."""
    match = re.fullmatch(r"(\*{1,3}|`+)([^*`]+)\1", cell.strip())
    return match[2].strip() if match else cell.strip()


def _looks_like_bins(cell: str) -> bool:
    return cell == "*" or bool(re.match(r"[<>=!]*\s*\d", cell))


def _read_assignment(
    number: int,
    left: str,
    right: str,
    outputs: Sequence[str],
    task: Task,
    known: list[str],
    base: list[str],
    draft: _Draft,
) -> None:
    name = _output_called(left, outputs, task)
    if name is not None:
        node = _expression(number, right, known, draft)
        if node is not None:
            draft.equations[name] = node
    elif is_name(left) and not _taken(left, base, outputs, known):
        # `let` left out: taken as a feature if it reads as one and something uses it.
        try:
            node = parse_expression(right, known)
        except ExpressionError:
            draft.bare.setdefault(left, number)
            return
        draft.bare[left] = number
        draft.lets[left] = node


def _output_called(left: str, outputs: Sequence[str], task: Task) -> str | None:
    """The output that a left-hand side means: `left`, `score_left`, `score(left)`, `action[0]`, `action_0`."""
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


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(
    draft: _Draft, task: Task, incumbent: Policy | None, inherited: dict[str, Node], free_grid: bool
) -> tuple[Policy | None, float]:
    old = incumbent if isinstance(incumbent, TablePolicy) else None
    grid = old.grid if old is not None else task.grid
    if not free_grid and grid is not None:
        changed = [line for line, dimension in draft.bins.values() if dimension not in grid.dimensions]
        if changed:
            draft.problem(changed[0], "the grid of this run is fixed", "leave out the `bins` lines")
    elif draft.bins:
        grid = _new_grid(draft, grid, old)
    if grid is None:
        if not draft.problems:
            draft.problem(None, f"task {task.name} has no grid", "give one with lines like `bins NAME: 0, 0.5`")
        return None, 0.0
    from_params = bool(draft.params) and not draft.rows
    rules = _rules_from_params(draft, task, grid) if from_params else _rules(draft, task, grid)
    if draft.problems:
        return None, 0.0
    if not rules:
        _nothing_found(draft, f"write table rows such as `{_example_row(task, grid)}`")
        return None, 0.0
    _, covered = dense_table(rules, grid.shape, len(task.actuators))
    coverage = float(covered.mean())
    kept = old is not None and old.grid == grid and all(draft.lets.get(n, node) == node for n, node in old.lets)
    if not covered.all() and kept and old is not None:
        rules = [*rules, *old.rules]
    elif not covered.all():
        first = grid.bins_of(int(np.argmin(covered)))
        where = ", ".join(f"{name} {index}" for name, index in zip(grid.names, first, strict=True))
        draft.problem(
            None,
            f"{int((~covered).sum()):,} of {grid.size:,} cells have no row (the first is {where})",
            f"add rows, or end with a row for all others: `{_example_row(task, grid)}`",
        )
        return None, coverage
    lets = _used({**inherited, **draft.lets}, grid.names, draft)
    if draft.problems:
        return None, coverage
    return TablePolicy(task, lets, grid, _visible(rules, grid.shape)), coverage


def _new_grid(draft: _Draft, grid: Grid | None, old: TablePolicy | None) -> Grid | None:
    """The grid with the dimensions of the `bins` lines; a header that names only some quantities drops the others."""
    dimensions = {d.name: d for d in grid.dimensions} if grid is not None else {}
    dimensions.update({name: dimension for name, (_, dimension) in draft.bins.items()})
    if draft.header is not None:
        named = {cell.lower() for cell in draft.header[1]}
        dimensions = {name: d for name, d in dimensions.items() if name in draft.bins or name.lower() in named}
        order = [cell.lower() for cell in draft.header[1]]
        dimensions = dict(sorted(dimensions.items(), key=lambda item: _place(item[0].lower(), order)))
    if old is not None and set(dimensions.values()) == set(old.grid.dimensions):
        return old.grid
    try:
        return Grid(tuple(dimensions.values()))
    except UsageError as error:
        draft.problem(None, str(error), "use fewer bins")
        return None


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _rules(draft: _Draft, task: Task, grid: Grid) -> list[Rule]:
    columns = _columns(draft, task, grid)
    if columns is None:
        return []
    width = len(columns)
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    for number, cells in draft.rows:
        # Further cells are comments, but without a header nobody knows which ones.
        if len(cells) < width or (len(cells) > width and draft.header is None):
            draft.problem(number, f"the row has {len(cells)} cells", f"write {width}: {_header_text(task, grid)}")
            continue
        bins: list[tuple[int, ...]] = [tuple(range(size)) for size in grid.shape]
        action: list[float | None] = [None] * len(task.actuators)
        for (kind, index), cell in zip(columns, cells, strict=False):
            if kind == "bins":
                read = _bins(cell, grid.shape[index])
                if isinstance(read, str):
                    draft.problem(
                        number, f"`{cell[:40]}` in column {grid.names[index]} {read}", _bins_expected(grid, index)
                    )
                else:
                    bins[index] = read
            elif kind == "action":
                value = _action(cell, task.actuators[index])
                if isinstance(value, str):
                    draft.problem(number, f"`{cell[:40]}` is not an action", value)
                else:
                    action[index] = value
        if None not in action:
            # The first row for the same bins counts; a model that repeats itself must not cost more than it says.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(value for value in action if value is not None)))
    return list(rules.values())


def _columns(draft: _Draft, task: Task, grid: Grid) -> list[tuple[str, int]] | None:
    """What each column holds: ("bins", dimension), ("action", actuator) or, only after the actions, ("comment", _)."""
    standard = [("bins", i) for i in range(len(grid.names))] + [("action", i) for i in range(len(task.actuators))]
    if draft.header is None:
        return standard
    number, header = draft.header
    dimensions = {name.lower(): i for i, name in enumerate(grid.names)}
    actuators = {actuator.name.lower(): i for i, actuator in enumerate(task.actuators)}
    if len(task.actuators) == 1:
        actuators.setdefault("action", 0)
    columns: list[tuple[str, int]] = []
    for cell in header:
        name = cell.lower()
        if name in dimensions:
            columns.append(("bins", dimensions[name]))
        elif name in actuators:
            columns.append(("action", actuators[name]))
        elif sum(kind == "action" for kind, _ in columns) == len(task.actuators):
            columns.append(("comment", len(columns)))
        else:
            expected = f"columns may be {', '.join([*grid.names, *(a.name for a in task.actuators)])}"
            draft.problem(number, f"the table has a column `{cell[:40]}`", expected)
            columns.append(("comment", len(columns)))  # go on: the rows may have problems of their own
    missing = [a.name for i, a in enumerate(task.actuators) if ("action", i) not in columns]
    if missing:
        draft.problem(number, f"the table has no column `{missing[0]}`", f"write the header {_header_text(task, grid)}")
        return None
    if len(set(columns)) != len(columns):
        draft.problem(number, "the header names a column twice", f"write the header {_header_text(task, grid)}")
        return None
    while columns[-1][0] == "comment":
        columns.pop()
    return columns


def _header_text(task: Task, grid: Grid) -> str:
    return "`| " + " | ".join([*grid.names, *(actuator.name for actuator in task.actuators)]) + " |`"


def _bins_expected(grid: Grid, index: int) -> str:
    last = grid.shape[index] - 1
    return f"bins of {grid.names[index]} are 0 to {last}: write a bin, a range `0-{last}`, a set `0,{last}` or `*`"


@functools.lru_cache(maxsize=4_096)  # a table repeats few cells many times
def _bins(cell: str, size: int) -> tuple[int, ...] | str:
    """The bins a cell names, or what is wrong with it."""
    text = cell.lower().replace("–", "-").replace("—", "-").strip("{}[] ")
    if text in ("*", "any", "all"):
        return tuple(range(size))
    if match := re.fullmatch(r"(>=|<=|>|<|!=|=|==|≥|≤)\s*(\d{1,7})", text):
        bound = int(match[2])
        if bound >= size:
            return "is out of range"
        tests = {
            ">": range(bound + 1, size),
            "<": range(bound),
            ">=": range(bound, size),
            "<=": range(bound + 1),
            "!=": [i for i in range(size) if i != bound],
        }
        tests.update({"≥": tests[">="], "≤": tests["<="]})
        chosen = tuple(tests.get(match[1], (bound,)))
        return chosen or "names no bin"
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:\s*(?:-|\.\.|to)\s*(\d{1,7}))?\s*", part)
        if match is None:
            return "is not a bin"
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= size:
            return "is out of range"
        if last < first:
            return "runs backwards"
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _action(cell: str, actuator: Actuator) -> float | str:
    """The number an action cell means, or what was expected."""
    text = cell.strip("*`\"' ")
    value = _single_action(text, actuator)
    # `right (1)` and `1 (right)`: both parts must agree.
    match = re.fullmatch(r"(\S+?)\s*[(\[:=]\s*(\S+?)\s*[)\]]?", text[:MOST_CELL_CHARACTERS])
    if isinstance(value, str) and match is not None:
        one, other = _single_action(match[1], actuator), _single_action(match[2], actuator)
        if isinstance(one, float) and one == other:
            return one
    return value


def _single_action(text: str, actuator: Actuator) -> float | str:
    names = actuator.labels if actuator.is_choice else tuple(name for name, _ in actuator.levels)
    values = list(range(len(names))) if actuator.is_choice else [value for _, value in actuator.levels]
    by_name = {name.lower(): float(value) for name, value in zip(names, values, strict=True)}
    expected = f"expected one of {', '.join(names)}" if names else ""
    if text.lower() in by_name:
        return by_name[text.lower()]
    number = _ascii_signs(text)
    if actuator.is_choice:
        if number.isdigit() and number.isascii() and len(number) < 9 and int(number) < len(names):
            return float(number)
        near = difflib.get_close_matches(text[:MOST_CELL_CHARACTERS], names, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{expected}, or its number 0 to {len(names) - 1}{hint}"
    if _NUMBER.fullmatch(number):
        value = float(number)
        if actuator.low <= value <= actuator.high:
            return value
    bounds = f"a number from {actuator.low:g} to {actuator.high:g}"
    return f"{expected} or {bounds}" if expected else f"expected {bounds}"


def _rules_from_params(draft: _Draft, task: Task, grid: Grid) -> list[Rule]:
    """`params[cell]: action` for every cell, the form of numbers-only prompts."""
    values = _complete_params(draft, grid.size, "cell")
    if values is None or draft.problems:
        return []
    if len(task.actuators) != 1:
        draft.problem(None, "`params` give one number a cell", f"write table rows: {_header_text(task, grid)}")
        return []
    rules = []
    for cell, (number, value) in enumerate(values):
        actuator = task.actuators[0]
        action = _single_action(format_number(value), actuator)
        if isinstance(action, str):
            draft.problem(number, f"params[{cell}] is {value:g}", action)
        else:
            rules.append(Rule(tuple((int(b),) for b in grid.bins_of(cell)), (action,)))
    return rules


def _complete_params(draft: _Draft, count: int, what: str) -> list[tuple[int, float]] | None:
    beyond = [index for index in draft.params if index >= count]
    missing = [index for index in range(count) if index not in draft.params]
    if beyond:
        draft.problem(draft.params[beyond[0]][0], f"found params[{beyond[0]}]", f"indices are 0 to {count - 1}")
    if missing:
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        draft.problem(None, f"{len(missing)} params are missing ({some})", f"give one for each {what}, {count} in all")
    return None if beyond or missing else [draft.params[index] for index in range(count)]


def _visible(rules: Sequence[Rule], shape: tuple[int, ...]) -> tuple[Rule, ...]:
    """The rules without those that earlier ones cover completely."""
    covered = np.zeros(shape, np.bool_)
    kept = []
    for rule in rules:
        block = np.ix_(*rule.bins)
        if not covered[block].all():
            kept.append(rule)
            covered[block] = True
    return tuple(kept)


def _example_row(task: Task, grid: Grid) -> str:
    actions = [a.labels[0] if a.is_choice else (a.levels[0][0] if a.levels else f"{a.low:g}") for a in task.actuators]
    return "| " + " | ".join(["*"] * len(grid.names) + actions) + " |"


# --- equations -------------------------------------------------------------------------------------------------------


def _linear(
    draft: _Draft, task: Task, incumbent: Policy | None, inherited: dict[str, Node], offered: dict[str, Node]
) -> tuple[Policy | None, float]:
    outputs = output_names(task)
    old = dict(incumbent.equations) if isinstance(incumbent, LinearPolicy) else {}
    if draft.params and not draft.equations:
        _equations_from_params(draft, task, outputs)
    used = frozenset().union(*(names_in(n) for n in (*draft.equations.values(), *draft.lets.values())), frozenset())
    for name, number in draft.bare.items():
        if name not in used:
            found, _, expected = unknown_name(name, outputs, what="output").partition("; ")
            draft.problem(number, found, expected)
    if not draft.equations and not draft.problems:
        _nothing_found(
            draft,
            f"write an equation each for {', '.join(outputs)}: `{outputs[0]} = 2*{task.quantity_names[0]} + 0.5`",
        )
    missing = [name for name in outputs if name not in draft.equations and name not in old]
    if missing and not draft.problems:
        draft.problem(None, f"there is no equation for {', '.join(missing)}", f"write `{missing[0]} = ...`")
    if draft.problems:
        return None, 0.0
    equations = {name: draft.equations.get(name) or old[name] for name in outputs}
    needed = frozenset().union(*(names_in(node) for node in equations.values()))
    lets = _used({**inherited, **offered, **draft.lets}, needed, draft)
    kept = [old[name] for name in outputs if name not in draft.equations]
    kept += [node for name, node in lets if name not in draft.lets and name not in offered]
    if not draft.problems and any(names_in(node) & offered.keys() for node in kept):
        lets = _used({**offered, **inherited, **draft.lets}, needed, draft)
    if draft.problems:
        return None, 0.0
    policy = LinearPolicy(task, lets, tuple(equations.items()))
    return policy, len(draft.equations) / len(outputs)


def _equations_from_params(draft: _Draft, task: Task, outputs: Sequence[str]) -> None:
    """`params[i]: v`, row-major over the (n + 1) x m matrix whose last row is the bias (the form ProPS prompts for)."""
    names = task.observation_names
    values = _complete_params(draft, (len(names) + 1) * len(outputs), "weight and bias")
    if values is None or draft.problems:
        return
    matrix = np.array([value for _, value in values]).reshape(len(names) + 1, len(outputs))
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        node = _expression(values[0][0], text, names, draft)
        if node is None:
            return  # the other outputs are as long
        draft.equations[name] = node


def _used(lets: Mapping[str, Node], wanted: Iterable[str], draft: _Draft) -> Lets:
    """The features that are needed, each after those it needs itself (a revision may redefine any of them)."""
    ordered: dict[str, Node] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        if name in open_names:
            circle = " -> ".join([*open_names[open_names.index(name) :], name])
            draft.problem(None, f"features are defined through each other ({circle})", "rename one of them")
        elif name in lets and name not in ordered:
            open_names.append(name)
            for used in sorted(names_in(lets[name])):
                visit(used)
            open_names.pop()
            ordered[name] = lets[name]

    for name in sorted(wanted):
        visit(name)
    if len(ordered) > MOST_FEATURES:  # kept ones count: the policy's own text must read back
        draft.problem(None, f"the policy has {len(ordered)} features", f"use at most {MOST_FEATURES}")
    return tuple(ordered.items())


def _nothing_found(draft: _Draft, expected: str) -> None:
    draft.problem(None, "no policy was found", expected)
