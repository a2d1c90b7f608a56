"""Conversion of a text to a policy, or to a list of all problems.

The language is described for users in docs/language.md and for models in `templates/`. Reading tolerates text around a
policy (see `lines`) but is strict about the policy itself: it guesses nothing, and reports all problems at once, each
with its line, what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from policygen.errors import PolicyError, UsageError
from policygen.policies.comments import Comments, comments_of
from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, Problem, resigns
from policygen.policies.parts import Parts
from policygen.policies.policy import Policy
from policygen.policies.read_equations import read_equations
from policygen.policies.read_table import read_table
from policygen.policies.statements import STATEMENTS
from policygen.tasks.task import Task

MOST_PROBLEMS = 20  # listed; the others are counted
# For each kind of policy the function that makes it from the parts of a text.
READERS: dict[str, Callable[[Parts], Policy | None]] = {"table": read_table, "linear": read_equations}


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The result of reading a text: a policy, or the problems that prevent one.

    If the text has statements of extensions, but no line of a policy, the policy is the incumbent.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    resigned: bool = False  # whether the text has, instead of a policy, the line `no improvement`
    notes: Mapping[str, Any] = field(default_factory=dict)  # of `STATEMENTS`, by their name


def parse(
    text: str,
    task: Task,
    kind: str | None = None,
    incumbent: Policy | None = None,
    *,
    free_grid: bool = True,
    learner: bool = False,
    alone: bool = False,
) -> ParseResult:
    """Read the last policy in a text, a reply or a hand-written file.

    Args:
        text, task: the text, and the task whose names and grid it uses.
        kind: "table" or "linear"; None: "table" if the text has the rows of a table, or `params` for a task with a
            grid, else "linear".
        incumbent: the policy that the text may revise; parts that the text leaves out are kept.
        free_grid: whether `bins` lines may replace the grid.
        learner: whether tuning uses a learner, which sees single steps.
        alone: whether a text without a fenced block holds nothing but the policy, as a file does; a line that is none
            of it is then a problem, as in a block.

    Returns:
        The policy, or None and the problems: the first 20, and how many more there are.

    Raises:
        UsageError: there is no such kind.
    """
    if incumbent is not None and resigns(text):
        return ParseResult(None, (), resigned=True)
    parts = Parts(text, task, incumbent, free_grid=free_grid, learner=learner, alone=alone)
    if kind is None:
        in_cells = parts.rows or parts.header or (parts.params and not parts.equations and task.grid)
        kind = "table" if in_cells else "linear"
    if kind not in READERS:
        raise UsageError(f"there is no policy kind `{kind}`; known are {', '.join(READERS)}")
    noted = ((key, one.read) for key, one in STATEMENTS.items() if key in parts.stated)
    notes = {key: read(parts, parts.stated[key]) for key, read in noted if read is not None}
    policy, problems = incumbent, parts.problems
    try:
        if incumbent is None or incumbent.kind != kind or not parts.states_no_policy:
            policy = READERS[kind](parts)
            if policy is not None:
                policy = replace(policy, comments=_comments(parts))
    except PolicyError as error:
        problems.add(None, str(error), "define what the policy uses")
    if policy is not None and not problems:
        written = policy.to_text()  # it may be longer than the text that it is from
        longest = max(map(len, written.splitlines()), default=0)
        if longest > MAX_LINE:
            problems.add(
                None, f"a line of the policy has {longest:,} characters", f"at most {MAX_LINE:,} are read back"
            )
        elif len(written) > MAX_CHARACTERS:
            found = f"the policy has {len(written):,} characters"
            problems.add(None, found, f"at most {MAX_CHARACTERS:,} are read back")
    if problems:
        more = len(problems) - MOST_PROBLEMS
        if more > 0:
            problems[MOST_PROBLEMS:] = [Problem(None, f"there are {more} more problems", "correct these first")]
        return ParseResult(None, tuple(problems))
    return ParseResult(policy, (), notes={key: note for key, note in notes.items() if note is not None})


def _comments(parts: Parts) -> Comments:
    """Return the comments of a text, and of the lines of the incumbent that the text leaves out."""
    found = comments_of(parts.form.values(), parts.task.actuators)
    found = {**(parts.incumbent.comments if parts.incumbent is not None else {}), **found}
    return {key: comment for key, comment in found.items() if any(comment)}
