"""Lineages: which policy a round revises, what it is told of the others, and that resuming changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from policygen.errors import UsageError
from policygen.policies.parse import parse
from policygen.prompts.render import render_prompt
from policygen.runs.config import effective_config
from policygen.runs.lineages import NEW_EVERY, Lineage, lineage_for, lineages_of, structure
from policygen.runs.logbook import Logbook
from policygen.search.resume import load_run, resume
from policygen.search.run import Run, carry_out, start
from policygen.tasks.load import load_task

TASK = load_task("pendulum")
SETTINGS = {
    "llm": "builtin",
    "policy": "linear",
    "lineages": 2,
    "iterations": 2 * NEW_EVERY + 1,
    "refine": "cma:60",
    "episodes": 2,
    "warmup_episodes": 2,
    "final_episodes": 2,
    "jobs": 1,
    "fragility": False,
    "seed": 300,
}


def begun(out: Path) -> Run:
    return start(TASK, effective_config(TASK, "pendulum", options=SETTINGS), out)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = begun(tmp_path_factory.mktemp("runs"))
    carry_out(run)
    return run


def test_a_round_in_four_begins_a_lineage_and_the_others_revise_the_best_of_one(finished: Run) -> None:
    attempts = finished.search.attempts
    begun_by = [one.number for one in attempts[1:] if one.parent is None]
    assert begun_by == [number for number in range(1, len(attempts)) if (number - 1) % NEW_EVERY == 0]
    for one in attempts[1:]:
        expected = lineage_for(one.number, attempts[: one.number], None, finished.config)
        assert one.lineage == expected.number
        assert one.parent == (expected.best.number if expected.best is not None else None)
        if one.parent is not None:
            assert attempts[one.parent].lineage == one.lineage


def test_lineages_differ_in_structure_and_the_one_with_the_best_policy_comes_first(finished: Run) -> None:
    first, *others = lineages_of(finished.search.attempts, 2)
    assert first.best is finished.search.best
    shapes = [structure(one.best.policy) for one in (first, *others) if one.best and one.best.policy]
    assert len(set(shapes)) == len(shapes) >= 2
    young = [one for one in others if len(one.attempts) == 1]
    assert len(others) - len(young) <= 1, "more than two lineages are kept only while they are new"


def test_structure_ignores_numbers_signs_and_the_names_of_features() -> None:
    def of(*lines: str) -> object:
        policy = parse("\n".join(("```", *lines, "```")), TASK, "linear").policy
        assert policy is not None
        return structure(policy)

    assert of("let a = 2*rate", "torque = 3*a - 0.5*cos") == of("let b = -7*rate", "torque = 0.1*cos + 4*b")
    assert of("torque = 3*rate") != of("torque = 3*cos")
    assert of("torque = 3*rate") != of("torque = 3*prev(rate)")


def test_a_run_that_was_interrupted_ends_like_one_that_was_not(finished: Run, tmp_path: Path) -> None:
    run = begun(tmp_path)
    for attempt in run.attempts():
        if attempt.number == NEW_EVERY + 2:
            break
    run.logbook.release()
    resumed = resume(run.folder)
    carry_out(resumed)
    known, found = (Logbook(one.folder).attempts() for one in (finished, resumed))
    assert [(a.lineage, a.parent, a.digests, a.score) for a in known] == [
        (a.lineage, a.parent, a.digests, a.score) for a in found
    ]


def test_prompts_show_the_parent_in_full_and_the_others_in_short(finished: Run) -> None:
    run = load_run(finished.folder)
    new = run.search.context(2 * NEW_EVERY + 1, run.config)
    request = render_prompt(new, run.config).messages[-1].content
    assert new.best is None
    assert "unlike all of these" in request
    assert "No policy yet" not in request
    continued = run.search.context(2 * NEW_EVERY + 2, run.config)
    assert continued.best is not None
    request = render_prompt(continued, run.config).messages[-1].content
    assert f"Policy to improve (attempt {continued.best.number})" in request
    for other in continued.others:
        assert f"- {other.number}: " in request.partition("## Other approaches so far")[2]
        assert other.lineage != continued.best.lineage


def test_without_the_setting_all_attempts_are_of_one_lineage() -> None:
    config = effective_config(TASK, "pendulum", options={})
    assert lineage_for(3, (), None, config) == Lineage(0)


def test_settings_that_lineages_cannot_serve_are_refused() -> None:
    with pytest.raises(UsageError, match="continued conversation"):
        effective_config(TASK, "pendulum", options={"lineages": 2, "conversation": "continued"})
