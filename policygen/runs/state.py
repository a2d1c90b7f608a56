"""The state of a run: attempts, the best of them, the replay buffer; and closings, which may replace the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import make_episodes
from policygen.episodes.exact import FiniteMDP
from policygen.episodes.race import Race
from policygen.episodes.requirements import excess
from policygen.episodes.score import Score
from policygen.episodes.trajectory import Trajectory
from policygen.errors import BudgetExhausted
from policygen.llm.messages import Message
from policygen.policies.policy import Policy
from policygen.registry import Registry
from policygen.runs.attempt import Attempt, Counts, Standing, usual_length
from policygen.runs.config import RunConfig
from policygen.runs.notes import STOPPED, violations_of
from policygen.runs.tuning import TuningLimits, tuning_limits
from policygen.tasks.task import PolicyKind, Task


@dataclass(frozen=True, slots=True)
class Assessment:
    """An assessed attempt, the episodes of its score, and the best policy's scores after it."""

    attempt: Attempt
    trajectories: Sequence[Trajectory] = ()
    best_score: Score | None = None
    validation: Score | None = None


@dataclass
class Search:
    """The state of the search loop, which changes with every attempt."""

    task: Task
    buffer: ReplayBuffer
    mdp: FiniteMDP | None = None
    attempts: list[Attempt] = field(default_factory=list)
    # the first attempt with each proposed or tuned policy, by the policy's digest
    tried: dict[bytes, int] = field(default_factory=dict)
    best: Attempt | None = None
    # the best policy's score in the comparison that selected it, which may have more episodes than the attempt's score
    best_score: Score | None = None
    # the best policy's score on held-out episodes; None if `best_score` is exact or no episodes were left
    validation: Score | None = None
    # earlier requests and replies that the next prompt repeats if the conversation is continued
    turns: list[Message] = field(default_factory=list)
    stopped: str = ""  # the reason why the loop ended

    @property
    def incumbent(self) -> Policy | None:
        """The best policy so far."""
        return self.best.policy if self.best is not None else None

    @property
    def unbiased_score(self) -> Score | None:
        """The best policy's exact or held-out score; None without either."""
        exact = self.best_score is not None and self.best_score.exact
        return self.best_score if exact else self.validation

    @property
    def convincing_score(self) -> Score | None:
        """The unbiased score; None if the best policy violates a hard requirement too often."""
        return None if self.best is not None and excess(violations_of(self.best)) else self.unbiased_score

    @property
    def reported_score(self) -> Score | None:
        """The best policy's score to show: the unbiased one, else `best_score`."""
        return self.unbiased_score or self.best_score

    def keep(self, assessment: Assessment) -> Attempt:
        """Add an assessed attempt, its episodes, and the best policy's scores after it."""
        score = self.best_score = assessment.best_score
        validation = self.validation = assessment.validation
        standing = Standing(*_mean_and_episodes(score), *_mean_and_episodes(validation))
        self.buffer.add(make_episodes(assessment.attempt.number, assessment.trajectories, self.task))
        return self.add(replace(assessment.attempt, standing=standing))

    def add(self, attempt: Attempt) -> Attempt:
        """Add the next attempt; if accepted, it is the best from now on."""
        self.attempts.append(attempt)
        for digest in filter(None, attempt.digests):
            self.tried.setdefault(digest, attempt.number)
        if attempt.accepted:
            self.best = attempt
        return attempt

    def replace_last(self, last: Attempt) -> None:
        """Replace the last attempt by its final version, with the run's totals and the best policy's held-out score."""
        recorded = self.attempts[-1]
        if last is recorded:
            return
        if self.validation is not None:
            mean, episodes = _mean_and_episodes(self.validation)
            last = replace(last, standing=replace(last.standing, validated_mean=mean, validated_episodes=episodes))
        self.best = last if self.best is recorded else self.best
        self.attempts[-1] = last

    def next_context(self, config: RunConfig) -> Context | None:
        """Return the context of the next prompt; None after the last iteration.

        Raises BudgetExhausted if the record of an attempt says that it used up a budget.
        """
        if stopped := next(filter(None, map(STOPPED.of, self.attempts)), None):
            raise BudgetExhausted(stopped)
        done = sum(attempt.is_asked for attempt in self.attempts[1:])
        return self.context(config) if done < config.iterations else None

    def context(self, config: RunConfig) -> Context:
        """Return the context of the next attempt's prompt: a snapshot of the search."""
        number, spent = len(self.attempts), self.attempts[-1].counts if self.attempts else Counts()
        length = usual_length(self.attempts)
        tuning = tuning_limits(
            number, self.task, config, spent.episodes, steps=spent.env_steps, length=length, exact=self.mdp is not None
        )
        return Context(
            self.task,
            config.policy,
            number,
            config.seed,
            self.best,
            self.reported_score,
            tuple(self.attempts),
            self.tried,
            self.buffer,
            tuning,
            memory=config.memory,
        )


def _mean_and_episodes(score: Score | None) -> tuple[float | None, int]:
    return (score.mean, score.episodes) if score is not None else (None, 0)


@dataclass(frozen=True, slots=True)
class Context:
    """The input from which a prompt is rendered; also the input of the provider `builtin`.

    Attributes:
        tried, buffer: the objects of the `Search`, which change with the next attempt.
    """

    task: Task
    kind: PolicyKind
    number: int
    seed: int
    best: Attempt | None  # the policy to revise
    reported_score: Score | None  # see `Search.reported_score`
    attempts: tuple[Attempt, ...]
    tried: Mapping[bytes, int]
    buffer: ReplayBuffer
    tuning: TuningLimits | None = None  # method and budget of tuning the proposal; None: it is not tuned
    memory: bool = False  # whether `builtin` proposes policies with memory
    comments: tuple[str, ...] = ()  # the user's comments for the model

    @property
    def incumbent(self) -> Policy | None:
        """The policy to revise."""
        return self.best.policy if self.best is not None else None


@dataclass(frozen=True, slots=True)
class Successor:
    """The result of a closing.

    Attributes:
        words: a description, which becomes the verdict of the attempt that records it.
        policy: the policy that becomes the best; None if the best one remains.
        race: the race of `policy` against the best one, on seeds on which neither was selected.
    """

    words: str
    policy: Policy | None = None
    race: Race | None = None


CLOSINGS: Registry[Callable[..., Successor | None] | str] = Registry("closing")
"""Functions called when the search has ended, or their addresses `MODULE:NAME`, by the `Attempt.kind` of their result.

Each gets the `Search` and its `EpisodeRunner`, whose episodes are charged, and returns None if it has nothing to do. If
the run is extended later, it is called again.
"""
