"""A drive from start to finish: a model plays episodes, and what it decided becomes a table that is scored."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evaluate import evaluate
from policygen.episodes.score import Score, episode_seeds, sampled_score
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import BudgetExhausted, UsageError
from policygen.files import mark, write_atomically
from policygen.llm import Provider, read_spec
from policygen.llm.retry import Wait
from policygen.policies.policy import BEST
from policygen.policies.table import TablePolicy
from policygen.prompts.driving import Questions, in_words
from policygen.roles.driver import Counts, Driver, StandIn
from policygen.roles.seat import asker_in, check_price, folder_held, one_model
from policygen.runs.config import RunConfig
from policygen.runs.reading import best_policy
from policygen.runs.records import score_record
from policygen.tasks.ablation import without_knowledge
from policygen.tasks.spaces import slug
from policygen.tasks.task import Task

FILE = "drive.json"
KIND = "drive"
# What a folder must say of the drive that goes on in it.
_SAME = ("task", "gym_id", "llm", "seed", "memory")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drive is told beside the settings that it shares with runs.

    Attributes:
        episodes: to play; their seeds depend on the run's seed alone, and the table's score has others.
        memory: steps before the present one that the model is shown.
        concurrency: questions under way at a time.
        template: renders the request of a step instead of `drive.j2`.
        table_episodes: fresh ones on which the table is scored, where there is no exact score.
    """

    episodes: int = 10
    memory: int = 0
    concurrency: int = 4
    template: str | None = None
    table_episodes: int = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a drive found and took; `drive.json` is its saved form.

    Attributes:
        is_language_model: whether one drove; a policy that stands in for it makes no `llm_calls`.
        shown: `bins` of the task's grid, or `numbers` of three digits where it has none.
        episodes: that were played to their end, of as many as were `planned`; `driven` is their score.
        table: the score of what became of the decisions, exact or on fresh episodes; None where there is no table.
        cells_seen: cells of the `cells` in which the model chose; the others take `most_chosen`.
        counts: what driving took; among the other fields in the saved form.
        requests: sent, repeated ones included; `cached` answers were paid for before.
        decision_seconds: of waiting for answers, for each step; `answer_seconds` for each answer.
        tokens_per_episode, usd_per_episode: of the episodes played to their end; None where not known.
        stopped: why it ended early; empty where it did not.
        decisions: for each cell seen its bins, and how often each action was chosen in it, most often first.
    """

    task: str
    gym_id: str
    llm: str
    is_language_model: bool
    seed: int
    memory: int
    concurrency: int
    shown: str
    planned: int
    episodes: int = 0
    driven: dict[str, Any] | None = None
    returns: tuple[float, ...] = ()
    table: dict[str, Any] | None = None
    cells: int = 0
    cells_seen: int = 0
    most_chosen: str = ""
    counts: Counts = field(default_factory=Counts)
    llm_calls: int = 0
    requests: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    decision_seconds: float = 0.0
    answer_seconds: float = 0.0
    tokens_per_episode: float | None = None
    usd_per_episode: float | None = None
    stopped: str = ""
    finished: bool = False
    decisions: tuple[dict[str, Any], ...] = ()


class Drive:
    """One drive in its folder; `carry_out` plays it.

    Args:
        folder: where its files go; one that holds the same drive already goes on from the answers kept there.
        on_episode: told of every episode that ends.
        tell: told of the waits that servers ask for.

    Raises:
        UsageError: the provider cannot drive, a limit of cost cannot be held, or the folder holds something else.
        TemplateError: a template is missing or broken.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        plan: Plan,
        folder: Path,
        *,
        on_episode: Callable[[Trajectory], None] = lambda trajectory: None,
        tell: Callable[[Wait], None] = lambda wait: None,
    ) -> None:
        self.task = without_knowledge(task) if config.ablate == "knowledge" else task
        self.config, self.plan, self.folder = config, plan, folder
        self.provider = driver_of(self.task, config)
        check_price(self.provider, config, self.task)
        questions = Questions(self.task, template=plan.template, memory=plan.memory, most=config.prompt_tokens)
        begun = self._begun()
        self._lock = folder_held(folder, FILE, KIND, {name: getattr(begun, name) for name in _SAME})
        try:
            self._write(begun)  # says what is driven before anything is asked
            self.asker = asker_in(folder, self.provider, config, concurrency=plan.concurrency, tell=tell)
            self.driver = Driver(self.task, self.asker, questions, plan.memory, on_episode)
            self.table: TablePolicy | None = None
            self.score: Score | None = None
        except BaseException:
            self._lock.release()
            raise

    def carry_out(self) -> Outcome:
        """Play the episodes, make the table, score it and write everything down; also what an interruption leaves.

        Raises:
            ProviderError: the model cannot be asked; what was decided until then is written all the same.
            EnvironmentFault: the environment failed; likewise.
        """
        stopped, finished = "interrupted", False
        try:
            seeds = episode_seeds(self.config.seed, "driving", self.plan.episodes)
            with Simulator(self.task, self.config.step_timeout, vectorise=False) as simulator:
                simulator.play(self.driver, seeds)
            stopped, finished = "", True
        except BudgetExhausted as error:
            stopped, finished = str(error), True
        finally:
            self._settle(stopped, scored=finished)
            if not finished:
                self._lock.release()
        outcome = self.outcome(stopped, finished=finished)
        self._write(outcome)
        self._lock.release()
        return outcome

    def _settle(self, stopped: str, *, scored: bool) -> None:
        """Write the episodes, the table and, for now without the table's score, what was found."""
        self.table = table_of(self.driver)
        order = {seed: i for i, seed in enumerate(episode_seeds(self.config.seed, "driving", self.plan.episodes))}
        self.driver.ended.sort(key=lambda trajectory: order[trajectory.seed])
        if self.driver.ended:
            buffer = ReplayBuffer(self.config.buffer_steps)
            buffer.add(1, self.driver.ended)
            buffer.save(self.folder / "episodes.npz")
        if self.table is not None:
            self.table.save(self.folder / BEST)
        self._write(self.outcome(stopped))
        if self.table is not None and scored:
            self.score = evaluate(self.table, episode_seeds(self.config.seed, "evaluation", self.plan.table_episodes))

    def _begun(self) -> Outcome:
        """What is known before anything was asked."""
        return Outcome(
            self.task.name,
            self.task.gym_id,
            self.config.llm,
            self.provider.is_language_model,
            self.config.seed,
            self.plan.memory,
            self.plan.concurrency,
            "numbers" if self.task.grid is None else "bins",
            self.plan.episodes,
        )

    def outcome(self, stopped: str = "", *, finished: bool = False) -> Outcome:
        """What there is by now."""
        driver, ledger, ended = self.driver, self.asker.ledger, self.driver.ended
        chosen, grid, episodes = driver.most_chosen, self.task.grid, len(ended)
        answers = driver.counts.situations + driver.counts.repairs - ledger.cached
        tokens = ledger.tokens_in + ledger.tokens_out
        return replace(
            self._begun(),
            counts=replace(driver.counts),
            concurrency=self.asker.concurrency,
            episodes=episodes,
            driven=score_record(sampled_score(ended, "copies")) if ended else None,
            returns=tuple(trajectory.episode_return for trajectory in ended),
            table=score_record(self.score) if self.score is not None else None,
            cells=grid.size if grid is not None else 0,
            cells_seen=len(driver.chosen),
            most_chosen=in_words(self.task, chosen) if chosen is not None else "",
            llm_calls=ledger.calls if self.provider.is_language_model else 0,
            requests=ledger.calls,
            cached=ledger.cached,
            tokens_in=ledger.tokens_in,
            tokens_out=ledger.tokens_out,
            usd=ledger.usd,
            decision_seconds=driver.seconds / max(1, driver.counts.steps),
            answer_seconds=ledger.llm_seconds / max(1, answers),
            tokens_per_episode=tokens / episodes if episodes else None,
            usd_per_episode=ledger.usd / episodes if episodes and ledger.usd is not None else None,
            stopped=stopped,
            finished=finished,
            decisions=tuple(_decisions(driver)),
        )

    def _write(self, outcome: Outcome) -> None:
        record = asdict(outcome)
        record |= record.pop("counts")
        write_atomically(self.folder / FILE, json.dumps({**mark(KIND), **record}, indent=1))


def driver_of(task: Task, config: RunConfig) -> Provider:
    """Who drives: a language model, or with `policy:FILE` a policy found before, which is none.

    Raises:
        UsageError: it cannot drive.
    """
    spec = read_spec(config.llm)
    if spec.name == "policy":
        if not spec.argument:
            raise UsageError("write which policy drives: --llm policy:best.json, or policy:RUN")
        policy = best_policy(Path(spec.argument))
        ours, theirs = (
            (t.observation_names, t.action_space, [(a.name, a.labels) for a in t.actuators])
            for t in (task, policy.task)
        )
        if ours != theirs:
            raise UsageError(
                f"--llm {config.llm} is a policy for {policy.task.name}: it observes or does something else than "
                f"{task.name}; name one found for {task.name}"
            )
        return StandIn(policy, config.llm)
    if spec.name == "builtin":
        raise UsageError(
            "builtin proposes policies and decides no single step; let a policy found before drive, which needs no key "
            "either: --llm policy:RUN or policy:best.json"
        )
    return one_model(config, "drives")


def table_of(driver: Driver) -> TablePolicy | None:
    """The action chosen most often in every cell, of equals the one chosen first; elsewhere the one of all cells.

    None where the task has no grid, or the model chose nothing.
    """
    grid, most = driver.task.grid, driver.most_chosen
    if grid is None or most is None or not driver.chosen:
        return None
    actions = np.tile(np.array(most, np.float64), (grid.size, 1))
    for cell, counts in driver.chosen.items():
        actions[cell] = max(counts, key=lambda action: counts[action])
    return TablePolicy.from_actions(driver.task, actions)


def _decisions(driver: Driver) -> list[dict[str, Any]]:
    grid = driver.task.grid
    if grid is None:
        return []
    return [
        {
            "bins": dict(zip(grid.names, grid.bins_of(cell).tolist(), strict=True)),
            "chosen": {in_words(driver.task, action): count for action, count in counts.most_common()},
        }
        for cell, counts in sorted(driver.chosen.items())
    ]


def default_folder(task: Task, config: RunConfig) -> Path:
    """A new name under results/."""
    provider = re.sub(r"\W+", "-", read_spec(config.llm).name)
    return Path("results") / f"{slug(task.name)}-driven-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"
