"""Whoever else can act is scored on the episodes that our policies meet."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import policygen
from policygen.errors import PolicyError, UsageError

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

POLICIES = {
    "cartpole": "left = 0\nright = angle + 0.1*spin + 0.3*position",
    "inverted-pendulum": "force = 2*angle + 0.1*spin + 0.01*position",  # EnvPool never plays it
}


class Model:
    """As Stable-Baselines3's models are: a batch of one in, a batch of one and a state out."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.starts: list[bool] = []

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        assert deterministic
        self.starts.append(bool(episode_start[0]))
        return self.policy.predict(observation, state, episode_start)


@pytest.mark.parametrize("name", POLICIES)
def test_a_function_and_a_model_meet_the_episodes_of_our_own_policies(name: str) -> None:
    policy = policygen.parse(POLICIES[name], name, "linear")
    own = policygen.score(policy, episodes=6, seed=3)
    model = Model(policy)
    for agent in (policy.controller(), model, lambda observation: policy.act_one(observation)):
        score = policygen.score(agent, name, episodes=6, seed=3)
        assert (score.returns, score.seeds, score.exact) == (own.returns, own.seeds, False)
    assert sum(model.starts) == 6


def test_a_model_that_remembers_begins_every_episode_anew() -> None:
    text = "let phase = mod(prev(phase, 0) + 0.25, 1)\nleft = 0\nright = phase - 0.6"
    policy = policygen.parse(text, "cartpole", "linear")
    own = policygen.score(policy, episodes=5)
    assert policygen.score(Model(policy), "cartpole", episodes=5).returns == own.returns
    assert policygen.score(policy.controller(), "cartpole", episodes=5).returns == own.returns  # it has `reset`


def test_a_predict_that_takes_the_observation_alone_will_do() -> None:
    class Plain:
        def predict(self, observation: Any) -> Any:
            return [0]

    assert policygen.score(Plain(), "cartpole", episodes=2).mean < 12


def test_our_policy_may_be_scored_on_another_task() -> None:
    policy = policygen.parse("| row | column | action |\n| * | * | right |", "frozenlake")
    assert policygen.score(policy, "frozenlake-deterministic").exact
    assert policygen.score(policy).exact


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (3, "int cannot be scored: it is no policy, no function, and has no predict"),
        (lambda observation: 7, "returned 7, not an action of CartPole-v1: Discrete"),
        (lambda observation: 0.5, "returned 0.5, not an action"),
        (lambda observation: "left", "returned 'left', not an action"),
        (lambda observation: np.nan, "returned nan, not an action"),
        (lambda observation: [0, 1], r"returned \[0, 1\], not an action"),
        (lambda observation: 1 / 0, "fails on CartPole-v1 after 0 steps: ZeroDivisionError"),
    ],
)
def test_what_cannot_act_is_one_sentence(agent: Any, sentence: str) -> None:
    with pytest.raises((UsageError, PolicyError), match=sentence) as caught:
        policygen.score(agent, "cartpole", episodes=2)
    assert "\n" not in str(caught.value)


class Tap(gym.Env[Any, Any]):
    """Water that is on or off, and how far."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Dict(on=gym.spaces.Discrete(2), far=gym.spaces.Box(0, 1, (1,), np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, True, {}


def test_actions_of_several_parts_are_refused_before_anything_plays() -> None:
    with pytest.raises(UsageError, match=r"^only policies of policygen can be scored with the action space of [^\n]*$"):
        policygen.score(lambda observation: {"on": 1, "far": [0.5]}, Tap, episodes=2)


def test_an_agent_needs_a_task() -> None:
    with pytest.raises(UsageError, match=r"name the task to play: policygen.score\(model, 'cartpole'\)"):
        policygen.score(lambda observation: 0)
