"""`model`: tune a policy inside a plant fitted to the episodes played, so that few real episodes are needed.

Fit the plant, tune the policy in it, play a real episode; repeat until that episode turns out as predicted. Each round
has two searches: from the proposed policy, and from the last one found. Only real episodes count towards budgets. As
for every method, other episodes decide which policy becomes the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.play import Array, Copies, Flags, StepOutput, play, play_together
from policygen.episodes.requirements import Penalty
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.extensions.plants.equations import Column, Equations, read_start
from policygen.extensions.plants.fit import FittedPlant, Transitions, fit_plant
from policygen.extensions.plants.identify import identify_plant
from policygen.extensions.plants.plant import FITTED_PLANT, MOST_ROUNDS, PLANT, revised
from policygen.policies.policy import Policy
from policygen.runs.attempt import TuningState
from policygen.search.refine.cma import tune
from policygen.search.refine.tunable import Refined, Trials, Vector

LANES = 4_096  # episodes played side by side
INNER_EPISODES = 2_000  # in the plant, for one search
POPULATION = 24  # a large one costs little, because all candidates are computed together
COMPARED = 24  # episodes in the plant for comparing policies
ROUND_STEPS = 50  # minimum number of environment steps between two fits, because a short episode tells little
MISS_PENALTY = 0.1  # an episode that misses the end has the worst return, lowered by up to this share
NEAR = 0.05  # two returns agree if they differ by at most this share of the range of returns seen


def tune_in_plant(policy: Policy, trials: Trials, rng_seed: int) -> Refined | None:
    """Tune a policy in a fitted plant; return None if there is nothing to tune, or if no real episode can be played.

    `cma` tunes it in the environment if there are no episodes to fit, or if observations are texts.

    Args:
        trials: plays the real episodes, one by one, and holds those played before. The task's plant, as revised by the
            attempts, is fitted; missing equations are identified from the data.
    """
    task, rng = policy.task, np.random.default_rng(rng_seed)
    seen, watched = list(trials.seen), list[Trajectory]()
    if not seen or task.text_names:
        return tune(policy, trials, rng_seed)
    if trials.watch is None:
        return None
    floor = trials.tunable(policy).floor
    known = revised(task, map(PLANT.of, trials.attempts))

    def fitted_search() -> _PlantSearch:
        """Fit the stated equations; those that are missing are identified from the data."""
        data = Transitions.of(task, seen)
        names = {name for name, _ in known.next}
        whole = names >= {*task.observation_names} and known.reward and (known.ends or not data.ended.any())
        equations = Equations(task, known if whole else identify_plant(data, known).revised_by(known))
        return _PlantSearch(fit_plant(equations, data, rng), trials, int(rng.integers(2**31)))

    tried: list[Refined] = []
    for _ in range(MOST_ROUNDS):
        if len(watched) >= trials.episodes or not trials.affords(1):
            break
        inside = fitted_search()
        last = (tried[-1].policy, tried[-1].state) if tried else (policy, trials.state)
        both = list(filter(None, (inside.search(*begin, floor) for begin in ((policy, trials.state), last))))
        if not both:
            return None
        found = both[inside.index_of_best([one.policy for one in both])]
        tried.append(found)
        real = list[Trajectory]()
        while sum(one.length for one in real) < ROUND_STEPS and trials.affords(1):
            real += trials.watch(found.policy, trials.seeds(len(watched) + len(real), 1))
        watched += real
        seen += real
        if inside.nearness_to_end is not None and not any(one.terminated for one in seen):
            continue  # no episode has reached the end yet: fit again with this one, and search again
        if _agrees(inside.fitted, found.policy, real[0], seen):
            break
    if not tried:
        return None
    inside = fitted_search()
    best = tried[inside.index_of_best([one.policy for one in tried])]
    record = inside.fitted.record
    notes, place = {FITTED_PLANT.key: record}, f"in a plant fitted to {record.steps:,} steps"
    return replace(best, episodes=len(watched), method="model", watched=tuple(watched), notes=notes, place=place)


def _agrees(fitted: FittedPlant, policy: Policy, real: Trajectory, seen: Sequence[Trajectory]) -> bool:
    """Whether the plant predicted the return of a real episode.

    From the episode's start, the members must predict similar returns, whose mean is near the real return.
    """
    members = range(len(fitted.values))
    starts = np.repeat(real.observations[:1].astype(np.float64), len(members), axis=0)
    predicted = np.array([t.episode_return for t in play_in_plant(fitted, [policy], members, starts)[0]])
    mean, spread = float(predicted.mean()), float(predicted.std())
    tolerance = NEAR * float(np.ptp([mean, *(trajectory.episode_return for trajectory in seen)]))
    return spread <= 2 * tolerance and abs(real.episode_return - mean) <= 2 * spread + tolerance


class _PlantSearch:
    """Searches inside one fitted plant.

    Attributes:
        nearness_to_end: see `Equations`; None unless the reward asks for the end of the episode.
    """

    def __init__(self, fitted: FittedPlant, trials: Trials, first_seed: int) -> None:
        self.fitted, self._first, self._searches, task = fitted, first_seed, 0, fitted.equations.task
        # A plant does not predict `info`.
        self._task = replace(task, requirements=tuple(one for one in task.requirements if not one.info_names))
        measure = trials.measure
        self._measure = measure if measure is not None and measure.objective is not None else None
        self.nearness_to_end = fitted.equations.nearness_to_end if fitted.seeks_end else None
        if self.nearness_to_end is not None:
            self._start_distance = max(1e-9, -float(np.nanmean(self._nearness(fitted.starts[:, : len(fitted.low)]))))
            self._worst_return = fitted.reward_outside * task.max_steps

    def search(self, policy: Policy, state: TuningState | None, floor: float) -> Refined | None:
        """Tune a policy in the plant; return None if there is nothing to tune."""
        self._searches += 1
        penalty, offset = Penalty(self._task, INNER_EPISODES), self._first + 1_000_000 * self._searches

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
            played = play_in_plant(self.fitted, policies, seeds)
            return penalty(self._values(played), played)

        def seeds(first: int, count: int) -> range:
            return range(offset + first, offset + first + count)

        inner = Trials(returns, seeds, INNER_EPISODES, floor=floor, state=state)
        return tune(policy, inner, (offset % 2**31) + 1, POPULATION)

    def index_of_best(self, policies: Sequence[Policy]) -> int:
        """Return the index of the policy with the highest score in the plant, less the cost of violations."""
        played = play_in_plant(self.fitted, policies, range(self._first, self._first + COMPARED))
        return int(np.argmax(Penalty(self._task, 1)(self._values(played), played)))

    def _values(self, played: Sequence[Sequence[Trajectory]]) -> Vector:
        """Return for each policy what the search maximises: its objective, or else its score."""
        if self._measure is not None:
            sums = self._measure.sums([one for some in played for one in some])
            return np.asarray(sums.reshape(len(played), -1).mean(axis=1), np.float64)
        return np.array([np.mean([self._value(one) for one in some]) for some in played])

    def _value(self, episode: Trajectory) -> float:
        """Return an episode's value for the search: its return, or less if it missed an end that the reward asks for.

        Such an episode is worth less than any that reached the end, and less the further away it stayed. Otherwise
        doing nothing could win because it costs less, and equal returns would not distinguish policies.
        """
        if self.nearness_to_end is None or (short := -float(np.nanmax(self._nearness(episode.observations)))) <= 0:
            return episode.episode_return
        return self._worst_return * (1 + MISS_PENALTY * min(1.0, short / self._start_distance))

    def _nearness(self, observations: npt.NDArray[np.floating[Any]]) -> Vector:
        assert self.nearness_to_end is not None
        return np.asarray(self.nearness_to_end(list(observations.T.astype(np.float64)))[0], np.float64)


# --- episodes in a plant ----------------------------------------------------------------------------------------------


class PlantCopies(Copies):
    """Copies of a fitted plant; the seed determines the ensemble's member and the start.

    A copy fails if it leaves the plant's bounds or its reward is not finite. Its episode then ends, and its last reward
    is the plant's `reward_outside` times the number of steps left until the limit.

    Args:
        starts: first observations, shape (k, d), in place of those drawn by k seeds.
    """

    engine: ClassVar[str] = "plant"
    max_idle: ClassVar[float] = 0.5

    def __init__(self, plant: FittedPlant, starts: Column | None = None) -> None:
        self._plant, self._equations, self._starts = plant, plant.equations, starts
        self.max_copies = LANES if starts is None else len(starts)
        self._low, self._high = plant.low[:, None], plant.high[:, None]

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`."""
        plant, width = self._plant, len(self._low)
        members = np.asarray(seeds) % len(plant.values)
        self._values = list(plant.values[members].T)
        drawn = np.stack([self._start(seed) for seed in seeds])
        if self._starts is not None:
            drawn[:, : self._starts.shape[1]] = self._starts
        columns = list(drawn.T)
        self._state = columns[:width]
        self._memory: list[Any] = self._equations.memory(columns[width:], len(seeds))
        self._steps_left = self._equations.task.max_steps
        with np.errstate(over="ignore"):
            self._rows = drawn[:, :width].astype(np.float32)
        return self._rows

    def _start(self, seed: int) -> Column:
        """Return the start of a real episode, hidden states last, with the draws of the plant's `start` lines."""
        rng, stated = np.random.default_rng(seed), self._equations.plant
        start = self._plant.starts[rng.integers(len(self._plant.starts))].copy()
        for name, text in stated.starts:
            word, *numbers = read_start(text)
            start[[*self._equations.task.observation_names, *stated.hidden].index(name)] = getattr(rng, word)(*numbers)
        return np.asarray(start, np.float64)

    def step(self, actions: npt.NDArray[Any], /) -> StepOutput:
        """Step every copy; see `Copies`."""
        equations, plant = self._equations, self._plant
        n = len(self._state[0])
        decided = equations.decided(actions)
        moved, memory = equations.step(self._state, self._memory, decided, self._values)
        after = np.stack([np.broadcast_to(column, n) for column in moved])
        outside = ~((after >= self._low) & (after <= self._high)).all(axis=0)
        if outside.any():
            after[:, outside] = np.clip(np.nan_to_num(after[:, outside]), self._low, self._high)
        paid, ends = equations.outcome(self._state, self._memory, decided, self._values, list(after))
        failed = outside | ~np.isfinite(paid)
        ended = failed | (ends != 0)
        rewards = np.where(failed, plant.reward_outside * self._steps_left, paid)
        self._steps_left -= 1
        self._state, self._memory = list(after), [np.broadcast_to(column, n) for column in memory]
        with np.errstate(over="ignore"):
            self._rows = after.T.astype(np.float32)
        return self._rows, rewards, ended, self._steps_left == 0

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Drop the ended copies; see `Copies`."""
        self._state, self._memory, self._values = (
            [column[~ended] for column in columns] for columns in (self._state, self._memory, self._values)
        )
        self._rows = self._rows[~ended]
        return self._rows


def play_in_plant(
    plant: FittedPlant, actors: Sequence[Actor], seeds: Sequence[int], starts: Column | None = None
) -> list[list[Trajectory]]:
    """Play each actor in the plant, one episode per seed; return the trajectories of each actor.

    Args:
        starts: first observations, shape (seeds, d), in place of those drawn by the seeds; only with a single actor.
    """
    copies = PlantCopies(plant, starts)
    return play_together(partial(play, plant.equations.task, copies), actors, seeds, copies.max_copies)
