"""Prompts: what the loop knows, as structured views, rendered by Jinja templates within a token budget.

Templates see plain data and a few filters, never an object that can touch a file; the sandbox and strict undefined
variables do the rest. When a prompt is too long, the least useful parts shrink first (`_SHRINK`).
"""

from __future__ import annotations

import functools
import math
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from jinja2.sandbox import ImmutableSandboxedEnvironment

from policygen.analysis import (
    Account,
    Anomaly,
    Signal,
    account,
    first_anomaly,
    ranges,
    reached_its_goal,
    rhythms,
    turning_points,
    usual_ranges,
)
from policygen.buffer import Episode
from policygen.config import RunConfig
from policygen.errors import TemplateError
from policygen.expressions import constants, format_number, names_in
from policygen.grid import Grid
from policygen.language import Problem
from policygen.messages import CHARACTERS_PER_TOKEN, Message, Prompt
from policygen.normalise import is_definition
from policygen.policies import LinearPolicy, Policy, TablePolicy, action_text, output_names, reader_of_all
from policygen.resources import find_resource, list_resources, resource_folders
from policygen.rollout import Trajectory
from policygen.search import Attempt, Context, Played
from policygen.tasks import Task

# --- views: what templates see ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Show:
    """How much of everything a template shows; lowered step by step until the prompt fits its budget."""

    best: int = 2
    worst: int = 3
    rows: int = 24
    trace: int = 50
    changes: int = 1_500  # characters of what one attempt changed
    history: int = 20
    visits: int = 16
    policy_rows: int = 200
    facts: int = 4_000  # characters
    prose: int = 6_000
    example: int = 60  # rows of its table, ten characters of prose for each; 0 leaves it out


_FULL = Show()
MOST_ACTIONS = 1_000  # different actions that visits are counted for
DIFFERENCES = 3  # cells named per attempt of the history
OWN_COLUMNS = ("step", "cell", "action", "reward")  # of a trace; a feature of such a name is not traced
TOLD_APART = 2.0  # ratio of the widest to the narrowest spread, from which they tell constants apart
MOST_READ = 40  # columns of a trace, of those that the best policy reads
MOST_COLUMNS = 18  # of a trace; beyond, observations that the best policy does not read are left out

# One round of shrinking, least useful first; numbers are the least that is kept.
_SHRINK = (
    ("visits", 4),
    ("history", 4),
    ("example", 0),
    ("rows", 8),
    ("changes", 200),
    ("trace", 16),
    ("policy_rows", 24),
    ("facts", 400),
    ("prose", 800),
    ("best", 1),
    ("worst", 1),
)


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """One episode: its outcome, and a list per quantity with one entry per step.

    `columns` has `step`, every observation and feature (of the task and of the best policy), `cell` (bins, in the order
    of the grid) for tables, `action` in the task's words, each continuous actuator by its name, and `reward`. `traced`
    names the columns worth a look. `signals` has the range of each quantity, and for linear policies its rhythm;
    `reference` is the signal that lags refer to. `terms` splits the return, where the environment does.
    """

    attempt: int
    episode_return: float
    length: int
    ending: str
    columns: Mapping[str, Sequence[Any]]
    traced: tuple[str, ...]
    signals: tuple[Signal, ...]
    reference: str
    anomaly: Anomaly | None
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One line of the history: number, score, and what it changed.

    A table is compared with the best policy; a linear policy, as proposed, with the one it could revise, the best at
    its time (`parent`). `same_as` is an earlier attempt that proposed exactly this.
    """

    number: int
    mean: float | None
    proposed_mean: float | None
    std: float | None
    lowest: float | None
    highest: float | None
    accepted: bool
    is_best: bool
    parent: int | None
    same_as: int | None
    changed: str
    problem: str
    refinement: str


@dataclass(frozen=True, slots=True)
class BestView:
    """The best policy so far: its text (also as `lines`), its score, and its episodes, equal ones counted together.

    Where it was tuned, `tuned` has for each line of a linear policy the constants that moved, before and after;
    `proposed` is the text as it was, for a table. `spread` says how far the constants of each place could still move,
    in per cent.
    """

    number: int
    text: str
    lines: tuple[str, ...]
    score: str
    mean: float
    exact: bool
    refinement: str
    proposed: str
    tuned: Mapping[str, Sequence[tuple[float, float]]]
    spread: Mapping[str, Sequence[float]]
    played: tuple[Mapping[str, Any], ...]
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VisitView:
    """A cell and one of its actions: how often it was taken in all episodes, and the mean return that followed."""

    bins: tuple[int, ...]
    action: str
    visits: int
    mean_return: float
    ends_soon: int


def _episode_view(
    episode: Episode,
    task: Task,
    reader: Policy | None,
    best: Policy | None,
    terms_of: Callable[[Trajectory], dict[str, float]],
    usual: Mapping[str, tuple[float, float]] | None = None,
) -> EpisodeView:
    """One episode as the quantities of `reader`; `usual` ranges, where given, ask for rhythms and the first anomaly."""
    t = episode.trajectory
    arrays = _quantities(t, task, reader)
    columns: dict[str, Sequence[Any]] = {"step": list(range(t.length))}
    columns.update((name, values.tolist()) for name, values in arrays.items())
    if isinstance(reader, TablePolicy):
        # An episode meets few different cells: one tuple for each of them, not one a step.
        cells, which = np.unique(reader.cells(t.observations[:-1]), return_inverse=True)
        bins = list(map(tuple, reader.grid.bins_of(cells).tolist()))
        columns["cell"] = list(map(bins.__getitem__, which.tolist()))
    columns["action"] = _actions_in_words(task, t)
    columns["reward"] = t.rewards.tolist()
    limits = {a.name: (a.low, a.high) for a in task.actuators if not a.is_choice}
    anomaly, reference = None, ""
    if usual is None:
        found = ranges(arrays)
    else:
        found, reference = rhythms(arrays, limits)
        anomaly = first_anomaly(arrays, usual) if t.terminated and not reached_its_goal(t, task.solved) else None
    traced = _worth_a_look(arrays, task, best) if usual is not None else list(arrays)
    actions = tuple(limits) if task.action_space == "box" else ("action",)
    return EpisodeView(
        attempt=episode.attempt,
        episode_return=t.episode_return,
        length=t.length,
        ending="terminated by the environment" if t.terminated else "cut by the time limit",
        columns=columns,
        traced=("step", *traced, *actions, "reward"),
        signals=tuple(s for s in found if s.name == reference or s.name in traced or s.name in limits)
        if usual is not None
        else found,
        reference=reference,
        anomaly=anomaly,
        terms=terms_of(t),
    )


def _quantities(t: Trajectory, task: Task, reader: Policy | None) -> dict[str, npt.NDArray[np.float64]]:
    """Every observation, feature that `reader` computes, and continuous action, each of shape (T,)."""
    observations = t.observations[:-1]
    names: Sequence[str] = task.observation_names
    values: Sequence[npt.NDArray[Any]] = list(observations.T)
    if reader is not None:
        names, values = reader.quantity_names, reader.quantities(observations.T)
    arrays = {
        name: np.asarray(column, np.float64)
        for name, column in zip(names, values, strict=True)
        if len(column) == t.length and name not in OWN_COLUMNS  # else a feature nothing reads
    }
    if task.action_space == "box":
        for actuator, column in zip(task.actuators, t.actions.T, strict=True):
            arrays[actuator.name] = column.astype(np.float64)
    return arrays


def _usual(trajectories: Sequence[Trajectory], task: Task, reader: Policy | None) -> dict[str, tuple[float, float]]:
    """The usual range of every quantity, within what the task says is possible."""
    episodes = [
        (_quantities(t, task, reader), t.terminated and not reached_its_goal(t, task.solved)) for t in trajectories
    ]
    usual = usual_ranges(episodes)
    for actuator in task.actuators:
        usual.pop(actuator.name, None)  # what the policy does about it is no sign of it
    for o in task.observations:
        if o.name in usual:
            low, high = usual[o.name]
            usual[o.name] = (max(low, o.low), min(high, o.high))
    return usual


def _worth_a_look(arrays: Mapping[str, npt.NDArray[np.float64]], task: Task, best: Policy | None) -> list[str]:
    """Names of the observations and features that change; of many, only those that the best policy reads."""
    actions = {a.name for a in task.actuators}
    copies = {name for name, node in best.lets if is_definition(name, node)} if best is not None else set()
    names = [n for n, values in arrays.items() if n not in actions and n not in copies and np.ptp(values) > 0]
    if len(names) <= MOST_COLUMNS or not isinstance(best, LinearPolicy):
        return names[:MOST_COLUMNS]
    read = frozenset().union(*(names_in(node) for _, node in (*best.lets, *best.equations)))
    return [name for name in names if name in read][:MOST_READ] or names[:MOST_COLUMNS]


def _reader(task: Task, grid: Grid | None, policy: Policy | None = None) -> Policy | None:
    """Any policy that computes what is worth seeing: all features of a linear one, or the cells of a table."""
    if isinstance(policy, TablePolicy):
        return policy
    if grid is None:
        lets = policy.lets if policy is not None else ()
        return reader_of_all(task, lets)
    lowest = [0.0 if a.is_choice else a.low for a in task.actuators]
    return TablePolicy.from_actions(task, np.tile(lowest, (grid.size, 1)), grid)


def _actions_in_words(task: Task, trajectory: Trajectory) -> list[str]:
    alone = len(task.actuators) == 1
    keys: list[Any] = (
        trajectory.actions.reshape(-1).tolist() if alone else list(map(tuple, trajectory.actions.tolist()))
    )
    words = {}
    for key in set(keys):
        row = key if isinstance(key, tuple) else (key,)
        words[key] = ", ".join(action_text(a, float(f"{v:.3g}")) for a, v in zip(task.actuators, row, strict=True))
    return list(map(words.__getitem__, keys))


def _attempt_views(
    attempts: Sequence[Attempt], best: Attempt | None, visits: npt.NDArray[np.float64] | None = None
) -> list[AttemptView]:
    """The history, oldest first, each attempt with what it changed."""
    views: list[AttemptView] = []
    parent: Attempt | None = None
    seen: dict[str, int] = {}
    for attempt in attempts:
        if attempt.number == 0:
            continue
        policy, score, proposed = attempt.policy, attempt.score, attempt.proposed or attempt.policy
        changed, same_as = "", None
        if isinstance(proposed, LinearPolicy):
            text = proposed.to_text()
            same_as = seen.get(text)
            seen.setdefault(text, attempt.number)
            old = parent.policy.to_text() if parent is not None and parent.policy is not None else ""
            changed = _line_changes(text, old)
            if attempt.policy is not None:
                seen.setdefault(attempt.policy.to_text(), attempt.number)
        elif policy is not None and best is not None and best.policy is not None and attempt is not best:
            changed = _difference(policy, best.policy, visits)
        returns = [played.episode_return for played in attempt.played]
        before = attempt.proposed_score
        views.append(
            AttemptView(
                number=attempt.number,
                mean=score.mean if score else None,
                proposed_mean=before.mean if before else None,
                std=score.std if score else None,
                lowest=min(returns, default=None),
                highest=max(returns, default=None),
                accepted=attempt.accepted,
                is_best=attempt is best,
                parent=parent.number if parent is not None else None,
                same_as=same_as,
                changed=changed,
                problem=str(attempt.problems[0]) if attempt.problems else "",
                refinement=attempt.refinement,
            )
        )
        if attempt.accepted:
            parent = attempt
    return views


def _line_changes(new: str, old: str) -> str:
    """What a policy's text changes in another one: the lines that are new or different, and the names that are gone."""
    before, after = (dict(line.partition(" = ")[::2] for line in text.splitlines()) for text in (old, new))
    lines = [f"`{name} = {value}`" for name, value in after.items() if before.get(name) != value]
    lines += [f"without `{name.removeprefix('let ')}`" for name in before if name not in after]
    return "; ".join(lines) or "nothing"


def _difference(policy: Policy, best: Policy, visits: npt.NDArray[np.float64] | None) -> str:
    """What separates a table from the best one, in at most a line: the cells that episodes visited most come first."""
    if not isinstance(policy, TablePolicy) or not isinstance(best, TablePolicy):
        return ""
    if policy.grid != best.grid:
        return "another grid"
    mine, theirs = (table.actions.reshape(table.grid.size, -1) for table in (policy, best))
    cells = np.flatnonzero((mine != theirs).any(axis=1))
    if not len(cells):
        return "the same table"
    if visits is not None:
        cells = cells[np.argsort(-visits[cells], kind="stable")]
    shown: dict[str, list[str]] = {}
    places = policy.grid.bins_of(cells[:DIFFERENCES]).tolist()
    for place, action in zip(places, mine[cells[:DIFFERENCES]].tolist(), strict=True):
        words = ",".join(action_text(a, v) for a, v in zip(policy.task.actuators, action, strict=True))
        shown.setdefault(words, []).append(",".join(map(str, place)))
    listed = "; ".join(f"{words} in {' '.join(where)}" for words, where in shown.items())
    if len(cells) > DIFFERENCES:
        return f"{len(cells)} cells differ, e.g. {listed}"
    return f"differs: {listed}"


def _visit_views(
    task: Task, policy: TablePolicy, kinds: npt.NDArray[Any], counts: npt.NDArray[np.float64]
) -> list[VisitView]:
    """Cells and actions over all episodes, those before early ends first, then those most visited."""
    visits, ends, totals = counts.reshape(3, -1)
    seen = np.flatnonzero(visits)
    order = seen[np.lexsort((-visits[seen], -ends[seen]))][: _FULL.visits]
    views = []
    places = policy.grid.bins_of(order // max(1, len(kinds))).tolist()
    for key, bins in zip(order.tolist(), places, strict=True):
        kind = key % len(kinds)
        words = ", ".join(action_text(a, float(v)) for a, v in zip(task.actuators, kinds[kind], strict=True))
        views.append(VisitView(tuple(bins), words, int(visits[key]), float(totals[key] / visits[key]), int(ends[key])))
    return views


def _visits(context: Context, policy: TablePolicy) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """The different actions, shape (kinds, m), and for each cell and kind what `_tally` counts.

    The counts have shape (3, cells, kinds); there are no kinds where actions are random numbers, hardly ever repeated.
    """
    task, size = context.task, policy.grid.size
    if task.action_space == "discrete":
        kinds = np.arange(len(task.actuators[0].labels)).reshape(-1, 1)

        def tally(episodes: Sequence[Episode]) -> npt.NDArray[np.float64]:
            codes = [episode.trajectory.actions for episode in episodes]
            return _tally(episodes, policy, np.concatenate(codes) if codes else np.zeros(0, np.int16), len(kinds))

        return kinds, context.buffer.tallied((policy.lets, policy.grid), tally)
    episodes = list(context.buffer)
    rows = [e.trajectory.actions.reshape(e.trajectory.length, len(task.actuators)) for e in episodes]
    kinds, codes = np.unique(np.concatenate(rows or [np.zeros((0, 1))]), axis=0, return_inverse=True)
    if task.action_space == "box" and len(kinds) > MOST_ACTIONS:
        return kinds[:0], np.zeros((3, size, 0))
    return kinds, _tally(episodes, policy, codes.reshape(-1), len(kinds))


def _tally(
    episodes: Sequence[Episode], policy: TablePolicy, codes: npt.NDArray[Any], kinds: int
) -> npt.NDArray[np.float64]:
    """Visits, visits in the last 10 steps before an early end, and summed returns to go: shape (3, cells, kinds)."""
    trajectories = [episode.trajectory for episode in episodes]
    lengths = np.array([t.length for t in trajectories], np.int64)
    size = policy.grid.size * kinds
    if not lengths.sum():
        return np.zeros((3, policy.grid.size, kinds))
    cells = policy.cells(np.concatenate([t.observations[:-1] for t in trajectories]))
    keys = cells.astype(np.int64) * kinds + codes
    last = np.cumsum(lengths)
    rewards = np.concatenate([t.rewards for t in trajectories])
    summed = np.cumsum(rewards, dtype=np.float64)
    to_go = np.repeat(summed[last - 1], lengths) - summed + rewards
    steps_left = np.repeat(last, lengths) - np.arange(len(keys))
    fallen = np.repeat(np.array([t.terminated for t in trajectories]), lengths)
    counts = (
        np.bincount(keys, minlength=size),
        np.bincount(keys[fallen & (steps_left <= 10)], minlength=size),
        np.bincount(keys, to_go, minlength=size),
    )
    return np.stack(counts).astype(np.float64).reshape(3, policy.grid.size, kinds)


def _best_view(context: Context, terms_of: Callable[[Played | Trajectory], dict[str, float]]) -> BestView | None:
    best, score = context.best, context.best_score
    if best is None or best.policy is None or score is None:
        return None
    alike = Counter((p.episode_return, p.length, p.ending, tuple(terms_of(p).items())) for p in best.played)
    names = tuple(dict.fromkeys(name for p in best.played for name in terms_of(p)))
    nothing = dict.fromkeys(names, 0.0)
    played = tuple(
        {"episode_return": value, "length": length, "ending": ending, "count": count, **nothing, **dict(terms)}
        for (value, length, ending, terms), count in sorted(alike.items())
    )
    spread: dict[str, list[float]] = {}
    widths = [value for _, value in best.spread]
    if widths and max(widths) > TOLD_APART * min(widths):
        for place, value in best.spread:
            spread.setdefault(place, []).append(100 * value)
    text = best.policy.to_text()
    tuned = _moved(best.proposed, best.policy)
    proposed = best.proposed.to_text() if best.proposed is not None and not tuned else ""
    return BestView(
        best.number,
        text,
        tuple(text.splitlines()),
        str(score),
        score.mean,
        score.exact,
        best.refinement,
        proposed,
        tuned,
        spread,
        played,
        names,
    )


def _account(own: Sequence[Episode], context: Context, config: RunConfig) -> Account | None:
    """Where the best policy's points are; the names of the reward's terms are knowledge too."""
    if context.best is None:
        return None
    found = account([e.trajectory for e in own], context.task.max_steps, context.task.solved)
    return replace(found, terms=()) if found is not None and config.ablate == "knowledge" else found


def _moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """For each line of a linear policy, its constants that tuning moved: before and after."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    moved = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(constants(before[name]), constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            moved[name] = changed
    return moved


def template_variables(context: Context, config: RunConfig) -> dict[str, Any]:
    """Everything a template may use, by name; the README documents them."""
    task, incumbent = context.task, context.incumbent
    grid = incumbent.grid if isinstance(incumbent, TablePolicy) else task.grid
    if context.kind == "linear":
        grid = None
    reader = _reader(task, grid, incumbent)

    def terms_of(played: Played | Trajectory) -> dict[str, float]:
        return {} if config.ablate == "knowledge" else dict(played.terms)

    shown = {id(e) for e in context.buffer.best(_FULL.best)}
    # The worst of the best policy's own episodes say what to mend; before there is one, the worst of all.
    own = context.buffer.of_attempt(context.best.number) if context.best is not None else list(context.buffer)
    own.sort(key=lambda e: e.trajectory.episode_return)
    worst = [e for e in own if id(e) not in shown][: _FULL.worst]
    usual = None
    if context.kind == "linear":
        usual = _usual([e.trajectory for e in own], task, reader)
    viewed = functools.partial(_episode_view, task=task, reader=reader, best=incumbent, terms_of=terms_of, usual=usual)
    visits, visit_views = None, []
    if isinstance(reader, TablePolicy):
        kinds, counts = _visits(context, reader)
        visits, visit_views = counts[0].sum(axis=1), _visit_views(task, reader, kinds, counts)
    return {
        "task": task,
        "example": context.example,
        "kind": context.kind,
        "outputs": output_names(task),
        "grid": [
            {"name": d.name, "bins": [{"index": i, "label": d.label(i)} for i in range(d.bins)]}
            for d in (grid.dimensions if grid is not None else ())
        ],
        "grid_is_free": config.grid == "free",
        "number": context.number,
        "iterations": config.iterations,
        "planned": config.iterations * config.candidates,
        "best": _best_view(context, terms_of),
        "best_episodes": [viewed(e) for e in context.buffer.best(_FULL.best)],
        "worst_episodes": [viewed(e) for e in worst],
        "account": _account(own, context, config) if usual is not None else None,
        "refining": context.refining,
        "attempts": _attempt_views(context.attempts, context.best, visits),
        "random": next((a for a in context.attempts if a.number == 0), None),
        "visits": visit_views,
        "normalised": [
            {"name": d.name, "quantity": d.quantity, "mean": d.mean, "spread": d.spread} for d in context.definitions
        ],
    }


# --- filters ---------------------------------------------------------------------------------------------------------


def _window(episode: EpisodeView, rows: int, where: str = "end") -> list[dict[str, Any]]:
    """`rows` consecutive steps of an episode as records: its `end`, `start`, `middle`, or around what went wrong.

    `fault` is the first anomaly, a third of the rows before it; without one the end of an episode that ended early, and
    the stretch of least reward of one that did not.
    """
    last = episode.length - rows
    first = {"start": 0, "middle": last // 2, "end": last, "fault": last}[where]
    if where == "fault" and episode.anomaly is not None:
        first = min(last, episode.anomaly.step - rows // 3)
    elif where == "fault" and episode.ending.startswith("cut") and last > 0:
        summed = np.concatenate([[0.0], np.cumsum(episode.columns["reward"])])
        first = int(np.argmin(summed[rows:] - summed[:-rows]))
    first = max(0, first)
    chosen = range(first, min(episode.length, first + rows))
    return [{name: column[i] for name, column in episode.columns.items()} for i in chosen]


def _sample(items: Sequence[Any], n: int) -> list[Any]:
    """`n` of the items, evenly spaced, the first and last among them."""
    if len(items) <= n:
        return list(items)
    if n <= 1:
        return list(items[-1:])
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)]


def _turns(episode: EpisodeView, rows: int) -> list[dict[str, Any]]:
    """Up to `rows` steps at which the slowest swinging signal turns, evenly chosen, with its name as `turns`."""
    candidates = []
    for name in episode.traced:
        if name not in ("step", "action", "reward"):
            steps = turning_points(np.asarray(episode.columns[name]))
            if len(steps) >= 3:
                candidates.append((len(steps), name, steps))
    if not candidates:
        return []
    _, name, steps = min(candidates, key=lambda candidate: candidate[0])
    records = [{column: values[i] for column, values in episode.columns.items()} for i in _sample(steps, rows)]
    return [{**record, "turns": name} for record in records]


def _within(lines: Sequence[str], characters: int) -> list[str]:
    """The first of the lines, at most so many characters of them together; the last may be cut short."""
    kept: list[str] = []
    for line in lines:
        if characters <= 0:
            break
        kept.append(line if len(line) <= characters else f"{line[:characters].rstrip()} ...")
        characters -= len(line)
    return kept


def _runs(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Consecutive records that agree in `names` become one: its `steps` are `7` or `7-12`, `count` says how many."""
    merged: list[dict[str, Any]] = []
    for row in rows:
        if merged and all(merged[-1][name] == row[name] for name in names):
            merged[-1]["count"] += 1
            merged[-1]["last"] = row["step"]
        else:
            merged.append({**row, "count": 1, "first": row["step"], "last": row["step"]})
    for row in merged:
        row["steps"] = f"{row['first']}" if row["count"] == 1 else f"{row['first']}-{row['last']}"
    return merged


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str], digits: int = 3) -> str:
    """Records as a Markdown table of the named fields."""
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_brief(row[name], digits) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _lines(rows: Sequence[Mapping[str, Any]], names: Sequence[str], digits: int = 3) -> str:
    """Records as bare lines of the named fields, a space between columns: half the characters of a table.

    A column of numbers is rounded to one place, at which its largest number has `digits` significant digits.
    """
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        finite = [abs(value) for value in values if isinstance(value, float) and np.isfinite(value)]
        if len(finite) == len(values) and any(finite):
            places = digits - 1 - math.floor(math.log10(max(finite)))
            values = [round(value, places) for value in values]
        columns.append([_brief(value, digits) for value in values])
    return "\n".join(map(" ".join, zip(*columns, strict=True)))


def _brief(value: Any, digits: int = 3) -> str:
    """A value in few characters: numbers to `digits` significant digits, tuples joined by commas."""
    if type(value) is float and math.isfinite(value):
        return format_number(float(f"{value:.{digits}g}"))
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(_brief(item, digits) for item in value)
    if isinstance(value, int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        return format_number(float(f"{value:.{digits}g}")) if np.isfinite(value) else str(value)
    return str(value)


_FILTERS = {
    "window": _window,
    "within": _within,
    "sample": _sample,
    "turns": _turns,
    "runs": _runs,
    "table": _table,
    "lines": _lines,
    "brief": _brief,
}


# --- rendering -------------------------------------------------------------------------------------------------------


def _version(path: Path) -> tuple[int, int, int]:
    """Which file it is and when it was written."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


class _Loader(jinja2.BaseLoader):
    """Finds templates as every other project file is found: a local file overrides a shipped one, at any time."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Any]:
        path = find_resource("templates", template, ".j2")
        if path is None:
            raise jinja2.TemplateNotFound(template)

        def unchanged() -> bool:
            found = find_resource("templates", template, ".j2")
            return found is not None and _version(found) == version

        try:
            version = _version(path)
            return path.read_text(encoding="utf-8"), str(path), unchanged
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"cannot read the template {path}: {error}") from None


@functools.cache
def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        loader=_Loader(), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters.update(_FILTERS)
    return environment


def render_template(name: str, variables: Mapping[str, Any]) -> str:
    """One template as text.

    Raises:
        TemplateError: it does not exist or cannot be rendered; the message names the file and the line.
    """
    return _explained(name, lambda: _environment().get_template(name).render(variables).strip() + "\n")


def _load_template(name: str) -> None:
    """Read and compile a template, without rendering it."""
    _explained(name, lambda: _environment().get_template(name).name or name)


def _explained(name: str, work: Callable[[], str]) -> str:
    """The result of `work`, with whatever goes wrong in template `name` as one sentence that names file and line."""
    try:
        return work()
    except jinja2.TemplateNotFound as error:
        known = ", ".join(sorted(list_resources("templates", ".j2")))
        where = f"{_place(error)}: " if _place(error) else ""
        raise TemplateError(f"{where}there is no template `{error.name}`; known are {known}") from None
    except jinja2.TemplateSyntaxError as error:
        file = error.filename or find_resource("templates", error.name or name, ".j2") or name
        raise TemplateError(f"{_short(str(file))}, line {error.lineno}: {error.message}") from None
    except RecursionError as error:
        raise TemplateError(f"{_place(error) or name}: a template includes or calls itself without end") from None
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateError(f"{_place(error) or name}: {error}") from None


def _place(error: BaseException) -> str:
    """The file and line of the innermost template in which the error arose; empty outside any template."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    return f"{_short(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""


def _short(filename: str) -> str:
    path = Path(filename)
    return (
        str(Path("templates") / path.name) if any(path.parent == f for f in resource_folders("templates")) else filename
    )


def improve_template(config: RunConfig) -> str:
    """The name of the template that asks for the next policy."""
    return config.template or f"improve_{config.policy}"


def check_templates(config: RunConfig) -> None:
    """Find a missing or malformed template before anything is played or paid for.

    Raises:
        TemplateError: the message names it.
    """
    for name in ("system", improve_template(config), "repair"):
        _load_template(name)


def render_prompt(context: Context, config: RunConfig, earlier: Sequence[Message] = ()) -> Prompt:
    """The prompt for the next attempt, within `config.prompt_tokens`.

    Args:
        earlier: turns of a continued conversation, oldest first; the oldest are left out first.

    Raises:
        TemplateError: a template is broken, or the prompt does not fit even at its shortest.
    """
    variables = template_variables(context, config)
    show = _FULL
    while True:
        variables["show"] = show
        system = Message("system", render_template("system", variables))
        request = Message("user", render_template(improve_template(config), variables))
        prompt = Prompt((system, request), context)
        if prompt.estimated_tokens <= config.prompt_tokens:
            break
        smaller = _shrunk(show)
        if smaller == show:
            raise TemplateError(
                f"the prompt has about {prompt.estimated_tokens:,} tokens at its shortest and may have "
                f"{config.prompt_tokens:,}; raise --set prompt_tokens=N or show less in the template"
            )
        show = smaller
    room = (config.prompt_tokens - prompt.estimated_tokens) * CHARACTERS_PER_TOKEN
    turns: list[Message] = []
    for asked, answered in reversed(list(zip(earlier[::2], earlier[1::2], strict=True))):
        room -= len(asked.content) + len(answered.content)
        if room < 0:
            break
        turns[:0] = [asked, answered]
    return Prompt((system, *turns, request), context)


def _shrunk(show: Show) -> Show:
    """The next smaller amount: the first field that is furthest above its least loses a quarter of the excess."""
    excess = [(getattr(show, name) - least) / (getattr(_FULL, name) - least) for name, least in _SHRINK]
    worst = max(excess)
    if worst <= 0:
        return show
    name, least = _SHRINK[excess.index(worst)]
    return replace(show, **{name: max(least, int(least + (getattr(show, name) - least) * 0.7))})


def render_repair(
    prompt: Prompt, reply: str, problems: Sequence[Problem], context: Context, config: RunConfig
) -> Prompt:
    """The prompt that follows a malformed reply: the same conversation, the reply, and every problem in it."""
    variables = {
        **template_variables(context, config),
        "show": _FULL,
        "problems": problems,
        "reply_lines": reply.splitlines(),
    }
    request = render_template("repair", variables)
    return prompt.followed_by(Message("assistant", reply or "(empty)"), Message("user", request))
