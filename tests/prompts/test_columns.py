"""The columns of a trace: what reward and ends depend on, what a policy reads, and the rest in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import fenced

import policygen
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse
from policygen.prompts.columns import IN_TURN, MOST_COLUMNS, MOST_READ, Relevance, ranked, relevance_of
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")
RNG = np.random.default_rng(0)


def unnamed(count: int, about: str = "") -> Task:
    """Return a task with `count` observations; by default its text does not describe reward and ends."""
    observations = tuple(Observation(f"q{i}", low=-np.inf, high=np.inf) for i in range(count))
    task = policygen.load_task("pendulum")
    return replace(task, observations=observations, features=(), about=about, inputs=(), reward="", solved=None)


def played(rewards: np.ndarray, rows: np.ndarray, actions: np.ndarray, *, ended: bool) -> Trajectory:
    return Trajectory(
        rows.astype(np.float32), actions.astype(np.float32), rewards.astype(np.float32), 0.0, 0, ended, not ended
    )


def test_reward_depends_on_what_explains_it_beside_the_cost_of_actions() -> None:
    episodes = []
    for _ in range(5):
        rows, actions = RNG.normal(size=(201, 4)), RNG.uniform(-2, 2, size=(200, 1))
        # As of a step: by the state that it leads to. The cost of random actions is a hundred times as large.
        rewards = 0.1 * np.abs(rows[1:, 2]) + 0.03 * rows[:-1, 0] - 10 * actions[:, 0] ** 2
        episodes.append(played(rewards, rows, actions, ended=False))
    found = relevance_of(episodes, unnamed(4))
    assert found.relevant == ["q2"]
    assert found.relevance["q2"] == 1
    assert found.variance["q1"] == pytest.approx(1, abs=0.1)


def test_early_ends_depend_on_what_is_unusual_there_and_their_reward_does_not_count_twice() -> None:
    episodes = []
    for _ in range(20):
        rows, actions = 0.1 * RNG.normal(size=(51, 3)), np.zeros((50, 1))
        rows[-1, 1] = 3 * RNG.choice([-1, 1])  # on either side
        rewards = rows[1:, 0].copy()
        rewards[-1] = -100
        episodes.append(played(rewards, rows, actions, ended=True))
    found = relevance_of(episodes, unnamed(3))
    assert set(found.relevant) == {"q0", "q1"}
    assert found.relevance["q2"] < 0.1
    # Without ends and rewards nothing is relevant; nor are constants.
    still = [played(np.zeros(50), np.zeros((51, 3)), np.zeros((50, 1)), ended=False)]
    assert relevance_of(still, unnamed(3)).relevant == []
    assert relevance_of([], unnamed(3)).relevant == []


def test_observations_are_relevant_whose_names_the_text_on_reward_and_ends_has() -> None:
    named = unnamed(
        4, "A machine. Its q0 is warm. The reward of a step is 1 minus q1.\n\nEpisode End:\nWhere q2 is high."
    )
    assert relevance_of([played(np.zeros(9), np.zeros((10, 4)), np.zeros((9, 1)), ended=False)], named).relevant == [
        "q1",
        "q2",
    ]
    stated = replace(unnamed(3), reward="-next(q2)^2", ends="abs(q0) > 3")
    still = [played(np.zeros(9), np.zeros((10, 3)), np.zeros((9, 1)), ended=False)]
    assert relevance_of(still, stated).relevant == ["q0", "q2"]


NAMES = [f"q{i}" for i in range(30)]
KNOWN = Relevance(dict.fromkeys(NAMES, 0.0) | {"q25": 1.0, "q26": 2.0}, {f"q{i}": float(i) for i in range(30)})


def test_of_many_columns_the_relevant_and_the_varying_stay_and_the_rest_takes_turns() -> None:
    prompts = [ranked(NAMES, None, KNOWN, turn) for turn in range(1, 12)]
    assert all(len(names) == len(set(names)) == MOST_COLUMNS for names in prompts)
    assert {tuple(names[:-IN_TURN]) for names in prompts} == {tuple(prompts[0][:-IN_TURN])}
    assert prompts[0][:4] == ["q26", "q25", "q29", "q28"]
    assert {name for names in prompts for name in names} == set(NAMES)
    assert ranked(NAMES[:5], None, KNOWN, 1) == ["q4", "q3", "q2", "q1", "q0"]


def test_what_the_policy_reads_comes_after_the_relevant_and_before_the_rest() -> None:
    reply = fenced("let a = q3 + q4", "let b = a*q5", "torque = b + q6")
    policy = parse(reply, unnamed(30)).policy
    order = ranked([*NAMES, "a", "b"], policy, KNOWN, 1)
    assert order[:8] == ["q26", "q25", "q6", "b", "q3", "a", "q4", "q5"]
    assert len(order) == MOST_READ
    latch = parse(reply.replace("let b = a*q5", "let b = a*q5\nlet on = where(q7 > 1, 1, prev(on))\nlet c = on*b")
                  .replace("torque = b", "torque = c"), unnamed(30)).policy  # fmt: skip
    assert ranked([*NAMES, "a", "b", "on", "c"], latch, KNOWN, 1)[:6] == ["q26", "q25", "on", "q6", "c", "q3"]


@pytest.mark.usefixtures("quickly_discovered")
def test_forces_follow_from_the_state_and_rates_that_share_a_description_do_not() -> None:
    pytest.importorskip("mujoco")
    humanoid = policygen.load_task("Humanoid-v5")
    found = relevance_of([played(np.zeros(9), RNG.normal(size=(10, 348)), np.zeros((9, 17)), ended=False)], humanoid)
    assert {"abdomen_y_effort", "torso_inertia_0", "pelvis_speed_vx"} <= found.further
    assert len(found.further) == 348 - 45
    walker = policygen.load_task("bipedalwalker")
    steps = played(np.zeros(9), RNG.normal(size=(10, 24)), np.zeros((9, 4)), ended=False)
    assert relevance_of([steps], walker).further == frozenset()
