"""Prompts, rendered within a budget of tokens."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policygen.episodes.buffer import KEPT_EXTREMES, ReplayBuffer, count_visits
from policygen.episodes.evidence import (
    NOTHING_RELEVANT,
    Episode,
    account,
    mean_rewards,
    relevance_of,
    set_points_of,
    usual_ranges_of,
)
from policygen.episodes.trajectory import Trajectory
from policygen.errors import TemplateError
from policygen.llm.messages import CHARACTERS_PER_TOKEN, Message, Prompt
from policygen.policies.features import CellReader
from policygen.policies.lines import Problem
from policygen.policies.parts import Parts, most_features
from policygen.policies.table import TablePolicy
from policygen.prompts.described import View, grid_view, task_view
from policygen.prompts.evidence import attempt_views, best_view, episode_view, reader_for, visit_views
from policygen.prompts.filters import FILTERS, fitting
from policygen.prompts.sections import section_data
from policygen.prompts.templates import improve_template, render_template
from policygen.quantities.operations import FUNCTION_NAMES
from policygen.runs.attempt import steps_played
from policygen.runs.config import RunConfig
from policygen.runs.state import Context
from policygen.runs.tuning import LAST_SIGNIFICANCE, PROLONGATIONS, SIGNIFICANCE
from policygen.tasks.task import Task

MAX_STARTS = 8  # episodes whose first observation is shown with their return


@dataclass(frozen=True, slots=True)
class Show:
    """Limits on what templates show, lowered step by step until the prompt fits its budget of tokens."""

    best: int = 2  # best episodes
    worst: int = 3  # worst episodes
    rows: int = 12  # steps of an episode, for tables
    trace: int = 32  # twice the steps of an episode, for equations
    columns: int = 20  # quantities of an episode, for equations
    changes: int = 600  # characters of the changes in an attempt
    history: int = 20  # attempts
    visits: int = 16  # actions and what they led to
    facts: int = 6_000  # characters of facts about the task
    prose: int = 6_000  # characters of the task's description
    about: int = 1  # 0 leaves out the descriptions of observations and actions, but not their names
    details: int = 8_000  # characters of the bins of a quantity, of a plant, and of lists of constants
    comments: int = 4_000  # characters of each comment
    policy: int = 400_000  # characters of the best policy, of which the first and the last lines are shown


_FULL = Show()
MAX_OBSERVATIONS_IN_ROW = 6  # with more, a line of an episode has their cell only
ROUNDS = 10  # steps in which evidence shrinks to its minimum
# Evidence shrinks first, to these minima.
_SHRINK = (
    ("visits", 4),
    ("history", 4),
    ("rows", 6),
    ("changes", 200),
    ("trace", 12),
    ("details", 300),
    ("best", 1),
    ("worst", 1),
)
# Then these shrink in this order: columns of numbers before the facts that explain them (such as lengths and masses),
# and the best policy last, because the reply may revise it.
_SHRINK_LAST = (
    ("columns", 16),
    ("prose", 2_500),
    ("columns", 8),
    ("details", 200),
    ("prose", 1_500),
    ("about", 0),
    ("facts", 400),
    ("prose", 800),
    ("comments", 300),
    ("policy", 600),
)


def template_variables(context: Context, config: RunConfig) -> dict[str, Any]:
    """Return all variables of templates by name; `notebooks/templates.ipynb` explains them."""
    if not config.episodes_shown:
        context = replace(context, buffer=ReplayBuffer())
    task, incumbent = context.task, context.incumbent
    grid = incumbent.grid if isinstance(incumbent, TablePolicy) else task.grid
    if context.kind == "linear":
        grid = None
    reader = reader_for(task, grid, incumbent)
    best, highest = context.best, _distinct(context.buffer.best(KEPT_EXTREMES))[: _FULL.best]
    # The worst episodes are chosen from the best policy's; before there is a policy, from all. Episodes that
    # reached their goal are left out, unless all did.
    own = context.buffer.of_attempt(best.number, len(best.played)) if best is not None else list(context.buffer)
    own.sort(key=lambda e: e.trajectory.episode_return)
    # An episode with the best possible return needs no explanation.
    target = task.optimum.value if task.optimum is not None else task.solved
    poor = [e for e in own if e not in highest and (target is None or e.trajectory.episode_return < target)]
    failed = [e for e in poor if not e.reached]
    worst = _distinct(failed or poor)[: _FULL.worst]
    if config.ablate == "knowledge":  # reward terms and unobserved names (such as a walker's feet) count as knowledge
        highest, own, worst = (
            [replace(e, trajectory=replace(e.trajectory, terms=()), unobserved=()) for e in some]
            for some in (highest, own, worst)
        )
    cache_key = best.number if best is not None else 0, len(own)  # new whenever the best policy or its episodes change
    usual = None
    if context.kind == "linear":
        usual = context.buffer.cached(("usual", *cache_key), lambda: usual_ranges_of(own, reader))
    # Random actions visit more states than a single policy does.
    varied = [*own, *context.buffer.of_attempt(0)] if best is not None else own
    relevance = context.buffer.cached(
        ("relevance", *cache_key),
        lambda: (
            relevance_of(varied, task)
            if context.kind == "linear"
            else replace(NOTHING_RELEVANT, set_points=set_points_of(varied, task))
        ),
    )
    viewed = functools.partial(
        episode_view,
        reader=reader,
        best=incumbent,
        usual=usual,
        relevance=relevance,
    )
    rewards = np.unique(np.concatenate([np.zeros(0), *(e.trajectory.rewards for e in (*highest, *worst))]))
    mean = mean_rewards(own) if best is not None and len(own) > 1 else None
    seen = []
    if isinstance(reader, CellReader):
        kinds, counts = count_visits(context.buffer, reader)
        shown = count_visits(context.buffer, reader, best.number)[1] if best is not None else counts
        seen = visit_views(reader, kinds, shown, _FULL.visits, counts)
    shown_best = best_view(best, context.reported_score)
    if not config.episodes_shown:
        shown_best = {**shown_best, "played": []} if shown_best is not None else None
    random: View | None = None
    if context.attempts and context.attempts[0].number == 0:
        score = context.attempts[0].score
        random = {"score": str(score) if score else "", "mean": score.mean if score else None}
    return {
        "task": task_view(task),
        "kind": context.kind,
        "outputs": task.output_names,
        "grid": grid_view(grid),
        "grid_is_free": config.grid == "free",
        "columns": list(grid.names) if grid is not None else [],
        "features": [name for name, _ in incumbent.lets] if incumbent is not None else [],
        "number": context.number,
        "iterations": config.iterations,
        "best": shown_best,
        "episodes_shown": config.episodes_shown,
        "best_episodes": [viewed(e) for e in highest],
        "worst_episodes": [viewed(e, mean=mean) for e in worst],
        "account": context.buffer.cached(("account", *cache_key, config.ablate), lambda: account(own, task.max_steps))
        if best is not None
        else None,
        "step_pays": float(rewards[0]) if len(rewards) == 1 else None,
        "starts": _starts([e.trajectory for e in own], task) if best is not None and own else [],
        "refining": context.tuning is not None,
        "tuning": context.tuning,
        "steps": steps_played(context.attempts),
        "functions": list(FUNCTION_NAMES),
        "most_features": most_features(task),
        "attempts": attempt_views(context),
        "rule": {
            "episodes": config.episodes,
            "level": SIGNIFICANCE,
            "last_level": LAST_SIGNIFICANCE,
            "prolongations": list(PROLONGATIONS),
        },
        "comments": list(context.comments),
        "random": random,
        "visits": seen,
        **section_data(context, config),
    }


def _distinct(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without those with the same return and length as an earlier one."""
    return list({(e.trajectory.episode_return, e.trajectory.length): e for e in reversed(episodes)}.values())[::-1]


def _starts(trajectories: Sequence[Trajectory], task: Task) -> list[dict[str, Any]]:
    """Return first observations and returns of at most MAX_STARTS evenly spaced episodes, in order.

    Observations with the same first value in all episodes are left out; the list is empty if all are.
    """
    first = np.array([t.observations[0, : len(task.observations)] for t in trajectories], np.float64)
    names = [(i, o.name) for i, o in enumerate(task.observations) if np.ptp(first[:, i]) > 0]
    return [
        {"start": {name: float(first[k, i]) for i, name in names}, "episode_return": trajectories[k].episode_return}
        for k in FILTERS["sample"](range(len(trajectories)), MAX_STARTS)
        if names
    ]


def render_prompt(context: Context, config: RunConfig, earlier: Sequence[Message] = ()) -> Prompt:
    """Render the prompt for the next attempt, within `config.prompt_tokens`.

    Args:
        earlier: turns of a continued conversation, oldest first; if there is not enough room, the oldest are left out.

    Raises TemplateError if a template is broken or even the shortest prompt does not fit.
    """
    prompt = _fit_to_budget(template_variables(context, config), config)
    system, request = prompt.messages
    room = (config.prompt_tokens - prompt.estimated_tokens) * CHARACTERS_PER_TOKEN
    turns: list[Message] = []
    for asked, answered in reversed(list(zip(earlier[::2], earlier[1::2], strict=True))):
        room -= len(asked.content) + len(answered.content)
        if room < 0:
            break
        turns[:0] = [asked, answered]
    return Prompt((system, *turns, request), context, comments=context.comments)


def _fit_to_budget(variables: Mapping[str, Any], config: RunConfig) -> Prompt:
    """Return the longest prompt within the budget, by bisection: lowering limits almost never lengthens a prompt."""
    best: View | None = variables["best"]

    @functools.cache
    def shown(show: Show) -> Prompt:
        shortened_best = shortened(best, show.policy) if best is not None else None
        filled = {**variables, "show": show, "best": shortened_best, "fields": _fields(variables, show)}
        system = Message("system", render_template("system", filled))
        return Prompt((system, Message("user", render_template(improve_template(config), filled))))

    def fits(show: Show) -> bool:
        return shown(show).estimated_tokens <= config.prompt_tokens

    # Start from the policy's own length: a higher limit shows no more.
    full = replace(_FULL, policy=min(_FULL.policy, len(best["text"]))) if best is not None else _FULL
    if fits(full):
        return shown(full)
    amounts = list(_amounts(full))
    first = bisect.bisect_left(amounts, True, key=fits)
    if first < len(amounts):
        return shown(amounts[first])
    raise TemplateError(
        f"the prompt has about {shown(amounts[-1]).estimated_tokens:,} tokens at its shortest and may have "
        f"{config.prompt_tokens:,}; raise --prompt-tokens N or show less in the template"
    )


def _fields(variables: Mapping[str, Any], show: Show) -> list[str]:
    """Return the fields to show for each step of an episode; empty if no episode is shown."""
    task, episodes = variables["task"], [*variables["worst_episodes"][:1], *variables["best_episodes"][:1]]
    if not episodes:
        return []
    if variables["kind"] == "linear":
        inner = FILTERS["columns"](episodes[0], show.columns)[1:-1]
        return ["steps", *inner, "total"]
    grid, names = variables["grid"], list(task["observation_names"])
    fields = names if not grid or len(names) <= MAX_OBSERVATIONS_IN_ROW else []
    if grid and [one["name"] for one in grid if one["plain"]] != names:  # else a bin is the value itself
        fields = [*fields, "cell"]
    total = ["total"] if variables["step_pays"] is None else []
    return ["steps", *fields, *(text.name for text in task["texts"]), "action", *total]


def shortened(best: View, characters: int) -> View:
    """Shorten the policy in a `best_view` to about `characters` characters: its first and its last lines."""
    if len(best["text"]) <= characters:
        return best
    lines: list[str] = best["lines"]
    half, cut = characters // 2, FILTERS["cut"]
    first, last = (fitting((len(line) + 1 for line in some), half + 1) for some in (lines, lines[::-1]))
    left_out = len(lines) - first - last
    if left_out <= 0:  # few, but long
        shorter = [cut(line, characters // len(lines)) for line in lines]
    else:
        note = f"... ({left_out:,} of {len(lines):,} lines are left out here) ..."
        shorter = [*(cut(line, half) for line in lines[:first]), note, *(cut(line, half) for line in lines[-last:])]
    return {**best, "text": "\n".join(shorter), "lines": shorter}


def _amounts(show: Show) -> Iterator[Show]:
    """Yield the amounts from `show` to the minima, each one step smaller.

    Evidence shrinks in ROUNDS equal parts. Then the amounts of `_SHRINK_LAST` shrink one after the other, each by a
    quarter at a time.
    """
    yield show
    for left in range(ROUNDS - 1, -1, -1):
        for name, least in _SHRINK:
            show = replace(show, **{name: least + (getattr(_FULL, name) - least) * left // ROUNDS})
            yield show
    for name, least in _SHRINK_LAST:
        while getattr(show, name) > least:
            show = replace(show, **{name: max(least, getattr(show, name) * 3 // 4)})
            yield show


def render_repair(
    prompt: Prompt, reply: str, problems: Sequence[Problem], context: Context, config: RunConfig
) -> Prompt:
    """Render the prompt after a malformed reply: the conversation so far, the reply, and all its problems."""
    variables = template_variables(context, config)
    variables |= {
        "show": _FULL,
        "fields": _fields(variables, _FULL),
        "problems": tuple(problems),
        "reply_lines": reply.splitlines(),
        **_names_in_reply(reply, variables["columns"], context, config),
    }
    request = render_template("repair", variables)
    return prompt.followed_by(Message("assistant", reply or "(empty)"), Message("user", request))


def _names_in_reply(reply: str, columns: list[str], context: Context, config: RunConfig) -> dict[str, Any]:
    """Return the columns that a malformed table can have, and the features that it or the best policy defines."""
    inherited = dict(context.incumbent.lets) if context.incumbent is not None else {}
    parts = Parts(reply, context.task, context.incumbent)
    if config.grid == "free" and parts.bins:
        header = {cell.lower() for cell in parts.header.cells} if parts.header is not None else None
        columns = list(dict.fromkeys([*columns, *parts.bins]))
        if header is not None:
            columns = [name for name in columns if name in parts.bins or name.lower() in header]
    return {"columns": columns, "features": list(dict.fromkeys([*inherited, *parts.lets, *parts.without_let]))}
