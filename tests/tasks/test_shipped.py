"""Every shipped task file: its environment can be played, its grid fits, and its scores can be reached."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from policygen.episodes.exact import best_return, exact_score, finite_mdp
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.extensions.plants.equations import Equations, read_start
from policygen.extensions.plants.fit import Transitions
from policygen.extensions.plants.plant import known_plant
from policygen.policies.table import TablePolicy
from policygen.tasks import load
from policygen.tasks.environments import make_env
from policygen.tasks.spaces import flatten

load_task = cache(load.load_task)
ENVS = sorted((Path(__file__).parents[2] / "envs").glob("*.toml"))


def every_task(test):
    return pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)(test)


def constant_table(task):
    row = [float(not actuator.is_choice and actuator.low) for actuator in task.actuators]
    return TablePolicy.from_actions(task, np.tile(row, (task.grid.size, 1)))


def table_of(task, labels):
    """A table with one label per cell, `labels` as one letter each."""
    numbers = {label[0]: i for i, label in enumerate(task.actuators[0].labels)}
    return TablePolicy.from_actions(task, np.array([[float(numbers[letter])] for letter in "".join(labels.split())]))


@every_task
def test_a_task_fits_its_environment_in_few_words_and_its_score_can_be_reached(path):
    stated = tomllib.loads(path.read_text())
    task = load_task(path.stem)
    assert task.name == path.stem
    names = [*task.quantity_names, *(actuator.name for actuator in task.actuators)]
    names += [label for actuator in task.actuators for label in actuator.labels]
    assert max(map(len, names)) <= 18
    assert len(stated["about"]) <= 900
    assert len(stated["about"]) + sum(map(len, [*stated.get("hints", []), *stated.get("facts", [])])) <= 1_500
    assert task.solved is not None
    assert task.optimum is None or (task.optimum.source and task.solved <= task.optimum.value)
    env = make_env(task)
    try:
        assert env.spec.max_episode_steps == task.max_steps
        observation, _ = env.reset(seed=0)
        row = flatten(task.layout, observation)
        assert row.shape == (task.width,)
        env.step(constant_table(task).act_one(row))
        if task.action_space == "discrete":
            assert len(task.actuators[0].labels) == env.action_space.n
    finally:
        env.close()


@pytest.mark.parametrize(
    "path", [path for path in ENVS if {"reward", "ends"} & set(tomllib.loads(path.read_text()))], ids=lambda p: p.stem
)
def test_the_reward_the_end_and_the_starts_that_a_task_states_are_those_of_its_environment(path):
    task = load_task(path.stem)
    stated = Equations(task, known_plant(task))
    assert stated.remembered == ()
    with Simulator(task) as simulator:
        data = Transitions.of(task, simulator.play(RandomActor(task, seed=0), range(20)))
    paid, ends = stated.outcome(
        list(data.before.T), [], stated.decided(data.actions), stated.values, list(data.after.T)
    )
    assert np.array_equal(np.broadcast_to(ends, len(data)) > 0, data.ended)
    if task.reward:
        assert np.abs(paid - data.rewards).max() < 1e-6
    for name, text in task.starts:
        _, low, high = read_start(text)
        seen = data.before[data.starts, task.observation_names.index(name)]
        assert low - 1e-6 <= seen.min() <= seen.max() <= high + 1e-6
        assert np.ptp(seen) >= 0.6 * (high - low)


@every_task
def test_random_play_is_spread_over_the_grid(path):
    task = load_task(path.stem)
    assert task.grid is not None
    assert task.grid.size <= 5_000
    policy = constant_table(task)
    bounds = {observation.name: (observation.low, observation.high) for observation in task.observations}
    for dimension in task.grid.dimensions:
        low, high = bounds.get(dimension.name, (-np.inf, np.inf))
        assert all(low < edge < high for edge in dimension.edges)
    with Simulator(replace(task, max_steps=min(task.max_steps, 200))) as simulator:
        episodes = simulator.play(RandomActor(task, seed=0), range(8))
    rows = np.concatenate([episode.observations for episode in episodes])
    quantities = dict(zip(policy.reader.names, policy.reader.columns(list(rows.T)), strict=True))
    cells = task.grid.cells([quantities[name] for name in task.grid.names])
    bins = task.grid.bins_of(cells)
    met = sum(len(np.unique(column)) > 1 for column in bins.T)
    assert met >= len(task.grid.names) - 1  # what random play never reaches may be one quantity
    assert np.bincount(cells).max() < 0.5 * len(cells)


# --- finite tasks ----------------------------------------------------------------------------------------------------


@cache
def best(name):
    task = load_task(name)
    return best_return(finite_mdp(task), task.max_steps)


@pytest.mark.parametrize("name", ["frozenlake-deterministic", "maze", "nim", "taxi"])
def test_the_optimum_of_a_task_that_a_table_solves_is_exact(name):
    stated, (value, by_table, _) = load_task(name).optimum.value, best(name)
    assert by_table == pytest.approx(value, abs=1e-9)
    assert stated <= value  # rounded down, so that a run sees that it is reached
    assert stated == pytest.approx(value, abs=2e-5)
    assert load_task(name).solved <= value  # the threshold that Gymnasium names for taxi exceeds it


# The best tables known where the clock runs out on slippery ground, by the first letters of their labels, and what no
# policy exceeds.
TABLES = {
    "cliffwalking": ("urrrrrrrrrrr urrrrrrrrrrr uuuuuuuuuuur llllllllllll", -63.01337),
    "frozenlake": ("luuu llll udll lrdl", 0.74419),
    "frozenlake8x8": ("urrrrrrr uuuuuurd uullrurr uuldllrr lullrdur llldullr lldllllr ldlldrdl", 0.91322),
}


@pytest.mark.parametrize(("name", "labels", "bound"), [(name, *row) for name, row in TABLES.items()])
def test_the_optimum_of_a_slippery_task_is_that_of_its_best_table(name, labels, bound):
    task = load_task(name)
    score = exact_score(table_of(task, labels), finite_mdp(task))
    assert task.optimum.value <= score.mean < bound
    assert task.optimum.value == pytest.approx(score.mean, abs=1e-5)
    assert best(name)[0] == pytest.approx(bound, abs=1e-5)
    assert str(bound) in task.optimum.source


# --- blackjack, which publishes no transitions -----------------------------------------------------------------------

CARDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10)


def total(hard, ace):
    """The sum of a hand whose aces count 1 in `hard`."""
    return hard + 10 if ace and hard + 10 <= 21 else hard


@cache
def dealt(hard, ace, count):
    """Probability of each (sum or 0 if above 21, whether the first two cards made 21) that the dealer ends with."""
    score = total(hard, ace)
    if count >= 2 and score >= 17:
        return {(score if score <= 21 else 0, count == 2 and score == 21): 1.0}
    ends = Counter()
    for card in CARDS:
        for end, probability in dealt(hard + card, ace or card == 1, count + 1).items():
            ends[end] += probability / len(CARDS)
    return ends


@cache
def sticking(score, natural, shown):
    ends = dealt(shown, shown == 1, 1)
    return sum(
        p * (1 if natural and not dealers else (score > other) - (score < other))
        for (other, dealers), p in ends.items()
    )


@cache
def playing(hard, ace, shown, natural=False):
    """The best expected outcome of a hand: of sticking, or of taking a card."""
    if hard > 21:
        return -1.0
    hitting = sum(playing(hard + card, ace or card == 1, shown) for card in CARDS) / len(CARDS)
    return max(sticking(total(hard, ace), natural, shown), hitting)


def test_the_optimum_of_blackjack_is_the_expectation_over_all_cards():
    deals = [(a + b, 1 in (a, b), shown) for a in CARDS for b in CARDS for shown in CARDS]
    mean = np.mean([playing(h, ace, shown, total(h, ace) == 21) for h, ace, shown in deals])
    stated = load_task("blackjack").optimum.value
    assert stated <= mean
    assert stated == pytest.approx(mean, abs=1e-5)
