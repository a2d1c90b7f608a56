"""Tasks in words: every shipped one, and one that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CHECKOUT, Line

from policygen.cli.preparing import describe_task
from policygen.errors import TaskError
from policygen.extensions.sweeps.plan import list_suites
from policygen.files import list_resources

pytestmark = pytest.mark.usefixtures("workplace")


def test_the_list_has_a_line_a_task_and_a_suite_also_for_one_that_cannot_be_read(line: Line) -> None:
    Path("envs/suites").mkdir(parents=True)
    Path("envs/suites/broken.toml").write_text("tasks = 3")
    shipped = (CHECKOUT / "envs/frozenlake.toml").read_text()
    Path("envs/pond.toml").write_text(shipped.replace("frozenlake", "pond"))
    Path("envs/broken.toml").write_text("gym_id = 3")
    said, _, suites = line("tasks").out.partition("\n\nSuites for policygen sweep:\n")
    header, *rows, empty, other = said.splitlines()
    assert header.split() == ["task", "environment", "policy", "cells", "solved", "at"]
    assert [row.split()[0] for row in rows] == sorted(list_resources("envs", ".toml"))
    (broken,) = [row for row in rows if row.startswith("broken ")]
    assert "gym_id" in broken
    (lake,) = [row.split() for row in rows if row.startswith("frozenlake ")]
    assert lake == ["frozenlake", "FrozenLake-v1", "table", "16", "0.7"]
    assert (empty, other) == ("", "Any Gymnasium id works too: policygen run Blackjack-v1")
    assert [one.partition(":")[0] for one in suites.splitlines()] == sorted(list_suites())
    assert "quick: cartpole, frozenlake, nim" in suites
    assert "broken: suite broken.toml: the key `name` is missing" in suites


def test_a_description_has_every_quantity_action_and_sentence(line: Line) -> None:
    text = line("tasks", "mountaincar").out
    assert text.startswith("mountaincar: MountainCar-v0\n")
    parts = ("observation velocity", "feature energy: ", "action action: left, none, right", "outputs of equations: ")
    for part in (*parts, "bins of position", "hint: "):
        assert part in text
    assert "assumed: " not in text
    assert "assumed: " not in describe_task("MountainCar-v0")
    with pytest.raises(TaskError, match="did you mean `mountaincar"):
        describe_task("mountaincat")
