"""The loop: play, prompt, propose, score, keep the best."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from policygen.budget import Ledger
from policygen.buffer import ReplayBuffer
from policygen.config import RunConfig, parse_method
from policygen.errors import BudgetExhausted
from policygen.evaluate import (
    Score,
    episode_seeds,
    exact_score,
    finite_mdp,
    paired_gain,
    sampled_score,
    score_of_returns,
)
from policygen.example import Example
from policygen.policies import Policy
from policygen.prompts import render_prompt
from policygen.propose import Correspondent, Proposal, propose
from policygen.refine import Refined, refine
from policygen.rollout import RandomActor, Trajectory
from policygen.search import Attempt, Played, Search
from policygen.tasks import Task
from policygen.workers import Players

# A challenger must be better at this one-sided level of the paired test. Close calls get up to so many times the
# episodes; on the most, where waiting no longer helps and both are nearly as good, less certainty is enough.
SIGNIFICANCE = 0.1
LAST_SIGNIFICANCE = 0.2
PROLONGATIONS = (2, 4)
# First changes of a constant over standardised observations, in units of the search's own relative step.
STANDARDISED_STEP = 2.5


def new_search(task: Task, config: RunConfig, example: Example | None = None) -> Search:
    """An empty search for a run."""
    return Search(task, ReplayBuffer(config.buffer_steps), finite_mdp(task), example)


def optimize(search: Search, config: RunConfig, correspondent: Correspondent) -> Iterator[Attempt]:
    """Improve the policy of `search.task`, one attempt at a time, until the iterations, a budget or the task end.

    Yields attempts as they are scored, the first being number 0: random actions. `search` holds the state in between,
    and the reason for stopping afterwards; a search that already has attempts goes on after its last whole iteration.

    Raises:
        ProviderError: the model cannot be asked; what was found so far is in `search`.
        TemplateError: the prompt cannot be rendered.
    """
    ledger = correspondent.ledger
    with Players(search.task, config.jobs) as players:
        judge = Judge(search, config, ledger, players, told_units=correspondent.provider.is_language_model)
        try:
            if not search.attempts:
                yield judge.random_actions()
            _end_of_budget(search)
            for iteration in range((len(search.attempts) - 1) // config.candidates, config.iterations):
                if judge.nothing_left_to_gain():
                    search.stopped = "the best possible score was reached"
                    return
                judge.reserve_episodes()
                first = iteration * config.candidates + 1
                earlier = search.turns if config.conversation == "continued" else []
                context = search.context(first, config)
                contexts = [replace(context, number=first + k) for k in range(config.candidates)]
                proposals: list[Proposal] = []
                stopped = ""
                for context in contexts:
                    prompt = render_prompt(context, config, earlier)
                    try:
                        proposals.append(propose(correspondent, context.number, prompt, context, config))
                    except BudgetExhausted as error:
                        stopped = str(error)  # what was proposed, and paid for, is scored before the run ends
                        break
                for context, proposal in zip(contexts, proposals, strict=False):
                    yield judge.assess(context.number, proposal)
                if stopped:
                    raise BudgetExhausted(stopped)
                search.turns += proposals[0].turns
                _end_of_budget(search)
            search.stopped = f"all {config.iterations} iterations are done"
        except BudgetExhausted as error:
            search.stopped = str(error)


def _end_of_budget(search: Search) -> None:
    """End the run if an attempt used up a budget; the attempts know, so that a resumed run ends there too."""
    if stopped := next((attempt.stopped for attempt in search.attempts if attempt.stopped), ""):
        raise BudgetExhausted(stopped)


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
        if refined is None and parse_method(self.config.refine)[0] is not None:
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
        method, episodes = parse_method(self.config.refine)
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
