"""Lineages: the choice of the policy to revise, the prompts, and resumed runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import Written, fenced

from policygen.episodes.score import Score
from policygen.errors import UsageError
from policygen.policies.parse import parse
from policygen.prompts.render import render_prompt
from policygen.runs.attempt import Attempt, saved
from policygen.runs.config import effective_config
from policygen.runs.lineages import NEW_EVERY, Lineage, lineage_for, lineages_of, structure
from policygen.runs.logbook import Logbook
from policygen.search.resume import load_run, resume
from policygen.search.run import Run, carry_out, start
from policygen.tasks.load import load_task

TASK = load_task("pendulum")
NUMBER = 2 * NEW_EVERY + 1
REPLIES = [  # which of them a round revises depends on their scores; the last begins a lineage like the first
    fenced("torque = -1*rate"),
    fenced("torque = -2*rate"),
    fenced("torque = -3*rate - 1*sin"),
    fenced("torque = -1*sin"),
    fenced("torque = -1*prev(rate) + 1*cos"),
    fenced("torque = -2*prev(rate) + 1*cos"),
    fenced("torque = 3*prev(rate) + 2*cos"),
    fenced("torque = 1*rate"),
    fenced("let a = 1*rate", "torque = 2*a"),
]
SETTINGS = {
    "llm": Written.spec,
    "policy": "linear",
    "lineages": 2,
    "iterations": NUMBER,
    "refine": "cma:60",
    "episodes": 2,
    "warmup_episodes": 2,
    "final_episodes": 2,
    "jobs": 1,
    "fragility": False,
    "seed": 300,
}


def begun(out: Path) -> Run:
    return start(TASK, effective_config(TASK, "pendulum", options=SETTINGS), out, Written(REPLIES))


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
        return structure(policy)

    assert of("let a = 2*rate", "torque = 3*a - 0.5*cos") == of("let b = -7*rate", "torque = 0.1*cos + 4*b")
    assert of("torque = 3*rate") != of("torque = 3*cos")
    assert of("torque = 3*rate") != of("torque = 3*prev(rate)")


def tried(number: int, lineage: int, text: str, mean: float, *, accepted: bool = False) -> Attempt:
    score = Score(mean, 0.0, (mean, mean), True, "exact")
    policy = parse(fenced(text), TASK, "linear").policy
    return Attempt(number, saved(policy), score, lineage=lineage, accepted=accepted)


def test_alike_lineages_merge_and_the_worst_beyond_the_limit_is_dropped_once_it_has_had_a_revision() -> None:
    attempts = [
        Attempt(0, None, None),
        tried(1, 1, "torque = -1*rate", -9.0, accepted=True),
        tried(2, 2, "torque = -2*rate", -5.0, accepted=True),  # the structure of lineage 1, and better
        tried(3, 3, "torque = 1*cos", -7.0),
        tried(4, 4, "torque = 1*sin", -8.0),
        tried(5, 4, "torque = 2*sin", -8.5),
    ]
    assert [(one.number, one.best) for one in lineages_of(attempts, 3)] == [
        (2, attempts[2]),
        (3, attempts[3]),
        (4, attempts[4]),
    ]
    assert [one.number for one in lineages_of(attempts, 2)] == [2, 3]
    assert [one.number for one in lineages_of(attempts[:5], 2)] == [2, 3, 4]


def test_a_run_that_was_interrupted_ends_like_one_that_was_not(finished: Run, tmp_path: Path) -> None:
    run = begun(tmp_path)
    for attempt in run.attempts():
        if attempt.number == NEW_EVERY + 2:
            break
    run.logbook.release()
    resumed = resume(run.folder, Written(REPLIES[NEW_EVERY + 2 :]))
    carry_out(resumed)
    known, found = (Logbook(one.folder).attempts() for one in (finished, resumed))
    assert [(a.lineage, a.parent, a.digests, a.score) for a in known] == [
        (a.lineage, a.parent, a.digests, a.score) for a in found
    ]


def test_prompts_show_the_parent_in_full_and_the_others_in_short(finished: Run) -> None:
    run = load_run(finished.folder)
    new = run.search.context(NUMBER, run.config)
    request = render_prompt(new, run.config).messages[-1].content
    assert new.best is None
    assert "unlike all of these" in request
    assert "No policy yet" not in request
    continued = run.search.context(NUMBER + 1, run.config)
    request = render_prompt(continued, run.config).messages[-1].content
    assert f"Policy to improve (attempt {continued.best.number})" in request
    (shown,) = re.findall(r"## Best episode so far\nReturn .*, (?:attempt (\d+)|random actions)\.", request)
    assert not shown or int(shown) in {attempt.number for attempt in continued.own_attempts}
    everywhere = run.search.buffer.best(1)[0].attempt
    assert everywhere not in {attempt.number for attempt in continued.own_attempts}  # or this would show nothing
    assert "against None" not in request
    assert "against the best of all approaches then" in request
    assert "the best of this approach" in request
    assert continued.others
    for other in continued.others:
        assert f"- {other.number}: " in request.partition("## Other approaches so far")[2]
        assert other.lineage != continued.best.lineage


def test_without_the_setting_all_attempts_are_of_one_lineage() -> None:
    config = effective_config(TASK, "pendulum", options={})
    assert lineage_for(3, (), None, config) == Lineage(0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"llm": "builtin"}, "--lineages is for language models: builtin revises no"),
        ({"llm": "builtin + openai:gpt-5"}, "--lineages is for language models: builtin revises no"),
        ({"conversation": "continued"}, "--lineages revises several policies, and a continued conversation only one"),
    ],
)
def test_settings_that_contradict_lineages_are_refused(settings: dict[str, str], said: str) -> None:
    replayed = {"llm": "replay:results/transcripts/pong", "lineages": 2}
    assert effective_config(TASK, "pendulum", options=replayed).lineages == 2
    with pytest.raises(UsageError, match=f"^{said}"):
        effective_config(TASK, "pendulum", options={**replayed, **settings})
