"""Templates: the search for their files, their includes, and the messages about broken ones."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from searched import searched, shallow, texts, written
from support import ALWAYS_DOWN, ALWAYS_RIGHT, CHECKOUT, Written

import policygen
from policygen.errors import TemplateError
from policygen.policies.lines import Problem
from policygen.prompts import sections
from policygen.prompts.render import Show, render_prompt, template_variables
from policygen.prompts.sections import Section, add_section
from policygen.prompts.templates import render_template, used_templates
from policygen.runs.config import RunConfig
from policygen.runs.state import Context

pytestmark = pytest.mark.usefixtures("workplace")

SHIPPED = {path.stem: path.read_text() for path in (CHECKOUT / "templates").glob("*.j2")}


# --- which ones a prompt uses ----------------------------------------------------------------------------------------


def test_all_templates_of_a_prompt_are_known_by_name_with_their_texts() -> None:
    used = used_templates(["system", "improve", "repair"])
    assert list(used)[:5] == ["system", "_language_table", "_expressions", "_memory", "_language_linear"]
    assert set(used) == {name for name in SHIPPED if not name.startswith(("drive", "mediate", "draft"))}
    assert all(text == SHIPPED[name] for name, text in used.items())


def test_a_section_of_ones_own_stands_at_its_place_and_is_left_out_without_data(monkeypatch) -> None:
    monkeypatch.setattr(sections.SECTIONS, "_entries", dict(sections.SECTIONS))
    kept: dict[int, str] = {}
    add_section(Section("wishes", lambda context, config: kept.get(context.number), "after_account"))
    written("## Wishes\n{{ wishes }}", "_wishes")
    context, config = searched("cartpole", "table", iterations=3)
    assert "## Wishes" not in render_prompt(context, config).messages[-1].content
    kept[context.number] = "Few rows."
    request = render_prompt(context, config).messages[-1].content
    assert (
        request.index("## Where the reward comes from")
        < request.index("## Wishes\nFew rows.")
        < request.index("## Attempts")
    )
    assert "_wishes" in used_templates(["improve"])


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
    assert set(used_templates([str(path)])) == {str(path.with_suffix("")), "_task", "_quantities", "_limits"}


def test_a_template_that_is_missing_or_malformed_is_one_sentence() -> None:
    with pytest.raises(TemplateError, match=r"^there is no template `nope`; there are .*improve"):
        used_templates(["nope"])
    written("{% for %}", "_grid")
    with pytest.raises(TemplateError, match=r"^templates/_grid.j2, line 1: "):
        used_templates(["improve"])


@pytest.mark.parametrize("form", ['{{% include "{}" %}}', '{{% extends "{}" %}}', '{{% include "{}" ~ "" %}}'])
def test_a_template_includes_nothing_outside_the_folders_of_templates(form: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    for outside in (tmp_path / "outside" / "secret.j2", Path("beside.j2")):
        outside.write_text("a secret")
        written(form.format(outside), "mine")
        for use in (lambda: render_template("mine", {}), lambda: str(used_templates(["mine"]))):
            said = ""
            try:
                assert "a secret" not in use()
            except TemplateError as error:
                said = str(error)
            assert "\n" not in said
        with pytest.raises(TemplateError, match=r"mine.*: `.*\.j2` lies outside templates/, .*; put a copy there"):
            render_template("mine", {})
    written("inside", "part")
    written(form.format("templates/part.j2"), "mine")
    assert render_template("mine", {}) == "inside\n"


def test_a_template_is_no_link_into_another_folder(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("a secret")
    written('{% include "sl.j2" %}', "mine").with_name("sl.j2").symlink_to(tmp_path / "passwd")
    for name in ("mine", "sl", "templates/sl.j2"):
        for use in (lambda name=name: render_template(name, {}), lambda name=name: str(used_templates([name]))):
            with pytest.raises(
                TemplateError, match=r"^the template .*sl\.j2 is a link into another folder; put a copy"
            ):
                use()
    written("inside", "part").with_name("alias.j2").symlink_to("part.j2")
    assert render_template("alias", {}) == "inside\n"


# --- the user's own templates ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[Context, RunConfig]:
    return searched("frozenlake", "table", Written([ALWAYS_DOWN, ALWAYS_RIGHT]), iterations=2)


def test_a_local_template_overrides_the_shipped_one_and_may_include_the_others(
    small: tuple[Context, RunConfig],
) -> None:
    shipped = texts(render_prompt(*small))[1]
    path = written('Mine: {{ task.name }}, {{ best.mean | brief }}.\n{% include "_grid.j2" %}')
    mine = texts(render_prompt(*small))[1]
    assert mine.startswith("Mine: frozenlake, 0.0495.\n## Bins")
    path.write_text("Changed while it runs, and longer.")
    assert texts(render_prompt(*small))[1] == "Changed while it runs, and longer.\n"
    path.unlink()
    assert texts(render_prompt(*small))[1] == shipped


def test_a_template_can_be_chosen_by_name_or_by_path(small: tuple[Context, RunConfig], tmp_path: Path) -> None:
    context, config = small
    written("By name.", "terse")
    (tmp_path / "elsewhere.j2").write_text("By path.")
    for given, expected in (("terse", "By name.\n"), ("terse.j2", "By name.\n"), ("./elsewhere.j2", "By path.\n")):
        chosen = config.model_copy(update={"template": given})
        assert texts(render_prompt(context, chosen))[1] == expected


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("one\n{% for x in %}\n{% endfor %}", 2, "Expected an expression"),
        ("one\ntwo\n{{ tsak.name }}", 3, "'tsak' is undefined: nearest is `task`, the others are account, attempts, "),
        ("{{ task.nmae }}", 1, "has no attribute 'nmae': nearest is `name`, the others are gym_id, observations, "),
        ("{{ grid[0].lable }}", 1, "has no attribute 'lable': there are name, bins, edges, plain"),
        ("{{ best['" + "x" * 9_000 + "'] }}", 1, "': there are number, text, lines, score, "),
        ("{{ attempts.append(1) }}", 1, "unsafe"),
        ("{% for i in range(10000000) %}x{% endfor %}", 1, "Range too big"),
        ('one\n{% include "_gird.j2" %}', 2, "there is no template `_gird.j2`; did you mean `_grid`?"),
        ('{% include "improve.j2" %}', 1, "without end"),
        ("{{ 1 / 0 }}", 1, "division by zero"),
        ("{{ worst_episodes[0] | window(3, 'sideways') }}", 1, "sideways"),
        ("{{ number | no_such_filter }}", 1, "no_such_filter"),
        ("{% raw %} x", 1, "raw"),
    ],
)
def test_a_broken_template_is_one_sentence_with_file_and_line(
    small: tuple[Context, RunConfig], text: str, line: int, said: str
) -> None:
    written(text)
    with shallow(), pytest.raises(TemplateError) as failure:
        render_prompt(*small)
    message = str(failure.value)
    assert message.startswith(f"templates/improve.j2, line {line}: ")
    assert said in message
    assert "\n" not in message


def test_an_error_in_an_included_template_names_that_file(small: tuple[Context, RunConfig]) -> None:
    written("{# #}\n{{ nothing }}", "_grid")
    with pytest.raises(TemplateError, match=r"^templates/_grid.j2, line 2: 'nothing' is undefined: "):
        render_prompt(*small)


# --- the shipped templates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [("cartpole", "linear"), ("frozenlake", "table")], ids="-".join)
def test_every_shipped_template_is_sound_and_used(case: tuple[str, str]) -> None:
    later = searched(*case, iterations=3)
    shipped = Path(policygen.__file__).parents[1] / "templates"
    variables = {
        **template_variables(*later),
        "show": Show(),
        "problems": (Problem(1, "a", "b"),),
        "reply_lines": ["x"],
        # What a model at the wheel is asked with.
        **{"problem": "it is empty", "form": "left | right", "memory": 1, "recent": (), "now": ()},
        # What a model on call is asked with.
        **{"room": "KeyInBox", "coloured": False, "seen": (), "carried": ""},
    }
    # What parts of a section are given by the template that includes them.
    variables |= {"e": variables["best_episodes"][0], "a": variables["attempts"][0], "left": "", "wide": False}
    variables |= {"inner": ["action"], "fields": ["steps", "action"]}
    variables["tuning"] = {"method": "coordinate", "episodes": 60, "left": None, "steps_left": None}
    for path in shipped.glob("*.j2"):
        assert render_template(path.stem, variables)
        jinja2.Environment().parse(path.read_text())
    included = "".join(path.read_text() for path in shipped.glob("*.j2"))
    for path in shipped.glob("_*.j2"):
        assert path.name in included or path.stem[1:] in sections.SECTIONS


@pytest.mark.parametrize("case", [("cartpole", "linear"), ("frozenlake", "table")], ids="-".join)
def test_a_section_is_left_out_by_removing_its_line(case: tuple[str, str]) -> None:
    context, config = searched(*case, iterations=3)
    name = "improve"
    whole = texts(render_prompt(context, config))[1]
    lines = SHIPPED[name].splitlines()
    for line in [line for line in lines if line.startswith("{% include")]:
        path = written("\n".join(one for one in lines if one != line), name)
        assert len(texts(render_prompt(context, config))[1]) <= len(whole)
        path.unlink()
    for part in ("_best.j2", "_history.j2", "_episodes_", "_worst_", "_best_", "_turn.j2"):
        path = written("\n".join(one for one in lines if part not in one), name)
        assert len(texts(render_prompt(context, config))[1]) < len(whole) - 100
        path.unlink()
