"""`model`: tune inside a plant that is fitted to the episodes played, so that few real ones are needed.

Fit the plant, tune the policy in it, play one real episode, and again, until that episode turns out as predicted and
the plant promises no better policy. Where all steps have paid the same and no episode has ended, the policy is tuned
towards states in which the plant is least sure. Only real episodes count; what becomes the best is decided on others,
as for every method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.plants.account import account_of
from policygen.plants.fit import FittedPlant, fit_plant
from policygen.plants.identify import identified
from policygen.plants.simulate import play_in_plant
from policygen.plants.transitions import Transitions
from policygen.policies.plant import Equations, Plant, known_plant
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.runs.attempt import TuningState
from policygen.runs.tuning import MOST_ROUNDS
from policygen.search.refine.cma import cma_es
from policygen.search.refine.tunable import Refined, Trials, Tunable, Vector

INNER_EPISODES = 2_000  # in the plant, for one search
POPULATION = 24  # more candidates cost hardly more: all are computed together
RESTARTS = 2  # further searches in the plant before it is believed that it promises nothing better
PREDICTED = 24  # episodes in the plant by which policies are compared
FRESH = 3  # every third search begins with the policy as it was proposed, the others where the last one ended
ROUND_STEPS = 50  # of the environment between two fits, at least: one short episode tells little
REACHED = 2  # episodes that reached the end that is sought; a single one may have done so by luck
NEAR = 0.05  # predictions that differ by this share of the returns seen agree
NEARNESS = 0.1  # how much less an episode is worth that came no nearer to the end that is sought, as a share


@dataclass(frozen=True, slots=True)
class _Found:
    """A policy found in the plant, and what the plant promises it."""

    refined: Refined
    promised: float


def in_plant(
    policy: Policy,
    trials: Trials,
    rng_seed: int,
    plant: Plant | None = None,
    *,
    floor: float = 0.0,
    state: TuningState | None = None,
) -> Refined | None:
    """Tune by plays in a fitted plant; None if nothing can be tuned or no episode has been seen.

    Args:
        trials: plays the real episodes, one by one, and knows those played before.
        plant: the equations to fit; what they leave out is identified from the data.
        floor, state: see `refine`.
    """
    task, rng = policy.task, np.random.default_rng(rng_seed)
    seen, watched = list(trials.seen), list[Trajectory]()
    if trials.watch is None or not seen or Tunable(policy, floor).size == 0 or task.text_names:
        return None
    known = plant or known_plant(task)
    tried: list[_Found] = []
    rounds = 0
    while rounds < MOST_ROUNDS and len(watched) < trials.episodes and trials.affords_one():
        rounds += 1
        data = Transitions.of(task, seen)
        fitted = _fitted(known, data, rng)
        inside = _Inside(fitted, trials.measure, int(rng.integers(2**31)), flat=_is_flat(data))
        begin = (policy, state)
        if tried and len(tried) % FRESH:
            begin = (tried[-1].refined.policy, tried[-1].refined.state)
        found = inside.search(*begin, floor)
        if found is None:
            return None
        tried.append(found)
        real = list[Trajectory]()
        while sum(one.length for one in real) < ROUND_STEPS and trials.affords_one():
            real += trials.watch(found.refined.policy, trials.seeds(len(watched) + len(real), 1))
        watched += real
        seen += real
        if inside.seeks_end and sum(one.terminated for one in seen) < REACHED:
            continue  # no judge need see it; what the episode showed may let the next search reach the end
        if not inside.explores and _agrees(fitted, found.refined.policy, real[0], seen):
            if real[0].episode_return >= _ceiling(seen, task.max_steps):
                break
            disappointing = real[0].episode_return < found.promised - _tolerance(seen, found.promised)
            if disappointing and not inside.pursues_objective:
                continue  # the start is unlike those that the promise is of; the next search knows it
            others = [other for _ in range(RESTARTS) if (other := inside.search(policy, state, floor))]
            better = max(others, key=lambda one: one.promised)
            if better.promised <= found.promised + _tolerance(seen, better.promised):
                break
            tried.append(better)
    if not tried:
        return None
    data = Transitions.of(task, seen)
    fitted = _fitted(known, data, rng)
    promised = _Inside(fitted, trials.measure, int(rng.integers(2**31))).promises([one.refined.policy for one in tried])
    best = tried[int(np.argmax(promised))].refined
    return replace(best, episodes=len(watched), method="model", watched=tuple(watched), plant=account_of(fitted, data))


def _fitted(known: Plant, data: Transitions, rng: np.random.Generator) -> FittedPlant:
    """Fit the equations given, or those identified from the data where there are none."""
    names = set(data.task.observation_names)
    whole = names <= {name for name, _ in known.next} and known.reward and (known.ends or not data.ended.any())
    equations = Equations(data.task, known if whole else identified(data, known).revised_by(known))
    return fit_plant(equations, data, rng)


def _agrees(fitted: FittedPlant, policy: Policy, real: Trajectory, seen: Sequence[Trajectory]) -> bool:
    """Whether a real episode turned out as the members of the plant say, which agree, from the same start."""
    members = range(len(fitted.values))
    starts = np.repeat(real.observations[:1].astype(np.float64), len(members), axis=0)
    promised = np.array([t.episode_return for t in play_in_plant(fitted, [policy], members, starts)[0]])
    wrong, spread = abs(real.episode_return - float(promised.mean())), float(promised.std())
    tolerance = _tolerance(seen, float(promised.mean()))
    return spread <= 2 * tolerance and wrong <= 2 * spread + tolerance


def _ceiling(seen: Sequence[Trajectory], max_steps: int) -> float:
    """Return what an episode pays of which every step pays the most seen; infinity where no step pays anything."""
    most = max(float(trajectory.rewards.max()) for trajectory in seen)
    return most * max_steps if most > 0 else math.inf


def _tolerance(seen: Sequence[Trajectory], promised: float) -> float:
    returns = [promised, *(trajectory.episode_return for trajectory in seen)]
    return NEAR * (max(returns) - min(returns))


def _is_flat(data: Transitions) -> bool:
    """Whether all steps paid the same, and none ended its episode: then no return tells policies apart."""
    return not data.ended.any() and float(np.ptp(data.rewards)) == 0


class _Inside:
    """Searches inside one fitted plant.

    Attributes:
        explores: whether they seek states in which the plant is unsure, as nothing else tells policies apart.
    """

    def __init__(self, fitted: FittedPlant, measure: Measure | None, first_seed: int, *, flat: bool = False) -> None:
        self._fitted, self._first, self._searches = fitted, first_seed, 0
        self._measure = measure if measure is not None and measure.objective is not None else None
        self._margin = fitted.equations.margin if _seeks_end(fitted) else None
        self.explores = flat and self._margin is None and self._measure is None
        if self._margin is not None:
            self._way = max(1e-9, -float(np.nanmean(self._margins(fitted.starts[:, : len(fitted.low)]))))
            self._least = fitted.worst * fitted.equations.task.max_steps

    @property
    def seeks_end(self) -> bool:
        """Whether the end of an episode is what the reward asks for."""
        return self._margin is not None

    @property
    def pursues_objective(self) -> bool:
        """Whether promises are of an objective in the place of the return."""
        return self._measure is not None

    def search(self, policy: Policy, state: TuningState | None, floor: float) -> _Found | None:
        """Tune a policy in the plant; None if it has nothing to tune."""
        self._searches += 1
        offset = self._first + 1_000_000 * self._searches
        inner = Trials(
            self._returns, lambda first, count: range(offset + first, offset + first + count), INNER_EPISODES
        )
        tunable = Tunable(policy, state.floor if state is not None else floor)
        refined = cma_es(tunable, inner, (offset % 2**31) + 1, state, population=POPULATION)
        return _Found(refined, self.promises([refined.policy])[0]) if refined is not None else None

    def promises(self, policies: Sequence[Policy]) -> list[float]:
        """Return the mean return of each policy in the plant, on the same seeds."""
        return [float(value) for value in self._returns(policies, range(self._first, self._first + PREDICTED))]

    def _returns(self, policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
        played = play_in_plant(self._fitted, policies, seeds)
        if self._measure is not None:
            sums = self._measure.sums([one for some in played for one in some])
            return np.asarray(sums.reshape(len(policies), len(seeds)).mean(axis=1), np.float64)
        if self.explores:
            return np.array([self._fitted.doubt(some) for some in played])
        return np.array([np.mean([self._value(one) for one in some]) for some in played])

    def _value(self, episode: Trajectory) -> float:
        """Return what an episode is worth to the search: its return, unless an end is sought that it did not reach.

        Such an episode is worth less than any that does, and the less the further away it stayed: doing nothing may
        cost less than what leads to the end, and where every return is the same, nearness tells policies apart.
        """
        if self._margin is None:
            return episode.episode_return
        short = -float(np.nanmax(self._margins(episode.observations)))
        if short <= 0:
            return episode.episode_return
        return self._least * (1 + NEARNESS * min(1.0, short / self._way))

    def _margins(self, observations: npt.NDArray[np.floating[Any]]) -> Vector:
        assert self._margin is not None
        return np.asarray(self._margin(list(observations.T.astype(np.float64)))[0], np.float64)


def _seeks_end(fitted: FittedPlant) -> bool:
    """Whether the end of an episode is what the reward asks for: it is paid, or it ends what every step costs."""
    if fitted.worst >= 0 or not fitted.equations.plant.ends:
        return False
    task, plant = fitted.equations.task, fitted.plant
    width = len(fitted.low)
    starts, hidden = list(fitted.starts[:, :width].T), list(fitted.starts[:, width:].T)
    decided = fitted.equations.decided(
        np.zeros((len(fitted.starts), *(() if task.action_space == "discrete" else (len(task.actuators),))), np.int16)
    )
    paid = []
    for ends in ("1 > 0", "0 > 1"):
        equations = Equations(task, replace(plant, ends=ends))
        memory = equations.memory(hidden, len(fitted.starts))
        paid.append(float(np.mean(equations.outcome(starts, memory, decided, list(equations.values), starts)[0])))
    return paid[0] > paid[1] or (paid[0] == paid[1] and paid[1] < 0)
