"""Requirements of a task: what violates them, how often, and how sure that is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binomtest
from support import ALWAYS_RIGHT

from policygen.episodes.requirements import Penalty, Requirements, Violations, excess
from policygen.episodes.simulator import Simulator, evaluate
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.tasks.load import load_task, task_of
from policygen.tasks.task import Requirement, Task

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")


def task_with(*requirements: Requirement, name: str = "pendulum") -> Task:
    return replace(load_task(name), requirements=requirements)


def episode(rates: list[float], torques: list[float], seed: int = 1) -> Trajectory:
    """An episode of the pendulum that shows these rates, one more than torques."""
    observed = np.array([[1.0, 0.0, rate] for rate in rates], np.float32)
    actions = np.array(torques, np.float32).reshape(-1, 1)
    rewards = np.zeros(len(torques), np.float32)
    return Trajectory(observed, actions, rewards, 0.0, seed, False, True)


def count_of(requirement: Requirement, *episodes: Trajectory) -> Violations:
    (found,) = Requirements(task_with(requirement)).count(episodes)
    return found


REST = [0.0, 0.0, 0.0]
SMOOTH = "abs(torque - prev(torque, torque)) <= 0.5"


@pytest.mark.parametrize(
    ("form", "condition", "rates", "torques", "step"),
    [
        ("at_end", "abs(rate) < 0.5", [9.0, 9.0, 0.1], [0.0, 0.0], None),
        ("at_end", "abs(rate) < 0.5", [0.0, 0.0, -1.0], [0.0, 0.0], 2),
        # It may read actions, previous values and features.
        ("always", "abs(torque) <= 1", REST, [1.0, -1.0], None),
        ("always", "abs(torque) <= 1", REST, [1.0, -1.5], 1),
        ("always", SMOOTH, [*REST, 0.0], [1.0, 1.5, 1.2], None),
        ("always", SMOOTH, [*REST, 0.0], [0.0, 0.0, 1.0], 2),
        ("always", "energy <= 0", [0.0, 9.0], [0.0], 1),
        ("always", "1/(rate - rate) < 1", [1.0, 2.0], [0.0], 0),  # what is not a number does not hold
        ("always", "not rate > 2", [0.0, 9.0], [0.0], 1),  # no comparison
    ],
)
def test_a_condition_is_violated_first_at_a_step(
    form: str, condition: str, rates: list[float], torques: list[float], step: int | None
) -> None:
    found = count_of(Requirement("r", **{form: condition}), episode(rates, torques))
    assert (found.violated, found.step) == (int(step is not None), step)


def expected(requirement: Requirement, holds: list[bool], events: list[bool]) -> bool:
    """Whether an episode violates a timed requirement, by its definition, row by row."""
    since = [max((k for k in range(row + 1) if events[k]), default=None) for row in range(len(holds))]
    return any(k is not None and row - k >= (requirement.within or 0) and not holds[row] for row, k in enumerate(since))


@pytest.mark.parametrize("seed", range(8))
def test_time_after_events_counts_as_it_is_defined(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.choice([0.0, 3.0], size=12).tolist()
    torques = rng.choice([0.0, 1.0], size=11).tolist()
    within = int(rng.integers(0, 5))
    holds = [abs(rate) < 1 for rate in rates]
    decided = [*torques, torques[-1]]
    events = [False, *(a != b for a, b in itertools.pairwise(decided))]
    requirement = Requirement("r", always="abs(rate) < 1", after="torque changes", within=within)
    first, start = replace(requirement, after=""), [True, *[False] * 11]
    for one, happened in ((requirement, events), (first, start)):
        assert bool(count_of(one, episode(rates, torques)).violated) == expected(one, holds, happened), within


@pytest.mark.parametrize(("violated", "episodes"), [(0, 20), (1, 20), (7, 100), (19, 20), (20, 20)])
def test_the_upper_bound_is_that_of_clopper_and_pearson(violated: int, episodes: int) -> None:
    exact = binomtest(violated, episodes).proportion_ci(0.9, method="exact").high
    assert Violations("r", True, 0.01, violated, episodes).upper == pytest.approx(exact)


def test_violations_are_counted_with_the_worst_of_them() -> None:
    fine, late = episode([0.0, 1.0, 2.0], [0.0, 0.0], 5), episode([0.0, 1.0, -3.5], [0.0, 0.0], 6)
    found = count_of(Requirement("calm", always="abs(rate) <= 2"), fine, late)
    assert (found.violated, found.episodes, found.worst, found.seed, found.step) == (1, 2, 3.5, 6, 2)


def test_only_hard_requirements_beyond_what_is_allowed_are_an_excess() -> None:
    found = [Violations("a", True, 0.05, 1, 20), Violations("b", True, 0.01, 3, 20), Violations("c", False, 0, 20, 20)]
    assert excess(found) == pytest.approx(0.14)


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Its `info` holds the number of steps and a text."""

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return self.env.reset(**options)[0], {"steps": 0}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return *self.env.step(action)[:4], {"steps": np.float32(self.steps), "name": "counted"}


def test_numbers_in_info_may_be_read_and_missing_ones_are_named() -> None:
    def count(condition: str) -> tuple[Violations, ...]:
        task = task_of(lambda: Counted(gym.make("Pendulum-v1", max_episode_steps=5)))
        task = replace(task, requirements=(Requirement("r", always=condition),))
        with Simulator(task) as simulator:
            return Requirements(task).count(simulator.play(RandomActor(task, 0), (1, 2)))

    (found,) = count("info_steps <= 2.5")
    assert (found.violated, found.worst, found.step) == (2, 5.0, 3)
    for missing in ("volts", "name"):
        with pytest.raises(TaskError, match=f"the `info` of .* holds no number `{missing}`"):
            count(f"info_{missing} < 1")


def test_an_exact_score_has_violations_of_played_episodes() -> None:
    task = task_with(Requirement("early", always="row < 3"), name="frozenlake-deterministic")
    policy = parse(ALWAYS_RIGHT, task).policy
    assert policy is not None
    score = evaluate(policy, (1, 2, 3))
    assert score.exact
    assert [(one.violated, one.episodes) for one in score.violations] == [(0, 3)]


def test_of_two_policies_that_violate_as_often_the_nearer_one_costs_less() -> None:
    task = task_with(Requirement("slow", always="rate < 1"))
    near, far, within = ([episode([0, 0, at, 0], [0.0] * 3)] for at in (1.1, 2.0, 0.9))
    penalty = Penalty(task, 1)
    penalty(np.array([0.0, 3.0]), [within, within])  # the range of returns
    met, nearer, further = penalty(np.array([1.0, 1.0, 1.0]), [within, near, far])
    assert met == 1 > nearer > further
