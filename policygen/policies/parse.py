"""Conversion of a text to a policy, or to a list of all problems.

The language is described for users in docs/language.md and for models in `templates/`. Reading tolerates text around a
policy (see `lines`) but is strict about the policy itself: it guesses nothing, and reports all problems at once, each
with its line, what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from policygen.errors import PolicyError, UsageError
from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, Problem, Problems, resigns
from policygen.policies.parts import Parts, Reading, Scope, read_parts
from policygen.policies.plant import Plant
from policygen.policies.policy import Policy
from policygen.policies.read_equations import only_shapes, read_equations, read_plant, read_shaping, shaping_of
from policygen.policies.read_table import read_table
from policygen.policies.shaping import Shaping
from policygen.policies.written import arranged
from policygen.quantities.tree import Node, read_by
from policygen.tasks.task import Task

MOST_PROBLEMS = 20  # listed; the others are counted
# For each kind of policy the function that makes it from the parts of a text.
READERS: dict[str, Callable[[Parts, Scope, Problems], Reading]] = {"table": read_table, "linear": read_equations}


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The result of reading a text: a policy, or the problems that prevent one.

    Attributes:
        coverage: share of cells (of outputs, for a linear policy) that the text decides; the others keep the
            incumbent's action.
        resigned: whether the text has, instead of a policy, the line `no improvement`.
        shaping: the objective and the potential in the text. If it has no line of a policy, the policy is the
            incumbent.
        plant: the plant in the text; the same holds.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    coverage: float = 0.0
    resigned: bool = False
    shaping: Shaping | None = None
    plant: Plant | None = None


def parse(
    text: str,
    task: Task,
    kind: str | None = None,
    incumbent: Policy | None = None,
    *,
    free_grid: bool = True,
    definitions: Mapping[str, Node] | None = None,
    learner: bool = False,
) -> ParseResult:
    """Read the last policy in a text.

    Args:
        text: a reply or a hand-written file.
        task: gives the names of quantities and actions, and the grid.
        kind: "table" or "linear"; None: "table" if the text has the rows of a table, or `params` for a task with a
            grid, else "linear".
        incumbent: the policy that the text may revise; parts that the text leaves out are kept.
        free_grid: whether `bins` lines may replace the grid.
        definitions: features that the text may use without defining them, each over quantities of the task; those it
            uses become features of the policy. A definition in the text takes precedence. If equations or features kept
            from the incumbent read such a feature, the incumbent's definitions take precedence, too, so that kept
            weights keep their meaning.
        learner: whether tuning uses a learner, which sees single steps: an objective may then not use memory.

    Returns:
        The policy, or None and the problems: the first 20, and how many more there are.

    Raises:
        UsageError: there is no such kind.
    """
    if incumbent is not None and resigns(text):
        return ParseResult(None, (), resigned=True)
    scope, problems = Scope(task, incumbent, definitions or {}, free_grid), Problems()
    parts = read_parts(text, scope, problems)
    if kind is None:
        kind = (
            "table" if parts.rows or parts.header or (parts.params and not parts.equations and task.grid) else "linear"
        )
    if kind not in READERS:
        raise UsageError(f"there is no policy kind `{kind}`; known are {', '.join(READERS)}")
    plant = read_plant(parts, scope, problems)
    shaping = read_shaping(parts, scope, problems, learner=learner)
    # A name that only a plant, objective or potential reads is a feature, not a misspelt output.
    used = read_by(shaping.values()) | {name for name, _ in (plant.lets if plant is not None else ())}
    parts = replace(parts, bare={name: line for name, line in parts.bare.items() if name not in used})
    read = Reading(incumbent)
    try:
        if incumbent is None or incumbent.kind != kind or not only_shapes(parts, scope):
            read = READERS[kind](parts, scope, problems)
            read = replace(read, policy=_as_written(read, parts, incumbent))
    except PolicyError as error:
        problems.add(None, str(error), "define what the policy uses")
    guidance = shaping_of(shaping, parts, scope, problems)
    if problems:
        more = len(problems) - MOST_PROBLEMS
        if more > 0:
            problems[MOST_PROBLEMS:] = [Problem(None, f"there are {more} more problems", "correct these first")]
        return ParseResult(None, tuple(problems), read.coverage)
    if read.policy is not None and (problem := _unreadable(read.policy)):
        return ParseResult(None, (problem,), read.coverage)
    return ParseResult(read.policy, (), read.coverage, shaping=guidance, plant=plant)


def _as_written(read: Reading, parts: Parts, incumbent: Policy | None) -> Policy | None:
    """Return the policy that was read, with its text as its author wrote it."""
    if (policy := read.policy) is None:
        return None
    written = {**parts.form, **read.form}.values()
    standard = policy.to_text(plain=True).splitlines()
    old = incumbent.to_text().splitlines() if incumbent is not None else []
    lines = arranged(standard, written, old, policy.task.actuators)
    return policy if lines == standard else replace(policy, written=tuple(lines))


def _unreadable(policy: Policy) -> Problem | None:
    """Return a problem if the policy's text is too long to be read back; it may be longer than the text it is from."""
    text = policy.to_text()
    longest = max(map(len, text.splitlines()), default=0)
    if longest > MAX_LINE:
        return Problem(None, f"a line of the policy has {longest:,} characters", f"at most {MAX_LINE:,} are read back")
    if len(text) > MAX_CHARACTERS:
        return Problem(None, f"the policy has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read back")
    return None
