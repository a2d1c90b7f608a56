"""The history of a run as a template sees it: every attempt with its changes, and the best policy so far."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.episodes.evidence import loss
from policygen.episodes.score import Score
from policygen.policies.cells import action_text, bins_line
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy, let_lines
from policygen.policies.table import TablePolicy
from policygen.prompts.filters import fitting
from policygen.prompts.traces import rows_at
from policygen.prompts.views import View
from policygen.quantities.tree import constants, is_definition, limits, signed_constants
from policygen.runs.attempt import Attempt
from policygen.runs.notes import IDEA, UNDEFINED, UNSTABLE, violations_of
from policygen.runs.state import Context

MOST_ATTEMPTS = 40  # last attempts that templates get
MOST_REFUSED = 3  # last refused attempts with a detailed account
DIFFERENCES = 3  # changed cells named per attempt
REFUSED_DIFFERENCES = 12  # the same in a detailed account
MOST_LINES = 12  # lines of a refused proposal that are shown
MOST_ROWS = 6  # a table with more new rows shows the changed cells instead, which is shorter
AT_AN_END = 0.05  # a constant nearer to an end of its range than this share of the range counts as at that end
TOLD_APART = 2.0  # spreads are shown if the widest is more than this many times the narrowest


def attempt_views(context: Context, visits: npt.NDArray[np.float64] | None = None) -> list[View]:
    """Return the last attempts, at most MOST_ATTEMPTS, oldest first, for templates.

    `changed` compares proposed equations with their parent: the best policy when they were proposed. It compares a
    table with the best policy so far. The last refused attempts have a detailed account.
    The time that this takes hardly grows with the number of earlier attempts.
    """
    attempts, best = context.attempts, context.best
    start = max(0, len(attempts) - MOST_ATTEMPTS)
    parent = next((attempts[i] for i in range(start - 1, -1, -1) if attempts[i].accepted), None)
    refused = [a.number for a in attempts[start:] if a.saved and a.score and not a.accepted][-MOST_REFUSED:]
    views: list[View] = []
    for attempt in attempts[start:]:
        if attempt.number == 0:
            continue
        policy, score, proposed = attempt.policy, attempt.shared_score, attempt.proposed
        changed = ""
        if isinstance(proposed, LinearPolicy):
            changed = _line_changes(proposed, parent.policy if parent is not None else None)
        elif policy is not None and best is not None and best.policy is not None and attempt is not best:
            most = REFUSED_DIFFERENCES if attempt.number in refused else DIFFERENCES
            changed = _difference(policy, best.policy, visits, most)
        first = context.tried.get(attempt.digests[0] or b"", attempt.number)  # the first attempt with this policy
        before, comparison = attempt.tuned.proposed_score, attempt.comparison
        details: View | None = None
        if parent is not None and attempt.number in refused:  # cached, because the next prompts show the same attempts
            view = functools.partial(refused_view, attempt, parent, context)
            details = context.buffer.cached(("refused", attempt.number, parent.number), view)
        views.append(
            {
                "number": attempt.number,
                "mean": score.mean if score else None,
                "proposed_mean": before.mean if before else None,
                "lowest": min(attempt.returns, default=None),
                "highest": max(attempt.returns, default=None),
                "accepted": attempt.accepted,
                # the comparison with the parent: difference, paired episodes (0 if exact) and one-sided p-value
                "gain": comparison.gain,
                "paired": comparison.paired_episodes,
                "p": comparison.p,
                "idea": IDEA.of(attempt) or "",
                "is_best": attempt is best,
                "parent": parent.number if parent is not None else None,
                "same_as": first if isinstance(proposed, LinearPolicy) and first != attempt.number else None,
                "changed": changed,
                "problem": str(attempt.problems[0]) if attempt.problems else attempt.verdict if policy is None else "",
                "refinement": attempt.tuned.refinement,
                "tuned_first": attempt.tuned.proposed is not None and before is None,  # there was no score before it
                "undefined": dict(UNDEFINED.of(attempt) or ()),
                "unstable": UNSTABLE.of(attempt) or 0,
                "violated": {one.name: one.violated for one in violations_of(attempt) if one.violated},
                "refused": details,
            }
        )
        if attempt.accepted:
            parent = attempt
    return views


def _line_changes(new: Policy, old: Policy | None) -> str:
    """Return the changes of a policy from an older one: new or different lines, and the names of removed ones."""
    plain = old.to_text(plain=True) if old is not None else ""
    before = dict(line.partition(" = ")[::2] for line in plain.splitlines())
    after = dict(line.partition(" = ")[::2] for line in new.to_text(plain=True).splitlines())
    lines = [f"{name} = {value}" for name, value in after.items() if before.get(name) != value]
    lines = [f"`{line}`" for line in decisive_first(lines, new)]
    lines += [f"without `{name.removeprefix('let ')}`" for name in before if name not in after]
    return "; ".join(lines) or "nothing"


def _difference(policy: Policy, best: Policy, visits: npt.NDArray[np.float64] | None, most: int) -> str:
    """Return the differences of a table from the best one: changed cells, the most visited first, features and bins."""
    if not isinstance(policy, TablePolicy) or not isinstance(best, TablePolicy):
        return ""
    lets = [line for line in let_lines(policy.lets) if line not in let_lines(best.lets)]
    bins = [bins_line(dimension) for dimension in policy.grid.dimensions if dimension not in best.grid.dimensions]
    others = "; ".join(f"`{line}`" for line in (*lets, *bins))
    if policy.grid.shape != best.grid.shape or policy.grid.names != best.grid.names:
        return f"another grid: {others}" if others else "another grid"
    mine, theirs = (table.actions.reshape(table.grid.size, -1) for table in (policy, best))
    cells = np.flatnonzero((mine != theirs).any(axis=1))
    if not len(cells):
        return f"the same rows, but {others}" if others else "the same table"
    if visits is not None:
        cells = cells[np.argsort(-visits[cells], kind="stable")]
    shown: dict[str, list[str]] = {}
    places = policy.grid.bins_of(cells[:most]).tolist()
    for place, action in zip(places, mine[cells[:most]].tolist(), strict=True):
        words = ",".join(action_text(a, v) for a, v in zip(policy.task.actuators, action, strict=True))
        shown.setdefault(words, []).append(",".join(map(str, place)))
    listed = "; ".join(f"{words} {' '.join(where)}" for words, where in shown.items())
    changed = f"{len(cells)} cell{'s' * (len(cells) > 1)}: {listed}{' ...' if len(cells) > most else ''}"
    return f"{changed}; {others}" if others else changed


def refused_view(attempt: Attempt, best_then: Attempt, context: Context) -> View | None:
    """Return why an attempt lost to `best_then`, the best at its time, for templates; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    best_lines = set(_lines_of(best_then.policy)) if best_then.policy is not None else set()
    own = [line for line in _lines_of(proposed) if line not in best_lines and "| --" not in line]
    own = decisive_first(own, proposed)
    if isinstance(proposed, TablePolicy) and len(own) > MOST_ROWS:
        own = []
    found = loss(*(context.buffer.of_attempt(one.number, len(one.played)) for one in (attempt, best_then)))
    lost = None
    if found is not None:
        facts, worst, step = found
        lost = {**facts, "row": rows_at(policy, worst, [step], context.task)[0]}  # `mean` was lost there per episode
    return {
        "lines": own[:MOST_LINES],  # those that the best policy lacks; none of a table with many
        "more_lines": max(0, len(own) - MOST_LINES),
        "tuned": moved(proposed, policy),
        "lost": lost,
    }


def moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """Return the constants that tuning changed, before and after, with signs, by the name of their equation."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    found = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(signed_constants(before[name]), signed_constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            found[name] = changed
    return found


def decisive_first(lines: Sequence[str], policy: Policy) -> list[str]:
    """Return lines of equations with outputs first, then features, then standardised quantities: prompts cut the end.

    Lines of a table keep their order.
    """
    if not isinstance(policy, LinearPolicy):
        return list(lines)
    standard = {f"let {name}" for name, node in policy.lets if is_definition(name, node)}
    return sorted(lines, key=lambda line: line.startswith("let ") + (line.partition(" = ")[0] in standard))


def _lines_of(policy: Policy) -> list[str]:
    return [" ".join(line.split()) for line in policy.to_text(plain=True).splitlines()]


def best_view(best: Attempt | None, score: Score | None) -> View | None:
    """Return the best policy for templates; `score` may be on more episodes than the attempt's own."""
    if best is None or best.policy is None or score is None:
        return None
    names, sums = list(best.played.terms), best.played.terms.values()
    endings = ("terminated" if ended else "cut" for ended in best.played.terminated)
    alike = Counter(zip(best.returns, best.played.lengths, endings, *sums, strict=True))
    played = tuple(
        {
            "episode_return": value,
            "length": length,
            "ending": ending,
            "count": count,
            **dict(zip(names, own, strict=True)),
        }
        for (value, length, ending, *own), count in sorted(alike.items())
    )
    spread: dict[str, list[float]] = {}
    widths = [value for _, value in best.tuned.spread]
    if widths and max(widths) > TOLD_APART * min(widths):
        for place, value in best.tuned.spread:
            spread.setdefault(place, []).append(100 * value)
    # A table has no spaces that align its columns.
    text = "\n".join(
        re.sub(r" +", " ", re.sub(r" ?-{3,} ?", "---", line)) if line.startswith("|") else line
        for line in best.policy.to_text().splitlines()
    )
    tuned = moved(best.proposed, best.policy)
    proposed = best.tuned.proposed.policy.to_text() if best.tuned.proposed is not None and not tuned else ""
    return {
        "number": best.number,
        "text": text,
        "lines": text.splitlines(),
        "score": str(score),
        "mean": score.mean,
        "exact": score.exact,
        # whether `score` is on other episodes than those by which attempts are compared
        "fresh": best.score is not None and not score.exact and score.seeds[:1] != best.score.seeds[:1],
        "compared_mean": best.score.mean if best.score is not None else None,  # the mean on the compared episodes
        "refinement": best.tuned.refinement,
        "proposed": proposed,  # the text of a table before tuning
        "tuned": tuned,
        "spread": spread,  # the final spread of the search for the constants of each place, in per cent
        "at_an_end": _at_an_end(best.policy) if best.tuned.refinement else [],
        "played": played,  # equal episodes are counted together
        "terms": names,
    }


def _at_an_end(policy: Policy) -> list[tuple[str, float, float, float]]:
    """Return the constants within AT_AN_END of an end of their range: the name of the line, value and range."""
    ranged = [
        (name, value, *ends)
        for name, node in (*policy.lets, *policy.formulas())
        for value, ends in zip(constants(node), limits(node), strict=True)
        if math.isfinite(ends[0])
    ]
    return [one for one in ranged if min(one[1] - one[2], one[3] - one[1]) < AT_AN_END * (one[3] - one[2])]


def shortened(best: View, characters: int) -> View:
    """Return a `best_view` with about this many characters of the policy at most: its first and its last lines."""
    if len(best["text"]) <= characters:
        return best
    lines: list[str] = best["lines"]
    half = characters // 2
    first, last = (fitting((len(line) + 1 for line in some), half + 1) for some in (lines, lines[::-1]))
    left_out = len(lines) - first - last
    if left_out <= 0:  # few, but long
        shorter = [_cut(line, characters // len(lines)) for line in lines]
    else:
        note = f"... ({left_out:,} of {len(lines):,} lines are left out here) ..."
        shorter = [*(_cut(line, half) for line in lines[:first]), note, *(_cut(line, half) for line in lines[-last:])]
    return {**best, "text": "\n".join(shorter), "lines": shorter}


def _cut(line: str, characters: int) -> str:
    """Shorten a line, and state the number of characters that are left out."""
    if len(line) <= characters:
        return line
    return f"{line[:characters]} ... ({len(line) - characters:,} more characters)"
