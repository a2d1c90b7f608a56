"""The evidence in prompts, as plain data: episodes, attempts, requirements and the outcomes of actions."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.evidence import (
    NOTHING_RELEVANT,
    Episode,
    Relevance,
    Shortfall,
    largest_loss,
    quantities,
    shortfall,
    step_losses,
)
from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score
from policygen.episodes.signals import Anomaly, Column, Signal, first_anomaly, ranges, rhythms
from policygen.episodes.trajectory import Trajectory
from policygen.policies.cells import action_words
from policygen.policies.features import CellReader, Reader, cell_reader
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.prompts.described import View
from policygen.prompts.sections import Section, add_section
from policygen.quantities.grid import Grid
from policygen.quantities.operations import decoded
from policygen.quantities.text import to_digits
from policygen.quantities.tree import constants, is_standardised, limits, names_in, remembered_in, signed_constants
from policygen.runs.attempt import Attempt
from policygen.runs.notes import IDEA, UNDEFINED, UNSTABLE, violations_of
from policygen.runs.state import Context
from policygen.tasks.task import Task

STANDARD_ERRORS = 2.0  # half the width of the intervals of returns to go; if two overlap, the returns count as equal
LEAST_EPISODES = 5  # fewest episodes for a mean return to go
AROUND_VIOLATION = (-2, -1, 0, 1)  # steps shown around the first violation


# --- episodes --------------------------------------------------------------------------------------------------------

# Fields of a trace's rows; an observation or feature with such a name is shown with `_` appended.
FIELDS = frozenset(["step", "cell", "action", "reward", "steps", "count", "first", "last", "total"])
MOST_TEXT = 300  # characters of an observed text in a trace
STILL = 0.02  # a change of at most this share of an observation's range in the episode counts as none
STILL_OF_LIMITS = 0.01  # the same, as a share of the task's bounds if these are less than MOST_RANGE apart
MOST_RANGE = 1e3
MOST_COLUMNS = 12  # quantities of a trace before there is a policy
MOST_READ = 16  # quantities of a trace if the best policy consists of equations
MOST_RELEVANT = 6  # observations that are shown even if the policy does not read them
MOST_NAMES = 10  # quantities of a step that is shown by itself


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """An episode: its outcome, and for each quantity a list with one entry per step."""

    attempt: int
    episode_return: float
    length: int
    ending: str
    failed: bool  # whether it ended early without success
    won: bool  # whether it ended with success
    still: Mapping[str, float]  # the largest change of each observation that counts as none
    # `step`, every observation, text and feature (of the task and of the best policy), for tables `cell` (bins, in the
    # order of the grid), `action` in the task's words, each continuous actuator by its name, and `reward`
    columns: Mapping[str, Sequence[Any]]
    traced: tuple[str, ...]  # names of the observations and features to show, the most important first
    relevant: tuple[str, ...]  # the observations among them that reward and ends depend on, the most relevant first
    # the values of relevant observations that do not change in this episode, and of set-points
    constant: Mapping[str, float]
    unobserved: tuple[str, ...]  # names of shown quantities that no policy can read, such as heights of feet
    outputs: tuple[str, ...]  # names of the columns of actions
    signals: tuple[Signal, ...]  # the range of each quantity, and for linear policies its period
    reference: str  # name of the most periodic signal; empty if none is periodic
    anomaly: Anomaly | None  # the first quantity that left its usual range, if any
    terms: Mapping[str, float]  # the sum of each reward term, if the environment reports the terms
    texts: tuple[str, ...] = ()  # names of the columns of observed texts
    # how far each step's reward is below the mean of the policy's episodes; empty if there is only one episode
    lost: Sequence[float] = ()
    shortfall: Shortfall | None = None  # the steps in which it lost most, if it lost anything
    # the columns' values after the last action, None for columns without one; empty if the time limit ended the episode
    final: Mapping[str, Any] = field(default_factory=dict)


def episode_view(
    episode: Episode,
    reader: Reader,
    best: Policy | None,
    usual: Mapping[str, tuple[float, float]] | None = None,
    *,
    relevance: Relevance = NOTHING_RELEVANT,
    mean: Column | None = None,
) -> EpisodeView:
    """Return the view of an episode with the quantities of `reader`.

    Args:
        best: the policy whose quantities are the most important.
        usual: usual ranges; if given, the view has periods, unobserved quantities and the first anomaly.
        relevance: how much reward and ends depend on each observation, by which quantities are ranked.
        mean: `mean_rewards` of the policy's episodes; if given, the view has the losses against it.
    """
    t, task = episode.trajectory, reader.task
    arrays = quantities(t, reader)
    seen = {name: v.astype(np.float64) for name, v in episode.unobserved} if usual is not None else {}
    unobserved = {name: v[:-1] for name, v in seen.items() if name not in arrays and np.ptp(v[:-1]) > 0}
    ends = {name: float(v[-1]) for name, v in seen.items()}
    columns: dict[str, Sequence[Any]] = {"step": list(range(t.length))}
    columns.update((_shown(name, task), values.tolist()) for name, values in (arrays | unobserved).items())
    columns.update(_cells(t, reader))
    columns.update(_texts(t, task))
    rows = list(map(tuple, t.actions.reshape(t.length, -1).tolist()))
    words = {row: action_words(task.actuators, [to_digits(value, 3) for value in row]) for row in set(rows)}
    columns["action"] = [words[row] for row in rows]
    columns["reward"] = t.rewards.tolist()
    limits = {a.name: (a.low, a.high) for a in task.actuators if not a.is_choice}
    changing = _names_to_show(arrays, task, best)
    traced = [*unobserved, *(ranked(changing, best, relevance) if relevance.variance else changing)]
    relevant = [name for name in relevance.relevant if name in arrays]
    lost = step_losses(t, mean) if mean is not None else np.zeros(0)
    anomaly, reference, signals = None, "", ranges(arrays)
    if usual is not None:
        found, reference = rhythms(arrays | unobserved, limits)
        signals = tuple(s for s in found if s.name == reference or s.name in traced or s.name in limits)
        described = {name: limits for name, limits in usual.items() if name not in relevance.derived}
        anomaly = first_anomaly(arrays, described) if episode.failed else None
    return EpisodeView(
        attempt=episode.attempt,
        episode_return=t.episode_return,
        length=t.length,
        ending="cut by the time limit"
        if not t.terminated
        # Without a description of the task, `reached` is a guess.
        else f"terminated by the environment{', its goal reached' * (episode.reached and not task.documentation)}",
        failed=episode.failed,
        won=episode.reached,
        still=_still(arrays, task),
        columns=columns,
        traced=tuple(_shown(name, task) for name in traced),
        relevant=tuple(_shown(name, task) for name in relevant if name in traced),
        constant={
            _shown(n, task): float(v[0])
            for n, v in arrays.items()
            if n in relevance.set_points or (n in relevant and len(v) > 1 and np.ptp(v) == 0)
        },
        unobserved=tuple(unobserved),
        outputs=tuple(limits) if task.action_space == "box" else ("action", *limits),
        signals=tuple(replace(signal, name=_shown(signal.name, task)) for signal in signals),
        reference=_shown(reference, task),
        anomaly=replace(anomaly, name=_shown(anomaly.name, task)) if anomaly is not None else None,
        terms=dict(t.terms),
        texts=task.text_names,
        lost=lost.tolist(),
        shortfall=shortfall(lost) if len(lost) else None,
        final=dict.fromkeys(columns) | _final(t, reader) | ends if t.terminated else {},
    )


def _shown(name: str, task: Task) -> str:
    """Return the name under which a quantity or an actuator is shown."""
    return f"{name}_" if name in FIELDS and name not in {actuator.name for actuator in task.actuators} else name


def _final(t: Trajectory, reader: Reader) -> dict[str, Any]:
    """Return the values after the last action: observations and, for a policy without memory, features and the cell."""
    rows, task = np.repeat(t.observations[-1:], 2, axis=0), reader.task
    last = replace(t, observations=rows, actions=t.actions[-1:], rewards=t.rewards[-1:])
    arrays = quantities(last, reader)
    if reader.remembered:
        arrays = {name: values for name, values in arrays.items() if name in task.observation_names}
    columns: dict[str, Sequence[Any]] = {_shown(name, task): values.tolist() for name, values in arrays.items()}
    if not reader.remembered:
        columns.update(_cells(last, reader))
    columns.update(_texts(last, task))
    actions = {actuator.name for actuator in task.actuators}
    return {name: column[0] for name, column in columns.items() if name not in actions}


def _cells(t: Trajectory, reader: Reader) -> dict[str, Sequence[Any]]:
    """Return the column `cell`, if the reader has cells."""
    if not isinstance(reader, CellReader):
        return {}
    # An episode visits few cells: make one tuple for each, not one for each step.
    cells, which = np.unique(reader.cells_along((t.observations[:-1], t.actions)), return_inverse=True)
    bins = list(map(tuple, reader.grid.bins_of(cells).tolist()))
    return {"cell": list(map(bins.__getitem__, which.tolist()))}


def _texts(t: Trajectory, task: Task) -> dict[str, list[str]]:
    """Return the observed texts of each step, each in one line and in quotes."""
    first, shown = len(task.observations), {}
    for text in task.texts:
        lines = [" ".join(decoded(row).split()) for row in t.observations[:-1, first : first + text.columns]]
        shown[text.name] = [f'"{one if len(one) <= MOST_TEXT else one[: MOST_TEXT - 3] + "..."}"' for one in lines]
        first += text.columns
    return shown


def _names_to_show(arrays: Mapping[str, Column], task: Task, best: Policy | None) -> list[str]:
    """Return the names of observations and features that change, without exact copies of earlier ones."""
    left_out = {a.name for a in task.actuators}
    left_out |= {name for name, node in best.lets if is_standardised(name, node)} if best is not None else set()
    first: dict[bytes, str] = {}
    for name, values in arrays.items():
        if name not in left_out and np.ptp(values) > 0:
            first.setdefault(values.tobytes(), name)
    return list(first.values())


def _still(arrays: Mapping[str, Column], task: Task) -> dict[str, float]:
    """Return the largest change of each observation that counts as none."""
    return {
        _shown(o.name, task): max(
            STILL * float(np.ptp(arrays[o.name])),
            STILL_OF_LIMITS * (o.high - o.low) if o.high - o.low < MOST_RANGE else 0.0,
        )
        for o in task.observations
        if o.name in arrays
    }


def reader_for(task: Task, grid: Grid | None, policy: Policy | None = None) -> Reader:
    """Return the reader for a trace's columns: the features of a linear policy, or the cells of a table."""
    if isinstance(policy, TablePolicy):
        return policy.reader
    if grid is not None:
        return cell_reader(task, grid)
    return Reader(task, policy.lets if policy is not None else ())


def ranked(names: Sequence[str], best: Policy | None, relevance: Relevance) -> list[str]:
    """Return the quantities to show, the most important first, at most MOST_READ (without a policy MOST_COLUMNS).

    The order is: observations that reward and ends depend on; features of `best` that remember themselves (a clock, a
    latch); quantities that its outputs read, then those that its features read (observations by variance, then
    features, the last defined first); and the rest, by variance.
    """
    variance, read = relevance.variance, list[str]()
    if isinstance(best, LinearPolicy):
        read = [name for name, node in best.lets if name in remembered_in(node)]
        for lines in (best.equations, best.lets):
            used = frozenset[str]().union(*(names_in(node) for _, node in lines))
            known = [name for name in reversed(names) if name in used]
            read += sorted(known, key=lambda name: (name not in variance, -variance.get(name, 0.0)))
    rest = sorted(names, key=lambda name: (name in relevance.derived, -variance.get(name, 0.0)))
    order = dict.fromkeys([*relevance.relevant[:MOST_RELEVANT], *read, *rest])
    return [name for name in order if name in names][: MOST_READ if read else MOST_COLUMNS]


def rows_at(policy: Policy | None, episode: Episode, steps: Sequence[int], task: Task) -> list[dict[str, Any]]:
    """Return these steps of a policy's episode, if they exist, with their most informative columns."""
    view = episode_view(episode, reader_for(task, None, policy), policy)
    traced = view.traced
    if len(traced) > MOST_NAMES:  # observations come first, the decisive features last
        traced = traced[: MOST_NAMES // 2] + traced[-(MOST_NAMES - MOST_NAMES // 2) :]
    names = ("step", *traced, *(["cell"] if "cell" in view.columns else []), *view.outputs, "reward")
    return [{name: view.columns[name][step] for name in names} for step in steps if 0 <= step < view.length]


# --- attempts --------------------------------------------------------------------------------------------------------

MOST_ATTEMPTS = 40  # templates get so many of the last attempts
MOST_REFUSED = 3  # so many of the last refused attempts have a detailed account
AT_AN_END = 0.05  # a constant within this share of its range from an end counts as at that end
UNDECIDED = 0.5  # a constant is undecided if the search ends with a spread of at least this share of its value


def attempt_views(context: Context) -> list[View]:
    """Return the last attempts, at most MOST_ATTEMPTS, oldest first, for templates.

    `changed` compares a proposal with its parent, the best policy when it was proposed.
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
        if proposed is not None:
            changed = _changes(proposed, parent.policy if parent is not None else None)
        first = context.tried.get(attempt.digests[0] or b"", attempt.number)  # the first attempt with this policy
        before, comparison = attempt.tuned.proposed_score, attempt.comparison
        details: View | None = None
        if parent is not None and attempt.number in refused:  # cached for the next prompts
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
                "same_as": first if first != attempt.number else None,
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


def _changes(new: Policy, old: Policy | None) -> str:
    """Return the lines of a policy that an older one lacks, and which of its lines are removed."""
    before, after = _lines(old), _lines(new)
    names = [name for name, line in after.items() if before.get(name) != line]
    # Prompts cut the end: outputs and rows come first, then features, then standardised quantities.
    standard = {f"let {name}" for name, node in new.lets if is_standardised(name, node)}
    names.sort(key=lambda name: name.startswith("let ") + (name in standard))
    lines = [f"`{after[name]}`" for name in names]
    lines += [f"without `{name.removeprefix('let ')}`" for name in before if name not in after]
    return "; ".join(lines) or ("nothing" if list(after) == list(before) else "another order of rows")


def _lines(policy: Policy | None) -> dict[str, str]:
    """Return the lines of a policy by the name that they define; the key of a table's row is the row itself."""
    lines = policy.to_text(plain=True).splitlines() if policy is not None else []
    rule = next((i for i, line in enumerate(lines) if line.startswith("| --")), None)
    if rule is not None:
        del lines[rule - 1 : rule + 1]  # the header
    plain = (" ".join(line.split()) for line in lines)
    return {line.partition(" = ")[0]: line for line in plain}


def refused_view(attempt: Attempt, best_then: Attempt, context: Context) -> View | None:
    """Return why an attempt lost to `best_then`, the best at its time; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    found = largest_loss(*(context.buffer.of_attempt(one.number, len(one.played)) for one in (attempt, best_then)))
    lost = None
    if found is not None:
        facts, worst, step = found
        lost = {**facts, "row": rows_at(policy, worst, [step], context.task)[0]}  # `mean` was lost there per episode
    return {"tuned": moved(proposed, policy), "lost": lost}


def moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """Return the constants that tuning changed, before and after, by the name of their equation."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    found = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(signed_constants(before[name]), signed_constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            found[name] = changed
    return found


def best_view(best: Attempt | None, score: Score | None) -> View | None:
    """Return the best policy for templates; `score` may be on more episodes than the attempt's own."""
    if best is None or best.policy is None or score is None:
        return None
    endings = ("terminated" if ended else "cut" for ended in best.played.terminated)
    alike = Counter(zip(best.returns, best.played.lengths, endings, strict=True))
    played = [
        {"episode_return": value, "length": length, "ending": ending, "count": count}
        for (value, length, ending), count in sorted(alike.items())
    ]
    spread = sorted((one for one in best.tuned.spread if one[1] >= UNDECIDED), key=lambda one: -one[1])
    # Tables without the spaces that align their columns have fewer tokens.
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
        # whether `score` is from other episodes than those that compare attempts
        "fresh": best.score is not None and not score.exact and score.seeds[:1] != best.score.seeds[:1],
        "compared_mean": best.score.mean if best.score is not None else None,
        "refinement": best.tuned.refinement,
        "proposed": proposed,  # the text of a table before tuning
        "tuned": tuned,
        # the least decided constants: name of the line, and final spread of the search as a share of the value
        "spread": spread,
        "at_an_end": _at_an_end(best.policy) if best.tuned.refinement else [],
        "played": played,  # equal episodes are counted together
    }


def _at_an_end(policy: Policy) -> list[tuple[str, float, float, float]]:
    """Return the constants at an end of their range: name of the line, value and range."""
    ranged = [
        (name, value, *ends)
        for name, node in (*policy.lets, *policy.formulas())
        for value, ends in zip(constants(node), limits(node), strict=True)
        if math.isfinite(ends[0])
    ]
    return [one for one in ranged if min(one[1] - one[2], one[3] - one[1]) < AT_AN_END * (one[3] - one[2])]


# --- requirements ----------------------------------------------------------------------------------------------------


def requirement_views(context: Context) -> list[View]:
    """Return the task's requirements, and how the best policy meets them."""
    best = context.best
    counted = {one.name: one for one in violations_of(best)} if best is not None else {}
    views = []
    for requirement in context.task.requirements:
        found = counted.get(requirement.name)
        view = {
            "name": requirement.name,
            "text": str(requirement),
            "hard": requirement.hard,
            "allowed": requirement.allowed,  # share of episodes that may violate it
            "violated": found.violated if found is not None else None,  # by so many of the best policy's episodes
            "episodes": found.episodes if found is not None else 0,
            # value of the left side when the requirement was furthest from being met
            "worst": found.worst if found is not None else None,
            "rows": _rows(best, found, context) if best is not None and found is not None else [],
        }
        views.append(view)
    return views


def _rows(best: Attempt, found: Violations, context: Context) -> list[View]:
    """Return the steps around the first violation in the worst episode."""
    if not found.violated or found.step is None:
        return []
    played = [e for e in context.buffer.of_attempt(best.number) if e.trajectory.seed == found.seed]
    steps = [found.step + k for k in AROUND_VIOLATION]
    return rows_at(best.policy, played[0], steps, context.task) if played else []


add_section(Section("requirements", lambda context, config: requirement_views(context), "after_account"))


# --- outcomes of actions ---------------------------------------------------------------------------------------------


def visit_views(
    reader: CellReader,
    kinds: npt.NDArray[Any],
    counts: npt.NDArray[np.float64],
    most: int,
    anywhere: npt.NDArray[np.float64] | None = None,
) -> list[View]:
    """Return at most `most` pairs of a cell and an action with their returns to go, for templates.

    Pairs shortly before failures come first, then the most frequent. A pair is left out if too few episodes have it, or
    if its return to go equals that of another action in the cell within two standard errors of each. If no other action
    was taken there in enough episodes, a pair has to occur shortly before a failure, and to differ from the mean over
    all cells.

    Args:
        counts: counts of the episodes to show, from `count_visits`.
        anywhere: counts of all episodes, for the other actions; by default `counts`.
    """
    anywhere = counts if anywhere is None else anywhere
    visits, ends = counts[0].reshape(-1), counts[1].reshape(-1)
    seen = np.flatnonzero(visits)
    if not len(seen):
        return []
    cells, own = np.divmod(seen, len(kinds))
    rows = np.arange(len(seen))
    mean, error = _means(counts[2:, cells, own])
    others, errors = _means(anywhere[2:, cells])
    others[rows, own] = np.nan
    apart = np.abs(others - mean[:, None]) > STANDARD_ERRORS * (errors + error[:, None])
    alone: npt.NDArray[np.bool_] = np.asarray(np.isnan(others).all(axis=1))
    overall = counts[3].sum() / counts[2].sum()
    differs = np.where(alone, np.abs(mean - overall) > STANDARD_ERRORS * error, (apart | np.isnan(others)).all(axis=1))
    kept = np.flatnonzero(differs & ~np.isnan(mean) & (~alone | (ends[seen] > 0)))
    kept = kept[np.lexsort((-visits[seen[kept]], -ends[seen[kept]]))][:most]

    def words(kind: int) -> str:
        return action_words(reader.task.actuators, list(map(float, kinds[kind])))

    places = reader.grid.bins_of(cells[kept]).tolist()
    views = []
    for i, bins in zip(kept.tolist(), places, strict=True):
        other = -1 if alone[i] else int(np.nanargmax(others[i]))
        views.append(
            {
                "bins": tuple(bins),
                "action": words(int(own[i])),
                "visits": int(visits[seen[i]]),  # steps in which the action was taken there
                # the return to go from the first visit in each of `episodes` episodes
                "mean_return": float(mean[i]),
                "error": float(error[i]),
                "episodes": int(counts[2, cells[i], own[i]]),
                "ends_soon": int(ends[seen[i]]),  # steps among the last 10 before a failure
                # the best other action there, if there is one
                "other": words(other) if other >= 0 else "",
                "other_return": float(others[i, other]) if other >= 0 else 0.0,
            }
        )
    return views


def _means(first: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return means and standard errors from counts, sums and sums of squares of shape (3, ...); NaN for few counts."""
    n, total, squares = first
    with np.errstate(all="ignore"):
        mean = np.where(n >= LEAST_EPISODES, total / n, np.nan)
        variance = np.maximum(0.0, squares - n * mean**2) / (n - 1)
        return mean, np.where(n >= LEAST_EPISODES, np.sqrt(variance / n), np.nan)
