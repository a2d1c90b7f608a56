"""The model at the wheel: an actor whose actions a model chooses, asked once for each situation that it is shown."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.errors import PolicyError
from policygen.extensions.seats.answers import Answers, Counts
from policygen.extensions.seats.asker import Asker
from policygen.extensions.seats.decisions import Action, as_action, neutral, read_decision
from policygen.extensions.seats.driving_prompts import Questions, Situation, Step, Window, in_words
from policygen.llm.base import Diagnosis
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.policies.policy import Policy
from policygen.tasks.task import Task


class StandIn:
    """A policy found before, in the place of a model at the wheel. It is not a language model.

    It is asked as a model is, once for each situation, and answers for the observation that first led into it.
    """

    is_language_model = False
    model = NO_MODEL

    def __init__(self, policy: Policy, spec: str) -> None:
        if policy.remembers:
            raise PolicyError(
                f"--llm {spec}: this policy remembers {', '.join(policy.remembers)}, and what is asked for single "
                "situations cannot; name a policy without prev(...)"
            )
        self.spec = spec
        self._policy = policy

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The policy's action for the observation beside the prompt, in the words of a model."""
        action = np.atleast_1d(np.asarray(self._policy.act_one(np.asarray(prompt.context)), np.float64)).tolist()
        return Reply(f"Action: {in_words(self._policy.task, action)}", NO_MODEL, 0, 0, 0.0)

    def diagnose(self) -> Diagnosis:
        """It is always there."""
        return Diagnosis(True, (f"a {self._policy.kind} policy for {self._policy.task.name}; not a language model",))


@dataclass(frozen=True, slots=True)
class Answer:
    """The action taken in a situation, and whether the model stated it."""

    action: Action
    stated: bool


@dataclass
class DriveCounts(Counts):
    """The counts of a drive: questions as in `Counts`, and steps.

    Attributes:
        steps: actions taken.
        hits: of them, in situations met earlier, or by another episode at the same time.
    """

    steps: int = 0
    hits: int = 0


@dataclass
class Driver:
    """Asks a model for the action of every situation that was not met before.

    A reply that says no action is answered with one repair. If that says none either, the action chosen most often so
    far is taken, or before there is any the first of the list (of a number the one nearest to 0), and counted.

    Attributes:
        memory: steps before the present one that the model is shown.
        on_episode: told of every episode that ends, in the order of their ends.
        chosen: for every cell of the task's grid how often each action was taken in it, fallbacks left out.
        ended: the episodes that are over.
        seconds: spent on waiting for answers.
    """

    task: Task
    asker: Asker
    questions: Questions
    memory: int = 0
    on_episode: Callable[[Trajectory], None] = lambda trajectory: None
    counts: DriveCounts = field(default_factory=DriveCounts)
    chosen: dict[int, Counter[Action]] = field(default_factory=dict)
    ended: list[Trajectory] = field(default_factory=list)
    seconds: float = 0.0

    portable = False  # what it knows, it has asked for and paid

    def __post_init__(self) -> None:
        self.window = Window(self.task)
        self._answers = Answers(
            self.asker,
            self.counts,
            self.questions.prompt,
            repair=self.questions.repair,
            read=lambda reply, situation: read_decision(reply, self.task),
        )
        self._instead: dict[Situation, Action] = {}  # of an action that no answer said
        self._totals: Counter[Action] = Counter()

    def begin(self, episodes: int, /) -> AtTheWheel:
        """Take up so many episodes; what was asked before stays known."""
        return AtTheWheel(self, episodes)

    @property
    def most_chosen(self) -> Action | None:
        """The action that the model chose most often, of equals the one chosen first; None before it chose any."""
        return max(self._totals, key=lambda action: self._totals[action], default=None)

    def answers(self, situations: list[Situation]) -> list[Answer]:
        """Return the answers for situations of parallel episodes; ask about all new situations together.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; answers received are kept for the next call.
        """
        fallback = self.most_chosen or neutral(self.task)
        before, started = self.counts.asked, time.perf_counter()
        try:
            decisions = self._answers.to(situations)
        finally:
            self.seconds += time.perf_counter() - started
        self.counts.hits += len(situations) - (self.counts.asked - before)
        return [
            Answer(decision.action, True)
            if decision.action is not None
            else Answer(self._instead.setdefault(situation, fallback), False)
            for situation, decision in zip(situations, decisions, strict=True)
        ]

    def note(self, cell: int | None, answer: Answer) -> None:
        """Count an action that was taken in a cell."""
        self.counts.steps += 1
        if not answer.stated:
            self.counts.fallback_uses += 1
            return
        self._totals[answer.action] += 1
        if cell is not None:
            self.chosen.setdefault(cell, Counter())[answer.action] += 1


class AtTheWheel:
    """A driver at work on n episodes; each has its own last steps."""

    def __init__(self, driver: Driver, episodes: int) -> None:
        self._driver = driver
        self._recent: list[deque[Step]] = [deque(maxlen=driver.memory) for _ in range(episodes)]
        self._under_way: dict[int, tuple[Situation, Action]] = {}

    def decide(self, observations: Rows, rows: Indices, /) -> list[Any]:
        """The next actions; see `policygen.episodes.trajectory.Decider`."""
        driver = self._driver
        indices = [int(row) for row in rows]
        situations = [
            Situation(driver.window.shown(observation), tuple(self._recent[row]), np.array(observation))
            for row, observation in zip(indices, observations, strict=True)
        ]
        answers = driver.answers(situations)
        for row, situation, answer, observation in zip(indices, situations, answers, observations, strict=True):
            driver.note(driver.window.cell(observation), answer)
            self._under_way[row] = situation, answer.action
        return [as_action(driver.task, answer.action) for answer in answers]

    def happened(self, row: int, reward: float, ended: Trajectory | None, /) -> None:
        """Remember the step of an episode; one that is over is handed on."""
        situation, action = self._under_way.pop(row)
        if self._driver.memory:
            self._recent[row].append(Step(situation.now, in_words(self._driver.task, action), reward))
        if ended is not None:
            self._recent[row].clear()
            self._driver.ended.append(ended)
            self._driver.on_episode(ended)
