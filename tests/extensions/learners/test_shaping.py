"""Tuning with objectives and potentials: searches climb by an objective, learners get a potential in their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from refining import Player, exact_mean, mdp_of, policy_of, seeds, tuned
from support import Written, fenced, lake

import policygen
from policygen.episodes.exact import Sampler, exact_score
from policygen.errors import PolicyError
from policygen.extensions.learners.q import CellView, LearnerActor, ParallelStep
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.notes import SHAPING
from policygen.search.refine.tunable import Trials
from policygen.tasks.load import load_task

LAKE = load_task("frozenlake")
POOR = "| row | column | action |\n| * | * | up |"


def told(shaping: Shaping, discount: float = 0.9) -> Sequence[ParallelStep]:
    """Return the steps that a learner on the lake gets from one episode in which it always goes down."""
    steps = list[ParallelStep]()
    view = CellView(policy_of(POOR, "frozenlake"), 16, Measure(LAKE, shaping))  # type: ignore[arg-type]
    view.discount = discount
    Sampler(mdp_of(LAKE), LAKE.max_steps).play(LearnerActor(np.ones_like, steps.append, view), [3])
    return steps


def test_a_potential_adds_up_to_what_no_policy_can_change() -> None:
    shaped, plain = told(Shaping(potential="5 + row + column")), told(Shaping(objective="reward"))
    assert [s.cells.tolist() for s in shaped] == [s.cells.tolist() for s in plain]
    assert shaped[-1].terminated.all()
    added = [
        0.9**k * (one.rewards - other.rewards)[0] for k, (one, other) in enumerate(zip(shaped, plain, strict=True))
    ]
    assert sum(added) == pytest.approx(-5)  # minus the potential of the start, wherever it ended


def test_where_the_mdp_is_known_it_pays_the_objective() -> None:
    def found(objective: str) -> float:
        trials = Trials(Player("frozenlake"), seeds, 0, measure=Measure(LAKE, Shaping(objective=objective)))
        return exact_mean(tuned(policy_of(POOR, "frozenlake"), "policy-iteration", trials, 1, mdp=mdp_of(LAKE)).policy)

    assert found("reward") == pytest.approx(0.7402, abs=1e-4)
    assert 0 < found("reward - up") < found("reward")
    with pytest.raises(PolicyError, match="one step at a time, and the objective remembers row"):
        found("prev(row)")


def test_a_run_tunes_on_the_objective_and_scores_the_return(tmp_path: Path) -> None:
    standing = "let still = exp(-abs(velocity))"
    replies = [
        fenced(standing, "left = 0", "right = angle - 0.01*spin - 0.2*still", "objective = 10*still", "potential = 1"),
        fenced("objective = reward - abs(position)"),
        fenced("let still = 2*velocity"),
    ]
    settings = {"iterations": 3, "episodes": 4, "warmup_episodes": 2, "final_episodes": 4, "refine": "cma:150"}
    taught = policygen.run(
        "cartpole", llm=Written(replies), out=tmp_path, policy="linear", jobs=1, stop_at=600, **settings
    )
    _, first, second, third, *_ = taught.attempts
    assert SHAPING.of(first) == Shaping((("still", "exp(-abs(velocity))"),), "10*still", "1")
    assert " for its objective (" in first.tuned.refinement
    assert first.tuned.refinement.endswith("; its potential was not used: only q uses one")
    assert SHAPING.of(second) == Shaping((), "reward - abs(position)")
    assert SHAPING.of(third) is None
    assert "objective" not in third.tuned.refinement
    assert first.score.returns == pytest.approx(first.played.lengths)  # each step pays 1, and its objective up to 10
    assert "objective" not in taught.policy.to_text()


def test_a_learner_in_a_run_is_told_the_potential(tmp_path: Path) -> None:
    reply = lake("| * | * | up |").replace("| * | * | up |", "| * | * | up |\npotential = (row + column)/6")
    told, untold = (
        policygen.run(
            "frozenlake", llm=Written([text]), out=tmp_path, iterations=1, episodes=2, warmup_episodes=2, refine="q:120"
        ).attempts[1]
        for text in (reply, reply.replace("potential", "let unused"))
    )
    assert SHAPING.of(told) == Shaping(potential="(row + column)/6")
    assert told.policy != untold.policy
    assert told.tuned.refinement.startswith("q over 16 entries, 120 episodes")
    assert told.score == exact_score(told.policy, mdp_of(LAKE))
    assert told.counts.episodes == untold.counts.episodes == 2 + 2 + 120 + 2
