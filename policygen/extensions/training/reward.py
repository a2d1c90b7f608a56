"""Rewards for training language models: completions are read as replies, and the policies in them are played.

Training compares completions with each other, so all are played on the same starts. Their seeds are a stream of their
own: neither a run nor `policygen.score` plays them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from policygen.episodes.exact import finite_mdp
from policygen.episodes.players import Players, evaluate
from policygen.episodes.requirements import excess
from policygen.episodes.score import Score, episode_seeds, sampled_score, score_with_violations
from policygen.episodes.trajectory import RandomActor, chunks
from policygen.errors import UsageError
from policygen.llm.base import split_thinking
from policygen.policies.parse import READERS, parse
from policygen.policies.policy import Policy
from policygen.runs.attempt import text_digest
from policygen.search.prepare import with_optimum
from policygen.tasks.task import PolicyKind, Task
from policygen.tasks.trial import refuse_unseeded, seeds_checked

UNREADABLE = -0.1  # reward of a reply without a policy that can be played
RANDOM_EPISODES = 100  # for the mean return of random actions
MOST_TOGETHER = 64  # policies whose episodes are in memory at a time


@dataclass(frozen=True, slots=True)
class Scale:
    """Normalisation of mean returns, linear: 0 is the mean of random actions, 1 the target."""

    random: float
    target: float

    def __call__(self, mean: float) -> float:
        """Normalise a mean return."""
        return (mean - self.random) / (self.target - self.random)


def scale_of(task: Task, random: float | None, target: float | None = None) -> Scale | None:
    """Return the scale of a task; None without a target above random actions.

    Args:
        random: mean return of random actions.
        target: by default the task's optimum, or without one the score that counts as solved.
    """
    if target is None:
        target = task.optimum.value if task.optimum is not None else task.solved
    if random is None or target is None or not math.inf > target > random > -math.inf:
        return None
    return Scale(random, target)


class Reward:
    """A function from prompts and completions to rewards, with the signature of TRL's `GRPOTrainer`.

    It holds no environment between calls, can be pickled, and returns the same reward for the same completion. See
    `policygen.reward` for the arguments and errors.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        episodes: int = 10,
        *,
        seed: int = 0,
        target: float | None = None,
        kind: PolicyKind | None = None,
        jobs: int | None = None,
    ) -> None:
        if episodes < 1 or seed < 0:
            raise UsageError(f"episodes is 1 or more and seed 0 or more, not {episodes} and {seed}")
        self.tasks = {task.name: with_optimum(seeds_checked(task)) for task in tasks}
        if not tasks or len(self.tasks) < len(tasks) or (target is not None and len(tasks) > 1):
            raise UsageError("name one task or several different ones, and a target only for a single task")
        self.kind = kind
        self.jobs = jobs
        self.seeds = episode_seeds(seed, "reward", episodes)
        self.scales = {name: self._scale(task, seed, target) for name, task in self.tasks.items()}

    def _scale(self, task: Task, seed: int, target: float | None) -> Scale:
        refuse_unseeded(task, accepted=False)
        with Players(task, self.jobs) as players:
            seeds = episode_seeds(seed, "reward, random actions", RANDOM_EPISODES)
            random = sampled_score(players.play(RandomActor(task, seed), seeds), players.engine).mean
        if (scale := scale_of(task, random, target)) is None:
            raise UsageError(
                f"{task.name}: the score worth a reward of 1 is unknown, or not above {random:.4g}, the mean of random "
                "actions; state it with target=..., or in the task file as `solved`"
            )
        return scale

    @property
    def __name__(self) -> str:
        """The name under which trainers log the reward."""
        return f"policygen_{'_'.join(self.tasks)}"

    def __call__(self, prompts: object, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return the reward of each completion; prompts and other columns than the following are ignored.

        Args:
            completions: texts, or lists of chat messages, of which the last one counts.
            columns: `task`, the name of each row's task; `kind`, that of its policy, `table` or `linear`; `incumbent`,
                the text of the policy that the reply may revise, or None. Each has one value per completion.

        Raises:
            UsageError: a column does not fit; never because of a completion.
            EnvironmentFault: the environment also fails with random actions.
        """
        rewards = [UNREADABLE] * len(completions)
        found: dict[str, dict[bytes, Policy]] = {}
        rows: dict[tuple[str, bytes], list[int]] = {}
        for row, completion in enumerate(completions):
            task, kind, incumbent = self._row({name: values[row] for name, values in self._columns(columns, rewards)})
            policy = parse(split_thinking(reply_text(completion)).text, task, kind, incumbent).policy
            if policy is not None:
                digest = text_digest(policy)  # equal policies are played once
                found.setdefault(task.name, {})[digest] = policy
                rows.setdefault((task.name, digest), []).append(row)
        for name, policies in found.items():
            for digest, score in zip(policies, self._scores(self.tasks[name], list(policies.values())), strict=True):
                for row in rows[name, digest]:
                    rewards[row] = self._value(name, score)
        return rewards

    def _value(self, task: str, score: Score | None) -> float:
        """Return the reward of a score.

        It is never below 0, so that a reply that can be read is better than one that cannot; the returns of bad
        policies may be arbitrarily low.
        """
        if score is None or not math.isfinite(score.mean):
            return UNREADABLE
        return 0.0 if excess(score.violations) else max(0.0, self.scales[task](score.mean))

    def _columns(self, columns: Mapping[str, Any], rows: Sequence[float]) -> list[tuple[str, Sequence[Any]]]:
        known = [(name, columns[name]) for name in ("task", "kind", "incumbent") if name in columns]
        for name, values in known:
            if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(rows):
                raise UsageError(f"the column `{name}` needs a list with one value for each of {len(rows)} completions")
        return known

    def _row(self, row: Mapping[str, Any]) -> tuple[Task, str | None, Policy | None]:
        """Return a row's task, kind of policy, and incumbent."""
        name = row.get("task", next(iter(self.tasks)) if len(self.tasks) == 1 else None)
        if name not in self.tasks:
            raise UsageError(
                f"a row has the task {name!r}, and the reward knows {', '.join(self.tasks)}: add a column"
                " `task` with these names, or make the reward with more tasks"
            )
        kind, text = row.get("kind") or self.kind, row.get("incumbent")
        if kind is not None and kind not in READERS:
            raise UsageError(f"a row has the kind {kind!r}; known are {', '.join(READERS)}")
        if not text:
            return self.tasks[name], kind, None
        parsed = parse(text, self.tasks[name], kind)
        if parsed.policy is None:
            raise UsageError(f"a row's `incumbent` is no policy for {name}: {parsed.problems[0]}")
        return self.tasks[name], kind, parsed.policy

    def _scores(self, task: Task, policies: Sequence[Policy]) -> list[Score | None]:
        """Score policies, side by side unless scores are exact; None for one that cannot be played."""
        if finite_mdp(task) is not None:
            return [self._alone(task, policy) for policy in policies]
        scores: list[Score | None] = []
        with Players(task, self.jobs) as players:
            for some in chunks(policies, MOST_TOGETHER):
                try:
                    played = players.play_many(some, self.seeds)
                    scores += [score_with_violations(task, episodes, players.engine) for episodes in played]
                except Exception:  # one policy fails all of them: find it
                    alone = [self._alone(task, policy) for policy in some]
                    if alone.count(None) == len(alone):
                        players.play(RandomActor(task, 0), self.seeds)
                    scores += alone
        return scores

    def _alone(self, task: Task, policy: Policy) -> Score | None:
        with suppress(Exception):  # as in a run, the failure of a policy in the environment fails only this reply
            return evaluate(policy, self.seeds, task=task)
        return None


def reply_text(completion: Any) -> str:
    """Return the text of a completion: of a text itself, or of the last of its chat messages; empty without one."""
    if isinstance(completion, Sequence) and not isinstance(completion, str):
        completion = completion[-1] if completion else ""
    if isinstance(completion, Mapping):
        completion = completion.get("content")
    if isinstance(completion, Sequence) and not isinstance(completion, str):
        parts = [part.get("text") for part in completion if isinstance(part, Mapping)]
        completion = "".join(part for part in parts if isinstance(part, str))
    return completion if isinstance(completion, str) else ""
