"""A model as an actor: it chooses the actions of episodes, and is asked once for each situation."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.extensions.seats.asking import Asker
from policygen.extensions.seats.decisions import Action, as_action, neutral
from policygen.extensions.seats.situations import PastStep, Situation, StepQuestions
from policygen.policies.cells import action_words


@dataclass
class Driver:
    """An actor that asks a model for the action of every new situation, and plays episodes in parallel.

    An answer without an action gets one repair request. If the repaired answer has no action either, the driver takes a
    fallback: the action chosen most often so far, or `neutral` before any was chosen.
    """

    asker: Asker
    questions: StepQuestions
    on_episode: Callable[[Trajectory], None]  # called with every episode that ends
    steps: int = 0  # number of actions taken
    # Number of actions whose situation was asked about before, or by another episode at the same time.
    hits: int = 0
    # For each cell of the task's grid, how often the model chose each action in it, without fallbacks.
    chosen: dict[int, Counter[Action]] = field(default_factory=dict)
    ended: list[Trajectory] = field(default_factory=list)  # the episodes that have ended, in the order of their ends
    seconds: float = 0.0  # spent waiting for answers

    independent = False  # only this process has the answers, so no other may play episodes

    def __post_init__(self) -> None:
        self._fallbacks: dict[Situation, Action] = {}
        self._totals: Counter[Action] = Counter()

    def begin(self, episodes: int, /) -> Driver:
        """Begin new episodes and return itself; earlier answers are kept."""
        self._recent: list[deque[PastStep]] = [deque(maxlen=self.questions.memory) for _ in range(episodes)]
        self._under_way: dict[int, tuple[Situation, Action]] = {}
        return self

    @property
    def most_chosen(self) -> Action | None:
        """The action that the model chose most often; on a tie, the first chosen. None before any was chosen."""
        return max(self._totals, key=lambda action: self._totals[action], default=None)

    def decide(self, observations: Rows, indices: Indices, /) -> list[Any]:
        """Return the next actions; ask about all new situations together. See `Decider` and `Questions.answers`."""
        situations = [
            Situation(self.questions.shown(observation), tuple(self._recent[index]), np.array(observation))
            for index, observation in zip(indices.tolist(), observations, strict=True)
        ]
        fallback = self.most_chosen or neutral(self.questions.task)
        before, started = self.asker.asked, time.perf_counter()
        try:
            answers = self.questions.answers(situations, self.asker)
        finally:
            self.seconds += time.perf_counter() - started
        self.steps += len(situations)
        self.hits += len(situations) - (self.asker.asked - before)
        actions = []
        for index, situation, action in zip(indices.tolist(), situations, answers, strict=True):
            if action is None:
                self.asker.fallback_uses += 1
                action = self._fallbacks.setdefault(situation, fallback)
            else:
                self._totals[action] += 1
                assert situation.observation is not None
                if (cell := self.questions.cell(situation.observation)) is not None:
                    self.chosen.setdefault(cell, Counter())[action] += 1
            self._under_way[index] = situation, action
            actions.append(as_action(self.questions.task, action))
        return actions

    def observe_step(self, index: int, reward: float, ended: Trajectory | None, /) -> None:
        """Remember the step of an episode, and keep an episode that has ended."""
        situation, action = self._under_way.pop(index)
        if self.questions.memory:
            words = action_words(self.questions.task.actuators, action)
            self._recent[index].append(PastStep(situation.now, words, reward))
        if ended is not None:
            self._recent[index].clear()
            self.ended.append(ended)
            self.on_episode(ended)
