"""Episodes in which a model is on call: every mediator on the same ones, and what each of them took."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.score import episode_seeds, half_interval
from policygen.errors import UsageError
from policygen.extensions.seats import session as seat
from policygen.extensions.seats.mediating_prompts import PlanQuestions
from policygen.extensions.seats.mediator import LEARNED, Mediator, Planner, Rules
from policygen.extensions.worlds.locked.room_episode import RoomEpisode
from policygen.llm import Provider, read_spec
from policygen.llm.retry import Wait
from policygen.outgoing import redacted
from policygen.runs.config import RunConfig
from policygen.tasks.environments import make
from policygen.tasks.task import Task

if TYPE_CHECKING:  # minigrid is an extra
    from policygen.extensions.worlds.locked.doors import LockedRoomEnv

SHARE_OF_QUESTIONS = 1 / 3  # of those of `always`, that a learned mediator may ask at most


@dataclass(frozen=True, slots=True)
class MediationSettings:
    """The settings of a mediation that runs do not have.

    Attributes:
        rooms: names of the rooms, in the order in which they are played.
        mediators: gives the mediators of a room, in playing order; each is created only when its turn comes.
        episodes: number of episodes to play with each mediator; the same episodes for all.
        concurrency: maximum number of questions under way at a time.
        template: renders the request for a plan instead of `mediate.j2`.
    """

    rooms: Sequence[str]
    mediators: Callable[[str], Iterable[Mediator]]
    episodes: int = 100
    concurrency: int = 4
    template: str | None = None


@dataclass(frozen=True, slots=True)
class MediatorRow:
    """The results of one mediator in one room, one entry per episode.

    Attributes:
        opened: whether the door was opened.
        returns: the room's returns, without a cost of questions.
        steps: number of the robot's steps.
        questions: number of questions that the mediator asked.
    """

    room: str
    mediator: str
    opened: tuple[bool, ...]
    returns: tuple[float, ...]
    steps: tuple[int, ...]
    questions: tuple[int, ...]

    @property
    def success(self) -> tuple[float, float, float]:
        """The share of opened doors with its 95% interval (Wilson 1927)."""
        from scipy.stats import binomtest

        interval = binomtest(sum(self.opened), len(self.opened)).proportion_ci(method="wilson")
        return float(np.mean(self.opened)), float(interval.low), float(interval.high)


def with_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of Student's 95% interval of it; 0 for a single value."""
    return float(np.mean(values)), half_interval(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediationResult(seat.SessionResult):
    """The results and costs of a mediation, saved as `mediate.json`.

    Attributes:
        rows: the results of the mediators whose episodes were all played.
        tables: the learned mediators as text, in pairs (room, text).
    """

    episodes: int
    rows: tuple[MediatorRow, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()

    def row(self, room: str, mediator: str) -> MediatorRow | None:
        """Return the results of a mediator in a room; None if it was not played there."""
        return next((row for row in self.rows if (row.room, row.mediator) == (room, mediator)), None)


class Mediation(seat.ModelSession[MediationResult]):
    """Mediators on call in rooms, in a folder; `carry_out` plays them.

    Args:
        task: of when to ask.
        folder, tell: see `seat.Seat`.
        on_row: told of every mediator whose episodes are played.

    Raises:
        UsageError: the provider cannot plan, a limit of cost cannot be held, or the folder holds something else.
        TemplateError: a template is missing or broken.
        TaskError: the package minigrid is missing.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    file, kind, same = "mediate.json", "mediation", ("llm", "seed")

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        plan: MediationSettings,
        folder: Path,
        *,
        on_row: Callable[[MediatorRow], None] = lambda row: None,
        tell: Callable[[Wait], None] = lambda wait: None,
    ) -> None:
        self.plan = plan
        provider = planner_of(config)
        seat.check_price(provider, config, task)
        questions = {
            room: PlanQuestions(room, template=plan.template, most=config.prompt_tokens) for room in plan.rooms
        }
        for room in plan.rooms[:1]:
            _made(room)  # whether minigrid is there
        self._on_row = on_row
        self.rows: list[MediatorRow] = []
        self.tables: dict[str, str] = {}
        begun = MediationResult(
            llm=redacted(config.llm),
            is_language_model=provider.is_language_model,
            seed=config.seed,
            episodes=plan.episodes,
        )
        super().__init__(folder, config, provider, begun, concurrency=plan.concurrency, tell=tell)
        self.planner = Planner(self.asker, questions)

    def _work(self) -> None:
        for room in self.plan.rooms:
            envs = [_made(room) for _ in range(self.plan.episodes)]
            for mediator in self.plan.mediators(room):
                if mediator.name == LEARNED and mediator.policy is not None:
                    mediator.policy.save(self.folder / f"{room}.json")
                    self.tables[room] = mediator.policy.to_text(whole=True)
                self.rows.append(self._played(room, mediator, envs))
                self._on_row(self.rows[-1])

    def _found(self) -> MediationResult:
        return replace(
            self._begun,
            counts=replace(self.planner.counts),
            rows=tuple(self.rows),
            tables=tuple(self.tables.items()),
        )

    def _played(self, room: str, mediator: Mediator, envs: Sequence[LockedRoomEnv]) -> MediatorRow:
        """All episodes of a mediator, side by side."""
        seeds = episode_seeds(self.config.seed, "mediating", self.plan.episodes)
        errands = [RoomEpisode(env, room, seed) for env, seed in zip(envs, seeds, strict=True)]
        tosses = [np.random.default_rng([seed, 1]) for seed in seeds]
        running = list(range(len(errands)))
        while running:
            asking = [i for i in running if not errands[i].steps or mediator.asks(errands[i].signs, tosses[i])]
            plans = self.planner.plans(room, [errands[i].report for i in asking])
            for i, plan in zip(asking, plans, strict=True):
                errands[i].follow(plan)
            for i in running:
                errands[i].act()
            running = [i for i in running if not errands[i].over]
        return MediatorRow(
            room,
            mediator.name,
            tuple(errand.opened for errand in errands),
            tuple(errand.returned for errand in errands),
            tuple(errand.steps for errand in errands),
            tuple(errand.questions for errand in errands),
        )


def planner_of(config: RunConfig) -> Provider:
    """Return the provider that plans: a language model, or the rules for `planner`.

    Raises:
        UsageError: the provider cannot plan.
    """
    name = read_spec(config.llm).name
    if name == "planner":
        return Rules()
    if name == "builtin":
        raise UsageError(
            "builtin proposes policies and plans nothing; the rule-based planner needs no key: --llm planner"
        )
    return seat.one_model(config, "plans")


def _made(room: str) -> LockedRoomEnv:
    env: Any = make(f"policygen/{room}-v0", {}).unwrapped
    return env  # type: ignore[no-any-return]
