"""Smaller policies that are not worse: what goes, what stays, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exporting import written
from generators import tables as random_tables
from hypothesis import given, settings
from support import ARM, Line

import policygen
from policygen.episodes.players import Players
from policygen.episodes.score import Score, score_of_returns
from policygen.errors import UsageError
from policygen.extensions.simplify import simplify as simplify_module
from policygen.extensions.simplify.contest import Contest, loss_of
from policygen.extensions.simplify.numbers import node_size, relative_scores, smaller, with_digits
from policygen.extensions.simplify.simplify import MOST_CHECKS, rows_or_terms, simplify, words_of
from policygen.extensions.simplify.tables import tree_rules, widen_rows, without_idle_bins
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import parse_expression, to_text
from policygen.tasks.load import load_task


def scored(*returns: float) -> Score:
    return score_of_returns(np.array(returns), tuple(range(len(returns))), "vector")


# --- what counts as worse --------------------------------------------------------------------------------------------


def test_a_loss_is_bearable_within_the_margin_unless_it_is_significant() -> None:
    original = scored(*[100.0] * 6)
    exact = Score(0.5, 0.0, (0.5, 0.5), True, "exact")  # of which nothing may be lost
    for smaller_score, larger, acceptable in (
        (original, original, True),
        (scored(*[100.0] * 5, 96.0), original, True),  # 0.67, p = 0.18
        (scored(99.5, 99.4, 99.6, 99.5, 99.5, 99.5), original, False),  # little, but for certain
        (scored(*[100.0] * 5, 0.0), original, False),  # not certain, but much
        (scored(*[100.0] * 5, 200.0), original, True),
        (exact, exact, True),
        (replace(exact, mean=0.4999), exact, False),
        (replace(exact, mean=0.5 - 1e-12), exact, True),  # a rounding error
    ):
        assert loss_of(smaller_score, larger).acceptable is acceptable


def contest_of(policy: Policy, players: Players, limit: int = 10_000) -> Contest:
    return Contest(policy, players, 0, 20, limit)


ROWS = """bins angle: -0.4
bins spin: 0
| angle | spin | action |
| * | 1 | right |
| 1 | 0 | left |
| * | * | right |"""

# --- tables ----------------------------------------------------------------------------------------------------------


def test_many_rows_of_a_searched_table_become_few(tmp_path: Path) -> None:
    policy = policygen.run("cartpole", seed=1, iterations=12, out=tmp_path).policy
    assert isinstance(policy, TablePolicy)
    assert len(policy.rules) > 10
    told: list[Policy] = []
    found = simplify(policy, episodes=40, seed=1, on_accepted=told.append)
    assert len(found.policy.to_text().splitlines()) - 2 == rows_or_terms(found.policy) <= 10
    assert found.loss.acceptable
    assert set(found.before.seeds) == set(found.after.seeds)
    assert found.before.episodes == 80
    assert told
    assert "paired episodes that simplification never used" in words_of(found, 0.01)[2]


def test_the_table_of_a_known_system_stays_as_good_to_the_last_digit() -> None:
    text = "| state | action |\n" + "".join(f"| {i} | up |\n" for i in range(8))
    text += "| 8-13 | up |\n| 16,17 | up |\n| 21 | up |\n| 24-27 | up |\n| 33,38,44 | up |\n| 18,28,32,34,40 | left |\n"
    text += "| 45,48,51,53,56,58 | left |\n| 15,37,43,50,57,62 | down |\n| * | right |"
    policy = written(text, "FrozenLake8x8-v1")
    found = simplify(policy, episodes=20)
    assert found.before.exact
    assert found.after.mean == pytest.approx(found.before.mean, abs=1e-9)
    assert rows_or_terms(found.policy) <= 5
    assert "nothing of the exact score is lost" in words_of(found, 0.01)[2]


@settings(max_examples=25, deadline=None)
@given(policy=random_tables(ARM))
def test_a_tree_of_all_cells_is_the_table_and_bins_that_no_row_tells_apart_change_nothing(policy: TablePolicy) -> None:
    rules = tree_rules(policy, np.ones(policy.grid.size), policy.grid.size)
    assert np.array_equal(replace(policy, rules=tuple(rules)).actions, policy.actions)
    slim, rows = without_idle_bins(policy), np.random.default_rng(0).normal(0, 30, (200, 2))
    assert np.array_equal(slim.act(rows), policy.act(rows))
    assert slim.grid.size <= policy.grid.size


def test_a_row_that_becomes_as_wide_as_everything_ends_the_table() -> None:
    policy = written(ROWS, "cartpole")
    with Players(policy.task) as players:
        contest = contest_of(policy, players)
        widen_rows(contest)
    assert [rule.action for rule in contest.current.rules] == [(1.0,), (0.0,)]


def test_rows_that_are_never_reached_go_though_nothing_may_be_played() -> None:
    policy = written(f"{ROWS}\n| * | * | right |", "cartpole")
    found = simplify(policy, episodes=20, max_episodes=20).policy
    assert found.rules == policy.rules[:3]


def test_own_bins_and_features_that_no_row_needs_go() -> None:
    policy = written(
        "let lean = angle + 0.25123*spin\nlet idle = cos(position)\nbins lean: -0.3, 0, 0.7\nbins idle: 0.1, 0.5\n"
        "| lean | idle | action |\n| 0,1 | 0 | left |\n| 0-1 | 1-2 | left |\n| * | * | right |",
        "cartpole",
    )
    found = simplify(policy, episodes=30)
    text = found.policy.to_text()
    assert "idle" not in text
    assert "bins lean: 0\n" in text
    assert "0.25*spin" in text
    assert rows_or_terms(found.policy) == 2


# --- equations -------------------------------------------------------------------------------------------------------


def test_terms_features_and_digits_that_do_not_matter_go() -> None:
    policy = written(
        "let sway = tanh(angle*0.001)\nlet count = prev(count) + 1\n"
        "left = -3.14159*angle - 1.04321*spin + 0.000012*sway\n"
        "right = 3.14159*angle + 0.91234*spin + 0.0000001*position*count + where(count > 0, 0, 5)",
        "cartpole",
    )
    found = simplify(policy, episodes=30, seed=2)
    text = found.policy.to_text()
    assert "sway" not in text
    assert "count" not in text
    assert found.policy.remembers == ()
    assert rows_or_terms(found.policy) <= 2
    assert max(len(word) for word in text.replace("*", " ").split() if word[0].isdigit()) <= 3


def test_scores_are_told_relative_to_one_of_them() -> None:
    policy = written("left = 2*angle + 1\nright = 5*angle - spin", "cartpole")
    texts = [other.to_text() for other in relative_scores(policy)]
    assert texts == ["left = 0\nright = 3*angle - spin - 1", "left = -3*angle + spin + 1\nright = 0"]
    rows = np.random.default_rng(0).normal(size=(500, 4))
    assert all(np.array_equal(other.act(rows), policy.act(rows)) for other in relative_scores(policy))


def test_smaller_expressions_are_smaller_and_leave_fixed_numbers_alone() -> None:
    node = parse_expression("where(a > 0, min(a, b, 1), clip(b, -1, 1)) + fixed(0.5)*prev(a, 2) - b^2", ["a", "b"])
    options = [to_text(less) for less in smaller(node)]
    assert all(node_size(less) < node_size(node) for less in smaller(node))
    assert "where(a > 0, min(a, b), clip(b, -1, 1)) + fixed(0.5)*prev(a, 2) - b^2" in options
    assert "clip(b, -1, 1) + fixed(0.5)*prev(a, 2) - b^2" in options
    assert not [text for text in options if "fixed(0)" in text]


def test_numbers_are_rounded_where_the_policy_stays_one() -> None:
    policy = written(
        "let f = 1.2345*angle\nbins f: 0.1001, 0.1002\n| f | action |\n| 0 | left |\n| * | right |", "cartpole"
    )
    assert with_digits(policy, 2) is None  # two edges would be one
    rounded = with_digits(policy, 2, only=0)
    assert rounded is not None
    assert "1.2*angle" in rounded.to_text()


# --- checks ----------------------------------------------------------------------------------------------------------


def test_what_was_lucky_is_found_out_on_fresh_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    good = written("left = 0\nright = angle + 0.25*spin + 0.04*position + 0.08*velocity", "cartpole")
    bad = written("left = 0\nright = 1", "cartpole")
    with Players(good.task) as players:
        contest = contest_of(good, players)
        contest.path += [bad] * 3  # as if luck had accepted them
        found = simplify_module._checked(contest)
    assert found.policy is good
    assert not found.changed
    assert found.checks == MOST_CHECKS
    with pytest.raises(UsageError, match="at least 2 episodes"):
        simplify(good, episodes=1)
    assert "no smaller policy was found" in words_of(found, 0.01)[1]


def test_episodes_are_limited_and_each_stream_is_its_own() -> None:
    policy = written("left = -angle\nright = angle + 0.25*spin + 0.1*spin^3", "cartpole")
    with Players(policy.task) as players:
        contest = contest_of(policy, players, limit=60)
        assert not contest.exhausted
        contest.check(policy, 1)
        assert contest.exhausted
        assert not contest.accept_unless_worse(written("left = 0\nright = spin", "cartpole"))
        assert contest.played == 100
        one, other = (contest.check(policy, look)[0].seeds for look in (1, 2))
    assert not set(one) & set(other)
    assert not (set(one) | set(other)) & {trajectory.seed for trajectory in contest.trajectories}


def test_the_command_prints_sizes_scores_and_the_policy_and_saves_it(tmp_path: Path, line: Line) -> None:
    (tmp_path / "p.txt").write_text("left = -3.001*angle\nright = angle + 0.25*spin + 0.04*position + 0.08*velocity")
    said = line("simplify", "p.txt", "--task", "cartpole", "--episodes", 20, "--seed", 5, "-o", "small.json")
    assert said.code == 0, said.err
    assert "before: 5 terms" in said.out
    assert "after:  " in said.out
    assert load_task("cartpole").name == Policy.load(tmp_path / "small.json").task.name
    (tmp_path / "p.txt").write_text(
        "let lean = angle + 0.5*spin\nbins lean: 0\n| lean | action |\n| 0 | left |\n| 1 | right |"
    )
    said = line("simplify", "p.txt", "--task", "cartpole", "--episodes", 5)
    assert said.code == 0, said.err
    printed = said.out.split("\n\n")[-2]
    assert "let lean = " in printed
    assert "\nbins lean: " in printed
    assert printed in line("show", "simple.json").out


def test_rounding_and_smaller_parts_leave_ranges_as_they_are() -> None:
    rounded = with_digits(written("left = 0\nright = tune(0.1236, 0.1231, 1)*angle - tune(0.777, 0, 1)", "cartpole"), 2)
    assert rounded is not None
    assert rounded.to_text() == "left = 0\nright = tune(0.1231, 0.1231, 1)*angle - tune(0.78, 0, 1)"
    options = [to_text(less) for less in smaller(parse_expression("a - tune(-0.5, -1, 1)", ["a"]))]
    assert "-tune(-0.5, -1, 1)" in options
