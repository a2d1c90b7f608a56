"""A drive: a model plays episodes, and its decisions become a table that is scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.players import evaluate
from policygen.episodes.score import Score, engine_words, episode_seeds, sampled_score
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError, UsageError
from policygen.extensions.seats.asking import ProgramProvider
from policygen.extensions.seats.driver import Driver
from policygen.extensions.seats.session import ModelSession, SessionResult, connect_model
from policygen.extensions.seats.situations import StepQuestions
from policygen.llm import Provider, read_spec
from policygen.llm.retry import Wait
from policygen.outgoing import redacted
from policygen.policies.cells import action_words
from policygen.policies.policy import BEST
from policygen.policies.table import TablePolicy
from policygen.runs.config import RunConfig
from policygen.runs.reading import best_policy
from policygen.runs.records import score_record
from policygen.tasks.task import Task, without_knowledge

TABLE_EPISODES = 100  # for the score of the table, unless it is computed exactly


@dataclass(frozen=True, slots=True)
class DriveSettings:
    """The settings that only a drive has; it shares all others with a run."""

    episodes: int = 10  # to play; their seeds depend on the setting `seed` alone, and the table is scored on others
    memory: int = 0  # number of previous steps that a question shows
    concurrency: int = 4  # maximum number of questions under way at a time
    template: str | None = None  # name or path of the question's template; None: `drive`


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveResult(SessionResult):
    """The results and costs of a drive, saved as `drive.json`."""

    task: str
    gym_id: str
    memory: int
    concurrency: int
    shown: str  # `bins` of the task's grid, or `numbers` of three digits if the task has no grid
    planned: int  # number of episodes to play
    episodes: int = 0  # number of those played to their end
    driven: dict[str, Any] | None = None  # the score of the episodes played to their end
    returns: tuple[float, ...] = ()  # of the same episodes
    table: dict[str, Any] | None = None  # its score, exact or on fresh episodes; None without a table
    cells: int = 0  # number of cells of the grid
    cells_seen: int = 0  # number of cells in which the model chose an action
    most_chosen: str = ""  # the action chosen most often; the table takes it in all other cells
    steps: int = 0  # see `Driver`
    hits: int = 0  # see `Driver`
    decision_seconds: float = 0.0  # that the drive waited for answers, per step
    answer_seconds: float = 0.0  # that requests took, per answer
    tokens_per_episode: float | None = None  # per episode played to its end; None if unknown
    usd_per_episode: float | None = None  # the same
    # For each cell seen its bins, and how often each action was chosen there, most frequent first.
    decisions: tuple[dict[str, Any], ...] = ()


class Drive(ModelSession[DriveResult]):
    """A drive: a model plays episodes, and its decisions become a table; `carry_out` does the work.

    Args:
        on_episode: called with every episode that ends.

    Raises:
        UsageError, LogbookError: see `ModelSession`.
        UsageError, PolicyError: the provider cannot drive; see `connect_driver`.
        TemplateError: a template is missing or broken.
    """

    file, kind, identity_fields = "drive.json", "drive", ("task", "gym_id", "llm", "seed", "memory")

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        settings: DriveSettings,
        folder: Path,
        *,
        on_episode: Callable[[Trajectory], None] = lambda trajectory: None,
        tell: Callable[[Wait], None] = lambda wait: None,
    ) -> None:
        self.task = without_knowledge(task) if config.ablate == "knowledge" else task
        self.settings = settings
        provider = connect_driver(self.task, config)
        questions = StepQuestions(
            self.task, template=settings.template, memory=settings.memory, prompt_tokens=config.prompt_tokens
        )
        initial = DriveResult(
            llm=redacted(config.llm),
            is_language_model=provider.is_language_model,
            seed=config.seed,
            task=self.task.name,
            gym_id=self.task.gym_id,
            memory=settings.memory,
            concurrency=settings.concurrency,
            shown="numbers" if self.task.grid is None else "bins",
            planned=settings.episodes,
        )
        super().__init__(folder, config, provider, self.task, initial, concurrency=settings.concurrency, tell=tell)
        self.driver = Driver(self.asker, questions, on_episode)
        self._table: TablePolicy | None = None
        self.score: Score | None = None
        self._seeds = episode_seeds(config.seed, "driving", settings.episodes)

    def _work(self) -> None:
        """Play the episodes; save those that ended, in the order of their seeds, and the table, also after an error."""
        try:
            with Simulator(self.task, self.config.step_timeout, vectorise=False) as simulator:
                simulator.play(self.driver, self._seeds)
        finally:
            self.driver.ended.sort(key=lambda trajectory: self._seeds.index(trajectory.seed))
            if self.driver.ended:
                buffer = ReplayBuffer()
                buffer.add(1, self.driver.ended)
                buffer.save(self.folder / "episodes.npz")
            self._table = self._make_table()
            if self._table is not None:
                self._table.save(self.folder / BEST)

    def _make_table(self) -> TablePolicy | None:
        """Return the table of the action chosen most often in each cell; on a tie, the first chosen.

        Other cells take the action chosen most often in all cells. None if the task has no grid or nothing was chosen.
        """
        grid, most = self.task.grid, self.driver.most_chosen
        if grid is None or most is None:
            return None
        actions = np.tile(np.array(most, np.float64), (grid.size, 1))
        for cell, counts in self.driver.chosen.items():
            actions[cell] = counts.most_common(1)[0][0]
        return TablePolicy.from_actions(self.task, actions)

    def _evaluate(self) -> None:
        if self._table is not None:
            self.score = evaluate(self._table, episode_seeds(self.config.seed, "evaluation", TABLE_EPISODES))

    def _current_result(self) -> DriveResult:
        driver, ledger, ended = self.driver, self.asker.ledger, self.driver.ended
        chosen, grid, episodes = driver.most_chosen, self.task.grid, len(ended)
        answers = self.asker.asked + self.asker.repairs - ledger.cached
        tokens = ledger.tokens_in + ledger.tokens_out
        return replace(
            self.result,
            steps=driver.steps,
            hits=driver.hits,
            concurrency=self.asker.concurrency,
            episodes=episodes,
            driven=score_record(sampled_score(ended, engine_words("copies", self.task))) if ended else None,
            returns=tuple(trajectory.episode_return for trajectory in ended),
            table=score_record(self.score) if self.score is not None else None,
            cells=grid.size if grid is not None else 0,
            cells_seen=len(driver.chosen),
            most_chosen=action_words(self.task.actuators, chosen) if chosen is not None else "",
            decision_seconds=driver.seconds / max(1, driver.steps),
            answer_seconds=ledger.llm_seconds / max(1, answers),
            tokens_per_episode=tokens / episodes if episodes else None,
            usd_per_episode=ledger.usd / episodes if episodes and ledger.usd is not None else None,
            decisions=tuple(
                {
                    "bins": dict(zip(grid.names, grid.bins_of(cell).tolist(), strict=True)),
                    "chosen": {action_words(self.task.actuators, action): n for action, n in counts.most_common()},
                }
                for cell, counts in sorted(driver.chosen.items())
                if grid is not None
            ),
        )


def connect_driver(task: Task, config: RunConfig) -> Provider:
    """Return the provider that drives: a language model, or a saved policy for `policy:FILE`.

    Raises:
        UsageError: the provider cannot drive.
        PolicyError: the saved policy cannot be read, or has a memory; a driver decides single steps.
    """
    spec = read_spec(config.llm)
    if spec.name == "policy":
        if not spec.argument:
            raise UsageError("name the policy that drives: --llm policy:best.json, or policy:RUN")
        policy = best_policy(Path(spec.argument))
        ours, theirs = (
            (t.observation_names, t.action_space, [(a.name, a.labels) for a in t.actuators])
            for t in (task, policy.task)
        )
        if ours != theirs:
            raise UsageError(
                f"--llm {config.llm} is a policy for {policy.task.name}: its observations or actions differ from "
                f"those of {task.name}; name one found for {task.name}"
            )
        if policy.remembers:
            raise PolicyError(
                f"--llm {config.llm}: the policy remembers {', '.join(policy.remembers)}, but a driver decides single "
                "steps; name a policy without prev(...)"
            )

        def answer(observation: Any) -> str:
            action = np.atleast_1d(np.asarray(policy.act_one(np.asarray(observation)), np.float64))
            return f"Action: {action_words(task.actuators, action.tolist())}"

        return ProgramProvider(config.llm, answer)
    refusal = "cannot decide single steps; a saved policy can, without a key: --llm policy:RUN or policy:best.json"
    return connect_model(config, refusal)
