"""The variables of the templates: what each is given, and the comment that it begins with."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner
from given import FILE, given, paths, written
from searched import written as written_template
from support import CHECKOUT

from policygen.cli import commands
from policygen.prompts.templates import variables_of

FILES = sorted((CHECKOUT / "templates").glob("*.j2"))
COMMENT = re.compile(r"\A\{# (.*?) ?#\}\n", re.DOTALL)


@pytest.fixture(scope="module")
def variables() -> Mapping[str, Mapping[str, Any]]:
    return given()


def listed(text: str, variables: Mapping[str, Any]) -> str:
    """The variables that the text of a template reads, as its comment lists them: a line a record."""
    groups: dict[str, list[str]] = {}
    for variable in sorted(variables_of([text]) & variables.keys()):
        rows = [(path, *path.rpartition("."), example) for path, _, example in paths(variable, variables[variable])]
        for path, record, _, field, example in rows:
            if all(re.search(rf"[.\"]{word}\b", text) for word in re.findall(r"\.(\w+)", path)):
                groups.setdefault(record, []).append(f"{field} = {example}")
        if not any(re.match(rf"{variable}\b", record) for record in groups) and rows[0][1]:
            groups[rows[0][1]] = [f"{rows[0][3]} = {rows[0][4]}"]  # read as a whole
    lines = [*groups.pop("", []), *(f"{record}: {', '.join(fields)}" for record, fields in groups.items())]
    return "\n".join(
        textwrap.fill(line, 120, initial_indent="   ", subsequent_indent="      ", break_long_words=False)
        for line in lines
    )


def without_numbers(text: str) -> str:
    """A text whose numbers and line breaks do not matter: those of a simulation differ from machine to machine."""
    return re.sub(r"-?\d[\d.]*(e[+-]?\d+)?", "0", " ".join(text.split()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_template_begins_with_a_comment_that_lists_what_it_is_given(path, variables):
    text = path.read_text()
    comment = COMMENT.match(text)
    assert comment, "begin with {# a sentence, and the variables #}"
    title, _, said = comment[1].partition("\n")
    assert title.endswith(".")
    expected = listed(text[comment.end() :], variables[path.stem])
    assert without_numbers(said) == without_numbers(expected), f"write into its comment:\n{expected}"


def test_the_file_of_variables_has_those_that_templates_are_given(variables):
    shipped = FILE.read_text(encoding="utf-8")
    assert without_numbers(shipped) == without_numbers(written(variables)), "run python tests/given.py"


def test_no_line_of_a_template_is_over_140_characters():
    assert [(path.stem, line) for path in FILES for line in path.read_text().splitlines() if len(line) > 140] == []


def test_a_template_fits_on_a_screen():
    bodies = {path.stem: COMMENT.sub("", path.read_text()) for path in FILES}
    assert {name: len(body.splitlines()) for name, body in bodies.items() if len(body.splitlines()) > 50} == {}
    assert [name for name, body in bodies.items() if "{% macro" in body] == []


def test_the_variables_of_a_template_are_printed_with_type_and_example(workplace):
    def printed(name):
        return CliRunner().invoke(commands, ["templates", "show", name, "--variables"], catch_exceptions=False)

    shown = printed("_tuning")
    assert re.search(r'^tuning\.method +text +"cma"$', shown.stdout, re.MULTILINE)
    assert re.search(r"^tuning\.episodes +number +60$", shown.stdout, re.MULTILINE)
    assert re.search(r"also available, but not used here: .*\baccount\b", shown.stderr)
    assert re.search(r'^visits\[-1\]\.action +text +"(left|right)"$', printed("improve").stdout, re.MULTILINE)
    written_template("{{ random.score }} {{ bets.score }}", "mine")  # one that cannot be rendered
    assert re.search(r'^random\.score +text +"', printed("mine").stdout, re.MULTILINE)
