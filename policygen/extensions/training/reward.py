"""Rewards for training language models: a completion is read as a reply, and its policy is played.

All completions are played on the same episodes, because training compares them. The seeds of these episodes are used
neither by runs nor by `policygen.score`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from policygen.episodes.exact import finite_mdp
from policygen.episodes.requirements import excess
from policygen.episodes.score import Score, episode_seeds, sampled_score, score_with_violations
from policygen.episodes.simulator import ParallelSimulator, evaluate
from policygen.episodes.trajectory import RandomActor, chunks
from policygen.errors import UsageError
from policygen.llm.base import read_reply
from policygen.policies.parse import READERS, parse
from policygen.policies.policy import Policy
from policygen.runs.attempt import text_digest
from policygen.search.prepare import with_optimum
from policygen.tasks.load import load_task
from policygen.tasks.task import Task
from policygen.tasks.warmup import seeds_checked

UNREADABLE = -0.1  # reward of a reply without a policy that can be played
RANDOM_EPISODES = 100  # for the mean return of random actions
MOST_TOGETHER = 64  # policies whose episodes are in memory at the same time


def reward(
    task: str | Task | Sequence[str | Task],
    episodes: int = 10,
    *,
    seed: int = 0,
    jobs: int | None = None,
    trust: bool = False,
) -> Reward:
    """Return a reward for training language models.

    Args:
        task: a task's name, the path of a task file as text, a Gymnasium id, or a `Task`; or several of these. If there
            are several, each row names its task in the column `task`. A reward of 1 is the task's optimum; if that is
            unknown, the score that counts as solved.
        episodes: number of episodes for each policy; on finite, known MDPs the score is exact instead.
        seed: determines the episodes, 0 or more.
        jobs: number of processes for environments that are not vectorised; by default all usable cores.
        trust: whether the user trusts the task files, which may name modules to import and paths to read.

    Raises:
        UsageError: a number is out of range, the environment ignores its seed, or the target is unknown or not above
            the score of random actions.
        TaskError: there is no such task, or its environment cannot be made.
    """
    if episodes < 1 or seed < 0:
        raise UsageError(f"episodes is 1 or more and seed 0 or more, not {episodes} and {seed}")
    given = [task] if isinstance(task, str | Task) else list(task)
    found = [load_task(one, trust=trust) if isinstance(one, str) else one for one in given]
    tasks = {one.name: with_optimum(seeds_checked(one.trusted() if trust else one)) for one in found}
    if not given or len(tasks) < len(given):
        raise UsageError("name one task, or several different ones")
    scales: dict[str, tuple[float, float]] = {}
    for name, one in tasks.items():
        with ParallelSimulator(one, jobs) as players:
            seeds = episode_seeds(seed, "reward, random actions", RANDOM_EPISODES)
            random = sampled_score(players.play(RandomActor(one, seed), seeds), players.engine).mean
        target = one.optimum.value if one.optimum is not None else one.solved
        if target is None or not math.inf > target > random > -math.inf:
            raise UsageError(
                f"{name}: the score for a reward of 1 is unknown, or not above {random:.4g}, the mean of random "
                "actions; state it in the task file as `solved`"
            )
        scales[name] = (random, target)
    return Reward(tasks, scales, episode_seeds(seed, "reward", episodes), jobs)


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """A completion's policy (None without one), its score (None if it cannot be played) and the reward."""

    policy: Policy | None
    score: Score | None
    reward: float


@dataclass(frozen=True)
class Reward:
    """A function from prompts and completions to rewards, as TRL's `GRPOTrainer` expects it.

    It can be pickled, gives equal completions equal rewards, and keeps no environment open between calls.
    """

    tasks: Mapping[str, Task]
    scales: Mapping[str, tuple[float, float]]  # for each task, the mean returns with rewards 0 and 1
    seeds: tuple[int, ...]
    jobs: int | None = None

    @property
    def __name__(self) -> str:
        """The name that trainers log."""
        return f"policygen_{'_'.join(self.tasks)}"

    def __call__(self, prompts: object, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return the reward of each completion (see `scored`); prompts and unknown columns are ignored."""
        return [one.reward for one in self.scored(completions, **columns)]

    def scored(self, completions: Sequence[Any], **columns: Any) -> list[ScoredCompletion]:
        """Return the policy, the score and the reward of each completion; unknown columns are ignored.

        The reward is -0.1 without a policy that can be played. It is 0 if the policy is no better than random actions,
        or violates a hard requirement too often. Otherwise it is linear in the mean return: 0 for random actions, 1 at
        the target, more beyond it.

        Args:
            completions: texts, or lists of chat messages, of which the last one counts.
            columns: lists with a value for each completion: `task`, its name; `kind`, `table` or `linear`, by default
                the kind that it looks like; `incumbent`, the text of the policy that it may revise, if any.

        Raises:
            UsageError: a column is wrong; no completion causes it.
            EnvironmentFault: the environment fails even with random actions.
        """
        nothing = [None] * len(completions)
        rows = [columns.get(name, nothing) for name in ("task", "kind", "incumbent")]
        if any(not isinstance(values, list | tuple) or len(values) != len(completions) for values in rows):
            raise UsageError(f"a column needs a list with one value for each of the {len(completions)} completions")
        policies = [self._policy(*row) for row in zip(completions, *rows, strict=True)]
        found: dict[tuple[str, bytes], ScoredCompletion] = {}
        for name, task in self.tasks.items():
            own = {text_digest(policy): policy for policy in policies if policy and policy.task.name == name}
            for (digest, policy), score in zip(own.items(), self._scores(task, list(own.values())), strict=True):
                found[name, digest] = ScoredCompletion(policy, score, self._reward_of(name, score))
        unreadable = ScoredCompletion(None, None, UNREADABLE)
        return [found[one.task.name, text_digest(one)] if one else unreadable for one in policies]

    def _policy(self, completion: Any, name: str | None, kind: str | None, incumbent: str | None) -> Policy | None:
        """Return the policy in a completion, read as a run reads a reply; None without one."""
        if name is None and len(self.tasks) == 1:
            name = next(iter(self.tasks))
        task = self.tasks.get(name or "")
        if task is None or kind not in (None, *READERS):
            raise UsageError(
                f"a row has the task {name!r} and the kind {kind!r}; the reward knows the tasks "
                f"{', '.join(self.tasks)} and the kinds {', '.join(READERS)}: add columns `task` and `kind` with these"
            )
        revised = parse(incumbent, task, kind) if incumbent else None
        if revised is not None and revised.policy is None:
            raise UsageError(f"a row's `incumbent` is no policy for {task.name}: {revised.problems[0]}")
        text = read_reply(reply_text(completion), "").text
        return parse(text, task, kind, revised.policy if revised is not None else None).policy

    def _reward_of(self, task: str, score: Score | None) -> float:
        if score is None or not math.isfinite(score.mean):
            return UNREADABLE
        random, target = self.scales[task]
        # However low its return, a readable reply is worth more than an unreadable one.
        return 0.0 if excess(score.violations) else max(0.0, (score.mean - random) / (target - random))

    def _scores(self, task: Task, policies: Sequence[Policy]) -> list[Score | None]:
        """Return the scores of policies, played side by side unless exact; None for a policy that cannot be played."""
        if finite_mdp(task) is not None:
            return [self._score_alone(task, policy) for policy in policies]
        scores: list[Score | None] = []
        with ParallelSimulator(task, self.jobs) as players:
            for some in chunks(policies, MOST_TOGETHER):
                try:
                    played = players.play_many(some, self.seeds)
                    scores += [score_with_violations(task, episodes, players.engine) for episodes in played]
                except Exception:  # one policy failed, which ended the episodes of all: play each alone
                    alone = [self._score_alone(task, policy) for policy in some]
                    if alone.count(None) == len(alone):
                        players.play(RandomActor(task, 0), self.seeds)  # raises if the environment is at fault
                    scores += alone
        return scores

    def _score_alone(self, task: Task, policy: Policy) -> Score | None:
        with suppress(Exception):  # as in a run, a policy that fails in the environment is a bad reply
            return evaluate(policy, self.seeds, task=task)
        return None


def reply_text(completion: Any) -> str:
    """Return the text of a completion: a text, or a list of chat messages, of which the last one counts."""
    if isinstance(completion, list | tuple) and completion:
        completion = completion[-1]
    content = completion.get("content") if isinstance(completion, Mapping) else completion
    if isinstance(content, list | tuple):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
