"""Environments of others: their seeds, their actions, and what they hand back beside the reward."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support import Written, fenced

import policygen
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import EnvironmentFault
from policygen.tasks import warmup
from policygen.tasks.load import task_of
from policygen.tasks.spaces import observed_in
from policygen.tasks.warmup import EPISODES, STEPS, WarmUp, warm_up

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")


class Pushed(gym.Env[Any, Any]):
    """A cart that is pushed left or right."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space: gym.Space[Any] = gym.spaces.Discrete(2)
    length = 12

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.x = 0, self.np_random.uniform(-0.2, 0.2)
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.x = float(np.clip(self.x + 0.1 * (2 * int(action) - 1), -1, 1))
        return np.array([self.x], np.float32), -abs(self.x), False, self.steps >= self.length, {}


class Respaced(Pushed):
    """`reset` makes another action space."""

    def reset(self, **kwargs: Any) -> Any:
        self.action_space = gym.spaces.Discrete(2)
        return super().reset(**kwargs)


class Property(Pushed):
    """Every look at the action space makes another one."""

    action_space = property(lambda self: gym.spaces.Discrete(2))  # type: ignore[assignment]


class Sampling(Pushed):
    """The environment itself draws from its action space."""

    def step(self, action: Any) -> Any:
        self.action_space.sample()
        return super().step(action)


class Unruly(Pushed):
    """It draws from numpy's global generator."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.x = np.random.uniform(-0.2, 0.2)
        return np.array([self.x], np.float32), {}


class Itemised(Pushed):
    """Its actions need `item`, as those of numpy have."""

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return super().step(action.item())


class Numbered(Pushed):
    """Keys of `info` are of every kind."""

    def step(self, action: Any) -> Any:
        stepped = super().step(action)[:4]
        return (*stepped, {0: 1.0, ("a", 1): 2, None: "x", 1.5: np.ones(2), "reward_near": stepped[1], b"cost": 3})


class Restless(Pushed):
    """It fails when an action has been repeated eleven times, which random actions hardly do."""

    def reset(self, **kwargs: Any) -> Any:
        self.last: list[int] = []
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.last.append(int(action))
        if len(self.last) > 10 and len(set(self.last[-11:])) == 1:
            raise RuntimeError("the motor is hot")
        return super().step(action)


gym.register("Restless-v0", Restless, max_episode_steps=12)  # a stated limit: no constant actions look for one


@pytest.mark.parametrize("kind", [Pushed, Respaced, Property, Sampling])
def test_an_environment_that_follows_its_seed_is_not_said_to_ignore_it(kind: type[Pushed]) -> None:
    task = task_of(kind)
    assert not task.unseeded
    assert [repr(one) for one in task_of(kind).grid.dimensions] == [repr(one) for one in task.grid.dimensions]


def test_an_environment_that_ignores_its_seed_is_played_and_labelled() -> None:
    task = task_of(Unruly)
    assert task.unseeded
    with Simulator(task) as simulator:
        assert simulator.play(RandomActor(task, 0), (1,))[0].length == 12


@pytest.mark.parametrize("kind", [Itemised, Numbered])
def test_actions_and_info_of_every_kind_are_played(kind: type[Pushed]) -> None:
    asked = Written([fenced("action_0 = obs", "action_1 = -obs")])
    settings = {"iterations": 1, "episodes": 3, "refine": "none", "policy": "linear", "final_episodes": 4}
    found = policygen.run(kind, llm=asked, fragility=False, **settings)
    assert found.attempts[1].score is not None
    with Simulator(task_of(kind)) as simulator:
        (played,) = simulator.play(found.policy, (1,))
    assert [name for name, _ in played.terms] == ["near"] * (kind is Numbered)


def test_an_environment_that_fails_on_the_first_policy_ends_the_run_with_the_reason() -> None:
    asked = Written([fenced("action_0 = 0", "action_1 = 1")] * 5)
    with pytest.raises(EnvironmentFault, match="the motor is hot"):
        policygen.run(
            "Restless-v0", llm=asked, iterations=5, episodes=3, warmup_episodes=2, refine="none", policy="linear"
        )
    assert len(asked.prompts) == 1


class Season(Pushed):
    """Its observation is the time, and an episode lasts 1,920 steps."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    length = 1_920

    def step(self, action: Any) -> Any:
        _, reward, terminated, truncated, info = super().step(action)
        return np.array([self.steps / self.length], np.float32), reward, terminated, truncated, info


def test_ranges_are_those_of_a_whole_long_episode_and_of_the_starts_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warmup, "STEPS", STEPS)
    seen = warm_up(Season(), 1, 10.0)
    assert len(seen.rows) == STEPS
    assert seen.rows[:, 0].max() > 0.999
    assert len(set(seen.episodes.tolist())) >= EPISODES


def test_what_never_changes_is_told_with_its_values_and_what_changes_between_episodes_is_told_apart() -> None:
    observations, _ = observed_in(gym.spaces.Box(-9, 9, (4, 20), np.float64))
    rows = np.zeros((200, 80))
    rows[:, :20] = np.random.default_rng(1).normal(size=(200, 20))
    rows[:, 3:13] = 5  # ten of the first row
    rows[:, 20:40] = np.linspace(0, 1.9, 20)  # the whole second row
    rows[100:, 40:60] = np.arange(20)  # the third one in the second episode
    told = WarmUp(rows, np.repeat([0, 1], 100)).described(observations)
    moving, values, anew, zero = (told[k].seen for k in (0, 20, 40, 60))
    assert moving.endswith("; always the same: " + ", ".join(f"obs_0_{i}" for i in range(3, 11)) + " and 2 more")
    assert values == f"always {', '.join(f'{k / 10:g}' for k in range(16))} and 4 more"
    assert ", changes between episodes only" in anew
    assert anew.endswith("; always the same: obs_2_0")
    assert zero.startswith("always 0")
