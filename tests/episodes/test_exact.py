"""Exact scores and optima of known MDPs: known figures, sampled episodes, every table there is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from support import discovered

from policygen.episodes.exact import FiniteMDP, best_return, exact_score, finite_mdp
from policygen.episodes.score import number
from policygen.episodes.simulator import Simulator, evaluate
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task

LAKE = load_task("frozenlake")
BEST_LAKE = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
CLIFF = replace(load_task("CliffWalkingSlippery-v1"), max_steps=100)
BEST_CLIFF = ([0] + [1] * 11) * 2 + [0] * 11 + [1] + [3] + [0] * 11


STRAIGHT = [1] * 35 + [2, 0] + [1] * 11  # up, along the cliff, down
DRY_CLIFF = replace(discovered("CliffWalking-v1"), max_steps=100)


@pytest.mark.parametrize(
    ("task", "actions", "mean", "std"),
    [
        (LAKE, BEST_LAKE, 0.740165, 0.4385),  # the goal pays 1: a coin
        (CLIFF, BEST_CLIFF, -63.022467, 20.3),
        (DRY_CLIFF, STRAIGHT, -13.0, 0.0),
        (replace(LAKE, max_steps=20_000), BEST_LAKE, 14 / 17, math.sqrt(14 / 17 * 3 / 17)),  # nearly without a limit
    ],
)
def test_tables_have_their_known_values(task, actions, mean, std):
    score = evaluate(TablePolicy.from_actions(task, actions), ())
    assert score.mean == pytest.approx(mean, abs=1e-6)
    assert score.std == pytest.approx(std, rel=1e-2)
    assert (score.exact, score.ci95, score.engine) == (True, (score.mean, score.mean), "exact")
    assert (score.returns, score.seeds, score.episodes) == ((), (), 0)
    assert str(score) == f"{number(score.mean)} (exact)"


@pytest.mark.parametrize(("task", "actions", "count"), [(LAKE, BEST_LAKE, 500), (CLIFF, BEST_CLIFF, 250)])
def test_mean_and_deviation_of_the_exact_score_are_those_of_episodes_in_gymnasium(task, actions, count):
    policy, mdp = TablePolicy.from_actions(task, actions), finite_mdp(task)
    exact = exact_score(policy, mdp)
    with Simulator(task) as simulator:
        returns = np.array([t.episode_return for t in simulator.play(policy, range(count))])
    assert abs(returns.mean() - exact.mean) <= 4 * exact.std / math.sqrt(count) + 1e-12
    # One other action changes the score by more than the test lets pass.
    other = TablePolicy.from_actions(task, [(action + 1) % 4 for action in actions])
    assert abs(returns.mean() - exact_score(other, mdp).mean) > 4 * exact.std / math.sqrt(count)
    error_of_variance = math.sqrt(max(((returns - exact.mean) ** 2).var(), 1e-12) / count)
    assert abs(returns.var() - exact.std**2) <= 4 * error_of_variance


def test_what_the_published_transitions_do_not_say_is_not_called_exact():
    assert finite_mdp(load_task("cartpole")) is None
    assert finite_mdp(discovered("Blackjack-v1")) is None
    taxi = discovered("Taxi-v4")
    assert finite_mdp(taxi) is not None
    assert finite_mdp(replace(taxi, kwargs=(("is_rainy", True),))) is not None
    assert finite_mdp(replace(taxi, kwargs=(("fickle_passenger", True),))) is None


def test_the_horizon_is_that_of_the_task_that_is_asked_about():
    policy = TablePolicy.from_actions(LAKE, (2,) * 16)
    short = replace(LAKE, max_steps=6)
    assert evaluate(policy, (), task=short).mean == evaluate(TablePolicy.from_actions(short, (2,) * 16), ()).mean
    assert evaluate(policy, (), task=short).mean < evaluate(policy, ()).mean


# --- the optimum ------------------------------------------------------------------------------------------------------


def random_mdp(seed: int, states: int = 4, actions: int = 2) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    shape = (states, actions, 2)
    probabilities = rng.dirichlet(np.ones(2), size=(states, actions))
    return FiniteMDP(
        rng.integers(states, size=shape),
        probabilities,
        rng.normal(size=shape),
        (rng.random(shape) < 0.8).astype(np.float64),
        rng.dirichlet(np.ones(states)),
    )


def value_of(mdp: FiniteMDP, actions: tuple[int, ...], steps: int) -> float:
    value = np.zeros(len(mdp.start))
    rows = np.arange(len(mdp.start))
    for _ in range(steps):
        gains = (mdp.probabilities * (mdp.rewards + mdp.continues * value[mdp.next_states])).sum(axis=2)
        value = gains[rows, list(actions)]
    return float(mdp.start @ value)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [1, 3, 12])
def test_no_table_beats_the_optimum_and_none_differs_from_the_best_by_one_better_entry(seed, steps):
    mdp = random_mdp(seed)
    value, by_table, table = best_return(mdp, steps)
    values = {table: value_of(mdp, table, steps) for table in itertools.product(range(2), repeat=4)}
    found = tuple(table.tolist())
    assert by_table == pytest.approx(values[found])
    assert max(values.values()) <= value + 1e-9
    neighbours = [table for table in values if sum(a != b for a, b in zip(table, found, strict=True)) == 1]
    assert by_table >= value - 1e-9 or max(values[table] for table in neighbours) <= by_table + 1e-9
