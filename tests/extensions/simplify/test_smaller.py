"""Smaller policies that are not worse: what goes, what stays, and the last attempt of a run of `builtin`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exporting import written
from generators import tables as random_tables
from hypothesis import given, settings
from support import ARM, figure

import policygen
from policygen.episodes.exact import finite_mdp
from policygen.episodes.race import Course, race
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator
from policygen.extensions.simplify.smaller import MARGIN, simplify, smaller, tree_rules, with_digits
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import parse_expression, to_text
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement


def course_for(policy: Policy, count: int, seed: int = 900) -> Course:
    players, seeds = ParallelSimulator(policy.task), episode_seeds(seed, "test", count)
    return Course(policy.task, seeds, players.play, players.engine, finite_mdp(policy.task))


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_run_of_builtin_ends_with_a_small_table_that_is_not_worse(tmp_path: Path) -> None:
    found = policygen.run("cartpole", seed=402, out=tmp_path)  # where the first small tables lose the last race
    *_, before, last = [attempt for attempt in found.attempts if attempt.accepted]
    assert (last.number, last.kind) == (found.attempts[-1].number, "simplified")
    assert found.policy == last.policy == Policy.load(found.folder)
    assert len(before.policy.rules) > 10 >= len(last.policy.rules)
    course = course_for(last.policy, 200)
    again = race(course.scorer(last.policy), course.scorer(before.policy), [200])
    assert not again.is_lost(MARGIN)
    assert figure(found, "episodes") == last.counts.episodes
    assert not {*again.challenger.seeds} & {*last.score.seeds}


def test_a_budget_without_episodes_for_it_leaves_the_best_table_as_it_is(tmp_path: Path) -> None:
    found = policygen.run("cartpole", max_episodes=40, iterations=2, episodes=5, final_episodes=5, out=tmp_path)
    assert figure(found, "episodes") <= 40
    assert {attempt.kind for attempt in found.attempts} == {"proposal"}


def test_only_a_run_of_builtin_or_its_replay_is_closed_by_a_simplification(tmp_path: Path) -> None:
    few = {"iterations": 3, "episodes": 3, "final_episodes": 2, "out": tmp_path}
    for llm, closed in (("builtin", True), ("random", False)):
        played = policygen.run("cartpole", llm=llm, **few)
        replayed = policygen.run("cartpole", llm=f"replay:{played.folder}", **few)
        again = policygen.run("cartpole", llm=f"replay:{replayed.folder}", **few)
        kinds = [[attempt.kind for attempt in found.attempts] for found in (played, replayed, again)]
        assert ("simplified" in kinds[0]) is closed
        assert kinds[1:] == [kinds[0]] * 2


def test_no_more_candidates_are_tried_than_allowed() -> None:
    policy = written("left = 0\nright = angle + 0.1*spin + 0.001*position + 0.0001*velocity", "cartpole")
    assert simplify(policy, lambda purpose, count: course_for(policy, count), 5, candidates=3).tried == 3


def test_the_table_of_a_known_system_stays_as_good_to_the_last_digit() -> None:
    text = "| state | action |\n" + "".join(f"| {i} | up |\n" for i in range(8))
    text += "| 8-13 | up |\n| 16,17 | up |\n| 21 | up |\n| 24-27 | up |\n| 33,38,44 | up |\n| 18,28,32,34,40 | left |\n"
    text += "| 45,48,51,53,56,58 | left |\n| 15,37,43,50,57,62 | down |\n| * | right |"
    found = policygen.simplify(written(text, "FrozenLake8x8-v1"), episodes=20)
    assert found.race is not None
    assert found.race.verdict == "equal"
    assert found.race.challenger.mean == pytest.approx(found.race.incumbent.mean, abs=1e-9)
    assert len(found.policy.rules) <= 5
    assert str(found).endswith("; equal (exact)")


@settings(max_examples=25, deadline=None)
@given(policy=random_tables(ARM))
def test_a_tree_of_all_cells_is_the_table(policy: TablePolicy) -> None:
    rules = tree_rules(policy, np.ones(policy.grid.size), policy.grid.size)
    assert np.array_equal(replace(policy, rules=tuple(rules)).actions, policy.actions)


# --- terms and digits ------------------------------------------------------------------------------------------------


def test_terms_features_and_digits_that_do_not_matter_go() -> None:
    policy = written(
        "let sway = tanh(angle*0.001)\nlet count = prev(count) + 1\n"
        "left = -3.14159*angle - 1.04321*spin + 0.000012*sway\n"
        "right = 3.14159*angle + 0.91234*spin + 0.0000001*position*count + where(count > 0, 0, 5)",
        "cartpole",
    )
    told: list[str] = []
    found = policygen.simplify(policy, episodes=50, seed=2, tell=told.append)
    text = found.policy.to_text()
    assert "sway" not in text
    assert "count" not in text
    assert found.policy.remembers == ()
    assert found.policy.size < policy.size / 2
    assert told[-1] == f"{found.policy.size} numbers and names"
    assert max(len(word) for word in text.replace("*", " ").split() if word[0].isdigit()) <= 3


SWING_UP = "where(cos > 0.9, -20*sin - 5*rate, -sign(rate)*energy)"


def limited(allowed: float) -> Policy:
    """A policy with a rate limiter, and a requirement that it meets; this share of episodes may violate it."""
    smooth = Requirement("smooth", always="abs(torque - prev(torque, 0)) <= 1.01", allowed=allowed)
    task = replace(load_task("pendulum"), requirements=(smooth,))
    return written(f"torque = clip({SWING_UP}, prev(torque, 0) - 1, prev(torque, 0) + 1)", task)


def test_a_rate_limiter_that_a_requirement_needs_stays_whatever_is_gained_without_it() -> None:
    policy = limited(0.0)
    without = written(f"torque = {SWING_UP}", policy.task)
    course = course_for(policy, 50)
    raced = race(course.scorer(without), course.scorer(policy), [10, 50])
    assert raced.gain.gain > 0
    assert (raced.verdict, raced.challenger.episodes) == ("worse", 10)
    found = policygen.simplify(policy, episodes=20)
    assert "prev(torque" in found.policy.to_text()
    assert found.race is None or found.race.challenger.violations[0].violated == 0
    assert "prev(torque" not in policygen.simplify(limited(1.0), episodes=20).policy.to_text()


def test_smaller_expressions_are_smaller_and_leave_fixed_numbers_and_ranges_alone() -> None:
    text = "where(a > 0, min(a, b), clip(b, -1, 1)) + fixed(0.5)*prev(a, 2) - tune(-0.5, -1, 1)"
    options = [to_text(less) for less in smaller(parse_expression(text, ["a", "b"]))]
    for expected in (
        "clip(b, -1, 1) + fixed(0.5)*prev(a, 2) - tune(-0.5, -1, 1)",
        "where(a > 0, min(a, b), b) + fixed(0.5)*prev(a, 2) - tune(-0.5, -1, 1)",
        "where(a > 0, min(a, b), clip(b, -1, 1)) + fixed(0.5)*prev(a, 2)",
        "0",
    ):
        assert expected in options
    assert not [option for option in options if "fixed(0)" in option or "tune(0" in option]
    assert to_text(parse_expression(text, ["a", "b"])) not in options


def test_numbers_are_rounded_where_the_policy_stays_one() -> None:
    policy = written(
        "let f = 1.2345*angle\nbins f: 0.1001, 0.1002\n| f | action |\n| 0 | left |\n| * | right |", "cartpole"
    )
    assert with_digits(policy, 2) is None  # two edges would be one
    rounded = with_digits(written("left = 0\nright = tune(0.1236, 0.1231, 1)*angle - 0.777", "cartpole"), 2)
    assert rounded is not None
    assert rounded.to_text() == "left = 0\nright = tune(0.1231, 0.1231, 1)*angle - 0.78"
