"""A model as an actor: it chooses the actions of episodes, and is asked once for each situation."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.errors import PolicyError
from policygen.extensions.seats.asking import Answers, Asker, Counts
from policygen.extensions.seats.decisions import Action, as_action, neutral, read_decision
from policygen.extensions.seats.situations import PastStep, Situation, StepQuestions, Window
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.policies.cells import action_words
from policygen.policies.policy import Policy
from policygen.tasks.task import Task


class PolicyProvider:
    """A saved policy that answers in place of a model. It is not a language model.

    It is asked once for each situation, and answers for the first observation in it.
    """

    is_language_model = False
    model = NO_MODEL

    def __init__(self, policy: Policy, spec: str) -> None:
        if policy.remembers:
            raise PolicyError(
                f"--llm {spec}: this policy remembers {', '.join(policy.remembers)}, but it is asked about single "
                "situations; name a policy without prev(...)"
            )
        self.spec = spec
        self._policy = policy

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the policy's action for the observation in the prompt's context, in the words of a model."""
        action = np.atleast_1d(np.asarray(self._policy.act_one(np.asarray(prompt.context)), np.float64)).tolist()
        return Reply(f"Action: {action_words(self._policy.task.actuators, action)}", NO_MODEL, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The action taken in a situation, and whether the model stated it."""

    action: Action
    stated: bool


@dataclass
class DriveCounts(Counts):
    """The counts of a drive: questions as in `Counts`, and steps.

    Attributes:
        steps: actions taken.
        hits: number of these without a question of their own, because the situation was asked about already, or is
            asked about by another episode at the same time.
    """

    steps: int = 0
    hits: int = 0


@dataclass
class Driver:
    """An actor that asks a model for the action of every new situation.

    If even the repaired answer states no action, the action chosen most often so far is taken and counted; before any
    was chosen, the first label, or the number nearest to 0.

    Attributes:
        on_episode: called with every episode that ends.
        chosen: for each cell of the task's grid, how often each action was chosen in it, fallbacks left out.
        ended: the episodes that have ended, in that order.
        seconds: time spent waiting for answers.
    """

    task: Task
    asker: Asker
    questions: StepQuestions
    on_episode: Callable[[Trajectory], None] = lambda trajectory: None
    counts: DriveCounts = field(default_factory=DriveCounts)
    chosen: dict[int, Counter[Action]] = field(default_factory=dict)
    ended: list[Trajectory] = field(default_factory=list)
    seconds: float = 0.0

    portable = False  # its answers were asked and paid for in this process

    def __post_init__(self) -> None:
        self.window = Window(self.task)
        self._answers = Answers(
            self.asker, self.counts, self.questions, lambda text, situation: read_decision(text, self.task)
        )
        self._fallbacks: dict[Situation, Action] = {}
        self._totals: Counter[Action] = Counter()

    def begin(self, episodes: int, /) -> DrivenEpisodes:
        """Begin new episodes; earlier answers are kept."""
        return DrivenEpisodes(self, episodes)

    @property
    def most_chosen(self) -> Action | None:
        """The action chosen most often; of several, the first chosen. None before any was chosen."""
        return max(self._totals, key=lambda action: self._totals[action], default=None)

    def choices(self, situations: list[Situation]) -> list[Choice]:
        """Return the actions for situations of parallel episodes; ask about all new situations together.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; answers received are kept for the next call.
        """
        fallback = self.most_chosen or neutral(self.task)
        before, started = self.counts.asked, time.perf_counter()
        try:
            actions = self._answers.get_all(situations)
        finally:
            self.seconds += time.perf_counter() - started
        self.counts.hits += len(situations) - (self.counts.asked - before)
        return [
            Choice(action, True)
            if action is not None
            else Choice(self._fallbacks.setdefault(situation, fallback), False)
            for situation, action in zip(situations, actions, strict=True)
        ]

    def note(self, cell: int | None, choice: Choice) -> None:
        """Count an action that is taken in a cell."""
        self.counts.steps += 1
        if not choice.stated:
            self.counts.fallback_uses += 1
            return
        self._totals[choice.action] += 1
        if cell is not None:
            self.chosen.setdefault(cell, Counter())[choice.action] += 1


class DrivenEpisodes:
    """A driver's decisions in n episodes; each remembers its own previous steps."""

    def __init__(self, driver: Driver, episodes: int) -> None:
        self._driver = driver
        self._recent: list[deque[PastStep]] = [deque(maxlen=driver.questions.memory) for _ in range(episodes)]
        self._under_way: dict[int, tuple[Situation, Action]] = {}

    def decide(self, observations: Rows, rows: Indices, /) -> list[Any]:
        """Return the next actions; see `policygen.episodes.trajectory.Decider`."""
        driver = self._driver
        indices = [int(row) for row in rows]
        situations = [
            Situation(driver.window.shown(observation), tuple(self._recent[row]), np.array(observation))
            for row, observation in zip(indices, observations, strict=True)
        ]
        choices = driver.choices(situations)
        for row, situation, choice, observation in zip(indices, situations, choices, observations, strict=True):
            driver.note(driver.window.cell(observation), choice)
            self._under_way[row] = situation, choice.action
        return [as_action(driver.task, choice.action) for choice in choices]

    def observe_step(self, row: int, reward: float, ended: Trajectory | None, /) -> None:
        """Remember the step of an episode, and keep an episode that has ended."""
        situation, action = self._under_way.pop(row)
        if self._driver.questions.memory:
            self._recent[row].append(PastStep(situation.now, action_words(self._driver.task.actuators, action), reward))
        if ended is not None:
            self._recent[row].clear()
            self._driver.ended.append(ended)
            self._driver.on_episode(ended)
