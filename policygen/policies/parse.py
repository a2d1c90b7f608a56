"""Conversion of a text to a policy, or to a list of all its problems.

docs/language.md describes the language for users, and `templates/` for models. Text around a policy is ignored (see
`lines`). The policy itself is read strictly: nothing is guessed, and all problems are reported at once, each with its
line, what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from policygen.errors import ExpressionError, PolicyError, UsageError
from policygen.policies.cells import (
    action_text,
    bins_text,
    comments_of,
    looks_like_bins,
    read_action,
    read_bins,
    row_line,
    with_comment,
)
from policygen.policies.linear import LinearPolicy
from policygen.policies.lines import MAX_CHARACTERS, STATEMENTS, Problem, resigns
from policygen.policies.parts import Parts
from policygen.policies.policy import Policy
from policygen.policies.table import Rule, TablePolicy, dense_table, uncovered, visible
from policygen.quantities.grid import Grid
from policygen.quantities.text import unknown_name
from policygen.quantities.tree import needed_by, read_by
from policygen.tasks.task import Task

MOST_PROBLEMS = 20  # problems that are listed; the rest are counted
NOTHING_FOUND = "no policy was found"


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The result of reading a text: a policy, or the problems that prevent one.

    If the text has only statements of extensions and no line of a policy, the policy is the incumbent.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    resigned: bool = False  # whether the text is the line `no improvement` instead of a policy
    notes: Mapping[str, Any] = field(default_factory=dict)  # the notes made by `STATEMENTS`, by name


def parse(
    text: str,
    task: Task,
    kind: str | None = None,
    incumbent: Policy | None = None,
    *,
    free_grid: bool = True,
    learner: bool = False,
    policy_only: bool = False,
) -> ParseResult:
    """Read the last policy in a text, such as a reply or a file.

    Args:
        text, task: the text, and the task whose names and grid it uses.
        kind: "table" or "linear"; None: "table" if the text has the rows of a table, else "linear".
        incumbent: the policy that the text may revise; what the text leaves out stays as in this policy.
        free_grid: whether `bins` lines may replace the grid.
        learner: whether the policy will be tuned by a learner, which sees one step at a time.
        policy_only: whether a text without a fenced block holds nothing but the policy, as a file does. Any other line
            in it is then a problem, as in a block.

    Returns:
        The policy; or None with the first 20 problems and the number of others.

    Raises:
        UsageError: there is no such kind.
    """
    if incumbent is not None and resigns(text):
        return ParseResult(None, (), resigned=True)
    parts = Parts(text, task, incumbent, free_grid=free_grid, learner=learner, policy_only=policy_only)
    if kind is None:
        kind = "table" if parts.rows or parts.header else "linear"
    if kind not in READERS:
        raise UsageError(f"there is no policy kind `{kind}`; known: {', '.join(READERS)}")
    noted = ((key, one.read) for key, one in STATEMENTS.items() if key in parts.stated)
    notes = {key: read(parts, parts.stated[key]) for key, read in noted if read is not None}
    policy, problems = incumbent, parts.problems
    try:
        if incumbent is None or incumbent.kind != kind or not parts.states_no_policy:
            policy = READERS[kind](parts)
            if policy is not None:
                # Lines of the incumbent that the text leaves out keep their comments.
                kept = dict(incumbent.comments) if incumbent is not None else {}
                comments = kept | dict(comments_of(parts.clean_lines.values(), task.actuators))
                policy = replace(policy, comments={key: some for key, some in comments.items() if any(some)})
    except PolicyError as error:
        problems.add(None, str(error), "define what the policy uses")
    if policy is not None and not problems:
        characters = len(policy.to_text())  # may be more than in `text`, for example with padded cells
        if characters > MAX_CHARACTERS:
            problems.add(None, f"the policy has {characters:,} characters", f"at most {MAX_CHARACTERS:,} are read back")
    if problems:
        more = len(problems) - MOST_PROBLEMS
        if more > 0:
            others = f"there are {more} more problems" if more > 1 else "there is 1 more problem"
            problems[MOST_PROBLEMS:] = [Problem(None, others, "correct these first")]
        return ParseResult(None, tuple(problems))
    return ParseResult(policy, (), notes={key: note for key, note in notes.items() if note is not None})


# --- equations --------------------------------------------------------------------------------------------------------


def read_equations(parts: Parts) -> LinearPolicy | None:
    """Make a linear policy from the equations in a text, or add problems and return None.

    An output without an equation keeps that of the incumbent.
    """
    task, problems = parts.task, parts.problems
    old = dict(parts.incumbent.equations) if isinstance(parts.incumbent, LinearPolicy) else {}
    outputs = task.output_names
    written = parts.equations
    used = read_by([*written.values(), *parts.lets.values()])
    revises = bool(not written and (parts.rewrites or _depends_on_new(parts, read_by(old.values()))))
    for name, line in parts.without_let.items():
        if name not in used and not (revises and name in parts.inherited):
            problems.refuse(
                line, f"{unknown_name(name, outputs, what='output')}; a feature is written `let {name} = ...`"
            )
    if parts.rows and parts.in_block:
        problems.add(parts.rows[0].number, "the block has equations and a table's row", "leave out the rows")
    if not written and not revises and not problems:
        numbers = task.quantity_names
        example = f"2*{numbers[0]} + 0.5" if numbers else f'contains({task.text_names[0]}, "word")'
        expected = f"write one equation each for {', '.join(outputs)}, such as `{outputs[0]} = {example}`"
        problems.add(None, NOTHING_FOUND, expected)
    missing = [name for name in outputs if name not in written and name not in old]
    if missing and not problems:
        problems.add(None, f"there is no equation for {', '.join(missing)}", f"write `{missing[0]} = ...`")
    if problems:
        return None
    equations = {name: written.get(name) or old[name] for name in outputs}
    for stated, name, rewrite, node in parts.rewrites:
        try:
            equations[name] = rewrite(equations[name], node)
        except ExpressionError as error:
            problems.refuse(stated.number, error)
    lets = parts.needed_features(parts.features, read_by(equations.values()))
    if problems:
        return None
    return LinearPolicy(task, lets, tuple(equations.items()))


# --- tables -----------------------------------------------------------------------------------------------------------


def read_table(parts: Parts) -> TablePolicy | None:
    """Make a table policy from the rows in a text, or add problems and return None.

    Cells that no row covers keep the incumbent's action.
    """
    task, problems = parts.task, parts.problems
    old = parts.incumbent if isinstance(parts.incumbent, TablePolicy) else None
    grid = old.grid if old is not None else task.grid
    if not parts.free_grid and grid is not None:
        changed = [name for name, dimension in parts.bins.items() if dimension not in grid.dimensions]
        if changed:
            problems.add(
                parts.first_lines[f"bins {changed[0]}"], "the grid of this run is fixed", "leave out the `bins` lines"
            )
    elif parts.bins:
        grid = _new_grid(parts, grid, old)
    for line, *_ in parts.rewrites:
        found = f"`{line.word} {line.name}` changes the equation of an output"
        problems.add(line.number, found, "a table has none: leave it out")
    if parts.equations and parts.in_block:
        first = min(parts.first_lines[name] for name in parts.equations)
        problems.add(first, "the block has a table and an equation", "leave out the equations")
    if grid is None:
        if not problems:
            problems.add(None, f"task {task.name} has no grid", "give one with lines like `bins NAME: 0, 0.5`")
        return None
    rules = _rules(parts, grid)
    if problems:
        return None
    if not rules and old is not None and _keeps_rows(parts, grid, old):
        rules = list(old.rules)
    elif not rules:
        problems.add(None, NOTHING_FOUND, f"write table rows such as `{_example_row(parts, grid)}`")
        return None
    kept = old is not None and old.grid == grid and all(parts.lets.get(n, node) == node for n, node in old.lets)
    found = uncovered(grid, dense_table(rules, grid.shape, len(task.actuators)))
    if found and kept and old is not None:
        rules = [*rules, *old.rules]
    elif found:
        problems.add(None, found, f"add rows, or end with a row for all others: `{_example_row(parts, grid)}`")
        return None
    lets = parts.needed_features(parts.features, grid.names)
    return TablePolicy(task, lets, grid, visible(rules, grid.shape)) if not problems else None


def _keeps_rows(parts: Parts, grid: Grid, old: TablePolicy) -> bool:
    """Whether a text without rows revises the old table, by redefining a binned feature or moving edges."""
    if parts.header is not None or (grid.names, grid.shape) != (old.grid.names, old.grid.shape):
        return False
    return grid != old.grid or _depends_on_new(parts, grid.names)


def _new_grid(parts: Parts, grid: Grid | None, old: TablePolicy | None) -> Grid | None:
    """Return the grid after applying the `bins` lines.

    If the table has a header, dimensions that neither the header nor a `bins` line names are dropped.
    """
    dimensions = {d.name: d for d in grid.dimensions} if grid is not None else {}
    dimensions |= parts.bins
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
    """Return the rules; store each row as a policy writes it, with its comment, in `parts.clean_lines`."""
    actuators, problems, dimensions = parts.task.actuators, parts.problems, len(grid.shape)
    columns = _columns(parts, grid)
    if columns is None:
        return []
    width = len(columns)
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    for row in parts.rows:
        # With a header, extra cells are comments, unless they look like bins, because then the line holds two rows.
        # Without a header, extra cells are an error.
        beyond = row.cells[len(parts.header.cells) if parts.header is not None else width :]
        if len(row.cells) < width or any(parts.header is None or looks_like_bins(cell) for cell in beyond):
            problems.add(
                row.number, f"the row has {len(row.cells)} cells", f"write {width}: {_header_text(parts, grid)}"
            )
            continue
        bins: list[tuple[int, ...]] = [tuple(range(size)) for size in grid.shape]
        action: dict[int, float] = {}
        for column, cell in zip(columns, row.cells, strict=False):
            if column >= dimensions:
                value = read_action(cell, actuators[column - dimensions])
                if isinstance(value, str):
                    problems.add(row.number, f"`{cell[:40]}` is not an action", value)
                else:
                    action[column - dimensions] = value
            elif column >= 0:
                read = read_bins(cell, grid.shape[column])
                if isinstance(read, str):
                    name, last = grid.names[column], grid.shape[column] - 1
                    form = f"write a bin, a range `0-{last}`, a set `0,{last}` or `*`"
                    found = f"`{cell[:40]}` in column {name} {read}"
                    problems.add(row.number, found, f"bins of {name} are 0 to {last}: {form}")
                else:
                    bins[column] = read
        # `comments_of` identifies a row by its bins, so these are written as in a policy's own text.
        shown = [bins_text(one, size) for one, size in zip(bins, grid.shape, strict=True)]
        shown += [action_text(actuators[i], value) for i, value in sorted(action.items())]
        parts.clean_lines[row.number] = with_comment(row_line(shown), row.comment or " ".join(row.cells[width:]))
        if len(action) == len(actuators):
            # Only the first of several rows with the same bins counts.
            rules.setdefault(tuple(bins), Rule(tuple(bins), tuple(action[i] for i in sorted(action))))
    return list(rules.values())


def _columns(parts: Parts, grid: Grid) -> list[int] | None:
    """Return the index of each column: 0 to d - 1 for dimensions, from d for actuators, -1 for comments.

    Return None if the header cannot be used.
    """
    names = [*grid.names, *(actuator.name for actuator in parts.task.actuators)]
    header, problems, dimensions = parts.header, parts.problems, len(grid.names)
    if header is None:
        return list(range(len(names)))
    known = {name.lower(): i for i, name in reversed(list(enumerate(names)))}
    if len(names) == dimensions + 1:
        known.setdefault("action", dimensions)
    columns: list[int] = []
    for cell in header.cells:
        columns.append(known.get(cell.lower(), -1))
        # A column with any other name holds comments and must come after all actions. Reading goes on after a problem,
        # so that those of the rows are reported, too.
        if columns[-1] < 0 and sum(column >= dimensions for column in columns) < len(names) - dimensions:
            found = f"the table has a column `{cell[:40]}`"
            problems.add(header.number, found, f"columns may be {', '.join(names)}")
    missing = [name for i, name in enumerate(names) if i >= dimensions and i not in columns]
    held = [column for column in columns if column >= 0]
    if missing or len(set(held)) != len(held):
        found = f"the table has no column `{missing[0]}`" if missing else "the header names a column twice"
        problems.add(header.number, found, f"write the header {_header_text(parts, grid)}")
        return None
    while columns[-1] < 0:
        columns.pop()
    return columns


def _header_text(parts: Parts, grid: Grid) -> str:
    return f"`{row_line([*grid.names, *(actuator.name for actuator in parts.task.actuators)])}`"


def _example_row(parts: Parts, grid: Grid) -> str:
    first = (a.labels[0] if a.is_choice else a.levels[0][0] if a.levels else f"{a.low:g}" for a in parts.task.actuators)
    return row_line([*["*"] * len(grid.names), *first])


def _depends_on_new(parts: Parts, wanted: Iterable[str]) -> bool:
    """Whether any of the wanted quantities is a feature that the text defines, or depends on one."""
    return not needed_by(wanted, parts.features).isdisjoint(parts.lets)


# For each kind of policy, the function that makes it from the parts of a text.
READERS: dict[str, Callable[[Parts], Policy | None]] = {"table": read_table, "linear": read_equations}
