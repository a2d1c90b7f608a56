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
def test_a_policy_plays_the_same_episodes_under_other_names_and_the_other_side(family: str) -> None:
    variant = {**nano.drawn(family, 0, 1), "noise": 0.01, "delay": 1}
    sideways, inputs = nano.FAMILIES[family].sideways, nano.quantities_of(variant)
    other = {
        **variant,
        "names": [f"other{i}" for i in range(len(variant["names"]))],
        "scales": [-scale if i in sideways else scale for i, scale in enumerate(variant["scales"])],
    }
    outputs = len(variant["outputs"])
    weights = np.random.default_rng(0).normal(size=(len(inputs) + 1, outputs))
    played = []
    for name, described in (("one", variant), ("other", other)):
        task = nano.task_of(name, described)
        policy = policygen.parse(f"```\n{nano.text_of(weights, described)}\n```", task, "linear")
        played.append(evaluate(policy, range(10)))
    assert played[0].returns == played[1].returns
    assert len(set(played[0].returns)) > 1 or family == "acrobot"  # whose bad policies all score -500


def test_an_action_moves_the_car_after_the_delay() -> None:
    variant = {**nano.drawn("car", 0, 1), "noise": 0.0, "scales": [1.0, 1.0]}
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


def test_weights_of_a_standardised_policy_are_those_of_the_quantities_in_base_units() -> None:
    variant = {**nano.drawn("car", 0, 1), "names": ["x", "v"], "outputs": ["u"], "scales": [-100.0, 1.0]}
    text = "```\nlet n_x = (x - 10)/20\nlet n_v = (v + 0.5)/0.1\nu = 2*n_x + 3*n_v + 1\n```"
    policy = policygen.parse(text, nano.task_of("car", variant), "linear")
    assert nano.weights_of(policy, variant) == pytest.approx(np.array([[-10.0], [30.0], [2 * -0.5 + 3 * 5 + 1]]))
