"""Conversion of a text to a policy, or to a list of all problems.

The language is described for users in the README and for models in `templates/`. Reading is tolerant of what surrounds
a policy (see `lines`) and strict about the policy itself: nothing is guessed, and all problems are reported at once,
each with its line, what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from policygen.errors import PolicyError, UsageError
from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, Draft, Problem, read_draft, resigns
from policygen.policies.policy import Policy
from policygen.policies.read_equations import only_shapes, read_equations, read_shaping, shaping_of
from policygen.policies.read_table import read_table
from policygen.policies.shaping import Shaping
from policygen.policies.written import arranged
from policygen.quantities.tree import Node
from policygen.tasks.task import Task

MOST_PROBLEMS = 20
# For each kind the function that converts a draft to the policy (None if the draft has problems) and its coverage.
READERS: dict[str, Callable[[Draft], tuple[Policy | None, float]]] = {"table": read_table, "linear": read_equations}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of reading a text: a policy, or the problems that prevent one.

    Attributes:
        coverage: share of cells (of outputs, for a linear policy) that the text decides; the others keep the
            incumbent's action.
        resigned: whether the text says, instead of a policy, that it cannot improve on the incumbent.
        shaping: the objective and the potential in the text; with nothing else in it, the policy is the incumbent.
    """

    policy: Policy | None
    problems: tuple[Problem, ...]
    coverage: float = 0.0
    resigned: bool = False
    shaping: Shaping | None = None


def parse(
    text: str,
    task: Task,
    kind: str | None = None,
    incumbent: Policy | None = None,
    *,
    free_grid: bool = True,
    definitions: Mapping[str, Node] | None = None,
    learner: bool = False,
) -> Parsed:
    """Read a policy.

    Args:
        text: a reply or a hand-written file.
        task: gives the names of quantities and actions, and the grid.
        kind: a name in `READERS`, "table" or "linear"; by default the kind that the text looks like.
        incumbent: the policy that the text may revise; parts that the text leaves out are kept.
        free_grid: whether `bins` lines may replace the grid.
        definitions: features that the text may use without defining them, each over quantities of the task; those it
            uses become features of the policy. A definition in the text itself takes precedence. If
            equations or features kept from the incumbent read such a feature, all of the incumbent's definitions stay,
            so that kept weights keep their meaning; else the definitions given here are used.
        learner: whether an objective in the text is for a learner, which sees single steps, so that it cannot use
            memory.

    Returns:
        The policy, or None and every problem found: the first 20, and how many more there are.

    Raises:
        UsageError: there is no such kind.
    """
    if incumbent is not None and resigns(text):
        return Parsed(None, (), resigned=True)
    draft = read_draft(text, task, incumbent, definitions, free_grid=free_grid)
    if kind is None:
        kind = (
            "table" if draft.rows or draft.header or (draft.params and not draft.equations and task.grid) else "linear"
        )
    if kind not in READERS:
        raise UsageError(f"there is no policy kind `{kind}`; known are {', '.join(READERS)}")
    policy, coverage = None, 0.0
    read = read_shaping(draft, learner=learner)
    try:
        if incumbent is not None and incumbent.kind == kind and only_shapes(draft):
            policy = incumbent
        else:
            policy, coverage = READERS[kind](draft)
            policy = _as_written(policy, draft) if policy is not None else None
    except PolicyError as error:
        draft.problem(None, str(error), "define what the policy uses")
    shaping = shaping_of(read, draft)
    if draft.problems:
        problems = draft.problems[:MOST_PROBLEMS]
        if len(draft.problems) > MOST_PROBLEMS:
            problems.append(
                Problem(None, f"there are {len(draft.problems) - MOST_PROBLEMS} more problems", "correct these first")
            )
        return Parsed(None, tuple(problems), coverage)
    if policy is not None and (problem := _unreadable(policy)):
        return Parsed(None, (problem,), coverage)
    return Parsed(policy, (), coverage, shaping=shaping)


def _as_written(policy: Policy, draft: Draft) -> Policy:
    """Return the policy of a draft, with the draft's form."""
    comments = ((line, draft.comments.get(number)) for number, line in draft.lines.items())
    written = [f"{line}  # {comment}" if comment else line for line, comment in comments]
    standard = policy.to_text(plain=True).splitlines()
    old = draft.incumbent.to_text().splitlines() if draft.incumbent is not None else []
    lines = arranged(standard, written, old, policy.task.actuators)
    return policy if lines == standard else replace(policy, written=tuple(lines))


def _unreadable(policy: Policy) -> Problem | None:
    """Whether the text of the policy, which may be longer than the text it was read from, would be too long to read."""
    text = policy.to_text()
    longest = max(map(len, text.splitlines()), default=0)
    if longest > MAX_LINE:
        return Problem(None, f"a line of the policy has {longest:,} characters", f"at most {MAX_LINE:,} are read back")
    if len(text) > MAX_CHARACTERS:
        return Problem(None, f"the policy has {len(text):,} characters", f"at most {MAX_CHARACTERS:,} are read back")
    return None
