"""Coordinate search: exact where the MDP is known, within its budget elsewhere."""

from __future__ import annotations

import pytest
from refining import Player, policy_of, seeds

from policygen.episodes.exact import exact_score, finite_mdp
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Trials
from policygen.tasks.load import load_task


def test_coordinate_search_is_exact_where_the_mdp_is_known_and_costs_no_episodes() -> None:
    task = load_task("frozenlake")
    mdp, player = finite_mdp(task), Player("frozenlake")
    wrong = """
    | row | column | action |
    | 0 | 0 | left |
    | 0 | * | up |
    | 2 | 0 | up |
    | 2 | 1 | down |
    | 3 | 1-2 | right |
    | * | * | left |
    """
    start = policy_of(wrong, "frozenlake")
    refined = refine(start, "coordinate", Trials(player, seeds, 10), 1, mdp=mdp)
    assert refined is not None
    assert mdp is not None
    assert refined.method == "coordinate"
    assert player.episodes == 0
    assert exact_score(start, mdp).mean < 0.70
    assert exact_score(refined.policy, mdp).mean == pytest.approx(0.740165, abs=1e-6)


def test_coordinate_search_over_episodes_keeps_its_budget() -> None:
    player = Player("cartpole")
    refined = refine(
        policy_of(
            "| position | velocity | angle | spin | action |\n| * | * | * | 0-2 | left |\n| * | * | * | * | right |"
        ),
        "auto",
        Trials(player, seeds, 400),
        1,
    )
    assert refined is not None
    assert refined.episodes == player.episodes <= 400
