"""The benchmark of a small proposer: variants act as described, and policies are the same under other names."""

from __future__ import annotations

import json
from pathlib import Path

import nano
import numpy as np
import pytest

import policygen
from policygen.episodes.players import evaluate


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nano, "PLACE", tmp_path)


@pytest.mark.parametrize("family", nano.FAMILIES)
def test_a_policy_plays_the_same_episodes_under_other_signs(family: str) -> None:
    variant = {**nano.drawn(family, 0, 1), "delay": 1}
    other = {
        **variant,
        "signs": [sign if i else -sign for i, sign in enumerate(variant["signs"])],
        "drive": -variant["drive"],
    }
    weights = np.random.default_rng(0).normal(size=len(variant["signs"]) + 1).tolist()
    played = []
    for name, described in (("one", variant), ("other", other)):
        task = nano.task_of(name, described)
        policy = policygen.parse(f"```\n{nano.text_of(weights, described)}\n```", task, "linear")
        played.append(evaluate(policy, range(10)))
    assert played[0].returns == played[1].returns
    assert len(set(played[0].returns)) > 1


def test_an_action_moves_the_car_after_the_delay() -> None:
    variant = {**nano.drawn("car", 0, 1), "signs": [1, 1]}
    speeds = []
    for delay in (0, 2):
        env = nano.VariantEnv(json.dumps({**variant, "delay": delay}))
        env.reset(seed=0)
        env.state[1] = 0.0
        pushed = [env.step([force])[0][1] for force in (0.8, 0.0, 0.0)]
        env.reset(seed=0)
        idle = [env.step([0.0])[0][1] for _ in range(3)]
        speeds.append([abs(a - b) > 1e-4 for a, b in zip(pushed, idle, strict=True)])
    assert speeds == [[True, True, True], [False, False, True]]


@pytest.mark.parametrize("family", nano.FAMILIES)
def test_a_step_at_the_set_point_is_worth_1(family: str) -> None:
    variant = {**nano.drawn(family, 0, 1), "delay": 1}
    motion = nano.Motion(variant)
    motion.inner.gravity = motion.inner.g = 0.0
    state = motion.start(np.random.default_rng(0))[0]
    rewards = []
    for distance in (0.0, motion.of.tolerance):
        state[:-1] = 0.0
        state[motion.of.regulated] = variant["aim"] + distance
        rewards.append(motion.advance(state[:, None], np.zeros(1, int), np.zeros((1, 0))).rewards[0])
    assert rewards == pytest.approx([1.0, 0.5], abs=0.1)


def test_weights_of_a_standardised_policy_are_those_without_signs_and_scales() -> None:
    variant = {**nano.drawn("car", 0, 1), "signs": [-1, 1], "drive": -1}
    text = "```\nlet n_x = (x - 10)/20\nlet n_v = (v + 0.5)/0.1\nforce = 2*n_x + 3*n_v + 1\n```"
    policy = policygen.parse(text, nano.task_of("car", variant), "linear")
    assert nano.weights_of(policy, variant) == pytest.approx([0.1, -30.0, -15.0])  # the bias: -(2*-0.5 + 3*5 + 1)
    assert nano.text_of([0.1, -30.0, -15.0], variant) == "force = -(+0.1*-x -30*+v -15)"
