"""A model as an actor: it chooses the actions of episodes, and is asked once for each situation.

An action is one number for each actuator: the index of a label, or a value within the actuator's range.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.errors import PolicyError
from policygen.extensions.seats.asking import Answers, Asker, Counts, UnreadableAnswer, quoted
from policygen.extensions.seats.situations import ObservationView, PastStep, Situation, StepQuestions
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.policies.cells import NUMBER, action_words, ascii_signs, read_action
from policygen.policies.policy import Policy
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

_MOST_VALUE = 400  # number of characters read after `Action:`
_MARKS = "*`\"'_ \t"  # formatting around a value
_NUMBER_IN_TEXT = re.compile(rf"(?<![\w.]){NUMBER.pattern}(?![\w.]*\w)")

Action = tuple[float, ...]


class PolicyProvider:
    """A saved policy as a provider, which is not a language model.

    As a model, it is asked once for each situation; it decides by the first observation in that situation.
    """

    is_language_model = False
    model = NO_MODEL

    def __init__(self, policy: Policy, spec: str) -> None:
        if policy.remembers:
            raise PolicyError(
                f"--llm {spec}: the policy remembers {', '.join(policy.remembers)}, but a driver decides single steps; "
                "name a policy without prev(...)"
            )
        self.spec = spec
        self._policy = policy

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the policy's action for the observation in the prompt's context, as the text `Action: ...`."""
        action = np.atleast_1d(np.asarray(self._policy.act_one(np.asarray(prompt.context)), np.float64)).tolist()
        return Reply(f"Action: {action_words(self._policy.task.actuators, action)}", NO_MODEL, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The action taken in a situation, and whether the model stated it."""

    action: Action
    stated: bool


@dataclass
class DriveCounts(Counts):
    """The counts of a drive: those of its questions (see `Counts`) and of its steps.

    Attributes:
        steps: number of actions taken.
        hits: number of actions that needed no question of their own: the situation was asked about before, or by
            another episode at the same time.
    """

    steps: int = 0
    hits: int = 0


@dataclass
class Driver:
    """An actor that asks a model for the action of every new situation.

    If the repaired answer states no action either, the driver takes a fallback: the action chosen most often so far,
    or `neutral` before any was chosen.

    Attributes:
        on_episode: called with every episode that ends.
        chosen: for each cell of the task's grid, how often the model chose each action in it, without fallbacks.
        ended: the episodes that have ended, in the order of their ends.
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

    independent = False  # only this process has the answers, so no other may play episodes

    def __post_init__(self) -> None:
        self.view = ObservationView(self.task)
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
        """The action that the model chose most often; on a tie, the first chosen. None before any was chosen."""
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

    def count_step(self, cell: int | None, choice: Choice) -> None:
        """Count an action that is taken in a cell; None if the task has no grid."""
        self.counts.steps += 1
        if not choice.stated:
            self.counts.fallback_uses += 1
            return
        self._totals[choice.action] += 1
        if cell is not None:
            self.chosen.setdefault(cell, Counter())[choice.action] += 1


class DrivenEpisodes:
    """The decider of a driver's n parallel episodes; it remembers the previous steps of each."""

    def __init__(self, driver: Driver, episodes: int) -> None:
        self._driver = driver
        self._recent: list[deque[PastStep]] = [deque(maxlen=driver.questions.memory) for _ in range(episodes)]
        self._under_way: dict[int, tuple[Situation, Action]] = {}

    def decide(self, observations: Rows, indices: Indices, /) -> list[Any]:
        """Return the next actions; see `policygen.episodes.trajectory.Decider`."""
        driver = self._driver
        episodes = [int(index) for index in indices]
        situations = [
            Situation(driver.view.shown(observation), tuple(self._recent[i]), np.array(observation))
            for i, observation in zip(episodes, observations, strict=True)
        ]
        choices = driver.choices(situations)
        for i, situation, choice, observation in zip(episodes, situations, choices, observations, strict=True):
            driver.count_step(driver.view.cell(observation), choice)
            self._under_way[i] = situation, choice.action
        return [as_action(driver.task, choice.action) for choice in choices]

    def observe_step(self, index: int, reward: float, ended: Trajectory | None, /) -> None:
        """Remember the step of an episode, and keep an episode that has ended."""
        task, (situation, action) = self._driver.task, self._under_way.pop(index)
        if self._driver.questions.memory:
            self._recent[index].append(PastStep(situation.now, action_words(task.actuators, action), reward))
        if ended is not None:
            self._recent[index].clear()
            self._driver.ended.append(ended)
            self._driver.on_episode(ended)


# --- reading an action -----------------------------------------------------------------------------------------------


def read_decision(text: str, task: Task) -> Action:
    """Return the last action that an answer states.

    The places are searched in this order:

    1. The text after the last `Action:`, or after the name of every actuator (`torque: 0.5`). If there is such a text,
       but it is not an action, the search ends.
    2. The last line.
    3. For a single actuator: the last of its names in the text, or else the only number in the last line.

    Raises:
        UnreadableAnswer: the text states no action.
    """
    action = _stated_action(text, task)
    if action is None:
        last = text.splitlines()[-1]
        with suppress(UnreadableAnswer):
            return _read_all(last, task)
        action = _read_mention(text, task.actuators[0]) if len(task.actuators) == 1 else None
        if action is None:
            raise UnreadableAnswer(f"it ends with {quoted(last)}, and {_expected(task)}")
    return action


def as_action(task: Task, action: Action) -> Any:
    """Convert an action to the environment's own form: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.to_action(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """Return the first label of each actuator or, if it has none, the number of its range that is nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _stated_action(text: str, task: Task) -> Action | None:
    """Return the action after the last `Action:`, or after the name of every actuator; None if neither is there."""
    if texts := _texts_after("action", text):
        return _read_all(texts[-1], task)
    values = [_texts_after(actuator.name, text) for actuator in task.actuators]
    return _read_parts([found[-1] for found in values], task) if all(values) else None


def _texts_after(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line, without empty ones."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _read_all(text: str, task: Task) -> Action:
    """Return the action in a text that has one entry for each actuator."""
    if len(task.actuators) == 1:
        return _read_parts([text], task)
    named = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(named):  # one line may name them all: `gear=low, horn=1`
        return _read_parts([re.split(r"[,;]", found[-1])[0] for found in named], task)
    parts = [part for part in re.split(r"[,;\s]+", text.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        raise UnreadableAnswer(f"{quoted(text)} has {len(parts)} of {len(task.actuators)} entries")
    return _read_parts(parts, task)


def _read_parts(parts: Sequence[str], task: Task) -> Action:
    return tuple(_read_entry(part, actuator) for part, actuator in zip(parts, task.actuators, strict=True))


def _read_entry(entry: str, actuator: Actuator) -> float:
    """Return the index of a label, or the number, that an entry states."""
    text = entry.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # A name or a number may be followed by words, but not by a second choice: `left, since the pole leans left`.
    names = _names(actuator)
    begins = [name for name in names if re.match(rf"{re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    number = NUMBER.match(ascii_signs(text))
    first = max(begins, key=len, default="") or (text[: number.end()] if number is not None else "")
    rest = text[len(first) :]
    second = re.match(r"\s*(\||/|or\b)", rest, re.IGNORECASE) or (
        any(re.match(rf"\s*,\s*{re.escape(n)}\W*\Z", rest) for n in names) if begins else _names_in(names, rest)
    )
    if first and not second and not rest[:1].isalnum():
        value = read_action(first, actuator)
    if isinstance(value, str):
        raise UnreadableAnswer(f"it says {quoted(entry)}, {value}")
    return value


def _read_mention(text: str, actuator: Actuator) -> Action | None:
    """Return the last action that a text names, or else the only number of its last line; None without either."""
    found = _names_in([name for name in _names(actuator) if not NUMBER.fullmatch(name)], text)
    if found:
        return (_read_entry(found[-1], actuator),)
    numbers = _NUMBER_IN_TEXT.findall(ascii_signs(text.splitlines()[-1]))
    return (_read_entry(numbers[0], actuator),) if len(numbers) == 1 else None


def _names(actuator: Actuator) -> tuple[str, ...]:
    return actuator.labels or tuple(name for name, _ in actuator.levels)


def _names_in(names: Sequence[str], text: str) -> list[str]:
    """Return the names that a text has as whole words, in the order of the text; where several fit, the longest."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.findall(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) if names else []


def _expected(task: Task) -> str:
    """Return the values that an action may have, in words for the repair request."""
    if len(task.actuators) == 1:
        only = task.actuators[0]
        if only.is_choice:
            return f"the action is one of {', '.join(only.labels)}"
        return f"the action is a number from {only.low:g} to {only.high:g}"
    return f"the action has {len(task.actuators)} entries: {', '.join(a.name for a in task.actuators)}"
