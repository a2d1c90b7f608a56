"""Mediation: a model plans for a robot when a mediator asks for a plan; all mediators play the same episodes.

A mediator is a fixed rule, or a table tuned on episodes in which every question has a cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

from policygen.episodes.score import episode_seeds, half_interval
from policygen.episodes.simulator import Simulator
from policygen.errors import PolicyError, UsageError
from policygen.extensions.seats.asking import ProgramProvider
from policygen.extensions.seats.plans import FALLBACK, PlanQuestions
from policygen.extensions.seats.session import ModelSession, SessionResult, connect_model
from policygen.extensions.worlds.robot import ROOM_NAMES, RoomEpisode, Signs, plan_by_rules
from policygen.files import check_name
from policygen.llm import Provider, read_spec
from policygen.llm.retry import Wait
from policygen.outgoing import redacted
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.config import RunConfig
from policygen.runs.reading import best_policy
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Trials, Vector
from policygen.tasks.environments import make
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

MEDIATOR_TASK = "when-to-ask"
COST = 0.01  # of a question, as published in When2Ask (arXiv 2306.03604)
# The table that tuning starts from: the hard-coded mediator.
START = "| new | ended | since | action |\n|---|---|---|---|\n| * | 1 | * | ask |\n| * | * | * | continue |"

# Whether to ask the planner, from the signs of a step and the episode's own random generator; the first step of an
# episode asks in any case.
Mediator = Callable[[Signs, np.random.Generator], bool]
LEARNED = "learned"
MEDIATORS: dict[str, Mediator] = {
    "always": lambda signs, rng: True,
    "never": lambda signs, rng: False,
    "random": lambda signs, rng: signs.ended > 0 or rng.random() < 0.5,
    "hard-coded": lambda signs, rng: signs.ended > 0,
}


def _mediator_of(policy: Policy) -> Mediator:
    return lambda signs, rng: bool(policy.act_one(np.array(signs)))


def task_of_room(room: str, cost: float = COST) -> Task:
    """Return the task `when-to-ask` in a room, with a cost for each question."""
    return replace(load_task(MEDIATOR_TASK), kwargs=(("room", room), ("cost", cost)))


def learned_mediator(room: str, *, seed: int, episodes: int, cost: float) -> Policy:
    """Tune the table of the hard-coded mediator entry by entry (`--refine coordinate`) and return it.

    The plans come from the rule-based planner, so no model is asked. These episodes have seeds of their own.

    Raises:
        TaskError: the package minigrid is missing.
    """
    task = task_of_room(room, cost)
    start = parse(START, task).policy
    assert start is not None
    with Simulator(task) as simulator:

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
            return np.array([np.mean([one.episode_return for one in simulator.play(p, seeds)]) for p in policies])

        def seeds(first: int, count: int) -> tuple[int, ...]:
            return episode_seeds(seed, "learning to ask", count, first)

        refined = refine(start, "coordinate", Trials(returns, seeds, episodes), seed)
    return refined.policy if refined is not None else start


def named_mediators(names: Sequence[str]) -> dict[str, Mediator | None]:
    """Return the mediator of each name: one of `MEDIATORS`, or that of a policy's file or run; None for `learned`.

    Raises:
        UsageError: a name is none of these.
        PolicyError: a policy is for another task, or has a memory.
    """
    found: dict[str, Mediator | None] = {}
    for name in names:
        if name in MEDIATORS or name == LEARNED:
            found[name] = MEDIATORS.get(name)
        elif Path(check_name(name)).exists():
            policy, task = best_policy(Path(name)), load_task(MEDIATOR_TASK)
            theirs, ours = (([o.name for o in t.observations], t.actuators) for t in (policy.task, task))
            if theirs != ours or policy.remembers:
                raise PolicyError(
                    f"{name} is a policy for {policy.task.name}; name a policy for {task.name} that has no memory"
                )
            found[name] = _mediator_of(policy)
        else:
            raise UsageError(
                f"--mediator {name} is neither one of {', '.join((*MEDIATORS, LEARNED))} nor a file; name one of "
                f"these, or the file of a policy for {MEDIATOR_TASK}, such as `policygen mediate` saves"
            )
    return found


def rooms_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the room of each name, or all rooms if there are no names; `simple-door-key` is SimpleDoorKey.

    Raises:
        UsageError: there is no such room.
    """
    known = {room.lower(): room for room in ROOM_NAMES}
    rooms = []
    for name in names:
        room = known.get(re.sub(r"^policygen/|-v0$|[-_ ]", "", name.lower()))
        if room is None:
            raise UsageError(f"there is no room {name}; name one of {', '.join(ROOM_NAMES)}")
        rooms.append(room)
    return tuple(dict.fromkeys(rooms)) or ROOM_NAMES


# --- playing --------------------------------------------------------------------------------------------------------

HEADER = "| room | mediator | doors opened | return | steps | questions |\n| --- | --- | --- | --- | --- | --- |"
SHARE_OF_QUESTIONS = 1 / 3  # a learned mediator may ask at most this share of the questions of `always`


@dataclass(frozen=True, slots=True)
class MediationSettings:
    """The settings of a mediation that a run does not have."""

    rooms: Sequence[str]  # in the order in which they are played
    mediators: Mapping[str, Mediator | None]  # from `named_mediators`, in the order in which they are played
    episodes: int = 100  # to play with each mediator; the same episodes for all
    train: int = 3_000  # episodes to tune a learned mediator with
    cost: float = COST  # of each question in those episodes
    concurrency: int = 4  # maximum number of questions under way at a time
    template: str | None = None  # of the question for a plan, instead of `mediate`


@dataclass(frozen=True, slots=True)
class MediatorRow:
    """The results of one mediator in one room; the tuples have one entry per episode."""

    room: str
    mediator: str
    opened: tuple[bool, ...]  # whether the door was opened
    returns: tuple[float, ...]  # of the room, without the cost of questions
    steps: tuple[int, ...]  # of the robot
    questions: tuple[int, ...]  # that the mediator asked


@dataclass(frozen=True, slots=True, kw_only=True)
class MediationResult(SessionResult):
    """The results and costs of a mediation, saved as `mediate.json`."""

    episodes: int
    rows: tuple[MediatorRow, ...] = ()  # of the mediators whose episodes were all played
    tables: tuple[tuple[str, str], ...] = ()  # each room and the text of the policy learned for it


class Mediation(ModelSession[MediationResult]):
    """A comparison of mediators in several rooms; `carry_out` does the work.

    Args:
        task: the mediators' task, `when-to-ask`.
        on_learning: called with the name of a room before a mediator is tuned in it.
        on_row: called with the results of every mediator whose episodes are played.

    Raises:
        UsageError, LogbookError: see `ModelSession`; or the provider cannot plan.
        TemplateError: a template is missing or broken.
        TaskError: the package minigrid is missing.
    """

    file, kind, identity_fields = "mediate.json", "mediation", ("llm", "seed")

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        settings: MediationSettings,
        folder: Path,
        *,
        on_learning: Callable[[str], None] = lambda room: None,
        on_row: Callable[[MediatorRow], None] = lambda row: None,
        tell: Callable[[Wait], None] = lambda wait: None,
    ) -> None:
        self.settings = settings
        if read_spec(config.llm).name == "planner":
            provider: Provider = ProgramProvider(
                "planner", lambda context: f"Plan: {', '.join(map(str, plan_by_rules(*context)))}"
            )
        else:
            refusal = "cannot plan; the rule-based planner can, without a key: --llm planner"
            provider = connect_model(config, refusal)
        self._questions = {
            room: PlanQuestions(room, settings.template, config.prompt_tokens) for room in settings.rooms
        }
        for room in settings.rooms[:1]:
            _make_room(room)  # raises if minigrid is missing
        self._on_learning, self._on_row = on_learning, on_row
        initial = MediationResult(
            llm=redacted(config.llm),
            is_language_model=provider.is_language_model,
            seed=config.seed,
            episodes=settings.episodes,
        )
        super().__init__(folder, config, provider, task, initial, concurrency=settings.concurrency, tell=tell)

    def _work(self) -> None:
        for room in self.settings.rooms:
            envs = [_make_room(room) for _ in range(self.settings.episodes)]
            for name, mediator in self.settings.mediators.items():
                if mediator is None:
                    self._on_learning(room)
                    train, cost = self.settings.train, self.settings.cost
                    policy = learned_mediator(room, seed=self.config.seed, episodes=train, cost=cost)
                    policy.save(self.folder / f"{room}.json")
                    tables = (*self.result.tables, (room, policy.to_text(whole=True)))
                    self.result = replace(self.result, tables=tables)
                    mediator = _mediator_of(policy)
                row = self._play(room, name, mediator, envs)
                self.result = replace(self.result, rows=(*self.result.rows, row))
                self._on_row(row)

    def _play(self, room: str, name: str, asks: Mediator, envs: Sequence[gym.Env[Any, Any]]) -> MediatorRow:
        """Play all episodes of a mediator in parallel, so that new reports are asked about together."""
        seeds = episode_seeds(self.config.seed, "mediating", self.settings.episodes)
        playing = [RoomEpisode(env, room, seed) for env, seed in zip(envs, seeds, strict=True)]
        generators = [np.random.default_rng([seed, 1]) for seed in seeds]
        running = list(range(len(playing)))
        while running:
            asking = [i for i in running if not playing[i].steps or asks(playing[i].signs, generators[i])]
            plans = self._questions[room].answers([playing[i].report for i in asking], self.asker)
            self.asker.fallback_uses += plans.count(None)
            for i, plan in zip(asking, plans, strict=True):
                playing[i].follow(FALLBACK if plan is None else plan)
            for i in running:
                playing[i].act()
            running = [i for i in running if not playing[i].over]
        fields = ("opened", "returned", "steps", "questions")
        return MediatorRow(room, name, *(tuple(getattr(one, field) for one in playing) for field in fields))


def _make_room(room: str) -> gym.Env[Any, Any]:
    return make(f"policygen/{room}-v0", {}).unwrapped


# --- the report -----------------------------------------------------------------------------------------------------


def row_in_words(row: MediatorRow) -> tuple[str, ...]:
    """Return the share of opened doors, return, steps and questions, each with a 95% interval (Wilson, Student)."""
    interval = binomtest(sum(row.opened), len(row.opened)).proportion_ci(method="wilson")
    return (
        f"{np.mean(row.opened):.2f} [{interval.low:.2f}, {interval.high:.2f}]",
        f"{np.mean(row.returns):.3f} ± {half_interval(row.returns):.3f}",
        f"{np.mean(row.steps):.1f} ± {half_interval(row.steps):.1f}",
        f"{np.mean(row.questions):.2f} ± {half_interval(row.questions):.2f}",
    )


def learned_verdict(outcome: MediationResult, room: str) -> str:
    """Return a sentence on whether the learned mediator reaches its aim; empty if it or `always` was not played.

    The aim: as many doors as `always`, with at most a third of its questions.
    """
    rows = {row.mediator: row for row in outcome.rows if row.room == room}
    if LEARNED not in rows or "always" not in rows:
        return ""
    learned, always = rows[LEARNED], rows["always"]
    share = sum(learned.questions) / sum(always.questions)
    opened, before = sum(learned.opened), sum(always.opened)
    reached = opened >= before and share <= SHARE_OF_QUESTIONS
    more = "as many as" if opened == before else f"{abs(opened - before)} {'more' if opened > before else 'fewer'} than"
    fewer = [
        f"{row.mediator} with {np.mean(row.questions):.2f} questions an episode"
        for row in rows.values()
        if sum(row.opened) >= opened and sum(row.questions) < sum(learned.questions)
    ]
    others = f"; at least as many with fewer questions: {' and '.join(fewer)}" if fewer else ""
    return (
        f"{room}: {'reached' if reached else 'missed'}; {LEARNED} opens {opened} of {len(learned.opened)} doors, "
        f"{more} always, with {share:.0%} of its questions{others}"
    )


def page(outcome: MediationResult, command: str, cost: float) -> str:
    """Return a Markdown page of the results and costs.

    Args:
        command: the command that repeats the mediation.
        cost: the cost of a question at which the learned mediators were tuned.
    """
    who = outcome.llm if outcome.is_language_model else f"`{outcome.llm}`, a rule-based planner, no language model"
    first = (
        "A robot opens the locked door of a room that it does not know, in the four rooms of When2Ask (arXiv "
        f"2306.03604). Plans come from {who}; a mediator decides in every step whether to ask for one. "
        f"{outcome.episodes} episodes in each room, the same for all mediators, seed {outcome.seed}; intervals are "
        "95%. The return is the room's own, without a cost of questions."
    )
    if outcome.tables:
        first += " The learned mediators were tuned on other episodes, with the rule-based planner and a cost of "
        first += f"{cost:g} per question."
    lines = ["# On call: when to ask a planner", "", *wrap(first, 120), "", HEADER]
    lines += [f"| {row.room} | {row.mediator} | {' | '.join(row_in_words(row))} |" for row in outcome.rows]
    aims = [sentence for room, _ in outcome.tables if (sentence := learned_verdict(outcome, room))]
    if aims:
        lines += ["", "The aim: as many doors as `always` with at most a third of its questions.", ""]
        lines += [f"- {sentence}." for sentence in aims]
    for room, text in outcome.tables:
        lines += ["", f"The learned mediator of {room}:", "", "```text", text.strip(), "```"]
    plans = (
        f"Plans were made for {outcome.asked} different reports; {outcome.repairs} answers had to be "
        f"repaired, and {outcome.fallbacks} reports had no plan even then"
    )
    if outcome.is_language_model:
        usd = "cost unknown" if outcome.usd is None else f"{outcome.usd:.4f} USD"
        plans += f"; {outcome.requests} requests, {outcome.tokens_in + outcome.tokens_out:,} tokens, {usd}"
    lines += ["", f"{plans}.", "", "```sh", command, "```"]
    return "\n".join(lines) + "\n"
