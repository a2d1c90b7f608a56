"""CMA-ES: its first steps, its budget, its choice of what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from refining import WEAK, Player, policy_of, seeds, tuned

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.quantities.tree import constants
from policygen.runs.attempt import TuningState
from policygen.runs.tuning import FIRST_STEP
from policygen.search.refine import cma
from policygen.search.refine.cma import WIDER, carry_over, has_converged
from policygen.search.refine.tunable import Trials, Tunable, refine


def test_every_generation_plays_new_seeds_shared_by_its_candidates() -> None:
    player = Player("cartpole", max_steps=60)
    refine(policy_of(WEAK), "cma", Trials(player, seeds, 200), 1)
    assert len(player.seed_lists) >= 4
    flat = [seed for generation in player.seed_lists for seed in generation]
    assert len(set(flat)) == len(flat)


TWO_SIZES = "let length = 0.5*cos(angle)\nleft = 0\nright = 3*length - 2*spin"


class Bowl:
    """A return that is known in closed form: how far `length` and the gains are from where they belong.

    The length matters a hundred times as much as a gain; both belong at twice what the policy was written with.

    Args:
        luck: standard deviation of what is added to a candidate's return on a list of seeds.
    """

    def __init__(self, luck: float = 0.0) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self.asked: list[tuple[int, int]] = []  # the numbers of policies and of seeds of each call
        self.luck = luck

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        self.asked.append((len(policies), len(seeds)))
        returns = []
        for policy in policies:
            assert isinstance(policy, LinearPolicy)
            (length,), (gain, damping) = constants(policy.lets[0][1]), constants(policy.equations[1][1])
            self.seen.append((length, gain, damping))
            values = np.array([length / 0.5, gain / 3, damping / 2]) - 2
            returns.append(-float(values @ (np.array([100.0, 1.0, 1.0]) * values)))
        return np.array(returns) + self.luck * np.random.default_rng(seeds[0]).normal(size=len(policies))


def test_first_steps_are_small_where_a_constant_matters_and_large_where_it_does_not() -> None:
    bowl = Bowl()
    policy = policy_of(TWO_SIZES)
    refined = tuned(policy, "cma", Trials(bowl, seeds, 2_000), 0)
    tunable = Tunable(policy)
    assert tunable.places == ("let length", "right", "right")
    probes = 1 + 2 * tunable.size
    first_generation = np.array(bowl.seen[probes : probes + 12]) / [0.5, 3, 2] - 1
    length, gain, damping = first_generation.std(axis=0)
    assert length < 0.3 * min(gain, damping)
    found = np.array(
        [constants(refined.policy.lets[0][1])[0] / 0.5, constants(refined.policy.equations[1][1])[0] / 3]  # type: ignore[attr-defined]
    )
    assert found == pytest.approx([2.0, 2.0], abs=0.2)


@pytest.mark.parametrize("budget", [60, 200, 500, 1_000, 5_000])
def test_all_episodes_are_counted_and_within_the_budget(budget: int) -> None:
    bowl = Bowl()
    refined = tuned(policy_of(TWO_SIZES), "cma", Trials(bowl, seeds, budget), 0)
    assert refined.episodes == sum(policies * count for policies, count in bowl.asked) <= budget


def test_the_start_is_kept_where_the_search_finds_nothing_better() -> None:
    best = policy_of(TWO_SIZES.replace("0.5", "1.0").replace("3*", "6*").replace("2*", "4*"))
    refined = tuned(best, "cma", Trials(Bowl(), seeds, 1_500), 0)
    assert refined.policy == best


def test_a_search_leaves_its_distribution_and_goes_on_with_it() -> None:
    left = tuned(policy_of(TWO_SIZES), "cma", Trials(Bowl(), seeds, 500), 0)
    assert left.state is not None
    assert len(left.state.deviations) == len(left.state.correlations) == 3
    together = TuningState((0.1, 0.6, 0.4), (0.0, 0.0, -0.99))
    for state in (left.state, replace(left.state, deviations=(0.01, 0.5, 0.05), correlations=(0.0,) * 3), together):
        refine(left.policy, "cma", Trials(bowl := Bowl(), seeds, 500, state=state), 1)
        candidates = np.array(bowl.seen[:12])  # no episode probes again
        assert candidates.std(axis=0) == pytest.approx(state.deviations, rel=0.6)
    assert np.corrcoef(candidates, rowvar=False)[1, 2] < -0.9  # what moves together goes on moving together


@pytest.mark.parametrize("state", [TuningState((0.1,)), TuningState((0.1, 0.0, 0.1)), TuningState((0.1, 1e999, 1.0))])
def test_a_state_of_other_constants_or_none_at_all_begins_anew(state: TuningState) -> None:
    runs = [refine(policy_of(TWO_SIZES), "cma", Trials(Bowl(), seeds, 1_000, state=s), 0) for s in (state, None)]
    assert runs[0] == runs[1]


def test_a_search_that_gains_nothing_ends_and_one_that_gains_does_not() -> None:
    noise = np.random.default_rng(0).normal(size=60)
    assert not has_converged([0.0] * 9)
    assert has_converged([-200.0] * 10)
    assert not has_converged((noise[:29] * 0.1).tolist())
    assert has_converged((noise[:30] - 0.1 * np.arange(30)).tolist())
    assert not has_converged((noise[:30] + 0.1 * np.arange(30)).tolist())
    assert not has_converged((noise[:31] - 0.1 * np.arange(31)).tolist())  # it is not asked all the time


def test_a_flat_landscape_costs_ten_generations_and_a_search_cut_short_is_climbing() -> None:
    flat = tuned(policy_of(TWO_SIZES), "cma", Trials(lambda p, s: np.full(len(p), -200.0), seeds, 10_000), 0)
    assert flat.episodes < 4_000
    assert flat.policy == policy_of(TWO_SIZES)
    short = tuned(policy_of(TWO_SIZES), "cma", Trials(Bowl(), seeds, 600), 0)
    assert [one.state is not None and one.state.climbing for one in (flat, short)] == [False, True]


@pytest.mark.parametrize("lucky", [False, True])
def test_candidates_play_as_few_seeds_as_rank_them(lucky: bool) -> None:
    bowl = Bowl(1e6 if lucky else 0.0)
    tuned(policy_of(TWO_SIZES), "cma", Trials(bowl, seeds, 500), 0)
    probe, *generations = [count for _, count in bowl.asked]
    assert probe == 4
    if lucky:
        assert generations[:6] == [2, 2] * 3  # all four, in two halves
    else:
        assert generations[:13] == [2, 2, *[1] * 9, 2, 2]  # seen anew after ten


def test_of_very_many_constants_no_correlations_are_learned_and_a_search_still_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cma, "MAX_CORRELATED", 20)
    lines = [" + ".join(f"{1 + (i + half) / 100:g}*spin" for i in range(13)) for half in (0, 13)]
    policy = policy_of(f"left = {lines[0]}\nright = {lines[1]}")

    def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        return np.array([-(np.square(Tunable(one).values - 2 * Tunable(policy).values)).mean() for one in policies])

    first = tuned(policy, "auto", Trials(returns, seeds, 400), 1)
    assert first.state is not None
    assert (len(first.state.deviations), first.state.correlations) == (26, ())
    state = carry_over(first.policy, first.policy, first.state)
    again = tuned(first.policy, "cma", Trials(returns, seeds, 400, state=state), 1)
    before, middle, after = returns([policy, first.policy, again.policy], [0])
    assert before < middle < after


# --- revisions of a tuned policy --------------------------------------------------------------------------------------


REVISED = TWO_SIZES.replace(" - 2*spin", " + 0.7*position - 2*spin")
STATE = TuningState((0.01, 0.03, 0.02), (0.5, 0.0, -0.9))


def carried(text: str, state: TuningState = STATE, first_step: float = FIRST_STEP) -> TuningState:
    found = carry_over(policy_of(text), policy_of(TWO_SIZES), state, first_step)
    assert found is not None
    return found


def test_constants_that_are_kept_keep_their_steps_and_what_moves_together() -> None:
    state = carried(REVISED)
    assert Tunable(policy_of(REVISED)).places == ("let length", "right", "right", "right")
    length, gain, new, damping = state.deviations
    assert (length, gain, damping) == pytest.approx([WIDER * value for value in STATE.deviations])
    assert new == pytest.approx(FIRST_STEP * 0.7)
    assert state.correlations == (0.5, 0.0, 0.0, 0.0, -0.9, 0.0)
    assert not state.climbing


@pytest.mark.parametrize(
    ("text", "state", "deviations"),
    [
        # A step never becomes larger than the first one of a new constant.
        (TWO_SIZES, TuningState((0.4, 0.4, 0.4)), (FIRST_STEP * 0.5, FIRST_STEP * 3, FIRST_STEP * 2)),
        # A rounded constant is the same, a changed one is new.
        (
            "let length = 0.5013*cos(angle)\nleft = 0\nright = 3*length - 5*spin",
            STATE,
            (WIDER * 0.01, WIDER * 0.03, FIRST_STEP * 5),
        ),
    ],
)
def test_the_deviations_that_a_revision_begins_with(text: str, state: TuningState, deviations: Sequence[float]) -> None:
    assert carried(text, state).deviations == pytest.approx(deviations)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("left = 0\nright = 7*angle - 2*spin + 9*position", STATE),  # one of three is shared
        ("left = 0\nright = 7*angle", STATE),
        ("left = 0\nright = angle", STATE),  # a 1 that nothing multiplies
        (TWO_SIZES, TuningState((0.1, 0.1))),  # of another policy
    ],
)
def test_a_policy_that_shares_too_little_begins_anew(text: str, state: TuningState) -> None:
    assert carry_over(policy_of(text), policy_of(TWO_SIZES), state) is None
