"""Explanations of actions: they name the row or the terms that decided."""

from __future__ import annotations

import numpy as np
import pytest

import policygen
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.film.decisions import Decision, explain
from policygen.policies.policy import Policy

TABLE = """
let lean = angle + 0.25*spin
bins lean: -0.02, 0.02
| position | lean | action |
| 0-1      | 0    | left   |
| *        | 2    | right  |
| *        | *    | left   |
"""


def explained(policy: Policy, seed: int = 3) -> tuple[Trajectory, list[Decision]]:
    with Simulator(policy.task) as simulator:
        [episode] = simulator.play(policy, [seed])
    return episode, explain(policy, episode, range(episode.length))


def test_the_row_that_fits_is_named_with_the_values_that_it_asks_for():
    policy = policygen.parse(TABLE, "cartpole", "table")
    episode, decisions = explained(policy)
    assert {decision.summary.split(":")[0] for decision in decisions} == {"row 1 of 3", "row 2 of 3", "row 3 of 3"}
    for observation, action, decision in zip(episode.observations, episode.actions, decisions, strict=False):
        lean = float(observation[2]) + 0.25 * float(observation[3])
        row = 2 if lean >= 0.02 else 3 if lean >= -0.02 else 1
        assert decision.summary.startswith(f"row {row} of 3")
        assert decision.action == ["left", "right"][action]
        said = [(reason.text, reason.value) for reason in decision.reasons]
        if row == 2:
            assert said == [(f"lean = {lean:.3g}", "0.02 and above")]
        elif row == 1:
            assert [value for _, value in said] == ["below 0.8", "below -0.02"]
        else:
            assert said == []
            assert decision.summary == "row 3 of 3: everything that no row above covers"


def test_the_terms_of_a_choice_add_up_to_its_lead():
    policy = policygen.parse("left = -2*angle - spin + 0.1\nright = 3*angle + 0.5*position", "cartpole", "linear")
    episode, decisions = explained(policy)
    for observation, decision in zip(episode.observations, decisions, strict=False):
        position, _, angle, spin = observation.tolist()
        left, right = -2 * angle - spin + 0.1, 3 * angle + 0.5 * position
        lead = abs(left - right)
        assert sum(float(reason.value) for reason in decision.reasons) == pytest.approx(lead, rel=0.02, abs=2e-3)
        assert {reason.text for reason in decision.reasons} == {"angle", "spin", "position", "constant"}
        assert all(abs(reason.share) <= 1 for reason in decision.reasons)
    largest = max(abs(reason.share) for decision in decisions for reason in decision.reasons)
    assert largest == pytest.approx(1.0)


def test_what_a_policy_remembers_is_among_its_terms():
    policy = policygen.parse(
        "let sum = clip(prev(sum) + 0.1*sin, -3, 3)\ntorque = -8*sin - rate - sum + 0.3*prev(torque)",
        "pendulum",
        "linear",
    )
    episode, decisions = explained(policy)
    total, torque = 0.0, 0.0
    for observation, action, decision in zip(episode.observations, episode.actions, decisions, strict=False):
        total = float(np.clip(total + 0.1 * observation[1], -3, 3))
        terms = {reason.text: float(reason.value) for reason in decision.reasons}
        assert terms["sum"] == pytest.approx(-total, rel=0.01, abs=1e-4)
        assert terms["prev(torque)"] == pytest.approx(0.3 * torque, rel=0.01, abs=1e-4)
        torque = float(action[0])
        assert f"torque {torque + 0.0:.3g}" == decision.action


def test_of_several_outputs_each_is_said_with_what_weighs_most_in_it():
    policy = policygen.parse(
        "hip_torque = 5*lean + 0.1*height\nknee_torque = 1\nankle_torque = -5*knee_rate", "hopper", "linear"
    )
    _, decisions = explained(policy)
    hip, knee, ankle = decisions[0].reasons
    assert hip.text.startswith("hip_torque: ")
    assert "height +0.12" in hip.text
    assert (knee.text, knee.value, knee.share) == ("knee_torque: constant +1", "1", 1.0)
    assert ankle.text.startswith("ankle_torque: knee_rate")
