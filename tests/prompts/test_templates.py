"""Templates: where they are found, what they reach, what happens when they are broken or do too much."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CHECKOUT

from policygen.errors import TemplateError
from policygen.prompts.templates import used_templates

pytestmark = pytest.mark.usefixtures("workplace")

SHIPPED = {path.stem: path.read_text() for path in (CHECKOUT / "templates").glob("*.j2")}


def written(text: str, name: str = "improve_table") -> Path:
    """A template of the user's own, in the folder where it is looked for first."""
    path = Path("templates") / f"{name}.j2"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


# --- which ones a prompt uses ----------------------------------------------------------------------------------------


def test_all_templates_of_a_prompt_are_known_by_name_with_their_texts() -> None:
    used = used_templates(["system", "improve_table", "repair"], {"kind": "table"})
    assert list(used)[:3] == ["system", "_language_table", "improve_table"]
    assert set(used) == {
        *("system", "_language_table", "improve_table", "repair", "_task", "_grid", "_example", "_best"),
        *("_history", "_trajectories", "_visits"),
    }
    assert all(text == SHIPPED[name] for name, text in used.items())


def test_a_name_put_together_while_rendering_counts_every_template_that_fits() -> None:
    assert set(used_templates(["system"])) == {"system", "_language_table", "_language_linear"}
    written("{% include number %}", "anything")
    assert set(used_templates(["anything"])) == {*SHIPPED, "anything"}


def test_includes_are_followed_through_local_templates_in_every_form_and_once() -> None:
    written('{% extends "base.j2" %}{% from "macros.j2" import m %}{% include ["nope.j2", "_grid.j2"] %}', "mine")
    written('{% import "macros.j2" as m %}{% include "base.j2" %}', "base")
    written("{% macro m() %}{% endmacro %}", "macros")
    grid = written("My bins.", "_grid")
    assert used_templates(["mine.j2"]) == {
        name: Path(f"templates/{name}.j2").read_text() for name in ("mine", "base", "macros", "_grid")
    }
    grid.write_text("My bins, edited.")
    assert used_templates(["mine"])["_grid"] == "My bins, edited."


def test_a_template_given_by_path_is_known_by_that_path(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.j2"
    path.write_text('By path. {% include "_task.j2" %}')
    assert set(used_templates([str(path)])) == {str(path.with_suffix("")), "_task"}


def test_a_template_that_is_missing_or_malformed_is_one_sentence() -> None:
    with pytest.raises(TemplateError, match="there is no template `nope`; known are"):
        used_templates(["nope"])
    written("{% for %}", "_grid")
    with pytest.raises(TemplateError, match=r"^templates/_grid.j2, line 1: "):
        used_templates(["improve_table"])
