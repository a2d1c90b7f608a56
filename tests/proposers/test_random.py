"""The provider `random`: its policies do not depend on earlier results."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import attempts_of

import policygen
from policygen.policies.policy import Policy

SMALL = {"episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "fragility": False}


def proposals(out: Path, **settings: object) -> list[Policy]:
    result = policygen.run("mountaincar", llm="random", out=out, **{**SMALL, "iterations": 3, **settings})
    assert {one["model"] for one in attempts_of(result.folder)[1:]} == {"random"}
    return [one.proposed for one in result.attempts[1:] if one.proposed is not None]


@pytest.mark.parametrize("kind", ["table", "equations"])
def test_policies_are_drawn_from_the_seed_alone(kind: str, tmp_path: Path) -> None:
    first = proposals(tmp_path / "a", policy=kind, seed=300)
    assert len({policy.to_text() for policy in first}) == 3
    # Other scores, by other numbers of episodes, change nothing.
    assert proposals(tmp_path / "b", policy=kind, seed=300, episodes=6) == first
    assert proposals(tmp_path / "c", policy=kind, seed=301) != first


def test_tuning_begins_at_what_was_drawn(tmp_path: Path) -> None:
    result = policygen.run(
        "cartpole", llm="random", policy="equations", refine="cma:60", iterations=1, out=tmp_path, seed=300, **SMALL
    )
    (attempt,) = result.attempts[1:]
    assert attempt.score.mean > attempt.tuned.proposed_score.mean
    assert any(abs(weight) > 0.1 for weight in attempt.proposed.weights.ravel())
