"""Speed of learning: Q-learning on many episodes at once, against a learner in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import numpy as np

from policygen.episodes.exact import finite_mdp
from policygen.episodes.sampled import Sampler
from policygen.episodes.score import episode_seeds
from policygen.policies.table import TablePolicy
from policygen.reports.speed.rows import Missing, Row, compared, faster, scaled
from policygen.search.refine.learner import Learner, Start
from policygen.search.refine.lessons import Pupil, board_of
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def plain_q_learning(task: Task, steps: int) -> None:
    """What one would write first: one environment, one step, one entry of a list of lists at a time."""
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
    board = board_of(TablePolicy.from_actions(task, np.zeros(task.grid.size)), len(mdp.start))
    sampler, episodes = Sampler(mdp, task.max_steps), 512 if quick else 2_048
    seeds, played = episode_seeds(0, "bench", episodes), list[int]()

    def ours() -> None:
        start = Start(np.zeros((board.cells, board.actions)))
        learner = Learner(start, 0.99, np.random.default_rng(0))
        played.append(int(sampler.play(Pupil(learner, board), seeds, len(seeds)).lengths.sum()))

    few = 2_000 if quick else 20_000
    row = compared(
        f"Q-learning, {name}, {episodes:,} episodes side by side",
        ours,
        partial(plain_q_learning, task, few),
        "plain Python",
        repeats=repeats,
        bar=faster(20),
    )
    return scaled(row, played[-1] / few, f"{few:,} steps, per step")
