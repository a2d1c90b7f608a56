"""Play and score policies, and decide which is best: on common seeds, by a paired test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import exact_score
from policygen.episodes.players import Players
from policygen.episodes.score import Score, episode_seeds, paired_gain, sampled_score, score_of_returns
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import BudgetExhausted
from policygen.policies.policy import Policy
from policygen.roles.proposer import Proposal
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.state import Attempt, Played, Search
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Refined
from policygen.tasks.task import Task

# A challenger must be better at this one-sided level of the paired test. Close calls get up to so many times the
# episodes; on the most, where waiting no longer helps and both are nearly as good, less certainty is enough.
SIGNIFICANCE = 0.1
LAST_SIGNIFICANCE = 0.2
PROLONGATIONS = (2, 4)
# First changes of a constant over standardised observations, in units of the search's own relative step.
STANDARDISED_STEP = 2.5


class Judge:
    """Plays and scores policies, and decides which is best: on common seeds, by a paired test."""

    def __init__(
        self, search: Search, config: RunConfig, ledger: Ledger, players: Players, *, told_units: bool = True
    ) -> None:
        self.search = search
        self.config = config
        self.ledger = ledger
        self.players = players
        self.told_units = told_units
        self._started = time.perf_counter() - (search.attempts[-1].wall_seconds if search.attempts else 0.0)

    def random_actions(self) -> Attempt:
        """Attempt 0: what random actions score, and the first episodes in the buffer."""
        started = time.perf_counter()
        seeds = episode_seeds(self.config.seed, "warm-up", self.config.warmup_episodes)
        trajectories = self._play(RandomActor(self.search.task, self.config.seed), seeds) if seeds else []
        self.search.buffer.add(0, trajectories)
        score = sampled_score(trajectories, self.players.engine) if trajectories else None
        attempt = Attempt(0, None, score, _in_short(trajectories), verdict="random actions")
        return self._record(attempt, started)

    def assess(self, number: int, proposal: Proposal) -> Attempt:
        """Score a proposal, compare it with the best so far, and record the attempt."""
        started = time.perf_counter()
        replies = [exchange.reply for exchange in proposal.exchanges]
        costs = [reply.usd for reply in replies]
        attempt = Attempt(
            number,
            proposal.parsed.policy,
            None,
            problems=proposal.parsed.problems,
            coverage=proposal.parsed.coverage,
            calls=sum(exchange.requests for exchange in proposal.exchanges),
            repairs=len(proposal.exchanges) - 1,
            tokens_in=sum(exchange.tokens_in for exchange in proposal.exchanges),
            tokens_out=sum(exchange.tokens_out for exchange in proposal.exchanges),
            usd=None if None in costs else float(sum(cost for cost in costs if cost is not None)),
            llm_seconds=sum(reply.seconds for reply in replies),
            stopped=proposal.stopped,
        )
        if attempt.policy is None:
            return self._record(replace(attempt, verdict="no policy"), started)
        try:
            score, trajectories = self._score(number, attempt.policy)
        except BudgetExhausted as error:
            unscored = replace(attempt, verdict="not scored: the episodes are used up", stopped=str(error))
            return self._record(unscored, started)
        refined = self._refined(number, attempt.policy)
        untuned = ""
        if refined is None and self.config.refine.method is not None:
            untuned = "; not tuned: no constant moves, or the episodes do not suffice"
        if refined is not None:
            tuned, played = self._score(number, refined.policy)
            words = _refinement_in_words(refined, score, tuned)
            attempt = replace(attempt, refinement=words)
            if tuned.mean > score.mean:
                attempt = replace(
                    attempt,
                    proposed=attempt.policy,
                    proposed_score=score,
                    policy=refined.policy,
                    spread=refined.spread,
                )
                score, trajectories = tuned, played
        assert attempt.policy is not None
        self.search.buffer.add(number, trajectories)
        accepted, verdict, decided = self._contest(attempt.policy, score)
        attempt = replace(
            attempt,
            score=score,
            played=_in_short(trajectories),
            undefined=attempt.policy.undefined(np.concatenate([t.observations[:-1] for t in trajectories])),
            accepted=accepted,
            verdict=verdict + untuned,
        )
        if accepted:
            self.search.best_score = decided
        return self._record(attempt, started)

    def _refined(self, number: int, policy: Policy) -> Refined | None:
        """The policy with its numbers tuned, as far as the run's settings and budget allow."""
        method, episodes = self.config.refine.method, self.config.refine.episodes
        left = self.config.max_episodes
        if left is not None:
            # Scoring the tuned policy, and the other proposals of its round, must still be possible.
            others = -number % self.config.candidates
            episodes = min(episodes, left - self.ledger.episodes - (1 + others) * self.config.episodes)
        if method is None or episodes <= 0:
            return None

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> npt.NDArray[np.float64]:
            self.ledger.charge_episodes(len(policies) * len(seeds))
            played = self.players.play_many(policies, seeds)
            self.ledger.env_steps += sum(t.length for trajectories in played for t in trajectories)
            return np.array([np.mean([t.episode_return for t in trajectories]) for trajectories in played])

        def seeds(first: int, count: int) -> tuple[int, ...]:
            return episode_seeds(self.config.seed, f"refine {number}", count, first)

        # `builtin` writes over standardised observations, where every constant has the same natural size.
        floor = 0.0 if self.told_units else STANDARDISED_STEP
        # The best policy proposed again is tuned further, from where its tuning left off.
        best = self.search.best
        again = best is not None and best.policy is not None and policy.to_text() == best.policy.to_text()
        return refine(
            policy,
            method,
            episodes,
            returns,
            seeds,
            self.config.seed + number,
            mdp=self.search.mdp,
            floor=floor,
            spread=[value for _, value in best.spread] if again and best is not None else (),
        )

    def nothing_left_to_gain(self) -> bool:
        """Whether the best score is as high as can be, on four times the usual episodes."""
        search, target = self.search, stop_score(self.search.task, self.config)
        if target is None or search.best_score is None or search.best is None or search.best_score.mean < target:
            return False
        if not search.best_score.exact and search.best.policy is not None:
            wanted = self.config.episodes * PROLONGATIONS[-1]
            search.best_score = self._prolonged(search.best.policy, search.best_score, wanted)
        return search.best_score.mean >= target

    def reserve_episodes(self) -> None:
        """Refuse to ask for a policy that could not be scored.

        Raises:
            BudgetExhausted: the episodes of one more score are not left.
        """
        if not self.ledger.affords_episodes(self.config.episodes):
            raise BudgetExhausted(f"fewer than {self.config.episodes} of {self.config.max_episodes} episodes are left")

    def _play(self, actor: Policy | RandomActor, seeds: tuple[int, ...]) -> list[Trajectory]:
        self.ledger.charge_episodes(len(seeds))
        trajectories = self.players.play(actor, seeds)
        self.ledger.env_steps += sum(trajectory.length for trajectory in trajectories)
        return trajectories

    def _score(self, number: int, policy: Policy) -> tuple[Score, list[Trajectory]]:
        seeds = seeds_of_attempt(number, self.config, exact=self.search.mdp is not None)
        trajectories = self._play(policy, seeds)
        if self.search.mdp is not None:
            return exact_score(policy, self.search.mdp), trajectories
        return sampled_score(trajectories, self.players.engine), trajectories

    def _seeds(self, count: int, first: int = 0) -> tuple[int, ...]:
        return episode_seeds(self.config.seed, "search", count - first, first)

    def _contest(self, policy: Policy, score: Score) -> tuple[bool, str, Score]:
        """Whether `policy` replaces the best one, why, and its score after any prolongation."""
        best, best_score = self.search.best, self.search.best_score
        if best is None or best.policy is None or best_score is None:
            return True, "the first policy", score
        gain, p, level = 0.0, 1.0, SIGNIFICANCE
        for times in (1, *PROLONGATIONS):
            wanted = times * self.config.episodes
            if not score.exact and not self._affords(wanted, score, best_score):
                return False, f"ahead, but too few episodes are left to be sure (p = {p:.2f})", score
            score = self._prolonged(policy, score, wanted)
            best_score = self.search.best_score = self._prolonged(best.policy, best_score, wanted)
            gain, p = paired_gain(score, _first(best_score, score.episodes))
            level = LAST_SIGNIFICANCE if times == PROLONGATIONS[-1] else SIGNIFICANCE
            if gain <= 0 or score.exact or p <= level:
                break
        # Where the comparison was close it rests on more episodes than the attempt's own score.
        basis = " (exact)" if score.exact else f" on {score.episodes} paired episodes"
        verdict = f"{gain:+.4g} against the best{basis}"
        if gain <= 0 or score.exact:
            return gain > 0 and p <= level, verdict, score
        accepted = p <= level
        return accepted, f"{verdict}, p = {p:.2g}{'' if accepted else ', not sure enough'}", score

    def _affords(self, wanted: int, *scores: Score) -> bool:
        return self.ledger.affords_episodes(sum(max(0, wanted - score.episodes) for score in scores))

    def _prolonged(self, policy: Policy, score: Score, episodes: int) -> Score:
        """The score on at least so many of the common seeds, playing only those that are missing."""
        if score.exact or score.episodes >= episodes or not self._affords(episodes, score):
            return score
        more = sampled_score(self._play(policy, self._seeds(episodes, score.episodes)), score.engine)
        return _joined(score, more)

    def _record(self, attempt: Attempt, started: float) -> Attempt:
        seconds = time.perf_counter() - started
        score = self.search.best_score
        attempt = replace(
            attempt,
            episodes=self.ledger.episodes,
            env_steps=self.ledger.env_steps,
            best_mean=score.mean if score is not None else None,
            best_episodes=score.episodes if score is not None else 0,
            seconds=seconds + attempt.llm_seconds,
            wall_seconds=time.perf_counter() - self._started,
        )
        self.search.attempts.append(attempt)
        if attempt.accepted:
            self.search.best = attempt
        return attempt


def _refinement_in_words(refined: Refined, before: Score, after: Score) -> str:
    cost = f"{refined.episodes:,} episodes" if refined.episodes else "no episodes: exact scores"
    outcome = "" if after.mean > before.mean else ", which did not help and was dropped"
    what = "entries" if refined.method == "coordinate" else "constants"
    return f"{refined.method} over {refined.constants} {what}, {cost}: {before.mean:.4g} to {after.mean:.4g}{outcome}"


def seeds_of_attempt(number: int, config: RunConfig, *, exact: bool) -> tuple[int, ...]:
    """The seeds that attempt `number` is played on: common to all attempts where episodes are what scores compare.

    Where the score is exact, episodes only feed the replay buffer, and every attempt brings new ones.
    """
    return episode_seeds(config.seed, "search", config.episodes, (number - 1) * config.episodes if exact else 0)


def stop_score(task: Task, config: RunConfig) -> float | None:
    """The score at which a run has nothing left to gain: `stop_at`, else the known optimum."""
    if config.stop_at is not None:
        return config.stop_at
    return task.optimum.value if task.optimum is not None else None


def final_score(search: Search, config: RunConfig) -> Score | None:
    """The best policy on fresh seeds that the search never saw, or exactly; None without a policy."""
    if search.best is None or search.best.policy is None:
        return None
    if search.mdp is not None:
        return exact_score(search.best.policy, search.mdp)
    with Players(search.task, config.jobs) as players:
        seeds = episode_seeds(config.seed, "final", config.final_episodes)
        return sampled_score(players.play(search.best.policy, seeds), players.engine)


def _in_short(trajectories: list[Trajectory]) -> tuple[Played, ...]:
    return tuple(
        Played(t.episode_return, t.length, "terminated" if t.terminated else "cut", t.terms) for t in trajectories
    )


def _first(score: Score, count: int) -> Score:
    if score.exact or score.episodes == count:
        return score
    return _scored(score.returns[:count], score.seeds[:count], score.engine)


def _joined(score: Score, more: Score) -> Score:
    return _scored(score.returns + more.returns, score.seeds + more.seeds, score.engine)


def _scored(returns: tuple[float, ...], seeds: tuple[int, ...], engine: str) -> Score:
    return score_of_returns(np.array(returns), seeds, engine)
