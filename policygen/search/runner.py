"""Where a run plays: every episode charged before it is played, on the run's own seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import exact_score
from policygen.episodes.players import Players
from policygen.episodes.sampled import Sampler
from policygen.episodes.score import Score, episode_seeds, sampled_score, score_of_returns
from policygen.episodes.trajectory import Actor, RandomActor, Trajectory
from policygen.errors import BudgetExhausted, EnvironmentFault
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity, TuningProgress, tell_nobody
from policygen.runs.standard import PROLONGATIONS
from policygen.runs.state import Attempt, Search
from policygen.runs.tuning import LEAST_SHARE, episodes_of_tuning, rest_of_round
from policygen.search.refine.tunable import Trials

# An environment that fails under so many proposals in a row would fail under the next ones, which cost money.
MOST_FAULTS = 5
Means = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Performance:
    """What a policy scored, and the episodes it played for that (or beside it, where the score is exact)."""

    score: Score | None
    trajectories: Sequence[Trajectory] = ()


class EpisodeRunner:
    """Plays the episodes of one run; it counts them, and decides and remembers nothing."""

    def __init__(
        self,
        search: Search,
        config: RunConfig,
        ledger: Ledger,
        tell: Callable[[Activity | None], None] = tell_nobody,
    ) -> None:
        self.task = search.task
        self.mdp = search.mdp
        self.config = config
        self.ledger = ledger
        self.tell = tell
        self.players = Players(search.task, config.jobs, step_timeout=config.step_timeout)
        self.faults = 0  # proposals in a row under which the environment failed
        self._reserved = 0
        self._started = time.perf_counter() - (search.attempts[-1].wall_seconds if search.attempts else 0.0)

    def __enter__(self) -> EpisodeRunner:
        self.players.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.players.__exit__(kind, error, trace)

    # --- playing

    def be_careful(self, careful: bool) -> None:
        """Play foreign environments in other processes, or no longer: a crash may have interrupted the run."""
        self.players.apart = careful and self.players.foreign

    def play(self, actor: Actor, seeds: tuple[int, ...]) -> list[Trajectory]:
        """One episode for each seed.

        Raises:
            BudgetExhausted: they would exceed the limit; none is played.
        """
        self.ledger.charge_episodes(len(seeds))
        trajectories = self.players.play(actor, seeds)
        self.ledger.env_steps += sum(trajectory.length for trajectory in trajectories)
        return trajectories

    def play_randomly(self) -> Performance:
        """The warm-up: what random actions score."""
        seeds = warm_up_seeds(self.config)
        if not seeds:
            return Performance(None)
        trajectories = self.play(RandomActor(self.task, self.config.seed), seeds)
        return Performance(sampled_score(trajectories, self.players.engine), trajectories)

    def perform(self, number: int, policy: Policy) -> Performance:
        """Score a policy of attempt `number`: exactly where the MDP is known, else on the seeds common to all."""
        exact = exact_score(policy, self.mdp) if self.mdp is not None else None
        trajectories = self.play(policy, seeds_of_attempt(number, self.config, exact=exact is not None))
        return Performance(exact or sampled_score(trajectories, self.players.engine), trajectories)

    def prolong(self, policy: Policy, score: Score, episodes: int) -> Score:
        """The score on at least so many of the common seeds, playing only those that are missing, if affordable."""
        if score.exact or score.episodes >= episodes or not self.affords(episodes, score):
            return score
        return self._longer("search", policy, score, episodes)

    def validate(self, policy: Policy, score: Score | None, episodes: int) -> Score | None:
        """The score on so many episodes that choose nothing, or on as many as are left.

        Args:
            score: on the first of these episodes, where they were played before.
        """
        played = score.episodes if score is not None else 0
        if self.left is not None:
            episodes = min(episodes, played + self.left - self._reserved)
        if episodes <= max(played, 1):
            return score
        return self._longer("validation", policy, score, episodes)

    def _longer(self, purpose: str, policy: Policy, score: Score | None, episodes: int) -> Score:
        """The score on so many seeds of a stream, playing those that are missing."""
        played = score.episodes if score is not None else 0
        seeds = episode_seeds(self.config.seed, purpose, episodes - played, played)
        more = sampled_score(self.play(policy, seeds), self.players.engine)
        if score is None:
            return more
        return score_of_returns(np.array(score.returns + more.returns), score.seeds + more.seeds, score.engine)

    def trials(self, number: int, shaping: Shaping | None = None) -> Trials:
        """What tuning the proposal of attempt `number` may play: its own seeds, and the episodes left for it.

        Args:
            shaping: what it is tuned on in the place of the return.
        """
        measure = Measure(self.task, shaping) if shaping is not None else None
        return self._trials(number, episodes_of_tuning(number, self.config, self.left), measure)

    def last_trials(self, number: int, turns: int) -> Trials | None:
        """What attempt `number`, the first of so many that only tune, may play; None where that is too little.

        Scoring, validating and comparing what comes of it remain possible.
        """
        if self.left is None:
            return None
        most = PROLONGATIONS[-1] * self.config.episodes  # of both who are compared; they have the first score
        episodes = self.left // turns - 2 * self.config.episodes - 2 * most
        return self._trials(number, episodes) if episodes >= LEAST_SHARE else None

    def _trials(self, number: int, episodes: int, measure: Measure | None = None) -> Trials:
        def seeds(first: int, count: int) -> tuple[int, ...]:
            return episode_seeds(self.config.seed, f"refine {number}", count, first)

        since, played = time.time(), 0

        def play(policies: Sequence[Policy], seeds: Sequence[int]) -> tuple[list[list[Trajectory]], Means]:
            nonlocal played
            if not played:
                self.tell(TuningProgress(number, 0, episodes, None, since))
            trajectories = self._play_many(policies, seeds)
            means = np.array([np.mean([t.episode_return for t in some]) for some in trajectories])
            played += len(policies) * len(seeds)
            self.tell(TuningProgress(number, played, episodes, float(means.mean()), since))
            return trajectories, means

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Means:
            return play(policies, seeds)[1]

        def objectives(policies: Sequence[Policy], seeds: Sequence[int]) -> Means:
            assert measure is not None
            trajectories, _ = play(policies, seeds)
            sums = measure.sums([trajectory for some in trajectories for trajectory in some])
            return np.asarray(sums.reshape(len(policies), len(seeds)).mean(axis=1), np.float64)

        sampler = Sampler(self.mdp, self.task.max_steps) if self.mdp is not None else None

        def practice(actor: Actor, seeds: Sequence[int]) -> None:
            nonlocal played
            if sampler is None:
                mean = float(np.mean([t.episode_return for t in self.play(actor, tuple(seeds))]))
            else:
                self.ledger.charge_episodes(len(seeds))
                sampled = sampler.play(actor, seeds)
                self.ledger.env_steps += int(sampled.lengths.sum())
                mean = float(sampled.returns.mean())
            played += len(seeds)
            self.tell(TuningProgress(number, played, episodes, mean, since))

        pursued = objectives if measure is not None and measure.objective is not None else None
        return Trials(returns, seeds, episodes, practice, measure, pursued)

    def _play_many(self, policies: Sequence[Policy], seeds: Sequence[int]) -> list[list[Trajectory]]:
        self.ledger.charge_episodes(len(policies) * len(seeds))
        played = self.players.play_many(policies, seeds)
        self.ledger.env_steps += sum(t.length for trajectories in played for t in trajectories)
        return played

    # --- counting

    @property
    def left(self) -> int | None:
        """Episodes within the limit; None without one."""
        return self.config.max_episodes - self.ledger.episodes if self.config.max_episodes is not None else None

    def affords(self, wanted: int, *scores: Score) -> bool:
        """Whether the episodes that these scores lack of `wanted` are within the limit."""
        lacking = sum(max(0, wanted - score.episodes) for score in scores)
        return self.ledger.affords_episodes(lacking + self._reserved)

    def scorable(self, proposals: int) -> int:
        """How many of so many proposals could be scored: no more are to be asked and paid for.

        Raises:
            BudgetExhausted: the episodes of not even one more score are left.
        """
        affordable = proposals
        while affordable and not self.ledger.affords_episodes(affordable * self.config.episodes):
            affordable -= 1
        if not affordable:
            raise self.exhausted()
        return affordable

    def exhausted(self) -> BudgetExhausted:
        """Why no further policy is asked for."""
        if self.ledger.affords_episodes(self.config.episodes):
            return BudgetExhausted(f"too few of {self.config.max_episodes} episodes are left for a whole round")
        return BudgetExhausted(f"fewer than {self.config.episodes} of {self.config.max_episodes} episodes are left")

    def reserve_for_round(self, number: int) -> None:
        """Keep the episodes that score the rest of its round, while attempt `number` is compared with the best."""
        self._reserved = rest_of_round(number, self.config) * self.config.episodes

    def note_fault(self, error: EnvironmentFault) -> None:
        """Count a proposal under which the environment failed.

        Raises:
            EnvironmentFault: it has failed too often in a row; a run that goes on assesses the last proposal again.
        """
        self.faults += 1
        if self.faults >= MOST_FAULTS:
            raise EnvironmentFault(f"the environment failed under {self.faults} proposals in a row; at last {error}")

    def stamped(self, attempt: Attempt, started: float) -> Attempt:
        """The attempt, begun at `started` of `time.perf_counter`, with what the run has spent by now."""
        now = time.perf_counter()
        return replace(
            attempt,
            episodes=self.ledger.episodes,
            env_steps=self.ledger.env_steps,
            seconds=now - started + attempt.llm_seconds,
            wall_seconds=now - self._started,
        )

    def settled(self, last: Attempt) -> Attempt:
        """The last attempt with all episodes of the run: a cap is confirmed after the attempt was recorded."""
        if last.episodes == self.ledger.episodes:
            return last
        return replace(self.stamped(last, 0.0), seconds=last.seconds)


def warm_up_seeds(config: RunConfig) -> tuple[int, ...]:
    """The seeds that random actions are played on."""
    return episode_seeds(config.seed, "warm-up", config.warmup_episodes) if config.warmup_episodes else ()


def seeds_of_attempt(number: int, config: RunConfig, *, exact: bool) -> tuple[int, ...]:
    """The seeds that attempt `number` is played on: common to all attempts where episodes are what scores compare.

    Where the score is exact, episodes only feed the replay buffer, and every attempt brings new ones.
    """
    return episode_seeds(config.seed, "search", config.episodes, (number - 1) * config.episodes if exact else 0)


def play_final(search: Search, config: RunConfig) -> Score | None:
    """Score the best policy on fresh seeds that the search never saw, or exactly; None without a policy."""
    if search.best is None or search.best.policy is None:
        return None
    exact = exact_score(search.best.policy, search.mdp) if search.mdp is not None else None
    if exact is not None:
        return exact
    with Players(search.task, config.jobs, step_timeout=config.step_timeout) as players:
        seeds = episode_seeds(config.seed, "final", config.final_episodes)
        return sampled_score(players.play(search.best.policy, seeds), players.engine)
