"""The best possible return of a known MDP: against every table there is, and against figures known from elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from policygen.episodes.exact import FiniteMDP, exact_score, finite_mdp
from policygen.episodes.optimum import best_return
from policygen.policies import TablePolicy
from policygen.tasks import load_task


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
        gains = (mdp.probabilities * (mdp.rewards + mdp.going_on * value[mdp.next_states])).sum(axis=2)
        value = gains[rows, list(actions)]
    return float(mdp.start @ value)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("steps", [1, 3, 12])
def test_no_table_beats_the_optimum_and_none_differs_from_the_best_by_one_better_entry(seed, steps):
    mdp = random_mdp(seed)
    best = best_return(mdp, steps)
    values = {table: value_of(mdp, table, steps) for table in itertools.product(range(2), repeat=4)}
    found = tuple(best.actions.tolist())
    assert best.by_table == pytest.approx(values[found])
    assert max(values.values()) <= best.value + 1e-9
    neighbours = [table for table in values if sum(a != b for a, b in zip(table, found, strict=True)) == 1]
    assert best.table_reaches_it or max(values[table] for table in neighbours) <= best.by_table + 1e-9


def test_one_step_is_a_choice_for_each_state():
    mdp = random_mdp(7)
    best = best_return(mdp, 1)
    assert best.table_reaches_it
    assert best.value == pytest.approx(mdp.start @ (mdp.probabilities * mdp.rewards).sum(axis=2).max(axis=1))


@pytest.mark.parametrize(
    ("name", "steps", "table", "any_policy"),
    [
        ("frozenlake", 100, 0.740165, 0.744190),  # the best stationary table is known from the literature as 0.7402
        ("FrozenLake8x8-v1", 200, 0.893568, 0.913220),
        ("CliffWalking-v1", 200, -13.0, -13.0),
        ("Taxi-v4", 200, 7.93, 7.93),
    ],
)
def test_known_environments(name, steps, table, any_policy):
    task = load_task(name)
    mdp = finite_mdp(task)
    assert mdp is not None
    best = best_return(mdp, steps)
    assert (best.by_table, best.value) == pytest.approx((table, any_policy), abs=1e-4)
    assert best.table_reaches_it == (table == any_policy)
    # The table is one like any other, and its exact score is what was promised.
    assert task.grid is not None
    policy = TablePolicy.from_actions(task, best.actions)
    assert exact_score(policy, mdp, steps).mean == pytest.approx(best.by_table)
