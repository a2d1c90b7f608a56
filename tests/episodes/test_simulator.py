from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from played import CARTPOLE, assert_equal, assert_same, by_hand, policy_for
from support import discovered

import policygen.episodes.copies
import policygen.episodes.players
from policygen.episodes.copies import COPIES
from policygen.episodes.players import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task, output_names


def some_policy(task: Task):
    if task.default_policy == "table":
        actions = np.random.default_rng(1).integers(len(task.actuators[0].labels), size=task.grid.size)
        return TablePolicy.from_actions(task, actions)
    text = "\n".join(f"{name} = 0.8*{task.observation_names[i]} - 0.1" for i, name in enumerate(output_names(task)))
    return parse(text, task).policy


@pytest.mark.parametrize(
    ("name", "steps", "count"),
    [
        ("frozenlake", None, COPIES + 9),
        ("cliffwalking", 60, COPIES + 5),
        ("inverted-pendulum", 30, 5),
        ("blackjack", None, COPIES * 2),
        ("hopper", 40, 4),
        ("taxi", 20, 3),
    ],
)
def test_copies_stepped_side_by_side_are_a_loop_by_hand(name, steps, count):
    task = load_task(name)
    task = replace(task, max_steps=steps or task.max_steps)
    policy = some_policy(task)
    seeds = [100 + 7 * i for i in range(count)]
    with Simulator(task) as simulator:
        assert simulator.engine == "copies"
        played = simulator.play(policy, seeds)
        again = simulator.play(policy, seeds[::-1])
    assert [trajectory.seed for trajectory in played] == seeds
    assert_equal(played, again[::-1])
    for trajectory in played:
        assert_same(trajectory, by_hand(task, policy, trajectory.seed))
        assert trajectory.length <= task.max_steps
    assert played[0].actions.dtype == (np.float32 if task.action_space == "box" else np.int16)
    assert played[0].actions.shape == (played[0].length, *policy.act(played[0].observations[:1]).shape[1:])


def test_an_environment_that_refuses_an_action_is_named():
    with (
        Simulator(CARTPOLE) as simulator,
        pytest.raises(TaskError, match=r"CartPole-v1 failed in `step` .*cartpole.py, line .*there is no such action"),
    ):
        simulator.play(RandomActor(load_task("mountaincar"), 0), [1])  # of three actions


def test_an_episode_does_not_depend_on_those_that_its_environment_played_before() -> None:
    pytest.importorskip("Box2D")
    task = replace(load_task("bipedalwalker"), max_steps=100)
    reply = Path(__file__).parents[2] / "results" / "policies" / "bipedalwalker.txt"
    policy = policy_for("bipedalwalker", reply.read_text(encoding="utf-8"))
    with Simulator(task) as fresh, Simulator(task) as used:
        alone = fresh.play(policy, [2])
        assert alone[0].length == 100, "it walks, so that the ground matters"
        used.play(policy, [0])
        used.play(policy, [1])
        assert_equal(used.play(policy, [2]), alone)


class Counting(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of all environments."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counting.steps += 1
        return self.env.step(action)


def test_copies_take_no_step_after_the_end_of_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    make = policygen.episodes.players.make_env
    for module in (policygen.episodes.copies, policygen.episodes.players):
        monkeypatch.setattr(module, "make_env", lambda task: Counting(make(task)))
    task = discovered("FrozenLake-v1")
    Counting.steps = 0
    with Simulator(task) as simulator:
        played = simulator.play(RandomActor(task, 0), range(80))
    assert len({t.length for t in played}) > 5
    assert Counting.steps == sum(t.length for t in played)


def test_episodes_whose_simulation_diverges_are_marked() -> None:
    mujoco_envs = pytest.importorskip("gymnasium.envs.mujoco.inverted_pendulum_v5")

    class Diverging(mujoco_envs.InvertedPendulumEnv):  # type: ignore[name-defined,misc]
        def reset(self, *, seed: int | None = None, **kwargs: Any) -> Any:
            self.diverges = seed is not None and seed % 2
            return super().reset(seed=seed, **kwargs)

        def step(self, action: Any) -> Any:
            if self.diverges:
                self.data.qvel[:] = 1e12
            return super().step(action)

    gym.register("Diverging-v0", Diverging, max_episode_steps=20)
    try:
        task = policygen.load_task("Diverging-v0")
        with Simulator(task) as simulator:
            played = simulator.play(RandomActor(task, 0), range(6))
        assert [t.unstable for t in played] == [False, True] * 3
    finally:
        del gym.registry["Diverging-v0"]


@pytest.mark.parametrize(("engine", "name"), [("copies", "halfcheetah"), ("vector", "pendulum")])
def test_a_chaotic_clock_is_read_from_a_trajectory_as_it_was_played(engine: str, name: str) -> None:
    task = load_task(name)
    driver, (first, *others) = task.observation_names[-1], [one.name for one in task.actuators]
    lines = [f"let clock = mod(fixed(3)*prev(clock) + {driver}, fixed(6))", f"{first} = 0.5*cos(clock)"]
    policy = policy_for(name, "\n".join([*lines, *(f"{one} = 0*clock" for one in others)]))
    with Simulator(task) as simulator:
        assert simulator.engine == engine
        (played,) = simulator.play(policy, [300])

    def farthest(observations: Any) -> float:
        clock = policy.reader.along(observations, played.actions)[policy.reader.names.index("clock")]
        return float(np.abs(0.5 * np.cos(clock) - played.actions[:, 0]).max())

    rounded = played.observations[:-1]
    assert farthest(rounded) < 1e-6
    env, act = make_env(task), policy.controller()
    observation, _ = env.reset(seed=300)
    for action in played.actions[:60]:  # in the user's own loop, which has the environment's double precision
        assert act(observation) == pytest.approx(action, abs=1e-6)
        observation, *_ = env.step(action)
    env.close()
    assert farthest(rounded.astype(np.float64) + 1e-9) > 0.1  # as if the policy had seen more digits than are kept
