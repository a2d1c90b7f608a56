"""Numerical refinement: structure stays, numbers move, budgets hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import constants, with_constants
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Trials, Tunable
from policygen.tasks.load import load_task

WEAK = "let lean = angle + 0.02*spin\nleft = 0\nright = 1*lean - 0.3*position"


def policy_of(text: str, task: str = "cartpole", kind: str | None = None) -> Policy:
    parsed = parse(text, load_task(task), kind)  # type: ignore[arg-type]
    assert parsed.policy is not None, [str(p) for p in parsed.problems]
    return parsed.policy


class Player:
    """Plays candidates for real and counts the episodes."""

    def __init__(self, task: str) -> None:
        self.simulator = Simulator(load_task(task))
        self.episodes = 0
        self.seed_lists: list[tuple[int, ...]] = []

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        self.episodes += len(policies) * len(seeds)
        self.seed_lists.append(tuple(seeds))
        return np.array([np.mean([t.episode_return for t in self.simulator.play(p, seeds)]) for p in policies])


def seeds(first: int, count: int) -> tuple[int, ...]:
    return episode_seeds(0, "refine 1", count, first)


def mean_return(policy: Policy, count: int = 100) -> float:
    with Simulator(policy.task) as simulator:
        played = simulator.play(policy, episode_seeds(5, "fresh", count))
    return float(np.mean([t.episode_return for t in played]))


def test_constants_are_read_and_replaced_from_left_to_right() -> None:
    node = parse_expression("2*x^2 + clip(0.5*v - 3, -1, 1)", ["x", "v"])
    assert constants(node) == (2.0, 0.5, 3.0, -1.0, 1.0)
    changed = with_constants(node, iter([5.0, 6.0, 7.0, -8.0, 9.0]))
    assert to_text(changed) == "5*x^2 + clip(6*v - 7, -8, 9)"


def test_exponents_are_structure_and_stay() -> None:
    assert constants(parse_expression("x^3", ["x"])) == ()


def test_a_policy_at_the_origin_is_the_policy_itself() -> None:
    for text, kind in (
        (WEAK, "linear"),
        ("let lean = angle + 0.25*spin\nbins lean: 0.01\n| lean | action |\n| 0 | left |\n| * | right |", "table"),
    ):
        policy = policy_of(text, kind=kind)
        tunable = Tunable(policy)
        assert tunable.at(np.zeros(tunable.size)) == policy


def test_only_what_moved_is_rounded_and_pi_stays_pi() -> None:
    policy = policy_of("let wave = sin(2*pi*position)\nleft = 0\nright = 0.1234567*wave + 7.654321*angle")
    tunable = Tunable(policy)
    assert tunable.at(np.zeros(tunable.size)) == policy
    assert tunable.places == ("let wave", "right", "right")
    moved = tunable.at(np.array([0.0, 0.0, 1.0]))
    assert moved.to_text() == policy.to_text().replace("7.654321", "15.309")


def test_constants_move_in_proportion_to_their_size_and_zeros_stay() -> None:
    policy = policy_of(WEAK)
    tunable = Tunable(policy)
    assert tunable.size == 3  # 0.02, 1 and 0.3; the equation `left = 0` has no size to move by
    moved = tunable.at(np.array([0.5, -0.5, 1.0]))
    assert isinstance(moved, LinearPolicy)
    assert moved.to_text() == "let lean = angle + 0.03*spin\nleft = 0\nright = 0.5*lean - 0.6*position"


def test_with_a_floor_zeros_move_and_features_stay() -> None:
    tunable = Tunable(policy_of(WEAK), floor=2.0)
    assert tunable.size == 3  # left's 0, and 1 and 0.3
    moved = tunable.at(np.array([0.5, 0.5, 0.5]))
    assert moved.to_text() == "let lean = angle + 0.02*spin\nleft = 1\nright = 2*lean - 1.3*position"


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


@pytest.mark.parametrize("method", ["cma", "ars"])
def test_tuning_a_weak_policy_makes_it_strong_within_the_budget(method: str) -> None:
    policy, player = policy_of(WEAK), Player("cartpole")
    before = mean_return(policy)
    refined = refine(policy, method, Trials(player, seeds, 2_000), 1)  # type: ignore[arg-type]
    assert refined is not None
    assert refined.episodes == player.episodes <= 2_000
    assert before < 250
    assert mean_return(refined.policy) > before + 100


def test_every_generation_meets_new_seeds_and_its_candidates_the_same_ones() -> None:
    player = Player("cartpole")
    refine(policy_of(WEAK), "cma", Trials(player, seeds, 200), 1)
    assert len(player.seed_lists) == 4
    flat = [seed for generation in player.seed_lists for seed in generation]
    assert len(set(flat)) == len(flat)


def test_the_same_seed_tunes_to_the_same_policy() -> None:
    one, other = (refine(policy_of(WEAK), "cma", Trials(Player("cartpole"), seeds, 200), 7) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.policy == other.policy


def test_too_small_a_budget_or_nothing_to_tune_plays_nothing() -> None:
    player = Player("cartpole")
    assert refine(policy_of(WEAK), "cma", Trials(player, seeds, 47), 1) is None
    assert refine(policy_of("left = 0\nright = angle"), "cma", Trials(player, seeds, 1_000), 1) is None
    assert player.episodes == 0


def test_one_constant_can_be_tuned() -> None:
    refined = refine(policy_of("left = 0\nright = angle + 0.01*spin"), "cma", Trials(Player("cartpole"), seeds, 480), 1)
    assert refined is not None
    assert refined.constants == 1


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
    refined = refine(start, "auto", Trials(player, seeds, 10), 1, mdp=mdp)
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


TWO_SIZES = "let length = 0.5*cos(angle)\nleft = 0\nright = 3*length - 2*spin"


class Bowl:
    """A return that is known in closed form: how far `length` and the gains are from where they belong.

    The length matters a hundred times as much as a gain; both belong at twice what the policy was written with.
    """

    def __init__(self, noise: float = 0.0) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self.noise = noise

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        returns = []
        for policy in policies:
            assert isinstance(policy, LinearPolicy)
            (length,), (gain, damping) = constants(policy.lets[0][1]), constants(policy.equations[1][1])
            self.seen.append((length, gain, damping))
            values = np.array([length / 0.5, gain / 3, damping / 2]) - 2
            drawn = np.mean([np.random.default_rng([s, len(seeds)]).normal() for s in seeds]) * self.noise
            returns.append(-float(values @ (np.array([100.0, 1.0, 1.0]) * values)) + drawn)
        return np.array(returns)


def test_first_steps_are_small_where_a_constant_matters_and_large_where_it_does_not() -> None:
    bowl = Bowl()
    policy = policy_of(TWO_SIZES)
    refined = refine(policy, "cma", Trials(bowl, seeds, 2_000), 0)
    assert refined is not None
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


def test_all_episodes_are_counted_and_within_the_budget() -> None:
    for budget in (60, 200, 500, 1_000, 5_000):
        bowl = Bowl()
        counted = 0

        def returns(policies: Sequence[Policy], seeds: Sequence[int], bowl: Bowl = bowl) -> np.ndarray:
            nonlocal counted
            counted += len(policies) * len(seeds)
            return bowl(policies, seeds)

        refined = refine(policy_of(TWO_SIZES), "cma", Trials(returns, seeds, budget), 0)
        assert refined is not None
        assert refined.episodes == counted <= budget


def test_the_start_is_kept_where_the_search_finds_nothing_better() -> None:
    best = policy_of(TWO_SIZES.replace("0.5", "1.0").replace("3*", "6*").replace("2*", "4*"))
    refined = refine(best, "cma", Trials(Bowl(), seeds, 1_500), 0)
    assert refined is not None
    assert refined.policy == best


def test_a_unit_in_a_feature_and_what_is_fixed_stay() -> None:
    text = "let share = 1 - clip(fixed(0.4)*angle + 0.3*spin, 0, 1)\nleft = 0\nright = 1*share"
    tunable = Tunable(policy_of(text))
    assert tunable.places == ("let share", "right")
    moved = tunable.at(np.array([1.0, 1.0]))
    assert moved.to_text() == "let share = 1 - clip(fixed(0.4)*angle + 0.6*spin, 0, 1)\nleft = 0\nright = 2*share"


def test_a_search_goes_on_with_the_spread_it_left_off_with() -> None:
    bowl = Bowl()
    refine(policy_of(TWO_SIZES), "cma", Trials(bowl, seeds, 500), 0, spread=(0.02, 0.3, 0.02))
    length, gain, damping = (np.array(bowl.seen[:12]) / [0.5, 3, 2] - 1).std(axis=0)
    assert gain > 5 * max(length, damping)
