"""Play the episodes of a run on its seeds; each episode is charged to the budget before it is played."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from policygen.episodes.exact import Sampler, exact_score
from policygen.episodes.race import Course, Levels, race
from policygen.episodes.requirements import Penalty, Requirements, Violations, excess
from policygen.episodes.score import Score, episode_seeds, sampled_score, score_of_returns
from policygen.episodes.simulator import ParallelSimulator, evaluate
from policygen.episodes.trajectory import Actor, HeldRandomActor, RandomActor, Trajectory
from policygen.errors import BudgetExhausted, EnvironmentFault
from policygen.notices import announced_if_slow
from policygen.policies.linear import constant_policy
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.attempt import Attempt, Counts, usual_length
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity, TuningProgress
from policygen.runs.notes import VIOLATIONS, made_notes
from policygen.runs.state import Search
from policygen.runs.tuning import EPISODES_OF_TUNING, LEAST_SHARE, PROLONGATIONS, WARM_UP_SHARE, episodes_of_tuning
from policygen.search.refine.tunable import Trials, Vector
from policygen.tasks.environments import fits
from policygen.tasks.task import Perturbation

# An environment that fails for this many proposals in a row would also fail for the next ones, which cost money.
MAX_FAULTS = 5
MIN_START_EPISODES = 12  # minimum that each constant action plays at the start of a run, if the budget allows it
MAX_RACERS = 8  # maximum number of constant actions that race at the start of a run
# A constant action is better than the first policy if it is ahead by about one standard error.
CLEARLY = Levels(gain=0.16, loss=1)
FINAL_EPISODES = 100  # episodes of the final score; more, up to MAX_FINAL_EPISODES, if they are short and vary
MAX_FINAL_EPISODES = 2_000
FINAL_STEPS = 5_000  # approximate number of steps of all short final episodes together
FRAGILITY = (Perturbation("action_delay", 1, 1), Perturbation("sensor_noise", 0.02, 0.02))
FRAGILITY_EPISODES = 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Performance:
    """A policy's score, its episodes, and how often these violated the task's requirements.

    If the score is exact, the episodes only serve the replay buffer and the requirements.
    """

    score: Score | None
    trajectories: Sequence[Trajectory] = ()
    violations: tuple[Violations, ...] = ()

    def notes(self, policy: Policy | None) -> dict[str, Any]:
        """Return the notes for the attempt that these episodes score; a policy of None means random actions."""
        violations = {VIOLATIONS.key: self.violations} if self.violations else {}
        return violations | made_notes(policy, self.trajectories)


class EpisodeRunner(AbstractContextManager["EpisodeRunner"]):
    """Plays and counts the episodes of one run; it judges no policy."""

    def __init__(
        self,
        search: Search,
        config: RunConfig,
        ledger: Ledger,
        tell: Callable[[Activity | None], None] = lambda activity: None,
    ) -> None:
        self.task = search.task
        self.mdp = search.mdp
        self.config = config
        self.ledger = ledger
        self.ledger.longest = search.task.most_steps
        self.ledger.usual = self._recorded_length = usual_length(search.attempts)
        self._buffer = search.buffer
        self._requirements = Requirements(search.task)
        self.tell = tell
        self.simulator = ParallelSimulator(search.task, config.jobs, step_timeout=config.step_timeout)
        self.faults = 0  # consecutive proposals for which the environment failed
        self._started = time.perf_counter() - (search.attempts[-1].counts.wall_seconds if search.attempts else 0.0)

    def __exit__(self, *exception: object) -> None:
        self.simulator.close()

    # --- play

    def play(self, actor: Actor, seeds: tuple[int, ...], *, tuning: bool = False) -> list[Trajectory]:
        """Play one episode per seed; `tuning` says whether their steps count as steps of tuning.

        Raises BudgetExhausted before playing any if the episodes would exceed the limit.
        """
        self.ledger.check_episodes(len(seeds))
        trajectories: list[Trajectory] = []
        while len(trajectories) < len(seeds):
            safe = self.ledger.safe_episodes
            some = seeds[len(trajectories) :][: safe if safe is None else max(1, safe)]
            trajectories += self._counted(len(some), partial(self.simulator.play, actor, some), tuning=tuning)
        self._note_lengths(trajectories)
        return trajectories

    def _play_many(self, policies: Sequence[Policy], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Play each policy on each seed for tuning: all together, or one policy at a time if steps are scarce."""
        count, safe = len(policies) * len(seeds), self.ledger.safe_episodes
        if safe is None or max(1, safe) >= count:
            found = self._counted(count, lambda: self.simulator.play_many(policies, seeds), tuning=True)
            self._note_lengths([one for some in found for one in some])
            return found
        self.ledger.check_episodes(count)
        return [self.play(policy, tuple(seeds), tuning=True) for policy in policies]

    def _note_lengths(self, trajectories: Sequence[Trajectory]) -> None:
        """Make the budget expect episodes as long as these, if they were longer than earlier ones."""
        if trajectories:
            steps = sum(one.length for one in trajectories)
            self.ledger.usual = max(self.ledger.usual, -(-steps // len(trajectories)))

    def _counted(self, episodes: int, play: Callable[[], T], *, tuning: bool) -> T:
        """Charge episodes, play them, and count their steps, even if the environment fails."""
        self.ledger.charge_episodes(episodes)
        before = self.simulator.steps
        try:
            return play()
        finally:
            self.ledger.count_steps(self.simulator.steps - before, tuning=tuning)

    def play_randomly(self) -> Performance:
        """Play the warm-up and score random actions; without warm-up episodes the score is None."""
        count, limit = self.config.warmup_episodes, self.config.max_steps
        if not count:
            return Performance(None)
        actor = self._random_actor()
        if limit is None:
            trajectories = self.play(actor, self._seeds("warm-up", count))
        else:  # one at a time, up to a share of the steps
            trajectories, begun = [], self.ledger.env_steps
            most = count if "warmup_episodes" in self.config.model_fields_set else math.inf
            while len(trajectories) < most and self.ledger.env_steps - begun < WARM_UP_SHARE * limit:
                trajectories += self.play(actor, self._seeds("warm-up", 1, len(trajectories)))
        score = sampled_score(trajectories, self.simulator.engine)
        return Performance(score, trajectories, self._requirements.count(trajectories))

    def perform(self, number: int, policy: Policy) -> Performance:
        """Score a policy for attempt `number`: exactly if the MDP is known, else on the shared seeds."""
        exact = exact_score(policy, self.mdp) if self.mdp is not None else None
        trajectories = self.play(policy, self._shared_seeds(number, exact=exact is not None))
        score = exact or sampled_score(trajectories, self.simulator.engine)
        return Performance(score, trajectories, self._requirements.count(trajectories))

    def replayed(self, attempt: Attempt) -> Iterator[list[Trajectory]]:
        """Replay the episodes that gave a recorded attempt its score."""
        assert attempt.score is not None
        if attempt.number == 0:
            actor, count = self._random_actor(), attempt.score.episodes
            size = count if self.config.max_steps is None else 1  # as `play_randomly`
            for first in range(0, count, size):
                yield self.play(actor, self._seeds("warm-up", size, first))
        elif attempt.policy is not None:
            yield self.play(attempt.policy, self._shared_seeds(attempt.number, exact=attempt.score.exact))

    def _random_actor(self) -> RandomActor:
        """Return the actor for the warm-up; if steps are limited, it repeats each action for a few steps."""
        return (RandomActor if self.config.max_steps is None else HeldRandomActor)(self.task, self.config.seed)

    def _seeds(self, purpose: str, count: int, first: int = 0) -> tuple[int, ...]:
        return episode_seeds(self.config.seed, purpose, count, first)

    def _shared_seeds(self, number: int, *, exact: bool) -> tuple[int, ...]:
        """Return an attempt's seeds, which all attempts share; new ones if scores are exact: they fill the buffer."""
        return self._seeds("search", self.config.episodes, (number - 1) * self.config.episodes if exact else 0)

    def course(self, purpose: str, count: int) -> Course:
        """Return a course for races on this many seeds; its episodes are charged to the run's budget."""
        return Course(self.task, self._seeds(purpose, count), self.play, self.simulator.engine, self.mdp)

    def best_start(self, policies: Sequence[Policy]) -> Policy:
        """Return the winner of races on a few shared episodes: the first policy, unless another is clearly better.

        If there are many policies, one episode each selects those that race. All this uses at most a tenth of the
        remaining episodes; if that is less than two per racer, nothing races.
        """

        def rank(score: Score) -> tuple[float, float]:
            return excess(score.violations), -score.mean

        count = max(MIN_START_EPISODES, self.config.episodes // 4)
        course = self.course("search", count)
        if self.mdp is None or self.task.requirements or exact_score(policies[0], self.mdp) is None:
            room = self.ledger.episodes_left // 10 if self.ledger.episodes_left is not None else sys.maxsize
            if len(policies) > MAX_RACERS:
                # Leave each racer room for a second episode.
                first, *others = policies[: max(MAX_RACERS, room - MAX_RACERS)]
                room -= max(0, len(others) + 1 - MAX_RACERS)
                if len(others) >= MAX_RACERS:
                    others.sort(key=lambda policy: rank(course.score(policy, 1)))
                policies = [first, *others[: MAX_RACERS - 1]]
            count = min(count, room // len(policies))
            if count < 2:
                return policies[0]
        best = policies[0]
        for policy in policies[1:]:
            if race(course.scorer(policy), course.scorer(best), [count], CLEARLY).verdict == "better":
                best = policy
        return best

    def prolong(self, policy: Policy, score: Score, episodes: int) -> Score:
        """Extend a score to `episodes` of the shared seeds if the budget allows it; play only the missing ones."""
        if score.exact or score.episodes >= episodes or not self.affords(episodes, score):
            return score
        try:
            return self.extended("search", policy, score, episodes)
        except BudgetExhausted:  # the episodes were longer than earlier ones
            return score

    def validate(self, policy: Policy, score: Score | None, episodes: int) -> Score | None:
        """Extend a score to `episodes` validation episodes, or as many as are left; these never select a policy.

        Args:
            score: earlier score on the first of these episodes; returned unchanged if it has enough or none are left.
        """
        played = score.episodes if score is not None else 0
        if (left := self.ledger.episodes_left) is not None:
            episodes = min(episodes, played + left)
        if episodes <= max(played, 1):
            return score
        try:
            return self.extended("validation", policy, score, episodes)
        except BudgetExhausted:  # the episodes were longer than earlier ones
            return score

    def extended(self, purpose: str, policy: Policy, score: Score | None, episodes: int) -> Score:
        """Extend a score to the first `episodes` seeds for a purpose; play only the missing ones."""
        played = score.episodes if score is not None else 0
        more = sampled_score(self.play(policy, self._seeds(purpose, episodes - played, played)), self.simulator.engine)
        if score is None:
            return more
        return score_of_returns(np.array(score.returns + more.returns), score.seeds + more.seeds, score.engine)

    def trials(self, number: int, shaping: Shaping | None = None) -> Trials:
        """Return the tuning budget of attempt `number`: its own seeds and its share of the episodes."""
        episodes, refining = episodes_of_tuning(number, self.config, self.ledger.episodes_left), self.config.refine
        if episodes and refining.most_episodes is not None and self.config.max_steps is not None:
            # `episodes_left` assumes full length until lengths are measured. Real episodes may be much shorter, so the
            # method asks `affords` before each.
            episodes = refining.episodes or EPISODES_OF_TUNING
        return self._trials(number, episodes, Measure(self.task, shaping) if shaping is not None else None)

    def last_trials(self, number: int, turns: int) -> Trials | None:
        """Return the budget of attempt `number`, the first of `turns` that only tune; None if it is too small.

        Episodes for scoring, validating and comparing the result are held back.
        """
        if (left := self.ledger.episodes_left) is None:
            return None
        most = PROLONGATIONS[-1] * self.config.episodes  # for each of the two policies in a comparison
        episodes = left // turns - 2 * self.config.episodes - 2 * most
        return self._trials(number, episodes) if episodes >= LEAST_SHARE else None

    def _trials(self, number: int, episodes: int, measure: Measure | None = None) -> Trials:
        since, played, penalty = time.time(), 0, Penalty(self.task, episodes)
        objective = measure if measure is not None and measure.objective is not None else None
        sampler = Sampler(self.mdp, self.task.max_steps) if self.mdp is not None else None

        def count(more: int, returns: Sequence[float] | Vector) -> None:
            nonlocal played
            played += more
            self.tell(TuningProgress(number, played, episodes, float(np.mean(returns)) if more else None, since))

        def play(policies: Sequence[Policy], seeds: Sequence[int]) -> list[list[Trajectory]]:
            if not played:
                count(0, ())
            trajectories = self._play_many(policies, seeds)
            count(len(policies) * len(seeds), [t.episode_return for some in trajectories for t in some])
            return trajectories

        def score(trajectories: Sequence[Sequence[Trajectory]], objective: Measure | None = None) -> Vector:
            every = [trajectory for some in trajectories for trajectory in some]
            found = objective.sums(every) if objective is not None else np.array([t.episode_return for t in every])
            return penalty(found.reshape(len(trajectories), -1).mean(axis=1), trajectories)

        def parts(policies: Sequence[Policy], seeds: Sequence[int], count: int) -> list[Vector]:
            trajectories, size = play(policies, seeds), len(seeds) // count
            return [score([some[i * size : (i + 1) * size] for some in trajectories], objective) for i in range(count)]

        def practice(actor: Actor, seeds: Sequence[int]) -> Vector:
            if sampler is None:
                found = np.array([t.episode_return for t in self.play(actor, tuple(seeds), tuning=True)])
            else:
                self.ledger.charge_episodes(len(seeds))
                found, lengths = sampler.play(actor, seeds)
                self.ledger.count_steps(int(lengths.sum()), tuning=True)
            count(len(seeds), found)
            return found

        return Trials(
            lambda policies, seeds: score(play(policies, seeds)),
            lambda first, count: self._seeds(f"refine {number}", count, first),
            episodes,
            practice,
            measure,
            parts=parts,
            watch=lambda policy, seeds: play([policy], seeds)[0],
            seen=[e.trajectory for e in self._buffer] if self.config.refine.most_episodes is not None else [],
            affords=lambda count: self.ledger.affords_episodes(self.config.episodes + count),  # the result is scored
            mdp=self.mdp,
        )

    # --- counting

    def affords(self, wanted: int, *scores: Score) -> bool:
        """Whether the budget allows extending each score to `wanted` episodes."""
        return self.ledger.affords_episodes(sum(max(0, wanted - score.episodes) for score in scores))

    def note_fault(self, error: EnvironmentFault, *, first: bool) -> None:
        """Count a proposal for which the environment failed.

        If no policy has a score yet (`first`), an episode of constant actions shows whether other policies would fail,
        too.

        Raises EnvironmentFault if it failed too often in a row, or under constant actions; a resumed run assesses the
        last proposal again.
        """
        if first and not self.faults and self.ledger.affords_episodes(1):
            constant = constant_policy(self.task, [(a.low + a.high) / 2 for a in self.task.actuators])
            self.play(constant, self._seeds("search", 1))
        self.faults += 1
        if self.faults >= MAX_FAULTS:
            raise EnvironmentFault(f"the environment failed for {self.faults} proposals in a row; the last: {error}")

    def with_spending(self, attempt: Attempt, started: float) -> Attempt:
        """Add the time since `started` (a `time.perf_counter` value) and the run's totals to an attempt."""
        seconds = time.perf_counter() - started + attempt.requests.llm_seconds
        # A resumed run knows only the lengths of recorded episodes, and must make the same decisions.
        self.ledger.usual = self._recorded_length = max(self._recorded_length, usual_length([attempt]))
        return replace(attempt, seconds=seconds, counts=self._counts())

    def with_final_counts(self, last: Attempt) -> Attempt:
        """Update the last attempt's totals: confirming the best score plays episodes after it was recorded."""
        return last if last.counts.episodes == self.ledger.episodes else replace(last, counts=self._counts())

    def _counts(self) -> Counts:
        seconds = time.perf_counter() - self._started
        return Counts(self.ledger.episodes, self.ledger.env_steps, self.ledger.tuning_steps, seconds)


def final_episodes(best: Attempt, config: RunConfig) -> int:
    """Return the number of episodes in the final score: the setting or, if it is not set, `FINAL_EPISODES` or more.

    It is more if the best policy's episodes were short and their returns varied, with about `FINAL_STEPS` steps in all.
    It stays the usual number if steps are limited: the plant may be real.
    """
    if config.final_episodes is not None:
        return config.final_episodes
    score, steps = best.score, sum(best.played.lengths)
    if config.max_steps is not None or score is None or score.exact or not score.std > 0 or not steps:
        return FINAL_EPISODES
    return max(FINAL_EPISODES, min(MAX_FINAL_EPISODES, FINAL_STEPS * len(best.played) // steps))


def final_scores(search: Search, config: RunConfig) -> tuple[Score | None, Score | None, tuple[Perturbation, ...]]:
    """Score the best policy exactly or on fresh seeds that the search never saw, and again under perturbations.

    Returns:
        The score, None without a policy; the score on the first of these seeds under the usual perturbations, None if
        it is left out or the environment fails; and these perturbations.
    """
    best, policy, task = search.best, search.incumbent, search.task
    if best is None or policy is None:
        return None, None, ()
    seeds = episode_seeds(config.seed, "final", final_episodes(best, config))
    with announced_if_slow(f"playing {len(seeds):,} fresh episodes of the best policy"):
        final = evaluate(policy, seeds, task, config.jobs, config.step_timeout)
    # Left out if steps are limited (the plant may be real), or the environment is perturbed or a user's own object.
    perturbable = config.fragility and config.max_steps is None and not task.perturb and task.given is None
    if by := tuple(one for one in FRAGILITY if perturbable and fits(task, one)):
        some, perturbed = seeds[:FRAGILITY_EPISODES], replace(task, perturb=by)
        with suppress(EnvironmentFault), announced_if_slow("playing the best policy with delays and noise"):
            return final, evaluate(policy, some, perturbed, config.jobs, config.step_timeout, isolate_foreign=True), by
    return final, None, ()
