"""What holds for each environment of our own: Gymnasium's checks, seeds, pictures, copies side by side."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support import environment

from policygen.extensions import worlds

assert worlds
ROOMS = ["SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey"]
NAMES = ["Nim", "Maze", "Navigation", "Pong", "Adventure", "PendulumTorque", "WhenToAsk", *ROOMS]
VECTORS = ["Navigation", "Pong"]


def plain(observation):
    return np.array(observation["image"] if isinstance(observation, dict) else observation).tolist()


def played(env, seed, actions):
    """Play an episode; return its first observation, and its observations, rewards and flags."""
    first, rows = plain(env.reset(seed=seed)[0]), []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((plain(observation), reward, terminated, truncated))
        if terminated or truncated:
            break
    return first, rows


def some_actions(name, steps, copies, seed=0):
    """Actions under which an episode lasts."""
    shares = [0.25, 0.7, 0.05] if name == "Navigation" else [1 / 3] * 3
    return np.random.default_rng(seed).choice(3, (steps, copies), p=shares)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_to_criticise(name):
    mode = {"Adventure": "ansi", "PendulumTorque": None}.get(name, "rgb_array")
    env = gym.make(f"policygen/{name}-v0", render_mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As of Gymnasium's own pendulum: it would rather have actions between -1 and 1.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        check_env(env.unwrapped, skip_render_check=mode is None)
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_depends_on_its_seed_alone(name):
    env = gym.make(f"policygen/{name}-v0", disable_env_checker=True)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(60)]
    first, other, again = (played(env, seed, actions) for seed in (5, 6, 5))
    assert first == again
    assert name in ("Nim", "Maze") or first != other


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_the_observation_is_documented(name):
    env = gym.make(f"policygen/{name}-v0").unwrapped
    text = next(one.__doc__ for one in type(env).__mro__ if "## Action Space" in (one.__doc__ or ""))
    for title in ("Action Space", "Observation Space", "Reward", "Starting State", "Episode End", "Arguments"):
        assert f"## {title}" in text
    if isinstance(env.observation_space, gym.spaces.Box):
        for number in range(env.observation_space.shape[0]):
            assert re.search(rf"\| {number} +\|", text.split("## Observation Space")[1])


@pytest.mark.parametrize("name", ["Nim", "Maze", "Navigation", "Pong", "WhenToAsk", "SimpleDoorKey"])
def test_a_picture_shows_the_state(name):
    env = gym.make(f"policygen/{name}-v0", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(1)
    after = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", ["Nim", "Maze"])
def test_a_state_is_shown_as_text(name):
    env = gym.make(f"policygen/{name}-v0", render_mode="ansi")
    env.reset(seed=0)
    expected = {
        "Nim": ["||||||||||  10 left"],
        "Maze": [
            "+---+---+---+",
            "| R         |",
            "+   +---+   +",
            "|   |       |",
            "+   +---+---+",
            "|         G |",
            "+---+---+---+",
        ],
    }
    assert env.render().splitlines() == expected[name]


@pytest.mark.parametrize("name", ["Nim", "Maze", "Navigation", "Pong", "WhenToAsk", *ROOMS])
def test_misuse_is_refused(name):
    env = gym.make(f"policygen/{name}-v0", disable_env_checker=True).unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="there is no action 9"):
        env.step(9)
    assert name in ROOMS or env.render() is None
    with pytest.raises(gym.error.UnsupportedMode, match="no render mode"):
        type(env)(render_mode="film")  # type: ignore[call-arg]


def test_the_long_form_of_an_id_needs_no_import(tmp_path):
    code = "import gymnasium; print(gymnasium.make('policygen.extensions.worlds:policygen/Nim-v0').reset(seed=0))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )
    assert done.stdout == "(10, {})\n", done.stderr


@pytest.mark.parametrize("name", VECTORS)
def test_a_seeded_copy_plays_the_episode_of_a_single_environment(name):
    copies, steps = 12, 260
    actions = some_actions(name, steps, copies)
    envs = gym.make_vec(f"policygen/{name}-v0", copies, "vector_entry_point")
    singles = [played(gym.make(f"policygen/{name}-v0"), seed, actions[:, seed]) for seed in range(copies)]
    observations, _ = envs.reset(seed=list(range(copies)))
    assert np.array_equal(observations, [first for first, _ in singles])
    for step in range(steps):
        observations, rewards, terminated, truncated, _ = envs.step(actions[step])
        for i, (_, rows) in enumerate(singles):
            if step < len(rows):
                assert rows[step] == (observations[i].tolist(), rewards[i], terminated[i], truncated[i])
    assert max(len(rows) for _, rows in singles) > 64  # longer than a block of noise
    assert min(len(rows) for _, rows in singles) < steps


@pytest.mark.parametrize("name", VECTORS)
def test_a_copy_that_has_ended_begins_again(name):
    envs = gym.make_vec(f"policygen/{name}-v0", 2, "vector_entry_point", max_episode_steps=3)
    assert envs.metadata["autoreset_mode"] is gym.vector.AutoresetMode.NEXT_STEP
    envs.reset(seed=3)
    steps = [envs.step(np.array([1, 1])) for _ in range(8)]
    assert [step for step, (_, _, _, truncated, _) in enumerate(steps) if truncated.all()] == [2, 6]
    assert steps[3][1].tolist() == [0, 0]  # the step that begins an episode pays nothing


def test_seeds_of_copies():
    envs = gym.make_vec("policygen/Pong-v0", 3, "vector_entry_point")
    assert np.array_equal(envs.reset(seed=4)[0], envs.reset(seed=[4, 5, 6])[0])
    assert not np.array_equal(envs.reset(seed=4)[0], envs.reset()[0])
    with pytest.raises(ValueError, match="there are 2 seeds for 3 copies"):
        envs.reset(seed=[1, 2])
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        gym.make_vec("policygen/Pong-v0", 3, "vector_entry_point").step(np.zeros(3, int))
