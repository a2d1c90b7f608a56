"""Speed of learning: Q-learning on many episodes at once, against a learner in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from policygen.episodes.exact import finite_mdp
from policygen.episodes.sampled import Sampler
from policygen.episodes.trajectory import Actor
from policygen.extensions.learners.learner import Vector
from policygen.extensions.learners.q import CellView, learn_tables
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task
from speed_parts.rows import Missing, Row, compared, faster, scaled


def plain_q_learning(task: Task, steps: int) -> None:
    """Learn in the simplest way: one environment, one step, one entry of a list of lists at a time."""
    env = make_env(task)
    draw = random.Random(0)
    states, actions = int(env.observation_space.n), int(env.action_space.n)  # type: ignore[attr-defined]
    values = [[0.0] * actions for _ in range(states)]
    state, _ = env.reset(seed=0)
    for _ in range(steps):
        row = values[state]
        action = draw.randrange(actions) if draw.random() < 0.1 else row.index(max(row))
        after, reward, terminated, truncated, _ = env.step(action)
        row[action] += 0.1 * (float(reward) + 0.99 * (not terminated) * max(values[after]) - row[action])
        state = env.reset()[0] if terminated or truncated else after
    env.close()


def learning(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """A step of Q-learning on Taxi and on the large FrozenLake."""
    yield _learning("taxi", repeats, quick)
    yield _learning("frozenlake8x8", repeats, quick)


def _learning(name: str, repeats: int, quick: bool) -> Row:
    task = load_task(name)
    mdp = finite_mdp(task)
    assert mdp is not None
    assert task.grid is not None
    view = CellView(TablePolicy.from_actions(task, np.zeros(task.grid.size)), len(mdp.start))
    sampler, episodes = Sampler(mdp, task.max_steps), 1_024 if quick else 32_768
    played = list[int]()

    def practice(actor: Actor, seeds: Sequence[int]) -> Vector:
        sampled = sampler.play(actor, seeds)
        played.append(int(sampled.lengths.sum()))
        return sampled.returns

    def ours() -> None:
        played.clear()

        def seeds(first: int, count: int) -> range:
            return range(first, first + count)

        for _ in learn_tables(view, practice, seeds, episodes, np.random.default_rng(0)):
            pass

    few = 2_000 if quick else 20_000
    row = compared(
        f"Q-learning, {name}, {episodes:,} episodes, replays included",
        ours,
        partial(plain_q_learning, task, few),
        "plain Python",
        repeats=repeats,
        bar=faster(20),
    )
    return scaled(row, sum(played) / few, f"{few:,} steps, per step")
