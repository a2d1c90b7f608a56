"""Conversion of a draft to a table policy; the draft collects the problems."""

from __future__ import annotations

import numpy as np

from policygen.errors import UsageError
from policygen.policies.cells import action_text, bins_text, read_action, read_bins
from policygen.policies.features import rests_on
from policygen.policies.lines import NOTHING_FOUND, Draft
from policygen.policies.rows import Rule, dense_table, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.text import format_number
from policygen.tasks.task import Task


def read_table(draft: Draft) -> tuple[TablePolicy | None, float]:
    """Return the table of a draft, or None if it has problems, and the share of cells that its rows cover."""
    task, old = draft.task, draft.incumbent if isinstance(draft.incumbent, TablePolicy) else None
    grid = old.grid if old is not None else task.grid
    if not draft.free_grid and grid is not None:
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
    rules = _rules_from_params(draft, grid) if from_params else _rules(draft, grid)
    if draft.problems:
        return None, 0.0
    redefined = not rules and old is not None and _keeps_rows(draft, grid, old)
    if redefined and old is not None:
        rules = list(old.rules)
    elif not rules:
        draft.problem(None, NOTHING_FOUND, f"write table rows such as `{_example_row(task, grid)}`")
        return None, 0.0
    _, covered = dense_table(rules, grid.shape, len(task.actuators))
    coverage = 0.0 if redefined else float(covered.mean())
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
    lets = draft.used({**draft.offered, **draft.inherited, **draft.lets}, grid.names)
    if draft.problems:
        return None, coverage
    return TablePolicy(task, lets, grid, visible(rules, grid.shape)), coverage


def _keeps_rows(draft: Draft, grid: Grid, old: TablePolicy) -> bool:
    """Whether a text without rows redefines features or bin edges of the old table, whose rows then stay."""
    if draft.header is not None or (grid.names, grid.shape) != (old.grid.names, old.grid.shape):
        return False
    return grid != old.grid or rests_on(grid.names, draft.lets, draft.inherited)


def _new_grid(draft: Draft, grid: Grid | None, old: TablePolicy | None) -> Grid | None:
    """The grid with the dimensions of the `bins` lines; a header that names only some quantities drops the others."""
    dimensions = {d.name: d for d in grid.dimensions} if grid is not None else {}
    dimensions.update({name: dimension for name, (_, dimension) in draft.bins.items()})
    if draft.header is not None:
        named = [cell.lower() for cell in draft.header[1]]
        place = {name: named.index(name.lower()) for name in dimensions if name.lower() in named}
        kept = [name for name in dimensions if name in place or name in draft.bins]
        dimensions = {name: dimensions[name] for name in sorted(kept, key=lambda name: place.get(name, len(named)))}
    if old is not None and set(dimensions.values()) == set(old.grid.dimensions):
        return old.grid
    try:
        return Grid(tuple(dimensions.values()))
    except UsageError as error:
        draft.problem(None, str(error), "use fewer bins")
        return None


def _rules(draft: Draft, grid: Grid) -> list[Rule]:
    task, columns = draft.task, _columns(draft, grid)
    if columns is None:
        return []
    width = len(columns)
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    for number, cells in draft.rows:
        # Further cells are comments, but without a header they cannot be told from others.
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
        # A comment on a row is found again by the bins as a policy writes them.
        draft.comments[number] = draft.comments.get(number) or " ".join(cells[width:])
        shown = [bins_text(one, size) for one, size in zip(bins, grid.shape, strict=True)]
        shown += [action_text(a, v) for a, v in zip(task.actuators, action, strict=True) if v is not None]
        draft.lines[number] = f"| {' | '.join(shown)} |"
        if None not in action:
            # Of rows with the same bins the first one counts; the others would only cost time and memory.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(value for value in action if value is not None)))
    return list(rules.values())


def _columns(draft: Draft, grid: Grid) -> list[tuple[str, int]] | None:
    """Return each column's content: ("bins", dimension), ("action", actuator) or, after these, ("comment", _)."""
    task = draft.task
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
            columns.append(("comment", len(columns)))  # continue, because the rows may have further problems
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


def _rules_from_params(draft: Draft, grid: Grid) -> list[Rule]:
    """Read the form of numbers-only prompts, `params[cell]: action` for every cell."""
    task, values = draft.task, draft.all_params(grid.size, "cell")
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


def _example_row(task: Task, grid: Grid) -> str:
    actions = [a.labels[0] if a.is_choice else (a.levels[0][0] if a.levels else f"{a.low:g}") for a in task.actuators]
    return "| " + " | ".join(["*"] * len(grid.names) + actions) + " |"
