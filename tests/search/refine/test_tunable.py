"""A policy as a vector: which constants move, how far, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from refining import WEAK, Player, mean_return, policy_of, seeds, tuned

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import constants, with_plain_signs
from policygen.search.refine.tunable import Trials, Tunable, refine


@pytest.mark.parametrize(
    ("text", "floor", "z", "places", "moved"),
    [
        # Only constants that moved are rounded, and pi stays.
        (
            "let wave = sin(2*pi*position)\nleft = 0\nright = 0.1234567*wave + 7.654321*angle",
            0.0,
            (0.0, 0.0, 1.0),
            ("let wave", "right", "right"),
            "let wave = sin(2*pi*position)\nleft = 0\nright = 0.1234567*wave + 15.309*angle",
        ),
        # Constants move in proportion to their size, and zeros stay.
        (
            WEAK,
            0.0,
            (0.5, -0.5, 1.0),
            ("let lean", "right", "right"),
            "let lean = angle + 0.03*spin\nleft = 0\nright = 0.5*lean - 0.6*position",
        ),
        # With a floor zeros move; constants of features keep their size, and definitions stay.
        (
            "let n_spin = (spin - 0.1)/0.4\n" + WEAK.replace("spin", "n_spin"),
            2.0,
            (0.5, 0.5, 0.5, 0.5),
            ("let lean", "left", "right", "right"),
            "let n_spin = (spin - 0.1)/0.4\nlet lean = angle + 0.03*n_spin\nleft = 1\nright = 2*lean - 1.3*position",
        ),
        # A unit in a feature and fixed numbers stay.
        (
            "let share = 1 - clip(fixed(0.4)*angle + 0.3*spin, 0, 1)\nleft = 0\nright = 1*share",
            0.0,
            (1.0, 1.0),
            ("let share", "right"),
            "let share = 1 - clip(fixed(0.4)*angle + 0.6*spin, 0, 1)\nleft = 0\nright = 2*share",
        ),
    ],
)
def test_which_constants_move_and_how_far(
    text: str, floor: float, z: Sequence[float], places: tuple[str, ...], moved: str
) -> None:
    tunable = Tunable(policy_of(text), floor)
    assert tunable.places == places
    assert tunable.at(np.array(z)).to_text() == moved


def test_a_constant_that_changes_its_sign_is_written_with_the_other_operator():
    policy = policy_of(
        "let lean = angle - 0.25*spin\nleft = -2*position*lean - 3\nright = angle + 0.5*lean/2 - (1 - 4*spin)"
    )
    tunable = Tunable(policy)
    moved = tunable.at(np.full(tunable.size, -2.0))
    assert moved.to_text() == (
        "let lean = angle + 0.25*spin\nleft = -6*position*lean + 3\nright = angle - 0.5*lean/-2 - (-1 + 4*spin)"
    )
    observations = np.random.default_rng(0).normal(size=(20, 4))
    plain = parse_expression("angle + -0.5*lean/-2 - (-1 - -4*spin)", ["angle", "spin", "lean"])
    assert with_plain_signs(plain) == moved.equations[1][1]  # type: ignore[union-attr]
    assert np.array_equal(moved.act(observations), policy_of(moved.to_text()).act(observations))


def test_only_bins_the_policy_chose_itself_move_and_they_stay_in_order() -> None:
    assert Tunable(policy_of("| position | velocity | angle | spin | action |\n| * | * | * | * | left |")).size == 0
    own = policy_of("bins angle: -0.1, 0.1\n| angle | action |\n| 0 | left |\n| * | right |")
    tunable = Tunable(own)
    assert tunable.size == 2
    crossed = tunable.at(np.array([-5.0, -5.0]))
    assert isinstance(crossed, TablePolicy)
    edges = crossed.grid.dimensions[0].edges
    assert edges == tuple(sorted(edges))
    assert len(set(edges)) == 2


def test_levels_of_a_continuous_table_move_inside_the_action_space() -> None:
    policy = policy_of("bins rate: 0\n| rate | torque |\n| 0 | -1.5 |\n| * | 1.5 |", "pendulum", "table")
    tunable = Tunable(policy)
    assert tunable.size == 3  # the edge and two levels
    far = tunable.at(np.full(tunable.size, 10.0))
    assert isinstance(far, TablePolicy)
    assert far.actions.max() == 2.0


@pytest.mark.parametrize("floor", [0.0, 2.5e-9])
@pytest.mark.parametrize("unit", [1e-3, 1e6])
def test_constants_of_a_written_policy_move_alike_in_all_units(floor: float, unit: float) -> None:
    one, other = (
        Tunable(policy_of(f"torque = {-20 * u}*sin + {5.5 * u}*rate - {0.25 * u}", "pendulum"), floor)
        for u in (1.0, unit)
    )
    z = np.array([0.3, -1.7, 6.0])
    assert other.values == pytest.approx(unit * one.values, rel=1e-12)
    assert Tunable(other.at(z)).values == pytest.approx(unit * Tunable(one.at(z)).values, rel=1e-5)


RANGED = "let far = tune(1, 0, 4)*angle\nleft = 0\nright = tune(0, -0.2, 0.2)*far - tune(2, 0, 10)*spin + 3*position"


def test_a_constant_with_a_range_moves_in_proportion_to_it_and_comes_back_from_its_ends() -> None:
    tunable = Tunable(policy_of(RANGED))
    assert tunable.places == ("let far", "right", "right", "right")  # also a 1 in a feature, and a 0
    assert 0.2 * tunable.sizes == pytest.approx([0.8, 0.08, 2.0, 0.6])
    assert tunable.at(np.zeros(4)) == tunable.policy
    moved = tunable.at(np.array([0.2, -0.25, -0.5, -2.0]))
    assert moved.to_text() == (
        "let far = tune(1.8, 0, 4)*angle\nleft = 0\n"
        "right = tune(-0.1, -0.2, 0.2)*far - tune(3, 0, 10)*spin - 3*position"  # 2 - 5 is 3 below the range
    )
    assert tunable.sign_changes(Tunable(moved), np.array([0.2, -0.25, -0.5, -2.0])).tolist() == [1, 1, -1, -1]
    assert tunable.relative(np.full(4, 0.5), np.zeros(4)) == [0.5] * 4  # of the range, also where the constant is 0
    for scale in (1.0, 100.0, 1e300):
        for z in np.random.default_rng(0).normal(scale=scale, size=(20, 4)):
            policy = tunable.at(z)
            assert policy_of(policy.to_text()) == policy  # a START outside its range is refused


class Places:
    """Returns that are highest where the two ranged constants of `RANGED` in `right` have certain values."""

    def __init__(self, *best: float) -> None:
        self.best, self.seen = np.array(best), list[tuple[float, ...]]()

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        assert all(isinstance(policy, LinearPolicy) for policy in policies)
        found = [constants(policy.equations[1][1])[:2] for policy in policies]  # type: ignore[attr-defined]
        self.seen += found
        return -((np.array(found) - self.best) ** 2 / [0.04, 25.0]).sum(axis=1)


@pytest.mark.parametrize(("best", "found"), [((0.1, 0.5), (0.1, 0.5)), ((5.0, -3.0), (0.2, 0.0))])
def test_searches_find_what_is_best_within_the_ranges_and_never_leave_them(best: Any, found: Any) -> None:
    places = Places(*best)
    refined = tuned(policy_of(RANGED), "cma", Trials(places, seeds, 1_500), 1)
    assert np.abs((constants(refined.policy.equations[1][1])[:2] - np.array(found)) / [0.2, 10]).max() < 1e-3  # type: ignore[attr-defined]
    assert (np.min(places.seen, axis=0) >= [-0.2, 0.0]).all()
    assert (np.max(places.seen, axis=0) <= [0.2, 10.0]).all()


# --- tuning -----------------------------------------------------------------------------------------------------------


def test_tuning_a_weak_policy_makes_it_strong_within_the_budget() -> None:
    policy, player = policy_of(WEAK), Player("cartpole", max_steps=300)
    before = mean_return(policy)
    refined = tuned(policy, "cma", Trials(player, seeds, 1_200), 1)
    assert refined.episodes == player.episodes <= 1_200
    assert before < 250
    assert mean_return(refined.policy) > before + 100


def test_too_small_a_budget_or_nothing_to_tune_plays_nothing() -> None:
    player = Player("cartpole")
    assert refine(policy_of(WEAK), "cma", Trials(player, seeds, 47), 1) is None
    assert refine(policy_of("left = 0\nright = angle"), "cma", Trials(player, seeds, 1_000), 1) is None
    assert player.episodes == 0


def test_a_table_over_features_of_its_own_is_tuned_in_their_constants() -> None:
    table = "let push = 0.3*angle + 0.1*spin\nbins push: 0.02\n| push | action |\n| 0 | left |\n| 1 | right |"
    player = Player("cartpole", max_steps=60)
    refined = tuned(policy_of(table), "auto", Trials(player, seeds, 480), 1)
    assert refined.method == "cma"
    assert set(dict(refined.spread)) == {"let push", "bins push"}
