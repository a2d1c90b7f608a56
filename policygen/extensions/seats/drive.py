"""A drive: a model chooses the action of every step, and its decisions become a table that is scored.

If the task has a grid, quantities are shown as bins, so that situations repeat. Observed texts are shown as they are.
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
# Limits on the description of the task, the largest first; the first that takes at most 80% of a prompt is used.
_SHOWS = (Show(), Show(prose=2_500, facts=2_000, details=2_000), Show(prose=800, facts=400, details=300))
_MOST_VALUE = 400  # number of characters read after `Action:`
_MARKS = "*`\"'_ \t"  # formatting around a value

Shown = list[dict[str, Any]]  # quantities as a prompt shows them
Action = tuple[float, ...]  # for each actuator, the index of a label or a value within its range

# --- questions -------------------------------------------------------------------------------------------------------


class StepQuestions:
    """The questions about the action of a step: bins of the task's grid, or numbers of three digits.

    Args:
        memory: number of previous steps shown.
        most_tokens: maximum number of estimated tokens of a prompt.
    """

    def __init__(self, task: Task, *, memory: int = 0, most_tokens: int = 6_000) -> None:
        self.task, self.memory, self.form, self._most_tokens = task, memory, form_of(task), most_tokens
        self._reader: Reader = cell_reader(task, task.grid) if task.grid is not None else Reader(task)
        # A prompt shows texts; it leaves out the columns that hold them, and features that depend on texts alone.
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
        """Render the question for what is shown now and the recent steps; its context is the observation."""
        variables = {"now": shown, "recent": recent, "memory": self.memory, "form": self.form}
        return question("drive", self._system, variables, observation, self._most_tokens)

    def cell(self, observation: npt.NDArray[Any]) -> int | None:
        """Return the cell of a flattened observation of shape (d,); None if the task has no grid."""
        if not isinstance(self._reader, CellReader):
            return None
        # In a batch of one, as a table computes it, so that both give the same cell.
        return int(self._reader.cells(np.asarray(observation)[np.newaxis])[0])

    def shown(self, observation: npt.NDArray[Any]) -> Shown:
        """Return the quantities to show of a flattened observation of shape (d,)."""
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
        keys = ("name", "unit", "text", "bin", "labelled", "is_text")  # labelled: the bin's number is shown, too
        return [dict(zip(keys, one, strict=True)) for one in shown if one[0] not in self._left_out]


def form_of(task: Task) -> str:
    """Return the format of an action: `left | right`, `-2 to 2`, or an example if there are several actuators."""
    if len(task.actuators) == 1:
        only = task.actuators[0]
        numbers = () if only.is_choice else (f"{format_number(only.low)} to {format_number(only.high)}",)
        return " | ".join((*only.names, *numbers))
    return ", ".join(a.labels[0] if a.is_choice else format_number((a.low + a.high) / 2) for a in task.actuators)


def connect_driver(task: Task, config: RunConfig) -> Provider:
    """Return the provider that drives: a language model, or a saved policy for `policy:FILE`.

    Raises:
        UsageError: the provider cannot drive.
        PolicyError: the saved policy cannot be read, or has a memory; a driver decides single steps.
    """
    spec = read_spec(config.llm)
    if spec.name != "policy":
        return connect_model(config, "cannot decide single steps; a saved policy can: --llm policy:RUN|best.json")
    policy = best_policy(Path(spec.argument))
    ours, theirs = ((t.observation_names, t.action_space, t.actuators) for t in (task, policy.task))
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


# --- answers ---------------------------------------------------------------------------------------------------------


def read_decision(text: str, task: Task) -> Action:
    """Return the last action that an answer states.

    It is the text after the last `Action:`, else the texts after the names of all actuators (`torque: 0.5`), else the
    last line.

    Raises:
        UnreadableAnswer: the text states no action.
    """
    if texts := _texts_after("action", text):
        return _read_all(texts[-1], task)
    values = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(values):
        return _read_entries([found[-1] for found in values], task)
    return _read_all(text.splitlines()[-1], task)


def as_action(task: Task, action: Action) -> Any:
    """Convert an action to the environment's own form: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.to_action(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """Return the first label of each actuator or, if it has none, the number of its range that is nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _texts_after(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line, without empty ones."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _read_all(text: str, task: Task) -> Action:
    """Return the action in a text that has one entry for each actuator."""
    if len(task.actuators) == 1:
        return _read_entries([text], task)
    named = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(named):  # one line may name them all: `gear=low, horn=1`
        return _read_entries([re.split(r"[,;]", found[-1])[0] for found in named], task)
    parts = [part for part in re.split(r"[,;\s]+", text.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        raise UnreadableAnswer(f"{quoted(text)} has {len(parts)} of {len(task.actuators)} entries")
    return _read_entries(parts, task)


def _read_entries(entries: Sequence[str], task: Task) -> Action:
    return tuple(_read_entry(entry, actuator) for entry, actuator in zip(entries, task.actuators, strict=True))


def _read_entry(entry: str, actuator: Actuator) -> float:
    """Return the index of a label, or the number, that an entry states."""
    text = entry.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # A name or a number may be followed by words, but not by a second choice: `left, since the pole leans left`.
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
    """Return the names that a text has as whole words, in the order of the text; where several fit, the longest."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.findall(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) if names else []


# --- driving ---------------------------------------------------------------------------------------------------------


class Driver:
    """An actor that asks a model for the action of every new situation, and plays episodes in parallel.

    An answer without an action gets one repair request. If the repaired answer has no action either, the driver takes
    the action chosen most often so far, or `neutral` before any was chosen.

    Args:
        on_episode: called with the driver after every episode that ends.
    """

    independent = False  # only this process has the answers, so no other may play episodes

    def __init__(self, questions: StepQuestions, session: Session, on_episode: Callable[[Driver], None]) -> None:
        self.questions, self.session, self._on_episode = questions, session, on_episode
        self.steps = 0  # number of actions taken
        self.hits = 0  # number of those whose situation was asked about before, or by another episode at the same time
        self.seconds = 0.0  # spent waiting for answers
        self.ended: list[Trajectory] = []  # the episodes that have ended, in the order of their ends
        # For each cell of the task's grid, how often the model chose each action in it, and the same for all together.
        self.chosen: dict[int, Counter[Action]] = {}
        self.totals: Counter[Action] = Counter()
        self.score: Score | None = None  # of the table of choices

    @property
    def most_chosen(self) -> Action | None:
        """The action that the model chose most often; on a tie, the first chosen. None before any was chosen."""
        return next((action for action, _ in self.totals.most_common(1)), None)

    def begin(self, episodes: int, /) -> Driver:
        """Begin new episodes and return itself; earlier answers are kept."""
        self._recent: list[deque[dict[str, Any]]] = [deque(maxlen=self.questions.memory) for _ in range(episodes)]
        self._under_way: dict[int, dict[str, Any]] = {}
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> list[Any]:
        """Return the next actions; ask about all new situations together. See `Decider` and `Session.answers`."""
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
        """Remember the step of an episode, and keep an episode that has ended."""
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
        on_episode: called with the driver after every episode that ends.
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
    """Play episodes until all are played or a budget runs out; score the table; return the result, as saved.

    The session's folder gets the episodes that ended (in the order of their seeds) and the table, also after an error.

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
    """Return the table of the action chosen most often in each cell; on a tie, the first chosen.

    Other cells take the action chosen most often in all cells. None if the task has no grid or nothing was chosen.
    """
    task, most = driver.questions.task, driver.most_chosen
    if task.grid is None or most is None:
        return None
    actions = np.tile(np.array(most, np.float64), (task.grid.size, 1))
    for cell, counts in driver.chosen.items():
        actions[cell] = counts.most_common(1)[0][0]
    return TablePolicy.from_actions(task, actions)


def _result(driver: Driver, episodes: int) -> dict[str, Any]:
    """Return the fields of `drive.json`."""
    task, ended, ledger, most = driver.questions.task, driver.ended, driver.session.log.ledger, driver.most_chosen
    grid, tokens = task.grid, ledger.tokens_in + ledger.tokens_out
    return {
        "shown": "numbers" if grid is None else "bins",
        "planned": episodes,
        "episodes": len(ended),  # played to their end, as are those of the next two
        "driven": score_record(sampled_score(ended, engine_words("copies", task))) if ended else None,
        "returns": [trajectory.episode_return for trajectory in ended],
        "table": score_record(driver.score) if driver.score is not None else None,
        "cells": grid.size if grid is not None else 0,
        "cells_seen": len(driver.chosen),  # in which the model chose an action
        "most_chosen": action_words(task.actuators, most) if most is not None else "",  # the table's in all other cells
        "steps": driver.steps,
        "hits": driver.hits,
        "decision_seconds": driver.seconds / max(1, driver.steps),  # that the drive waited for answers, per step
        "answer_seconds": ledger.llm_seconds / max(1, ledger.calls),  # that requests took, each
        "tokens_per_episode": tokens / len(ended) if ended else None,
        "usd_per_episode": ledger.usd / len(ended) if ended and ledger.usd is not None else None,
        # For each cell seen its bins, and how often each action was chosen there, most frequent first.
        "decisions": [
            {
                "bins": dict(zip(grid.names, grid.bins_of(cell).tolist(), strict=True)),
                "chosen": {action_words(task.actuators, action): n for action, n in counts.most_common()},
            }
            for cell, counts in sorted(driver.chosen.items())
            if grid is not None
        ],
    }
