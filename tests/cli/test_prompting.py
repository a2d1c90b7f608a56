"""`policygen templates`: what there is, and copies to edit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import CHECKOUT, Line

from policygen.cli import commands
from policygen.errors import TemplateError

pytestmark = pytest.mark.usefixtures("workplace")

SHIPPED = {path.stem: path.read_text() for path in (CHECKOUT / "templates").glob("*.j2")}


def templates(*arguments: str) -> Result:
    done = CliRunner().invoke(commands, ["templates", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done


def test_the_list_says_where_each_comes_from_and_what_it_tells() -> None:
    before = templates().output
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in before.splitlines() if line and line[0] != "T"}
    assert set(lines) == set(SHIPPED)
    assert all(line.startswith("shipped ") for line in lines.values())
    assert lines["_tuning"].startswith("shipped  Tuning: how a search improves the proposal")
    assert "For linear policies: the worst episode" in lines["_worst_linear"]
    templates("copy", "_grid")
    templates("copy", "system", "--as", "curt")
    Path("templates/_tuning.j2").write_text(SHIPPED["_tuning"] + "More.\n")
    after = templates().output
    for said in (
        "_grid +yours, instead of the shipped one +Bins",
        "curt +yours +",
        "_tuning +yours, instead of the shipped one +Tuning",
    ):
        assert re.search(said, after)


def test_what_is_in_force_is_shown_with_its_parts() -> None:
    shown = templates("show", "improve")
    assert shown.stdout.strip() == SHIPPED["improve"].strip()
    assert "(it uses _task, _quantities, _limits, _grid, " in shown.stderr
    Path("templates").mkdir()
    Path("templates/_grid.j2").write_text("My bins.\n")
    assert templates("show", "_grid.j2").stdout == "My bins.\n"


def test_a_copy_is_found_first_and_replaces_nothing() -> None:
    assert templates("copy", "_grid").output == "templates/_grid.j2: edit it; every run in this folder now uses it\n"
    assert Path("templates/_grid.j2").read_text() == SHIPPED["_grid"]
    assert (
        templates("copy", "improve", "--as", "mine").output
        == "templates/mine.j2: edit it; use it with --template mine\n"
    )
    Path("templates/_grid.j2").write_text("My bins.\n")
    with pytest.raises(
        TemplateError, match=r"templates/_grid.j2 exists already; edit it, or give the copy another name"
    ):
        templates("copy", "_grid")
    Path("outside").write_text("outside")
    Path("templates/_task.j2").symlink_to("../nowhere")
    with pytest.raises(TemplateError, match=r"there is no template|exists already"):
        templates("copy", "_task")
    assert Path("templates/_grid.j2").read_text() == "My bins.\n"
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("name", ["../mine", "a/b", "", "a b", "."])
def test_a_copy_goes_nowhere_else(name: str) -> None:
    if name:
        with pytest.raises(TemplateError, match="cannot be called"):
            templates("copy", "_grid", "--as", name)
    with pytest.raises(TemplateError, match="there is no template"):
        templates("copy", name or "nope")
    assert not Path("templates").exists()


def test_a_run_names_the_templates_in_force_that_are_not_the_shipped_ones(line: Line) -> None:
    small = ("--iterations", 1, "--episodes", 2)
    assert "templates" not in line("run", "frozenlake", *small).out
    Path("templates").mkdir()
    Path("templates/improve.j2").write_text("Always down.")
    Path("templates/improve.j2").write_text("Not used here.")
    Path("templates/repair.j2").write_text(SHIPPED["repair"])
    named = "  templates of your own: templates/improve.j2; builtin ignores them"
    assert named in line("run", "frozenlake", *small).out.splitlines()
    assert named in line("sweep", "frozenlake", "--seeds", 1, "--iterations", 1, "--out", "one").out.splitlines()
    assert "not shipped: templates/improve.j2" in line("prompt", "frozenlake").err
