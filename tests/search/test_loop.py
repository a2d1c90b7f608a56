"""The loop: common seeds, the paired test of each new best, failed attempts, and the reasons to stop.

It tests `search.runner`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from searched import searched
from support import (
    ALWAYS_DOWN,
    ALWAYS_LEFT,
    ALWAYS_RIGHT,
    FALLING,
    LEANING,
    NO_POLICY,
    Line,
    Written,
    fenced,
    figure,
    pole,
    transcript_of,
)

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.runs.notes import IDEA, MOST_UNDEFINED, UNDEFINED, undefined_words
from policygen.search.resume import load_run

pytestmark = pytest.mark.usefixtures("workplace")

POLE_RIGHT = pole("| * | * | * | * | right |")
# LEANING, but for a corner that is hardly ever visited.
LEANING_BUT = pole("| 0 | 2 | 5 | 5 | left |", "| * | * | 0-2 | * | left |", "| * | * | * | * | right |")


def run(texts: list[str], task: str = "cartpole", **settings: Any) -> policygen.RunResult:
    chosen = {"iterations": len(texts), "episodes": 10, "final_episodes": 10, "repairs": 0, **settings}
    return policygen.run(task, llm=Written(texts), **chosen)


def search_seeds(result: policygen.RunResult) -> set[int]:
    longest = max((a.standing.best_episodes for a in result.attempts), default=0)
    played = {seed for a in result.attempts if a.score for seed in a.score.seeds}
    return played | set(episode_seeds(load_run(result.folder).config.seed, "search", longest))


# --- what is compared, and with what ---------------------------------------------------------------------------------


def test_attempts_share_their_seeds_and_the_final_score_is_on_others() -> None:
    result = run([ALWAYS_LEFT, LEANING, FALLING, LEANING_BUT], final_episodes=200)
    (seeds,) = {a.score.seeds for a in result.attempts[1:] if a.score}
    assert len(seeds) == len(set(seeds)) == 10
    assert len(set(result.final.seeds)) == result.final.episodes == 200
    assert not set(result.final.seeds) & search_seeds(result)
    assert result.summary.final.seeds == result.final.seeds
    again = policygen.score(result.policy, episodes=50)
    assert not set(again.seeds) & (search_seeds(result) | set(result.final.seeds))


def test_every_best_is_validated_on_episodes_that_chose_nothing() -> None:
    result = run([ALWAYS_LEFT, LEANING, ALWAYS_LEFT, FALLING])
    seeds = episode_seeds(0, "validation", 10)
    assert not set(seeds) & (search_seeds(result) | set(result.final.seeds))
    with Simulator(result.policy.task) as simulator:
        for attempt in result.attempts[1:]:
            if attempt.accepted:
                returns = [t.episode_return for t in simulator.play(attempt.policy, seeds)]
                validated = attempt.standing.validated_mean
                assert validated == pytest.approx(np.mean(returns))
            assert (attempt.standing.validated_mean, attempt.standing.validated_episodes) == (validated, 10)
    assert figure(result, "held-out score") == result.attempts[-1].standing.validated_mean
    assert figure(result, "search score") == result.attempts[-1].standing.best_mean != figure(result, "held-out score")
    loaded = load_run(result.folder).search
    assert loaded.reported_score == loaded.validation
    assert loaded.validation.mean == figure(result, "held-out score")


def test_validation_is_within_the_limit_and_exact_scores_need_none() -> None:
    result = run([ALWAYS_LEFT, LEANING], warmup_episodes=0, max_episodes=26)
    assert [a.standing.validated_episodes for a in result.attempts[1:]] == [10]
    assert figure(result, "episodes") <= 26
    short = run([ALWAYS_LEFT], warmup_episodes=0, max_episodes=13).attempts[1]
    assert (short.standing.validated_episodes, short.counts.episodes) == (3, 13)
    none = run([ALWAYS_LEFT], warmup_episodes=0, max_episodes=11).attempts[1]
    assert none.standing.validated_mean is None
    assert none.standing.reported_best == none.standing.best_mean
    lake = run([ALWAYS_DOWN], task="frozenlake").attempts[1]
    assert (lake.standing.validated_mean, lake.standing.validated_episodes) == (None, 0)


def test_proposals_that_cannot_be_scored_are_not_asked_for() -> None:
    provider = Written([LEANING] * 9)
    settings = {"iterations": 9, "episodes": 5, "warmup_episodes": 5, "final_episodes": 2, "max_episodes": 5 + 15 + 10}
    result = policygen.run("cartpole", llm=provider, **settings)
    scored = [attempt for attempt in result.attempts if attempt.score is not None and attempt.number]
    assert len(provider.prompts) == len(scored)
    assert all(attempt.verdict != "not scored: the episodes are used up" for attempt in result.attempts)


def test_of_two_mirror_images_one_is_ahead_and_luck_does_not_make_it_a_new_best() -> None:
    # Neither is better, though on any ten seeds one is ahead, which is given more episodes.
    results = [run(texts) for texts in ([ALWAYS_LEFT, POLE_RIGHT], [POLE_RIGHT, ALWAYS_LEFT])]
    assert [[a.accepted for a in result.attempts] for result in results] == [[False, True, False]] * 2
    ahead = [result.attempts[2] for result in results if result.attempts[2].standing.best_episodes > 10]
    assert ahead
    for attempt in ahead:
        assert attempt.standing.best_episodes in (20, 40)
        assert attempt.counts.episodes > 20 + 2 * 10


def test_a_policy_that_was_scored_before_is_not_played_again() -> None:
    bare = LEANING[LEANING.index("```") :]  # without the sentence before the block
    result = run([ALWAYS_LEFT, LEANING, ALWAYS_LEFT, bare], max_episodes=500)
    first, best, again, last = result.attempts[1:]
    played = [one.counts.episodes for one in result.attempts]
    assert played[4] == played[3] == played[2] > played[1]
    assert (again.score, again.played) == (first.shared_score, first.played)
    assert IDEA.of(best)
    assert IDEA.of(last) is None  # its reply had none
    assert (last.accepted, last.verdict) == (
        False,
        f"the same policy as attempt {best.number}, so it has the same score",
    )
    assert [one.number for one in load_run(result.folder).search.buffer.of_attempt(3)] == []
    tuned = run([ALWAYS_LEFT] * 2, refine="coordinate:60")
    assert not [one for one in tuned.attempts if "the same policy" in one.verdict]  # tuning goes on


def test_exact_scores_are_compared_exactly() -> None:
    result = run([ALWAYS_RIGHT, ALWAYS_DOWN, ALWAYS_RIGHT], task="frozenlake")
    assert [a.accepted for a in result.attempts] == [False, True, True, False]
    assert "(exact)" in result.attempts[2].verdict
    assert result.final.exact
    assert result.final.mean == result.attempts[2].score.mean
    # Where the score is exact, every attempt brings new episodes into the buffer.
    buffer = load_run(result.folder).search.buffer
    seeds = [episode.trajectory.seed for episode in buffer]
    assert len(seeds) == len(set(seeds)) == 20 + 3 * 10


# --- numbering, conversation, failures -------------------------------------------------------------------------------


def test_a_failed_attempt_is_recorded_and_the_loop_goes_on() -> None:
    result = run([NO_POLICY, LEANING, "", FALLING])
    assert [a.policy is None for a in result.attempts] == [True, True, False, True, False]
    failed = result.attempts[1]
    assert failed.problems
    assert failed.score is None
    assert failed.verdict == "no policy"
    assert (failed.requests.calls, failed.requests.tokens_in, failed.requests.tokens_out) == (1, 2000, 100)
    assert result.attempts[3].standing.best_mean == result.attempts[2].standing.best_mean
    assert sum(one.failed for one in result.attempts) == 2


# --- stopping --------------------------------------------------------------------------------------------------------


def test_a_policy_at_the_highest_score_that_fails_rarely_ends_no_run_and_is_replaced() -> None:
    # With 38 every fortieth episode is lost; none of the ten that score it, and none of the first 119 that validate it.
    def follow(tolerance: int) -> str:  # the paddle rests while the ball is this near to its middle
        return fenced(f"up = 0 - offset - {tolerance}\ndown = offset - {tolerance}\nstay = 0")

    result = run([follow(38), follow(39), follow(5), follow(4)], task="pong", policy="linear", seed=5)
    first, second, third = result.attempts[1:]
    assert (first.score.mean, first.accepted) == (3, True)
    assert second.standing.validated_episodes == 300
    assert 2.9 < second.standing.validated_mean < 3
    assert (third.score.episodes, third.accepted) == (300, True)
    assert result.summary.stopped == "the best known score, 3, was reached"
    assert load_run(result.folder).search.attempts == list(result.attempts)


# --- what tuning may spend, and what is told -------------------------------------------------------------------------


def test_values_that_are_not_finite_are_reported_and_recorded(line: Line) -> None:
    broken = fenced("let bad = log(-1 - angle^2)\nlet far = 1/(spin - spin)\nleft = 0\nright = angle + bad + far")
    result = run([broken, fenced("left = 0\nright = angle")], policy="linear")
    assert dict(UNDEFINED.of(result.attempts[1])) == {"bad": 1.0, "far": 1.0}
    assert UNDEFINED.of(result.attempts[2]) is None
    _, second = transcript_of(result.folder)
    asked = second["messages"][-1]["content"]
    assert re.search(r"`bad` [^`]* in 100% of the steps, `far` [^`]* in 100% of the steps", asked)
    first = load_run(result.folder).search.attempts[1]
    assert first.notes == result.attempts[1].notes
    words = "2 (`bad` in 100% of the steps, `far` in 100% of the steps) over 10 episodes of attempt 1"
    assert f"\n# values without a finite number: {words}\n" in line("show", result.folder, "--attempt", 1).out
    assert undefined_words(UNDEFINED.of(first) * 9).endswith(f", and {18 - MOST_UNDEFINED} more")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("linear", "left = 0\nright = 1.79e308*angle + spin"),
        ("linear", "let far = 1e308*angle\nleft = 1e-320*far\nright = 5e-324*spin + 3*angle"),
        ("table", "bins angle: -1, 0.5, 3e38\n| angle | action |\n| 0 | left |\n| * | right |"),
        ("table", "bins angle: 0, 3.4e38\n| angle | action |\n| 0 | left |\n| * | right |"),
    ],
)
def test_constants_however_large_or_tiny_are_tuned_or_left_alone(kind: str, text: str) -> None:
    settings = {"refine": "cma:60", "iterations": 1, "max_episodes": 300}
    context, _ = searched("cartpole", kind, Written([fenced(*text.splitlines())]), **settings)
    attempt = context.attempts[1]
    assert attempt.score is not None
    assert "given up" not in attempt.tuned.refinement
    assert parse(attempt.policy.to_text(), context.task, context.kind).policy == attempt.policy
