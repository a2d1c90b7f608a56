"""Episodes in which a model is on call: every mediator on the same ones, and what each of them took."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.score import episode_seeds, half_interval
from policygen.errors import BudgetExhausted, UsageError
from policygen.files import mark, write_atomically
from policygen.llm import Provider, read_spec
from policygen.llm.retry import Wait
from policygen.prompts.mediating import PlanQuestions
from policygen.roles.mediator import LEARNED, Mediator, Planner, Rules
from policygen.roles.seat import asker_in, check_price, folder_held, one_model
from policygen.runs.config import RunConfig
from policygen.tasks.environments import make
from policygen.tasks.task import Task
from policygen.tasks.worlds.locked.errand import Errand

if TYPE_CHECKING:  # minigrid is an extra
    from policygen.tasks.worlds.locked.doors import LockedRoomEnv

FILE = "mediate.json"
KIND = "mediation"
# What a folder must say of the mediation that goes on in it.
_SAME = ("llm", "seed")
SHARE_OF_QUESTIONS = 1 / 3  # of those of `always`, that a learned mediator may ask at most


@dataclass(frozen=True, slots=True)
class Plan:
    """What is told beside the settings that it shares with runs.

    Attributes:
        rooms: in which they mediate, in this order.
        mediators: of a room, in the order in which they are played; each is asked for when it is its turn.
        episodes: to play with each mediator; the same ones with all.
        concurrency: questions under way at a time.
        template: renders the request for a plan instead of `mediate.j2`.
    """

    rooms: Sequence[str]
    mediators: Callable[[str], Iterable[Mediator]]
    episodes: int = 100
    concurrency: int = 4
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one mediator in one room, episode by episode.

    Attributes:
        opened: whether the door was opened; `returns` are those of the room, without a cost of questions.
        steps, questions: of the robot, and of the mediator.
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a mediation found and took; `mediate.json` is its saved form.

    Attributes:
        is_language_model: whether one planned; the rule-based planner makes no `llm_calls`.
        rows: of the mediators whose episodes were all played.
        tables: the learned mediators, by rooms, as text.
        plans: different reports that were answered; `requests` sent for them, `cached` answers were paid for before.
        repairs: answers asked for again; `fallbacks` to which no answer said a plan, used `fallback_uses` times.
        stopped: why it ended early; empty where it did not.
    """

    llm: str
    is_language_model: bool
    seed: int
    episodes: int
    rows: tuple[Row, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()
    plans: int = 0
    repairs: int = 0
    fallbacks: int = 0
    fallback_uses: int = 0
    llm_calls: int = 0
    requests: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    stopped: str = ""
    finished: bool = False

    def row(self, room: str, mediator: str) -> Row | None:
        """What came of a mediator in a room, where it was played."""
        return next((row for row in self.rows if (row.room, row.mediator) == (room, mediator)), None)


class Mediation:
    """Mediators on call in rooms, in a folder; `carry_out` plays them.

    Args:
        task: of when to ask.
        folder: where its files go; one that holds the same already goes on from the answers kept there.
        on_row: told of every mediator whose episodes are played.
        tell: told of the waits that servers ask for.

    Raises:
        UsageError: the provider cannot plan, a limit of cost cannot be held, or the folder holds something else.
        TemplateError: a template is missing or broken.
        TaskError: the package minigrid is missing.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        plan: Plan,
        folder: Path,
        *,
        on_row: Callable[[Row], None] = lambda row: None,
        tell: Callable[[Wait], None] = lambda wait: None,
    ) -> None:
        self.config, self.plan, self.folder = config, plan, folder
        self.provider = planner_of(config)
        check_price(self.provider, config, task)
        questions = {
            room: PlanQuestions(room, template=plan.template, most=config.prompt_tokens) for room in plan.rooms
        }
        for room in plan.rooms[:1]:
            _made(room)  # whether minigrid is there
        self._on_row = on_row
        self.rows: list[Row] = []
        self.tables: dict[str, str] = {}
        begun = self._begun()
        self._lock = folder_held(folder, FILE, KIND, {name: getattr(begun, name) for name in _SAME})
        try:
            self._write(begun)
            self.asker = asker_in(folder, self.provider, config, concurrency=plan.concurrency, tell=tell)
            self.planner = Planner(self.asker, questions)
        except BaseException:
            self._lock.release()
            raise

    def carry_out(self) -> Outcome:
        """Play all episodes of all mediators and write everything down; also what an interruption leaves.

        Raises:
            ProviderError: the model cannot be asked; what was played until then is written all the same.
        """
        stopped, finished = "interrupted", False
        try:
            for room in self.plan.rooms:
                envs = [_made(room) for _ in range(self.plan.episodes)]
                for mediator in self.plan.mediators(room):
                    if mediator.name == LEARNED and mediator.policy is not None:
                        mediator.policy.save(self.folder / f"{room}.json")
                        self.tables[room] = mediator.policy.to_text(whole=True)
                    self.rows.append(self._played(room, mediator, envs))
                    self._on_row(self.rows[-1])
            stopped, finished = "", True
        except BudgetExhausted as error:
            stopped, finished = str(error), True
        finally:
            outcome = self.outcome(stopped, finished=finished)
            self._write(outcome)
            self._lock.release()
        return outcome

    def _played(self, room: str, mediator: Mediator, envs: Sequence[LockedRoomEnv]) -> Row:
        """All episodes of a mediator, side by side."""
        seeds = episode_seeds(self.config.seed, "mediating", self.plan.episodes)
        errands = [Errand(env, room, seed) for env, seed in zip(envs, seeds, strict=True)]
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
        return Row(
            room,
            mediator.name,
            tuple(errand.opened for errand in errands),
            tuple(errand.returned for errand in errands),
            tuple(errand.steps for errand in errands),
            tuple(errand.questions for errand in errands),
        )

    def _begun(self) -> Outcome:
        """What is known before anything was asked."""
        return Outcome(
            self.config.llm,
            self.provider.is_language_model,
            self.config.seed,
            self.plan.episodes,
            tables=tuple(self.tables.items()),
        )

    def outcome(self, stopped: str = "", *, finished: bool = False) -> Outcome:
        """What there is by now."""
        planner, ledger = self.planner, self.asker.ledger
        return replace(
            self._begun(),
            rows=tuple(self.rows),
            plans=planner.asked,
            repairs=planner.repairs,
            fallbacks=planner.fallbacks,
            fallback_uses=planner.fallback_uses,
            llm_calls=ledger.calls if self.provider.is_language_model else 0,
            requests=ledger.calls,
            cached=ledger.cached,
            tokens_in=ledger.tokens_in,
            tokens_out=ledger.tokens_out,
            usd=ledger.usd,
            stopped=stopped,
            finished=finished,
        )

    def _write(self, outcome: Outcome) -> None:
        write_atomically(self.folder / FILE, json.dumps({**mark(KIND), **asdict(outcome)}, indent=1))


def planner_of(config: RunConfig) -> Provider:
    """Who plans: a language model, or with `planner` the rules, which are none.

    Raises:
        UsageError: it cannot plan.
    """
    name = read_spec(config.llm).name
    if name == "planner":
        return Rules()
    if name == "builtin":
        raise UsageError(
            "builtin proposes policies and plans nothing; the rule-based planner needs no key: --llm planner"
        )
    return one_model(config, "plans")


def default_folder(config: RunConfig) -> Path:
    """A new name under results/."""
    provider = re.sub(r"\W+", "-", read_spec(config.llm).name)
    return Path("results") / f"on-call-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"


def _made(room: str) -> LockedRoomEnv:
    env: Any = make(f"policygen/{room}-v0", {}).unwrapped
    return env  # type: ignore[no-any-return]
