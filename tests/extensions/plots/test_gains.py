"""Gains of equations, and the map over the two quantities that matter most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import Line

import policygen
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.gains import effects, gains, gains_text, main_quantities
from policygen.extensions.plots.played import _action_map, decision_figure, play_episodes
from policygen.extensions.plots.policy_figures import policy_figure


def played(text: str, task: str) -> tuple[Any, list[Trajectory]]:
    policy = policygen.parse(text, task, "linear")
    episodes, why = play_episodes(policy)
    assert not why
    return policy, episodes


def test_gains_follow_definitions_to_observations_and_are_exact_where_these_are_linear() -> None:
    policy, episodes = played("let error = sin + 0.1*rate\nlet asked = -4*error\ntorque = asked - rate", "pendulum")
    own = gains(policy, episodes)
    found = {gain.name: gain for gain in own}
    assert found.keys() == {"sin", "rate"}
    assert found["sin"].slope == pytest.approx(-4, rel=1e-6)
    assert found["rate"].slope == pytest.approx(-1.4, rel=1e-6)
    assert all(gain.constant for gain in own)
    assert sum(gain.share for gain in own) == pytest.approx(1)
    text = gains_text(policy, episodes)
    assert "-1.4 per (rad/s)" in text
    assert "median" not in text


def test_a_slope_that_varies_has_its_range() -> None:
    policy, episodes = played("torque = rate^2 + sin", "pendulum")
    own = gains(policy, episodes)
    rate = next(gain for gain in own if gain.name == "rate")
    rates = np.concatenate([one.observations[:-1, 2] for one in episodes]).astype(float)
    assert (rate.low, rate.high) == pytest.approx(tuple(2 * np.quantile(rates, (0.05, 0.95))), rel=1e-3)
    assert not rate.constant
    line = next(line for line in gains_text(policy, episodes).splitlines() if " rate " in line)
    assert f" median, {rate.low:.3g}..{rate.high:.3g} " in line


def test_remembered_values_have_gains_with_units() -> None:
    policy, episodes = played("let smooth = 0.9*prev(smooth, sin) + 0.1*sin\ntorque = -5*smooth", "pendulum")
    own = gains(policy, episodes)
    slopes = {gain.name: gain.slope for gain in own}
    assert slopes == pytest.approx({"sin": -0.5, "prev(smooth)": -4.5}, rel=1e-4)
    policy, episodes = played("torque = -sin - 0.5*prev(rate)", "pendulum")
    assert "-0.5 per (rad/s)" in gains_text(policy, episodes)


def test_the_map_shows_the_two_quantities_that_matter_most_with_the_others_at_their_median() -> None:
    policy, episodes = played("right = 10*angle + 2*spin + 0.001*position\nleft = 0", "cartpole")
    assert main_quantities(policy, episodes) == ("angle", "spin")
    drawn = _action_map(policy, episodes)
    assert drawn.names == ("angle", "spin")
    position = np.median(np.concatenate([one.observations[:-1, 0] for one in episodes]))
    x, y = np.meshgrid(*drawn.values)
    expected = (10 * x + 2 * y + 0.001 * position > 0) * 1.0
    assert (drawn.actions[:, :, 0] == expected).mean() > 0.999
    figure = decision_figure(policy, episodes)
    assert "all else at its median" in figure.get_suptitle()


def test_show_prints_gains_with_units(line: Line) -> None:
    with open("lean.txt", "w") as file:
        file.write("let lean = 10*angle + 2*spin\nright = lean\nleft = 0\n")
    said = line("show", "lean.txt", "--task", "cartpole")
    assert said.code == 0, said.err
    assert "10 per rad" in said.out


def test_the_picture_of_an_output_that_is_one_feature_shows_the_observations_behind_it() -> None:
    policy, episodes = played("let asked = -4*sin - rate\ntorque = asked", "pendulum")
    names, amounts = effects(policy, episodes)
    assert names == ["sin", "rate"]
    sin = np.concatenate([one.observations[:-1, 1] for one in episodes])
    assert amounts[0, 0] == pytest.approx(-4 * sin.std(), rel=1e-4)
    mixed, _ = played("let error = 0.2 - sin\ntorque = 8*error - 0.5*rate", "pendulum")
    for one in (policy, mixed):  # also where only some terms are features
        labels = [text.get_text() for text in policy_figure(one).axes[0].get_yticklabels()]
        assert labels == ["sin", "rate [rad/s]"]
