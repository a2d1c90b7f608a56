from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.simulator import COPIES, VECTOR_COPIES, Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import TaskError
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.spaces import flatten
from policygen.tasks.task import Task, output_names

CARTPOLE = load_task("cartpole")
BALANCING = "left = 0\nright = 0.3*position + 0.9*velocity + 5*angle + 3*spin"
CLUMSY = "left = 0\nright = angle"


def by_hand(task: Task, actor, seed: int) -> Trajectory:
    """One episode in one Gymnasium environment, in the plainest way."""
    env = make_env(task)
    observation, _ = env.reset(seed=seed)
    rows, actions, rewards = [flatten(task.layout, observation).copy()], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = actor.act(rows[-1].reshape(1, -1))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append(flatten(task.layout, observation).copy())
        actions.append(action)
        rewards.append(float(reward))
    env.close()
    return Trajectory(
        np.asarray(rows, np.float32),
        np.asarray(actions),
        np.asarray(rewards, np.float32),
        sum(rewards),
        seed,
        terminated,
        truncated,
    )


def assert_same(mine: Trajectory, theirs: Trajectory) -> None:
    assert mine.seed == theirs.seed
    assert np.array_equal(mine.observations, theirs.observations)
    assert np.array_equal(mine.actions, theirs.actions)
    assert np.array_equal(mine.rewards, theirs.rewards)
    assert mine.episode_return == pytest.approx(theirs.episode_return, rel=1e-6)
    assert (mine.terminated, mine.truncated) == (theirs.terminated, theirs.truncated)
    assert mine.length == len(mine.rewards) == len(mine.actions) == len(mine.observations) - 1
    assert (mine.observations.dtype, mine.rewards.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("text", [BALANCING, CLUMSY, "left = 1\nright = 0"])
def test_vectorised_cartpole_is_stepping_one_environment_bit_for_bit(text):
    policy = parse(text, CARTPOLE).policy
    seeds = (3, 1, 4, 1, 5, 9, 2_653_589_793)
    with Simulator(CARTPOLE) as simulator:
        assert simulator.engine == "vector"
        played = simulator.play(policy, seeds)
    assert [trajectory.seed for trajectory in played] == list(seeds)
    for trajectory, seed in zip(played, seeds, strict=True):
        assert_same(trajectory, by_hand(CARTPOLE, policy, seed))


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_an_episode_that_ends_at_the_limit_is_told_apart_from_one_that_is_cut(offset):
    policy = parse(CLUMSY, CARTPOLE).policy
    length = by_hand(CARTPOLE, policy, 7).length
    task = replace(CARTPOLE, max_steps=length + offset)
    with Simulator(task) as simulator:
        trajectory = simulator.play(policy, [7])[0]
    assert_same(trajectory, by_hand(task, policy, 7))
    assert trajectory.length == min(length, length + offset)
    assert trajectory.terminated == (offset >= 0)
    assert trajectory.truncated == (offset <= 0)


def test_more_episodes_than_fit_side_by_side_are_played_in_order():
    policy = parse(CLUMSY, CARTPOLE).policy
    seeds = list(range(VECTOR_COPIES + 30))
    with Simulator(CARTPOLE) as simulator:
        played = simulator.play(policy, seeds)
        alone = [simulator.play(policy, [seed])[0] for seed in (0, VECTOR_COPIES - 1, VECTOR_COPIES, seeds[-1])]
    assert [trajectory.seed for trajectory in played] == seeds
    for trajectory in alone:
        assert_same(played[trajectory.seed], trajectory)
        assert_same(trajectory, by_hand(CARTPOLE, policy, trajectory.seed))
    assert len({trajectory.length for trajectory in played}) > 5


def test_rewards_follow_the_keywords_of_the_environment():
    task = replace(CARTPOLE, kwargs=(("sutton_barto_reward", True),))
    policy = parse(CLUMSY, CARTPOLE).policy
    with Simulator(task) as simulator:
        trajectory = simulator.play(policy, [1])[0]
    assert_same(trajectory, by_hand(task, policy, 1))
    assert trajectory.episode_return == -1.0


def some_policy(task: Task):
    if task.default_policy == "table":
        actions = np.random.default_rng(1).integers(len(task.actuators[0].labels), size=task.grid.size)
        return TablePolicy.from_actions(task, actions)
    text = "\n".join(f"{name} = 0.8*{task.observation_names[i]} - 0.1" for i, name in enumerate(output_names(task)))
    return parse(text, task).policy


@pytest.mark.parametrize(
    ("gym_id", "steps", "count"),
    [
        ("FrozenLake-v1", None, COPIES + 9),
        ("Acrobot-v1", 60, COPIES + 5),
        ("Pendulum-v1", 30, 5),
        ("Blackjack-v1", None, COPIES * 2),
        ("Hopper-v5", 40, 4),
        ("Taxi-v4", 20, 3),
    ],
)
def test_copies_stepped_side_by_side_are_a_loop_by_hand(gym_id, steps, count):
    task = load_task(gym_id)
    task = replace(task, max_steps=steps or task.max_steps)
    policy = some_policy(task)
    seeds = [100 + 7 * i for i in range(count)]
    with Simulator(task) as simulator:
        assert simulator.engine == "copies"
        played = simulator.play(policy, seeds)
        again = simulator.play(policy, seeds[::-1])
    assert [trajectory.seed for trajectory in played] == seeds
    for trajectory, reversed_one in zip(played, again[::-1], strict=True):
        assert_same(trajectory, by_hand(task, policy, trajectory.seed))
        assert_same(trajectory, reversed_one)
    assert played[0].actions.dtype == (np.float32 if task.action_space == "box" else np.int16)
    assert played[0].actions.shape == (played[0].length, *policy.act(played[0].observations[:1]).shape[1:])


def test_no_seeds_are_no_episodes():
    for name in ("cartpole", "frozenlake"):
        task = load_task(name)
        with Simulator(task) as simulator:
            assert simulator.play(RandomActor(task, 0), []) == []


def test_an_episodes_start_depends_on_its_seed_alone():
    first = parse(BALANCING, CARTPOLE).policy
    with Simulator(CARTPOLE) as simulator:
        one = simulator.play(first, [11, 12])
        other = simulator.play(parse("left = 1\nright = 0", CARTPOLE).policy, [12, 11])
    assert np.array_equal(one[0].observations[0], other[1].observations[0])
    assert np.array_equal(one[1].observations[0], other[0].observations[0])


@pytest.mark.parametrize("name", ["cartpole", "frozenlake", "Pendulum-v1", "Hopper-v5"])
def test_random_actions_are_valid_seeded_and_use_the_whole_range(name):
    task = load_task(name)
    batch = RandomActor(task, 5).act(np.zeros((500, len(task.observations))))
    assert np.array_equal(batch, RandomActor(task, 5).act(np.zeros((500, 1))))
    assert not np.array_equal(batch, RandomActor(task, 6).act(np.zeros((500, 1))))
    env = make_env(task)
    assert all(env.action_space.contains(action) for action in batch)
    env.close()
    for column, actuator in zip(batch.reshape(500, -1).T, task.actuators, strict=True):
        if actuator.is_choice:
            assert set(column.tolist()) == set(range(len(actuator.labels)))
        else:
            assert column.min() < actuator.low + 0.02 * (actuator.high - actuator.low)
            assert column.max() > actuator.high - 0.02 * (actuator.high - actuator.low)


class Wrong:
    """Chooses an action that there is not."""

    def act(self, observations):
        return np.full(len(observations), 7)


def test_an_environment_that_refuses_an_action_is_named():
    with (
        Simulator(CARTPOLE) as simulator,
        pytest.raises(TaskError, match="CartPole-v1 failed while playing: AssertionError"),
    ):
        simulator.play(Wrong(), [1])


def test_a_linear_policy_on_cartpole_reaches_the_known_optimum():
    policy = parse(BALANCING, CARTPOLE).policy
    assert isinstance(policy, LinearPolicy)
    with Simulator(CARTPOLE) as simulator:
        played = simulator.play(policy, range(200))
    assert {trajectory.episode_return for trajectory in played} == {500.0}
    assert all(trajectory.truncated and not trajectory.terminated for trajectory in played)


def test_the_time_limit_of_the_task_is_the_environments():
    task = replace(load_task("Pendulum-v1"), max_steps=17)
    env = make_env(task)
    assert isinstance(env, gym.Env)
    assert env.spec.max_episode_steps == 17
    env.close()
    with Simulator(task) as simulator:
        trajectory = simulator.play(RandomActor(task, 0), [0])[0]
    assert (trajectory.length, trajectory.terminated, trajectory.truncated) == (17, False, True)


def test_an_episode_does_not_depend_on_those_that_its_environment_played_before() -> None:
    pytest.importorskip("Box2D")
    task = load_task("bipedalwalker")
    reply = Path(__file__).parents[2] / "results" / "structures" / "bipedalwalker" / "reply-001.md"
    policy = parse(reply.read_text(encoding="utf-8"), task, "linear").policy
    assert policy is not None
    with Simulator(task) as fresh, Simulator(task) as used:
        (alone,) = fresh.play(policy, [2])
        assert alone.length > 1_000, "it walks, so that the ground matters"
        used.play(policy, [0])
        used.play(policy, [1])
        (later,) = used.play(policy, [2])
    assert np.array_equal(alone.observations, later.observations)
    assert alone.episode_return == later.episode_return
