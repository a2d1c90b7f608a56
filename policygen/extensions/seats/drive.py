"""`drive`: a model chooses the action of every step, and its decisions become a table that is scored.

If the task has a grid, prompts show quantities as bins, so that situations repeat. They show observed texts unchanged.
Equal prompts are one question, which is asked once.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import make_episodes
from policygen.episodes.score import Score, engine_words, episode_seeds, sampled_score
from policygen.episodes.simulator import Simulator, evaluate
from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.errors import BudgetExhausted, PolicyError, UsageError
from policygen.extensions.seats.session import (
    ProgramProvider,
    Session,
    UnreadableAnswer,
    connect_model,
    question,
    quoted,
    system_message,
)
from policygen.llm import Provider, read_spec
from policygen.llm.messages import Prompt
from policygen.policies.cells import action_words, ascii_signs, read_action
from policygen.policies.features import CellReader, Reader, cell_reader
from policygen.policies.policy import BEST
from policygen.policies.table import TablePolicy
from policygen.prompts.described import grid_view, task_view
from policygen.prompts.render import Show
from policygen.quantities.operations import decoded
from policygen.quantities.text import NUMBER, format_number, to_digits
from policygen.quantities.tree import Contains, Name, names_in, nodes_of
from policygen.runs.config import RunConfig
from policygen.runs.logbook import score_record
from policygen.runs.reading import best_policy
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

DIGITS = 3  # significant digits of a quantity without bins
TABLE_EPISODES = 100  # for the score of the table, unless it is computed exactly
# Limits on the length of the task's description, from long to short; the first is used that fits into 80% of a prompt.
_SHOWS = (Show(), Show(prose=2_500, facts=2_000, details=2_000), Show(prose=800, facts=400, details=300))
_MOST_VALUE = 400  # maximum number of characters read after `Action:`
_MARKS = "*`\"'_ \t"  # formatting around a value
_NUMBER_IN_TEXT = re.compile(rf"(?<![\w.]){NUMBER.pattern}(?![\w.]*\w)")

Shown = list[dict[str, Any]]  # quantities as a prompt shows them
Action = tuple[float, ...]  # for each actuator, the index of a label, or a number in its range

# --- questions -------------------------------------------------------------------------------------------------------


class StepQuestions:
    """The prompts that ask for the action of a step; they show bins of the task's grid, or numbers of three digits.

    Args:
        memory: number of previous steps shown.
        most_tokens: maximum number of estimated tokens in a prompt.
    """

    def __init__(self, task: Task, *, memory: int = 0, most_tokens: int = 6_000) -> None:
        self.task, self.memory, self.form, self._most_tokens = task, memory, form_of(task), most_tokens
        self._reader: Reader = cell_reader(task, task.grid) if task.grid is not None else Reader(task)
        # A prompt shows texts as such, so it leaves out their columns, and features that depend on texts alone.
        self._left_out = set(task.columns[len(task.observations) :])
        for name, node in task.parsed_features if task.texts else ():
            read = [part for part in nodes_of(node) if isinstance(part, Name | Contains)]
            if read and names_in(node) <= self._left_out:
                self._left_out.add(name)
        grid = [dimension for dimension in grid_view(task.grid) if dimension["name"] not in self._left_out]
        variables = {"task": task_view(task), "grid": grid, "memory": memory, "form": self.form}
        for show in _SHOWS:
            self._system = system_message("drive", {**variables, "show": show})
            if Prompt((self._system,)).estimated_tokens <= 0.8 * most_tokens:
                break

    def prompt(self, shown: Shown, recent: Sequence[Mapping[str, Any]], observation: npt.NDArray[Any]) -> Prompt:
        """Render the prompt for a situation; its context is the observation.

        Args:
            shown: the current quantities, as `shown` returns them.
            recent: the previous steps.
        """
        variables = {"now": shown, "recent": recent, "memory": self.memory, "form": self.form}
        return question("drive", self._system, variables, observation, self._most_tokens)

    def cell(self, observation: npt.NDArray[Any]) -> int | None:
        """Return the cell of a flattened observation, shape (d,); None if the task has no grid."""
        if not isinstance(self._reader, CellReader):
            return None
        # A batch of one, as in a table, so that both compute the same cell.
        return int(self._reader.cells(np.asarray(observation)[np.newaxis])[0])

    def shown(self, observation: npt.NDArray[Any]) -> Shown:
        """Return the quantities of a flattened observation, shape (d,), that a prompt shows."""
        cell, grid, first = self.cell(observation), self.task.grid, len(self.task.observations)
        units = {one.name: one.unit for one in self.task.observations}
        shown: list[tuple[str, str, str, int, bool, bool]] = []
        for text in self.task.texts:
            shown.append((text.name, "", decoded(observation[first : first + text.columns]), 0, False, True))
            first += text.columns
        if cell is not None and grid is not None:
            bins = zip(grid.dimensions, grid.bins_of(cell).tolist(), strict=True)
            shown += [(d.name, units.get(d.name, ""), d.label(b), b, not d.has_integer_bins, False) for d, b in bins]
        else:
            for name, value in zip(self._reader.names, self._reader.row(observation), strict=True):
                shown.append((name, units.get(name, ""), format_number(to_digits(value, DIGITS)), 0, False, False))
        keys = ("name", "unit", "text", "bin", "labelled", "is_text")  # labelled: show the bin's number, too
        return [dict(zip(keys, one, strict=True)) for one in shown if one[0] not in self._left_out]


def form_of(task: Task) -> str:
    """Return the format of an action: `left | right`, `-2 to 2`, or for several actuators an example."""
    if len(task.actuators) == 1:
        only = task.actuators[0]
        numbers = () if only.is_choice else (f"{format_number(only.low)} to {format_number(only.high)}",)
        return " | ".join((*only.names, *numbers))
    return ", ".join(a.labels[0] if a.is_choice else format_number((a.low + a.high) / 2) for a in task.actuators)


def connect_driver(task: Task, config: RunConfig) -> Provider:
    """Return the provider that chooses actions: a language model, or for `policy:FILE` a saved policy.

    Raises:
        UsageError: the provider cannot drive.
        PolicyError: the saved policy cannot be read, or has memory; a driver decides single steps.
    """
    spec = read_spec(config.llm)
    if spec.name != "policy":
        return connect_model(config, "cannot decide single steps; a saved policy can: --llm policy:RUN|best.json")
    policy = best_policy(Path(spec.argument))
    ours, theirs = ((t.observation_names, t.action_space, t.actuators) for t in (task, policy.task))
    if ours != theirs:
        raise UsageError(
            f"--llm {config.llm} is a policy for {policy.task.name}, whose observations or actions differ from "
            f"those of {task.name}; name a policy for {task.name}"
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


# --- answers ---------------------------------------------------------------------------------------------------------


def read_decision(text: str, task: Task) -> Action:
    """Return the action that an answer states last.

    It follows the last `Action:`; without `Action:`, the names of all actuators (`torque: 0.5`); without those, it is
    the last line or, for a single actuator, the last of its names in the text, or the only number in the last line.

    Raises:
        UnreadableAnswer: the text states no action.
    """
    if texts := _texts_after("action", text):
        return _read_all(texts[-1], task)
    values = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(values):
        return _read_entries([found[-1] for found in values], task)
    last, (first, *others) = text.splitlines()[-1], task.actuators
    try:
        return _read_all(last, task)
    except UnreadableAnswer:
        numbers = _NUMBER_IN_TEXT.findall(ascii_signs(last))
        mentioned = _names_in([name for name in first.names if not NUMBER.fullmatch(name)], text)
        if others or not (mentioned or len(numbers) == 1):
            raise
        return (_read_entry((mentioned or numbers)[-1], first),)


def as_action(task: Task, action: Action) -> Any:
    """Convert an action to the form that the environment takes: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.to_action(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """Return for each actuator its first label or, without labels, the number in its range that is nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _texts_after(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line; empty ones are left out."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _read_all(text: str, task: Task) -> Action:
    """Return the action in a text with one entry for each actuator."""
    if len(task.actuators) == 1:
        return _read_entries([text], task)
    named = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(named):  # a line may name all actuators: `gear=low, horn=1`
        return _read_entries([re.split(r"[,;]", found[-1])[0] for found in named], task)
    parts = [part for part in re.split(r"[,;\s]+", text.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        raise UnreadableAnswer(f"{quoted(text)} has {len(parts)} of {len(task.actuators)} entries")
    return _read_entries(parts, task)


def _read_entries(entries: Sequence[str], task: Task) -> Action:
    return tuple(_read_entry(entry, actuator) for entry, actuator in zip(entries, task.actuators, strict=True))


def _read_entry(entry: str, actuator: Actuator) -> float:
    """Return the number that an entry states, or the index of its label."""
    text = entry.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # Words may follow a name or a number (`left, since the pole leans left`), but not a second choice.
    names = actuator.names
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


def _names_in(names: Sequence[str], text: str) -> list[str]:
    """Return the names that occur in a text as whole words, in order; where several match, the longest."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.findall(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) if names else []


# --- driving ---------------------------------------------------------------------------------------------------------


class Driver:
    """An actor that asks a model for the action in every new situation; episodes are played in parallel.

    An answer without an action gets one repair request. If the repaired answer has no action either, the driver takes
    the action that the model chose most often so far, or `neutral` before it chose any.

    Args:
        on_episode: called with the driver after every episode.
    """

    independent = False  # other processes cannot play episodes, as only this one has the answers

    def __init__(self, questions: StepQuestions, session: Session, on_episode: Callable[[Driver], None]) -> None:
        self.questions, self.session, self._on_episode = questions, session, on_episode
        self.steps = 0  # number of actions taken
        self.hits = 0  # number of those actions that needed no question of their own
        self.seconds = 0.0  # spent waiting for answers
        self.ended: list[Trajectory] = []  # the episodes that have ended, in the order in which they ended
        # How often the model chose each action in each cell of the task's grid, and in all cells together.
        self.chosen: dict[int, Counter[Action]] = {}
        self.totals: Counter[Action] = Counter()
        self.score: Score | None = None  # of the table

    @property
    def most_chosen(self) -> Action | None:
        """The action that the model chose most often (of equals, the first chosen); None before it chose any."""
        return next((action for action, _ in self.totals.most_common(1)), None)

    def begin(self, episodes: int, /) -> Driver:
        """Begin new episodes; return the driver itself, which keeps earlier answers."""
        self._recent: list[deque[dict[str, Any]]] = [deque(maxlen=self.questions.memory) for _ in range(episodes)]
        self._under_way: dict[int, dict[str, Any]] = {}
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> list[Any]:
        """Return the next actions, after asking about all new situations at once; see `Decider`, `Session.answers`."""
        task, questions, asked = self.questions.task, self.questions, self.session.asked
        shown = [questions.shown(observation) for observation in observations]
        prompts = [
            questions.prompt(one, self._recent[index], np.array(observation))
            for one, index, observation in zip(shown, indices, observations, strict=True)
        ]
        fallback, started = self.most_chosen or neutral(task), time.perf_counter()
        try:
            answers = self.session.answers(prompts, lambda text, _: read_decision(text, task), questions.form)
        finally:
            self.seconds += time.perf_counter() - started
        self.steps += len(prompts)
        self.hits += len(prompts) - (self.session.asked - asked)
        actions = []
        for index, observation, one, action in zip(indices, observations, shown, answers, strict=True):
            if action is None:
                self.session.fallback_uses += 1
                action = fallback
            else:
                self.totals[action] += 1
                if (cell := questions.cell(observation)) is not None:
                    self.chosen.setdefault(cell, Counter())[action] += 1
            self._under_way[int(index)] = {"shown": one, "action": action_words(task.actuators, action)}
            actions.append(as_action(task, action))
        return actions

    def observe_step(self, index: int, reward: float, ended: Trajectory | None, /) -> None:
        """Remember a step of an episode; keep the episode if it has ended."""
        self._recent[index].append({**self._under_way.pop(index), "reward": reward})
        if ended is not None:
            self._recent[index].clear()
            self.ended.append(ended)
            self._on_episode(self)


def open_drive(
    task: Task,
    config: RunConfig,
    folder: Path,
    *,
    memory: int = 0,
    on_episode: Callable[[Driver], None] = lambda driver: None,
    **options: Any,
) -> Driver:
    """Open the session of a drive.

    Args:
        memory: number of previous steps shown.
        on_episode: called with the driver after every episode.
        options: further arguments of `Session`.

    Raises:
        UsageError, LogbookError: see `Session`.
        UsageError, PolicyError: the provider cannot drive; see `connect_driver`.
        TemplateError: a template is missing or broken.
    """
    provider = connect_driver(task, config)
    questions = StepQuestions(task, memory=memory, most_tokens=config.prompt_tokens)
    identity = {"task": task.name, "gym_id": task.gym_id, "memory": memory}
    session = Session(folder, config, provider, "drive", identity, **options)
    return Driver(questions, session, on_episode)


def drive(driver: Driver, episodes: int) -> dict[str, Any]:
    """Play the episodes, or as many as the budgets allow, and score the table; return the result as saved.

    The episodes that ended (in the order of their seeds) and the table are saved in the session's folder, even after an
    error.

    Raises:
        ProviderError: the model cannot be asked.
        EnvironmentFault: the environment failed.
    """
    session, task = driver.session, driver.questions.task
    seeds = episode_seeds(session.config.seed, "driving", episodes)
    try:
        with Simulator(task, session.config.step_timeout, vectorise=False) as simulator:
            simulator.play(driver, seeds)
        session.stopped = ""
    except BudgetExhausted as error:
        session.stopped = str(error)
    finally:
        driver.ended.sort(key=lambda trajectory: seeds.index(trajectory.seed))
        if driver.ended:
            buffer = ReplayBuffer()
            buffer.add(make_episodes(1, driver.ended, task))
            buffer.save(session.folder / "episodes.npz")
        if (table := table_of(driver)) is not None:
            table.save(session.folder / BEST)
        session.save(_result(driver, episodes))
    if table is not None:
        driver.score = evaluate(table, episode_seeds(session.config.seed, "evaluation", TABLE_EPISODES))
    return session.save(_result(driver, episodes), finished=True)


def table_of(driver: Driver) -> TablePolicy | None:
    """Return the table of the action chosen most often in each cell (of equals, the first chosen).

    Cells that the model never saw get the action chosen most often overall. None if the task has no grid, or if the
    model chose no action.
    """
    task, most = driver.questions.task, driver.most_chosen
    if task.grid is None or most is None:
        return None
    actions = np.tile(np.array(most, np.float64), (task.grid.size, 1))
    for cell, counts in driver.chosen.items():
        actions[cell] = counts.most_common(1)[0][0]
    return TablePolicy.from_actions(task, actions)


def _result(driver: Driver, episodes: int) -> dict[str, Any]:
    task, ended, ledger, most = driver.questions.task, driver.ended, driver.session.log.ledger, driver.most_chosen
    grid, tokens = task.grid, ledger.tokens_in + ledger.tokens_out
    return {
        "shown": "numbers" if grid is None else "bins",
        "planned": episodes,
        "episodes": len(ended),  # that ended; `driven` and `returns` are theirs
        "driven": score_record(sampled_score(ended, engine_words("copies", task))) if ended else None,
        "returns": [trajectory.episode_return for trajectory in ended],
        "table": score_record(driver.score) if driver.score is not None else None,
        "cells": grid.size if grid is not None else 0,
        "cells_seen": len(driver.chosen),  # in which the model chose an action
        "most_chosen": action_words(task.actuators, most) if most is not None else "",  # in all cells not seen
        "steps": driver.steps,
        "hits": driver.hits,
        "decision_seconds": driver.seconds / max(1, driver.steps),  # mean wait for an answer, per step
        "answer_seconds": ledger.llm_seconds / max(1, ledger.calls),  # mean duration of a request
        "tokens_per_episode": tokens / len(ended) if ended else None,
        "usd_per_episode": ledger.usd / len(ended) if ended and ledger.usd is not None else None,
        # For each cell seen: its bins, and how often each action was chosen there, the most frequent first.
        "decisions": [
            {
                "bins": dict(zip(grid.names, grid.bins_of(cell).tolist(), strict=True)),
                "chosen": {action_words(task.actuators, action): n for action, n in counts.most_common()},
            }
            for cell, counts in sorted(driver.chosen.items())
            if grid is not None
        ],
    }
