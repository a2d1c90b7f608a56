"""Copies stepped in turn, and EnvPool's: the same episodes for the same seeds where seeding allows it, else one law."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from played import CARTPOLE, assert_equal, assert_same, by_hand, needs_envpool, policy_for

from policygen.episodes.copies import COPIES, STEP_BY_STEP, PooledCopies, pool_for
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def some_policy(task: Task):
    if task.default_policy == "table":
        actions = np.random.default_rng(1).integers(len(task.actuators[0].labels), size=task.grid.size)
        return TablePolicy.from_actions(task, actions)
    text = "\n".join(f"{name} = 0.8*{task.observation_names[i]} - 0.1" for i, name in enumerate(task.output_names))
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


def test_episodes_whose_simulation_diverges_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    pendulum: Any = pytest.importorskip("gymnasium.envs.mujoco.inverted_pendulum_v5").InvertedPendulumEnv
    reset, step = pendulum.reset, pendulum.step

    def start(self: Any, *, seed: int, **options: Any) -> Any:
        self.diverges = seed % 2
        return reset(self, seed=seed, **options)

    def move(self: Any, action: Any) -> Any:
        if self.diverges:
            self.data.qvel[:] = 1e12
        return step(self, action)

    task = replace(load_task("inverted-pendulum"), max_steps=20)
    monkeypatch.setattr(pendulum, "reset", start)
    monkeypatch.setattr(pendulum, "step", move)
    with Simulator(task) as simulator:
        assert [t.unstable for t in simulator.play(RandomActor(task, 0), range(6))] == [False, True] * 3


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
        clock = policy.reader.along((observations, played.actions))[policy.reader.names.index("clock")]
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


# --- EnvPool ----------------------------------------------------------------------------------------------------------


def test_without_envpool_or_its_environment_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_for(load_task("cartpole"), 2) is None
    assert all(pool_for(load_task(name), 2) is None for name in ("pendulum", "acrobot", "mountaincar"))
    assert pool_for(replace(load_task("hopper"), kwargs=(("ctrl_cost_weight", 0.5),)), 2) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert pool_for(load_task("hopper"), 2) is None


def pool_of(task: Task) -> Simulator:
    pool = pool_for(task, 2)
    assert pool is not None
    return Simulator(task, pool=pool)


@needs_envpool
@pytest.mark.parametrize("gym_id", STEP_BY_STEP)
def test_envpool_steps_as_gymnasium_does_from_equal_states(gym_id: str) -> None:
    task = replace(load_task(gym_id), max_steps=40)
    env: Any = gym.make(gym_id).unwrapped
    for trajectory in pool_of(task).play(RandomActor(task, 0), [1, 2, 3, 2**32 - 1]):
        env.reset(seed=0)
        start = trajectory.observations[0].astype(np.float64)
        # These environments observe everything but where they are along the track, which changes nothing.
        unseen = env.model.nq + env.model.nv - len(start)
        positions = np.concatenate([np.zeros(unseen), start[: env.model.nq - unseen]])
        env.set_state(positions, start[env.model.nq - unseen :])
        for i in range(min(10, trajectory.length)):
            observation, reward, terminated, _, _ = env.step(trajectory.actions[i])
            assert observation == pytest.approx(trajectory.observations[i + 1], abs=1e-3)
            assert reward == pytest.approx(trajectory.rewards[i], abs=1e-3)
            assert terminated == (trajectory.terminated and i + 1 == trajectory.length)
    env.close()


# They remember: a clock, an earlier action and an earlier observation.
CLOCKED = "let phase = mod(prev(phase) + 0.4, 2*pi)\nlet beat = sin(phase)\n"
POLICIES = {
    "hopper": "hip_torque = beat + prev(hip_torque)\nknee_torque = -knee\nankle_torque = 0.5*prev(lean, lean)",
    "lunarlander": "none = 0.1\nleft = 0.5*x + vx - angle - spin\nright = angle + spin - 0.5*x - vx\n"
    "main = -y - 2*vy + 0.1*beat + 0.1*prev(main)",
    "bipedalwalker": "hip1_drive = 0.9*sin(6*hip2)\nknee1_drive = 0.4 - knee1\nhip2_drive = 0.9*sin(6*hip1)\n"
    "knee2_drive = 0.4 - knee2 + beat + 0.1*prev(hip1_drive)",
}


@needs_envpool
@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")
@pytest.mark.parametrize("name", POLICIES)
def test_an_episode_in_envpool_depends_on_its_policy_and_seed_and_has_gymnasiums_law(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_for(name, CLOCKED + POLICIES[name])
    policy = replace(policy, task=replace(policy.task, max_steps=150))
    pool, seeds = pool_of(policy.task), episode_seeds(0, "engines", 60)
    pooled = pool.play(policy, seeds)
    assert len({t.length for t in pooled}) > 1  # rows are compacted as episodes end
    assert_equal([pool.play(policy, [seed])[0] for seed in seeds[:3]], pooled[:3])
    assert not np.array_equal(pooled[0].observations[0], pooled[1].observations[0])
    controller = policy.controller()
    for trajectory in pooled[:7]:
        controller.reset()
        acted = [controller(observation) for observation in trajectory.observations[:-1]]
        assert np.array_equal(np.array(acted), trajectory.actions)
    with Simulator(policy.task) as simulator:
        assert same_law(pooled, simulator.play(policy, seeds))
    usual = int(np.median([t.length for t in pooled]))
    with Simulator(replace(policy.task, max_steps=usual - 1)) as simulator:
        assert not same_law(pooled, simulator.play(policy, seeds)), "the comparison notices a step"
    monkeypatch.setattr(PooledCopies, "max_copies", 3)
    assert_equal(pool.play(policy, seeds[:7]), pooled[:7])


def same_law(ones: list[Trajectory], others: list[Trajectory]) -> bool:
    """Whether returns and lengths pass a Kolmogorov-Smirnov test at one in ten thousand."""
    from scipy.stats import ks_2samp

    return all(
        ks_2samp([read(t) for t in ones], [read(t) for t in others]).pvalue > 1e-4
        for read in (lambda t: t.episode_return, lambda t: t.length)
    )
