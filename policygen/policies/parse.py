"""Text -> policy, or the list of everything that is wrong with it.

The language is described for users in the README and for models in `templates/`. Reading is tolerant of what surrounds
a policy (see `lines`) and strict about the policy itself: nothing is guessed, and all problems are reported at once,
each with its line, what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policygen.errors import UsageError
from policygen.policies.cells import read_action, read_bins
from policygen.policies.features import Lets
from policygen.policies.linear import LinearPolicy
from policygen.policies.lines import MOST_FEATURES, Draft, Problem, read_draft, read_expression
from policygen.policies.policy import Policy
from policygen.policies.rows import Rule, dense_table, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.text import format_number, unknown_name
from policygen.quantities.tree import Node, names_in
from policygen.tasks.task import PolicyKind, Task, output_names

MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says: a policy, or why not.

    `coverage` is the share of cells (of outputs, for a linear policy) that the text itself decides; the others keep
    the incumbent's action.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    coverage: float = 0.0


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
        The policy, or None and every problem found: the first 20, and how many more there are.
    """
    inherited: dict[str, Node] = dict(incumbent.lets) if incumbent is not None else {}
    offered = dict(definitions or {})
    draft = read_draft(text, task, {**inherited, **offered})
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


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(
    draft: Draft, task: Task, incumbent: Policy | None, inherited: dict[str, Node], free_grid: bool
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
    return TablePolicy(task, lets, grid, visible(rules, grid.shape)), coverage


def _new_grid(draft: Draft, grid: Grid | None, old: TablePolicy | None) -> Grid | None:
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


def _rules(draft: Draft, task: Task, grid: Grid) -> list[Rule]:
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
                read = read_bins(cell, grid.shape[index])
                if isinstance(read, str):
                    draft.problem(
                        number, f"`{cell[:40]}` in column {grid.names[index]} {read}", _bins_expected(grid, index)
                    )
                else:
                    bins[index] = read
            elif kind == "action":
                value = read_action(cell, task.actuators[index])
                if isinstance(value, str):
                    draft.problem(number, f"`{cell[:40]}` is not an action", value)
                else:
                    action[index] = value
        if None not in action:
            # The first row for the same bins counts; a model that repeats itself must not cost more than it says.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(value for value in action if value is not None)))
    return list(rules.values())


def _columns(draft: Draft, task: Task, grid: Grid) -> list[tuple[str, int]] | None:
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


def _rules_from_params(draft: Draft, task: Task, grid: Grid) -> list[Rule]:
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
        action = read_action(format_number(value), actuator)
        if isinstance(action, str):
            draft.problem(number, f"params[{cell}] is {value:g}", action)
        else:
            rules.append(Rule(tuple((int(b),) for b in grid.bins_of(cell)), (action,)))
    return rules


def _complete_params(draft: Draft, count: int, what: str) -> list[tuple[int, float]] | None:
    beyond = [index for index in draft.params if index >= count]
    missing = [index for index in range(count) if index not in draft.params]
    if beyond:
        draft.problem(draft.params[beyond[0]][0], f"found params[{beyond[0]}]", f"indices are 0 to {count - 1}")
    if missing:
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        draft.problem(None, f"{len(missing)} params are missing ({some})", f"give one for each {what}, {count} in all")
    return None if beyond or missing else [draft.params[index] for index in range(count)]


def _example_row(task: Task, grid: Grid) -> str:
    actions = [a.labels[0] if a.is_choice else (a.levels[0][0] if a.levels else f"{a.low:g}") for a in task.actuators]
    return "| " + " | ".join(["*"] * len(grid.names) + actions) + " |"


# --- equations -------------------------------------------------------------------------------------------------------


def _linear(
    draft: Draft, task: Task, incumbent: Policy | None, inherited: dict[str, Node], offered: dict[str, Node]
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


def _equations_from_params(draft: Draft, task: Task, outputs: Sequence[str]) -> None:
    """`params[i]: v`, row-major over the (n + 1) x m matrix whose last row is the bias (the form ProPS prompts for)."""
    names = task.observation_names
    values = _complete_params(draft, (len(names) + 1) * len(outputs), "weight and bias")
    if values is None or draft.problems:
        return
    matrix = np.array([value for _, value in values]).reshape(len(names) + 1, len(outputs))
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        node = read_expression(values[0][0], text, names, draft)
        if node is None:
            return  # the other outputs are as long
        draft.equations[name] = node


def _used(lets: Mapping[str, Node], wanted: Iterable[str], draft: Draft) -> Lets:
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


def _nothing_found(draft: Draft, expected: str) -> None:
    draft.problem(None, "no policy was found", expected)
