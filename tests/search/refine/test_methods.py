"""Numerical refinement: structure stays, numbers move, budgets hold."""

from __future__ import annotations

from refining import WEAK, Player, mean_return, policy_of, seeds, tuned

from policygen.search.refine.tunable import Trials, refine


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
