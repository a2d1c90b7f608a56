"""`--shape`: prompts ask for objectives, and report the sums of their terms (`extensions.objectives`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from searched import searched, texts
from support import Written, fenced

from policygen.cli import commands
from policygen.errors import UsageError
from policygen.extensions.objectives import objective_views
from policygen.prompts.render import render_prompt
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.state import Context
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")

REPLIES = [
    fenced("let calm = exp(-abs(spin))", "left = 0", "right = angle + 0.1*spin", "objective = reward + 2*calm"),
    fenced("left = 0", "right = angle - 0.3*spin", "objective = -(abs(position) - 0.5*right)"),
]


@pytest.fixture(scope="module")
def later() -> tuple[Context, RunConfig]:
    settings = {"iterations": 2, "refine": "cma:60", "shape": True, "stop_at": 501}
    return searched("cartpole", "linear", Written(REPLIES), **settings)


def test_prompts_speak_of_objectives_where_they_are_asked_for_and_nowhere_else(
    later: tuple[Context, RunConfig],
) -> None:
    context, config = later
    system, request = texts(render_prompt(context, config))
    assert "`objective = EXPRESSION`" in system
    assert "action, left, right (1 if taken, else 0)" in system
    assert "potential" not in system  # which is for learners
    assert "## Objectives so far" in request
    plain = config.model_copy(update={"shape": False})
    without = "".join(texts(render_prompt(context, plain)))
    assert not any(word in without for word in ("## What tuning", "EXPRESSION`: then", "potential"))
    tables, learning = searched("cartpole", "table", iterations=1, refine="q:100", shape=True)
    system, request = texts(render_prompt(tables, learning))
    assert "`potential = EXPRESSION`" in system
    assert "features (none with `prev`)" in system
    assert "## Objectives so far" not in request


def test_each_objective_is_told_with_the_sums_of_its_terms(later: tuple[Context, RunConfig]) -> None:
    context, config = later
    one, other = objective_views(context)
    assert one["lines"] == ["let calm = exp(-abs(spin))", "objective = reward + 2*calm"]
    assert [text for text, _ in one["terms"]] == ["reward", "2*calm"]
    assert [text for text, _ in other["terms"]] == ["-abs(position)", "0.5*right"]
    for view in (one, other):
        assert (view["is_best"], len(view["groups"])) == (
            context.best is context.attempts[view["number"]],
            len(view["total"]),
        )
        assert view["total"] == pytest.approx(
            [sum(column) for column in zip(*(s for _, s in view["terms"]), strict=True)]
        )
        assert view["groups"][-1][0] == "the best policy's" or view["is_best"]
    assert one["terms"][0][1] == pytest.approx([mean for _, _, mean in one["groups"]])  # `reward` sums to the return
    _, request = texts(render_prompt(context, config))
    told = request.split("## Objectives so far\n")[1].split("\n## ")[0]
    assert f"Attempt 1{', the best policy' * one['is_best']}:\n```\nlet calm = exp(-abs(spin))\nobjective = " in told
    assert "for its objective (" in told
    assert "\n- 2*calm: " in told
    assert "\n- total: " in told


def test_what_cannot_be_shaped_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shape asks for objectives to tune for: add --refine cma:1000"):
        effective_config(load_task("cartpole"), "cartpole", options={"shape": True})
    line = ["run", "cartpole", "--shape", "--refine", "cma:100", "--out", str(tmp_path / "none")]
    done = CliRunner().invoke(commands, line)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--shape is for language models: builtin proposes no objectives")
    assert not (tmp_path / "none").exists()
