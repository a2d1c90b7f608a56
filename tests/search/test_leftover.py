"""Tuning with the episodes that proposals left over, and with the state of earlier tuning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from searched import POLE
from support import Written, fenced, figure

import policygen
from policygen.episodes.score import score_of_returns
from policygen.policies.parse import parse
from policygen.runs.attempt import Attempt, Requests, Tuned, TuningState, saved
from policygen.runs.config import RunConfig
from policygen.runs.tuning import CAREFUL_STEP, FIRST_STEP
from policygen.search.loop import best_unfinished, reason_to_give_up
from policygen.search.refine.cma import carry_over
from policygen.search.refine.tunable import refine

pytestmark = pytest.mark.usefixtures("workplace")

WEAK = fenced("left = 0\nright = 0.1*angle - 0.05*position + 0.001*spin")
BENT = fenced("let lean = angle + 0.02*spin\nleft = 0\nright = lean - 0.3*position")


def run(texts: list[str], **settings: Any) -> policygen.RunResult:
    chosen = {"policy": "linear", "episodes": 5, "final_episodes": 5, "warmup_episodes": 5, "refine": "cma", "jobs": 1}
    # A pole that is balanced to the end would end the run.
    return policygen.run(POLE, llm=Written(texts), iterations=len(texts), stop_at=1e9, **{**chosen, **settings})


def test_remaining_episodes_tune_the_best_without_a_request() -> None:
    result = run([WEAK, BENT], max_episodes=1_200, refine="cma:200")
    assert [a.kind for a in result.attempts[1:3]] == ["proposal", "proposal"]
    more = result.attempts[3:]
    assert 1 <= len(more) <= 2
    assert all((a.kind, a.requests, bool(a.tuned.refinement)) == ("tuning", Requests(), True) for a in more)
    assert figure(result, "episodes") <= 1_200
    assert sum(one.is_asked for one in result.attempts[1:]) == 2
    assert result.summary.stopped == "all 2 iterations are done"


def test_remaining_episodes_are_used_after_the_model_gives_up() -> None:
    result = run([WEAK, *["```\nno improvement\n```"] * 3], max_episodes=1_200, refine="cma:200")
    assert [a.kind for a in result.attempts[1:4]] == ["proposal", "resignation", "resignation"]
    assert result.attempts[4].kind == "tuning"
    assert result.summary.stopped == "the model saw no improvement, 2 replies in a row"
    assert reason_to_give_up(result.attempts, RunConfig(task="cartpole")) == result.summary.stopped


def test_the_best_unfinished_tuning_is_continued() -> None:
    def attempt(number: int, text: str, mean: float, *, climbing: bool = True, accepted: bool = False) -> Attempt:
        policy = parse(text, policygen.load_task("cartpole")).policy
        score = score_of_returns(np.array([mean, mean]), (1, 2), "x")
        tuned = Tuned(tuning=TuningState((1.0,), climbing=climbing))
        return Attempt(number, saved(policy), score, accepted=accepted, tuned=tuned)

    best = attempt(1, "left = 0\nright = 2*angle", 90, accepted=True)
    alike = attempt(2, "left = 0\nright = -3.5e-3*angle", 80)
    settled = attempt(3, "left = 0\nright = spin", 70, climbing=False)
    rising, lower = (attempt(n, "left = 0\nright = 0.5*spin", mean) for n, mean in ((4, 60), (5, 50)))
    former = attempt(0, "left = 0\nright = angle^2", 85, accepted=True)  # the best before `best`, which revised it
    assert best_unfinished([Attempt(0, None, None), former, best, alike, settled, lower, rising]) is rising
    assert best_unfinished([Attempt(0, None, None), best, alike, settled]) is None
    assert best_unfinished([Attempt(0, None, None)]) is None


def test_a_revision_of_the_best_is_tuned_with_the_steps_that_tuning_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def watched(*args: Any) -> Any:
        begun.append((args[0], args[2].state, args[2].first_step))
        return refine(*args)

    monkeypatch.setattr("policygen.search.assess.refine", watched)
    revision = fenced("let lean = angle + 0.5*spin")  # the equations stay, with the constants that tuning gave them
    first = run([BENT, revision], refine="cma:60").attempts[1]
    (_, none, larger), (revised, state, step) = begun
    assert none is None
    # The first scores less than halfway from random actions to `solved`, its revision as much as the best.
    assert (larger, step) == (FIRST_STEP, CAREFUL_STEP)
    assert state is not None
    assert state == carry_over(revised, first.policy, first.tuned.tuning, CAREFUL_STEP)
