"""`mediate`: a model plans for a robot whenever a mediator asks for a plan; all mediators play the same episodes.

A mediator is a fixed rule, or a table tuned on episodes in which every question has a cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.errors import BudgetExhausted
from policygen.extensions.seats.session import (
    ProgramProvider,
    Session,
    UnreadableAnswer,
    connect_model,
    question,
    quoted,
    request_words,
    system_message,
)
from policygen.extensions.worlds import robot
from policygen.llm import Provider, read_spec
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.config import RunConfig
from policygen.runs.facts import plus_minus
from policygen.search.refine.tunable import Trials, Vector, refine
from policygen.tasks.environments import make
from policygen.tasks.load import load_task

MEDIATOR_TASK = "when-to-ask"
COST = 0.01  # of a question, as published in When2Ask (arXiv 2306.03604)
# The table that tuning starts from: the hard-coded mediator.
START = "| new | ended | since | action |\n|---|---|---|---|\n| * | 1 | * | ask |\n| * | * | * | continue |"

MOST_OPTIONS = 12  # in a plan
FALLBACK: robot.Plan = (robot.Option(robot.EXPLORE),)  # if even the repaired answer states no plan
_MARKS = "*`\"'_ \t[]{}()."
_PLAN = re.compile(r"(?<!\w)plan[*`\"']{0,3}[ \t]{0,4}:", re.IGNORECASE)
_BETWEEN = re.compile(r"[,;\n]|->|→|\bthen\b", re.IGNORECASE)
_NUMBERING = re.compile(r"(?:[-*•]|\d{1,2}[.):]|and\b)\s*", re.IGNORECASE)
_VERBS = {
    robot.EXPLORE: re.compile(r"(?:explore|search)\b", re.IGNORECASE),
    robot.GO_TO: re.compile(r"(?:go|move|walk) ?to\b", re.IGNORECASE),
    robot.TAKE: re.compile(r"(?:pick|take|grab)\b", re.IGNORECASE),
    robot.PUT: re.compile(r"(?:drop|put)\b", re.IGNORECASE),
    robot.OPEN: re.compile(r"(?:open|toggle|unlock)\b", re.IGNORECASE),
}
_THING = re.compile(rf"\b(?:({'|'.join(robot.COLOURS)}) )?({'|'.join(robot.KINDS.values())})\b", re.IGNORECASE)

# Decides whether to ask the planner, from a step's inputs and the episode's random generator. The first step of an
# episode always asks.
Mediator = Callable[[robot.MediatorInputs, np.random.Generator], bool]
LEARNED = "learned"
MEDIATORS: dict[str, Mediator] = {
    "always": lambda inputs, rng: True,
    "never": lambda inputs, rng: False,
    "random": lambda inputs, rng: inputs.ended > 0 or rng.random() < 0.5,
    "hard-coded": lambda inputs, rng: inputs.ended > 0,
}


def _mediator_of(policy: Policy) -> Mediator:
    return lambda inputs, rng: bool(policy.act_one(np.array(inputs)))


def learned_mediator(room: str, *, seed: int, episodes: int) -> Policy:
    """Tune the table of the hard-coded mediator entry by entry (`--refine coordinate`) and return it.

    The plans come from the rule-based planner, not from a model; each question costs `COST`. The seeds of these
    episodes are used for nothing else.
    """
    task = replace(load_task(MEDIATOR_TASK), kwargs=(("room", room), ("cost", COST)))
    start = parse(START, task).policy
    assert start is not None
    with Simulator(task) as simulator:

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
            return np.array([np.mean([one.episode_return for one in simulator.play(p, seeds)]) for p in policies])

        def seeds(first: int, count: int) -> tuple[int, ...]:
            return episode_seeds(seed, "learning to ask", count, first)

        refined = refine(start, "coordinate", Trials(returns, seeds, episodes), seed)
    return refined.policy if refined is not None else start


def _make_room(room: str) -> gym.Env[Any, Any]:
    return make(f"policygen/{room}-v0", {}).unwrapped


def open_mediation(config: RunConfig, folder: Path, **options: Any) -> Session:
    """Open a session whose plans come from a language model, or from rules for `planner`; see `Session` for `options`.

    Raises:
        UsageError: the provider cannot plan; or see `Session`.
        TaskError: the package minigrid is missing.
    """
    _make_room(robot.ROOM_NAMES[0])
    if read_spec(config.llm).name == "planner":
        provider: Provider = ProgramProvider(
            "planner", lambda context: f"Plan: {', '.join(map(str, robot.plan_by_rules(*context)))}"
        )
    else:
        provider = connect_model(config, "cannot plan; the rule-based planner can: --llm planner")
    return Session(folder, config, provider, "mediate", {}, **options)


# --- playing --------------------------------------------------------------------------------------------------------

HEADER = "| room | mediator | doors opened | return | steps | questions |\n| --- | --- | --- | --- | --- | --- |"


def row_words(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the room, mediator, share of opened doors, return, steps and questions, with 95% intervals.

    The interval of the share is Wilson's; the others are Student's.
    """
    interval = binomtest(sum(row["opened"]), len(row["opened"])).proportion_ci(method="wilson")
    return (
        *(row["room"], row["mediator"]),
        f"{np.mean(row['opened']):.2f} [{interval.low:.2f}, {interval.high:.2f}]",
        *(plus_minus(row[name], form) for name, form in (("returns", ".3f"), ("steps", ".1f"), ("questions", ".2f"))),
    )


def mediate(
    session: Session,
    rooms: Sequence[str],
    mediators: Sequence[str],
    *,
    episodes: int,
    train: int,
    on_row: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Play the same episodes with each mediator in each room, as far as budgets allow; return the result as saved.

    Args:
        rooms: names from `ROOM_NAMES`; empty: all.
        mediators: names from `MEDIATORS`, or `LEARNED`, whose policy is saved as ROOM.json in the session's folder;
            empty: all.
        train: number of further episodes for tuning the learned mediator.
        on_row: called with the results of a mediator after all its episodes.

    Raises:
        ProviderError: the model cannot be asked.
    """
    seed = session.config.seed
    seeds = episode_seeds(seed, "mediating", episodes)
    found: dict[str, Any] = {"episodes": episodes, "rows": []}
    try:
        for room in rooms or robot.ROOM_NAMES:
            envs = [_make_room(room) for _ in seeds]
            for name in mediators or (*MEDIATORS, LEARNED):
                row: dict[str, Any] = {"room": room, "mediator": name}
                if name == LEARNED:
                    policy = learned_mediator(room, seed=seed, episodes=train)
                    policy.save(session.folder / f"{room}.json")
                    row["table"] = policy.to_text(whole=True)
                    asks = _mediator_of(policy)
                else:
                    asks = MEDIATORS[name]
                playing = [robot.RoomEpisode(env, room, one) for env, one in zip(envs, seeds, strict=True)]
                _play(session, room, asks, playing, seeds)
                row["opened"] = [episode.opened for episode in playing]
                row["returns"] = [episode.returned for episode in playing]  # without the cost of questions
                row["steps"] = [episode.steps for episode in playing]
                row["questions"] = [episode.questions for episode in playing]
                found["rows"].append(row)
                on_row(row)
        session.stopped = ""
    except BudgetExhausted as error:
        session.stopped = str(error)
    finally:
        session.save(found)
    return session.save(found, finished=True)


def _play(
    session: Session, room: str, asks: Mediator, playing: Sequence[robot.RoomEpisode], seeds: Sequence[int]
) -> None:
    """Play all episodes of a mediator in parallel, so that questions about new reports are asked together."""
    system = system_message("mediate", {"room": room, "coloured": room == robot.COLOURED})
    generators = [np.random.default_rng([seed, 1]) for seed in seeds]
    while running := [i for i, episode in enumerate(playing) if not episode.over]:
        asking = [i for i in running if not playing[i].steps or asks(playing[i].inputs, generators[i])]
        reports = [playing[i].report for i in asking]
        prompts = [
            question("mediate", system, one._asdict(), (one, room), session.config.prompt_tokens) for one in reports
        ]
        plans = session.answers(prompts, lambda text, context: read_plan(text, *context))
        session.fallback_uses += plans.count(None)
        for i, plan in zip(asking, plans, strict=True):
            playing[i].follow(plan or FALLBACK)
        for i in running:
            playing[i].act()


# --- plans -----------------------------------------------------------------------------------------------------------


def read_plan(text: str, report: robot.RoomReport, room: str) -> robot.Plan:
    """Return the last plan in an answer: the text after `Plan:`; without `Plan:`, the last line.

    If an option needs a thing that was not seen yet, `explore` and `go to` are added before it. If several keys were
    seen, the plan must say which of them to go to.

    Args:
        room: one of `ROOM_NAMES`; it determines which things exist.

    Raises:
        UnreadableAnswer: the text states no plan.
    """
    options: list[robot.Option] = []
    for part in _BETWEEN.split(_plan_text(text)):
        words = part.strip().lstrip("*`\"'_ [{(")
        words = _NUMBERING.sub("", words, count=1).strip(_MARKS) if _NUMBERING.match(words) else words.strip(_MARKS)
        if words:
            options += _options(words, report, room, options)
    if not options:
        held = f"; {report.carried} is in hand already" if report.carried else ""
        raise UnreadableAnswer(f"its plan has no option to carry out{held}")
    if len(options) > MOST_OPTIONS:
        raise UnreadableAnswer(f"it has {len(options)} options; the maximum is {MOST_OPTIONS}")
    return tuple(options)


def _plan_text(text: str) -> str:
    """Return the rest of the line after the last `Plan:` or, if it is empty, the rest of the paragraph."""
    found = list(_PLAN.finditer(text))
    if not found:
        return text.splitlines()[-1]
    rest = text[found[-1].end() :]
    line = rest.partition("\n")[0]
    return line if line.strip(_MARKS) else rest.strip(_MARKS + "\n").partition("\n\n")[0]


def _options(words: str, report: robot.RoomReport, room: str, before: list[robot.Option]) -> list[robot.Option]:
    """Return the option that one part of a plan states, after the options that it needs first."""
    found = [(verb, match) for verb, pattern in _VERBS.items() if (match := pattern.match(words))]
    if not found:
        raise UnreadableAnswer(
            f"{quoted(words)} is no option; options are explore, go to THING, pick up THING, drop and open THING, "
            "separated by commas"
        )
    verb, match = found[0]
    if verb in (robot.EXPLORE, robot.PUT):
        return [robot.Option(verb)]
    thing = _THING.search(words, match.end())
    if thing is None:
        raise UnreadableAnswer(f"{quoted(words)} names no key, box or door")
    colour, kind = (thing[1] or "").lower(), thing[2].lower()
    name = f"{colour} {kind}".strip() if room == robot.COLOURED else kind
    fitting = [seen for seen in report.seen if seen == name or (seen.endswith(kind) and name == kind)]
    if fitting:
        if verb != robot.GO_TO:
            return [robot.Option(verb, name)]
        if len(fitting) > 1:
            raise UnreadableAnswer(f"{quoted(words)} does not say which: {' or '.join(fitting)}")
        return [robot.Option(robot.GO_TO, fitting[0])]
    if kind not in robot.KINDS_IN[room]:
        things = " and ".join(robot.KINDS_IN[room])
        raise UnreadableAnswer(f"{quoted(words)} names nothing in this room; it has {things}")
    if report.carried == name and robot.Option(robot.PUT) not in before:  # the robot has it in hand already
        return []
    going = robot.Option(robot.GO_TO, name)
    then = [] if verb == robot.GO_TO else [robot.Option(verb, name)]
    if going in before:
        return then or [going]
    is_explored = bool(before) and before[-1].verb == robot.EXPLORE
    return [*([] if is_explored else FALLBACK), going, *then]


# --- the report -----------------------------------------------------------------------------------------------------


def summary(result: Mapping[str, Any]) -> str:
    """Return the learned mediators and the costs as Markdown; `result` is that of `mediate`."""
    tables, verdicts = [], []
    played = {(row["room"], row["mediator"]): row for row in result["rows"]}
    for (room, name), row in played.items():
        if name == LEARNED:
            tables.append(f"The learned mediator of {room}:\n\n{indent(row['table'].strip(), '    ')}")
        if name == LEARNED and (always := played.get((room, "always"))):
            opened, most = sum(row["opened"]), sum(always["opened"])
            share = sum(row["questions"]) / sum(always["questions"])
            word = "reached" if opened >= most and share <= 1 / 3 else "missed"
            verdicts.append(
                f"- {room}: {word}; `{LEARNED}` opens {opened} of {len(row['opened'])} doors, `always` {most}, with "
                f"{share:.0%} of the questions of `always`."
            )
    if verdicts:
        aim = "The aim: to open as many doors as `always` with at most a third of its questions.\n\n"
        tables.append(aim + "\n".join(verdicts))
    if result["stopped"]:
        tables.append(f"Stopped: {result['stopped']}; mediators whose episodes were not all played are left out.")
    tables.append(
        f"Plans for {result['asked']} different reports: {request_words(result)}. {result['repairs']} answers needed a "
        f"repair; {result['fallbacks']} reports fell back to exploring, {result['fallback_uses']} times."
    )
    return "\n\n".join(tables) + "\n"


def page(result: Mapping[str, Any]) -> str:
    """Return a page of the results and costs as Markdown; `result` is that of `mediate`."""
    who = result["llm"] if result["is_language_model"] else "`planner`, a rule-based planner, not a language model"
    intro = (
        "A robot opens the locked door of a room that it does not know, in the rooms of When2Ask (arXiv 2306.03604). "
        f"Plans come from {who}; a mediator decides in every step whether to ask for a plan. All mediators play the "
        f"same {result['episodes']} episodes in each room, seed {result['seed']}; intervals are 95%. The return is the "
        "room's own, without the cost of questions. The learned mediator was tuned on other episodes, with the "
        f"rule-based planner and a cost of {COST:g} per question."
    )
    rows = [f"| {' | '.join(row_words(row))} |" for row in result["rows"]]
    return "\n".join(
        ["# On call: when to ask a planner", "", *wrap(intro, 120), "", HEADER, *rows, "", summary(result)]
    )
