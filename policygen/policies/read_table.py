"""Make a table policy from the parts of a text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from policygen.errors import UsageError
from policygen.policies.cells import action_text, bins_text, read_action, read_bins, row_line, with_comment
from policygen.policies.features import depends_on
from policygen.policies.lines import Problems, Statement
from policygen.policies.parts import NOTHING_FOUND, Parts, Reading, Scope, in_order_of_need
from policygen.policies.rows import Rule, dense_table, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.text import format_number
from policygen.tasks.task import Task


def read_table(parts: Parts, scope: Scope, problems: Problems) -> Reading:
    """Make a table policy from the parts of a text, or add their problems.

    Cells that no row covers keep the incumbent's action. The coverage is the share of cells that the rows cover.
    """
    task, old = scope.task, scope.incumbent if isinstance(scope.incumbent, TablePolicy) else None
    grid = old.grid if old is not None else task.grid
    if not scope.free_grid and grid is not None:
        changed = [stated.line for stated in parts.bins.values() if stated.value not in grid.dimensions]
        if changed:
            problems.add(changed[0], "the grid of this run is fixed", "leave out the `bins` lines")
    elif parts.bins:
        grid = _new_grid(parts, grid, old, problems)
    if grid is None:
        if not problems:
            problems.add(None, f"task {task.name} has no grid", "give one with lines like `bins NAME: 0, 0.5`")
        return Reading()
    form: Mapping[int, str] = {}
    if parts.params and not parts.rows:
        rules = _rules_from_params(parts, task, grid, problems)
    else:
        rules, form = _rules(parts, task, grid, problems)
    if problems:
        return Reading()
    redefined = not rules and old is not None and _keeps_rows(parts, scope, grid, old)
    if redefined and old is not None:
        rules = list(old.rules)
    elif not rules:
        problems.add(None, NOTHING_FOUND, f"write table rows such as `{_example_row(task, grid)}`")
        return Reading()
    _, covered = dense_table(rules, grid.shape, len(task.actuators))
    coverage = 0.0 if redefined else float(covered.mean())
    kept = old is not None and old.grid == grid and all(parts.lets.get(n, node) == node for n, node in old.lets)
    if not covered.all() and kept and old is not None:
        rules = [*rules, *old.rules]
    elif not covered.all():
        first = grid.bins_of(int(np.argmin(covered)))
        where = ", ".join(f"{name} {index}" for name, index in zip(grid.names, first, strict=True))
        problems.add(
            None,
            f"{int((~covered).sum()):,} of {grid.size:,} cells have no row (the first is {where})",
            f"add rows, or end with a row for all others: `{_example_row(task, grid)}`",
        )
        return Reading(coverage=coverage)
    lets = in_order_of_need({**scope.offered, **scope.inherited, **parts.lets}, grid.names, task, problems)
    if problems:
        return Reading(coverage=coverage)
    return Reading(TablePolicy(task, lets, grid, visible(rules, grid.shape)), coverage, form)


def _keeps_rows(parts: Parts, scope: Scope, grid: Grid, old: TablePolicy) -> bool:
    """Whether a text without rows revises the old table: it redefines a binned feature or moves the edges of bins."""
    if parts.header is not None or (grid.names, grid.shape) != (old.grid.names, old.grid.shape):
        return False
    return grid != old.grid or depends_on(grid.names, parts.lets, scope.inherited)


def _new_grid(parts: Parts, grid: Grid | None, old: TablePolicy | None, problems: Problems) -> Grid | None:
    """Return the grid with the dimensions of the `bins` lines; a header without some of its quantities drops these."""
    dimensions = {d.name: d for d in grid.dimensions} if grid is not None else {}
    dimensions.update({name: stated.value for name, stated in parts.bins.items()})
    if parts.header is not None:
        named = [cell.lower() for cell in parts.header.cells]
        place = {name: named.index(name.lower()) for name in dimensions if name.lower() in named}
        kept = [name for name in dimensions if name in place or name in parts.bins]
        dimensions = {name: dimensions[name] for name in sorted(kept, key=lambda name: place.get(name, len(named)))}
    if old is not None and set(dimensions.values()) == set(old.grid.dimensions):
        return old.grid
    try:
        return Grid(tuple(dimensions.values()))
    except UsageError as error:
        problems.add(None, str(error), "use fewer bins")
        return None


def _rules(parts: Parts, task: Task, grid: Grid, problems: Problems) -> tuple[list[Rule], dict[int, str]]:
    """Return the rules of the rows and, by line number, each row as a policy writes it, with its comment."""
    columns = _columns(parts.header, task, grid, problems)
    if columns is None:
        return [], {}
    width = len(columns)
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    form: dict[int, str] = {}
    for row in parts.rows:
        # Further cells are comments; without a header, it is unclear which ones are further.
        if len(row.cells) < width or (len(row.cells) > width and parts.header is None):
            found = f"the row has {len(row.cells)} cells"
            problems.add(row.line, found, f"write {width}: {_header_text(task, grid)}")
            continue
        bins: list[tuple[int, ...]] = [tuple(range(size)) for size in grid.shape]
        action: list[float | None] = [None] * len(task.actuators)
        for (kind, index), cell in zip(columns, row.cells, strict=False):
            if kind == "bins":
                read = read_bins(cell, grid.shape[index])
                if isinstance(read, str):
                    found = f"`{cell[:40]}` in column {grid.names[index]} {read}"
                    problems.add(row.line, found, _bins_expected(grid, index))
                else:
                    bins[index] = read
            elif kind == "action":
                value = read_action(cell, task.actuators[index])
                if isinstance(value, str):
                    problems.add(row.line, f"`{cell[:40]}` is not an action", value)
                else:
                    action[index] = value
        # `written` finds the comment on a row by its bins, as a policy writes them.
        shown = [bins_text(one, size) for one, size in zip(bins, grid.shape, strict=True)]
        shown += [action_text(a, v) for a, v in zip(task.actuators, action, strict=True) if v is not None]
        form[row.line] = with_comment(row_line(shown), row.comment or " ".join(row.cells[width:]))
        if None not in action:
            # Of rows with the same bins the first one counts; the others would only cost time and memory.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(value for value in action if value is not None)))
    return list(rules.values()), form


def _columns(header: Statement | None, task: Task, grid: Grid, problems: Problems) -> list[tuple[str, int]] | None:
    """Return what each column holds: ("bins", dimension), ("action", actuator) or ("comment", _); None if unusable."""
    standard = [("bins", i) for i in range(len(grid.names))] + [("action", i) for i in range(len(task.actuators))]
    if header is None:
        return standard
    dimensions = {name.lower(): i for i, name in enumerate(grid.names)}
    actuators = {actuator.name.lower(): i for i, actuator in enumerate(task.actuators)}
    if len(task.actuators) == 1:
        actuators.setdefault("action", 0)
    columns: list[tuple[str, int]] = []
    for cell in header.cells:
        name = cell.lower()
        if name in dimensions:
            columns.append(("bins", dimensions[name]))
        elif name in actuators:
            columns.append(("action", actuators[name]))
        elif sum(kind == "action" for kind, _ in columns) == len(task.actuators):
            columns.append(("comment", len(columns)))
        else:
            expected = f"columns may be {', '.join([*grid.names, *(a.name for a in task.actuators)])}"
            problems.add(header.line, f"the table has a column `{cell[:40]}`", expected)
            columns.append(("comment", len(columns)))  # continue, to report the problems of the rows, too
    missing = [a.name for i, a in enumerate(task.actuators) if ("action", i) not in columns]
    if missing:
        problems.add(
            header.line, f"the table has no column `{missing[0]}`", f"write the header {_header_text(task, grid)}"
        )
        return None
    if len(set(columns)) != len(columns):
        problems.add(header.line, "the header names a column twice", f"write the header {_header_text(task, grid)}")
        return None
    while columns[-1][0] == "comment":
        columns.pop()
    return columns


def _header_text(task: Task, grid: Grid) -> str:
    return f"`{row_line([*grid.names, *(actuator.name for actuator in task.actuators)])}`"


def _bins_expected(grid: Grid, index: int) -> str:
    last = grid.shape[index] - 1
    return f"bins of {grid.names[index]} are 0 to {last}: write a bin, a range `0-{last}`, a set `0,{last}` or `*`"


def _rules_from_params(parts: Parts, task: Task, grid: Grid, problems: Problems) -> list[Rule]:
    """Read lines `params[cell]: action`, one per cell; numbers-only prompts ask for this form."""
    values = parts.all_params(grid.size, "cell", problems)
    if values is None or problems:
        return []
    if len(task.actuators) != 1:
        problems.add(None, "`params` give one number a cell", f"write table rows: {_header_text(task, grid)}")
        return []
    rules = []
    for cell, stated in enumerate(values):
        actuator = task.actuators[0]
        action = read_action(format_number(stated.value), actuator)
        if isinstance(action, str):
            problems.add(stated.line, f"params[{cell}] is {stated.value:g}", action)
        else:
            rules.append(Rule(tuple((int(b),) for b in grid.bins_of(cell)), (action,)))
    return rules


def _example_row(task: Task, grid: Grid) -> str:
    actions = [a.labels[0] if a.is_choice else (a.levels[0][0] if a.levels else f"{a.low:g}") for a in task.actuators]
    return row_line(["*"] * len(grid.names) + actions)
