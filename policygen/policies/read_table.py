"""Make a table policy from the parts of a text."""

from __future__ import annotations

from policygen.errors import UsageError
from policygen.policies.cells import (
    action_text,
    bins_text,
    looks_like_bins,
    read_action,
    read_bins,
    row_line,
    with_comment,
)
from policygen.policies.features import depends_on
from policygen.policies.parts import NOTHING_FOUND, Parts
from policygen.policies.rows import Rule, dense_table, uncovered, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.text import format_number


def read_table(parts: Parts) -> TablePolicy | None:
    """Make a table policy from the parts of a text, or add their problems.

    Cells that no row covers keep the incumbent's action.
    """
    task, problems = parts.task, parts.problems
    old = parts.incumbent if isinstance(parts.incumbent, TablePolicy) else None
    grid = old.grid if old is not None else task.grid
    if not parts.free_grid and grid is not None:
        changed = [stated.line for stated in parts.bins.values() if stated.value not in grid.dimensions]
        if changed:
            problems.add(changed[0], "the grid of this run is fixed", "leave out the `bins` lines")
    elif parts.bins:
        grid = _new_grid(parts, grid, old)
    for name, rewritten in parts.rewritten.items():
        problems.add(rewritten.line, f"`{name}` changes the equation of an output", "a table has none: leave it out")
    if parts.equations and parts.in_block:
        line = min(parts.equation_lines.values())
        problems.add(line, "an equation stands beside a table", "leave the equations out of the block")
    if grid is None:
        if not problems:
            problems.add(None, f"task {task.name} has no grid", "give one with lines like `bins NAME: 0, 0.5`")
        return None
    rules = _rules_from_params(parts, grid) if parts.params and not parts.rows else _rules(parts, grid)
    if problems:
        return None
    if not rules and old is not None and _keeps_rows(parts, grid, old):
        rules = list(old.rules)
    elif not rules:
        problems.add(None, NOTHING_FOUND, f"write table rows such as `{_example_row(parts, grid)}`")
        return None
    _, covered = dense_table(rules, grid.shape, len(task.actuators))
    kept = old is not None and old.grid == grid and all(parts.lets.get(n, node) == node for n, node in old.lets)
    found = uncovered(grid, covered)
    if found and kept and old is not None:
        rules = [*rules, *old.rules]
    elif found:
        problems.add(None, found, f"add rows, or end with a row for all others: `{_example_row(parts, grid)}`")
        return None
    lets = parts.in_order_of_need(parts.features, grid.names)
    return TablePolicy(task, lets, grid, visible(rules, grid.shape)) if not problems else None


def _keeps_rows(parts: Parts, grid: Grid, old: TablePolicy) -> bool:
    """Whether a text without rows revises the old table: it redefines a binned feature or moves the edges of bins."""
    if parts.header is not None or (grid.names, grid.shape) != (old.grid.names, old.grid.shape):
        return False
    return grid != old.grid or depends_on(grid.names, parts.lets, parts.inherited)


def _new_grid(parts: Parts, grid: Grid | None, old: TablePolicy | None) -> Grid | None:
    """Return the grid with the dimensions of the `bins` lines.

    If the table has a header, a dimension stays only if the header names it or a `bins` line states it.
    """
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
        parts.problems.add(None, str(error), "use fewer bins")
        return None


def _rules(parts: Parts, grid: Grid) -> list[Rule]:
    """Return the rules of the rows; put each row as a policy writes it, with its comment, into the `form`."""
    actuators, problems = parts.task.actuators, parts.problems
    columns = _columns(parts, grid)
    if columns is None:
        return []
    width = len(columns)
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    for row in parts.rows:
        # With a header, extra cells at the end of a row are comments, but for bins: a second row on the line. Without
        # one, they are an error.
        beyond = row.cells[len(parts.header.cells) if parts.header is not None else width :]
        if len(row.cells) < width or any(parts.header is None or looks_like_bins(cell) for cell in beyond):
            problems.add(row.line, f"the row has {len(row.cells)} cells", f"write {width}: {_header_text(parts, grid)}")
            continue
        bins: list[tuple[int, ...]] = [tuple(range(size)) for size in grid.shape]
        action: list[float | None] = [None] * len(actuators)
        for (kind, index), cell in zip(columns, row.cells, strict=False):
            if kind == "bins":
                read = read_bins(cell, grid.shape[index])
                if isinstance(read, str):
                    name, last = grid.names[index], grid.shape[index] - 1
                    form = f"write a bin, a range `0-{last}`, a set `0,{last}` or `*`"
                    found = f"`{cell[:40]}` in column {name} {read}"
                    problems.add(row.line, found, f"bins of {name} are 0 to {last}: {form}")
                else:
                    bins[index] = read
            elif kind == "action":
                value = read_action(cell, actuators[index])
                if isinstance(value, str):
                    problems.add(row.line, f"`{cell[:40]}` is not an action", value)
                else:
                    action[index] = value
        # The module `comments` finds a row's comment again by the bins, so they are written as in a policy's text.
        shown = [bins_text(one, size) for one, size in zip(bins, grid.shape, strict=True)]
        shown += [action_text(a, v) for a, v in zip(actuators, action, strict=True) if v is not None]
        parts.form[row.line] = with_comment(row_line(shown), row.comment or " ".join(row.cells[width:]))
        if None not in action:
            # Of rows with the same bins the first one counts; the others would only cost time and memory.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(value for value in action if value is not None)))
    return list(rules.values())


def _columns(parts: Parts, grid: Grid) -> list[tuple[str, int]] | None:
    """Return what each column holds: ("bins", dimension), ("action", actuator) or ("comment", _); None if unusable."""
    actuators, header, problems = parts.task.actuators, parts.header, parts.problems
    if header is None:
        return [("bins", i) for i in range(len(grid.names))] + [("action", i) for i in range(len(actuators))]
    known = {name.lower(): ("bins", i) for i, name in enumerate(grid.names)}
    for i, actuator in enumerate(actuators):
        known.setdefault(actuator.name.lower(), ("action", i))
    if len(actuators) == 1:
        known.setdefault("action", ("action", 0))
    columns: list[tuple[str, int]] = []
    for cell in header.cells:
        column = known.get(cell.lower(), ("comment", len(columns)))
        columns.append(column)
        # A column with any other name holds comments, and must come after all actions. No return: problems of rows are
        # reported, too.
        if column[0] == "comment" and sum(kind == "action" for kind, _ in columns) < len(actuators):
            expected = f"columns may be {', '.join([*grid.names, *(a.name for a in actuators)])}"
            problems.add(header.line, f"the table has a column `{cell[:40]}`", expected)
    missing = [actuator.name for i, actuator in enumerate(actuators) if ("action", i) not in columns]
    if missing or len(set(columns)) != len(columns):
        found = f"the table has no column `{missing[0]}`" if missing else "the header names a column twice"
        problems.add(header.line, found, f"write the header {_header_text(parts, grid)}")
        return None
    while columns[-1][0] == "comment":
        columns.pop()
    return columns


def _header_text(parts: Parts, grid: Grid) -> str:
    return f"`{row_line([*grid.names, *(actuator.name for actuator in parts.task.actuators)])}`"


def _rules_from_params(parts: Parts, grid: Grid) -> list[Rule]:
    """Read lines `params[cell]: action`, one per cell; numbers-only prompts ask for this form."""
    values = parts.all_params(grid.size, "cell")
    if values is None or parts.problems:
        return []
    actuator, *others = parts.task.actuators
    if others:
        expected = f"write table rows: {_header_text(parts, grid)}"
        parts.problems.add(None, "`params` give one number a cell", expected)
        return []
    rules = []
    for cell, stated in enumerate(values):
        action = read_action(format_number(stated.value), actuator)
        if isinstance(action, str):
            parts.problems.add(stated.line, f"params[{cell}] is {stated.value:g}", action)
        else:
            rules.append(Rule(tuple((int(b),) for b in grid.bins_of(cell)), (action,)))
    return rules


def _example_row(parts: Parts, grid: Grid) -> str:
    first = (a.labels[0] if a.is_choice else a.levels[0][0] if a.levels else f"{a.low:g}" for a in parts.task.actuators)
    return row_line([*["*"] * len(grid.names), *first])
