"""Whoever else can act is scored on the episodes that our policies meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import policygen
from policygen.errors import PolicyError, UsageError

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

POLICIES = [
    ("cartpole", "left = 0\nright = angle + 0.1*spin + 0.3*position"),
    ("cartpole", "let phase = mod(prev(phase, 0) + 0.25, 1)\nleft = 0\nright = phase - 0.6"),
    ("inverted-pendulum", "force = 2*angle + 0.1*spin + 0.01*position"),  # EnvPool never plays it
]


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


@pytest.mark.parametrize(("name", "text"), POLICIES)
def test_a_function_and_a_model_meet_the_episodes_of_our_own_policies(name: str, text: str) -> None:
    policy = policygen.parse(text, name, "linear")
    own = policygen.score(policy, episodes=6, seed=3)
    model = Model(policy)
    for agent in (policy.controller(), model):  # both begin every episode anew: `reset`, `episode_start`
        score = policygen.score(agent, name, episodes=6, seed=3)
        assert (score.returns, score.seeds, score.exact) == (own.returns, own.seeds, False)
    assert sum(model.starts) == 6


class Plain:
    """Its `predict` takes the observation alone."""

    def predict(self, observation: Any) -> Any:
        return [0]


@pytest.mark.parametrize("agent", [Plain(), lambda observation: 0])
def test_a_function_of_the_observation_alone_is_an_agent(agent: Any) -> None:
    assert policygen.score(agent, "cartpole", episodes=2).mean < 12


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


@pytest.mark.usefixtures("mixer")
def test_actions_of_several_parts_are_refused_before_anything_plays() -> None:
    with pytest.raises(UsageError, match=r"^only policies of policygen can be scored with the action space of [^\n]*$"):
        policygen.score(lambda observation: {"valve": 1, "flow": [0.5, 0]}, "Mixer-v0", episodes=2)


def test_an_agent_needs_a_task() -> None:
    with pytest.raises(UsageError, match=r"name the task to play: policygen.score\(model, 'cartpole'\)"):
        policygen.score(lambda observation: 0)
