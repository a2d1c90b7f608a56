"""The sandbox of the templates: plain data is all they reach, and what goes wrong is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searched import searched, shallow, texts, written
from support import ALWAYS_DOWN, ALWAYS_RIGHT, Written

from policygen.errors import TemplateError
from policygen.policies.lines import Problem
from policygen.prompts.render import Show, render_prompt, template_variables
from policygen.prompts.templates import render_template
from policygen.runs.config import RunConfig
from policygen.runs.state import Context

pytestmark = pytest.mark.usefixtures("workplace")

CASES = [("cartpole", "table"), ("Pendulum-v1", "linear")]


@pytest.fixture(scope="module")
def small() -> tuple[Context, RunConfig]:
    return searched("frozenlake", "table", Written([ALWAYS_DOWN, ALWAYS_RIGHT]), iterations=2)


def refused(search: tuple[Context, RunConfig], text: str) -> str:
    """Return the error message for a template that does too much."""
    written(text)
    with pytest.raises(TemplateError) as failure:
        render_prompt(*search)
    message = str(failure.value)
    assert "improve" in message
    assert "\n" not in message
    return message


# --- what they reach -------------------------------------------------------------------------------------------------

PLAIN = (str, int, float, bool, type(None))


def reachable(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield everything that a template can reach from `value`: items, keys, and every public attribute."""
    yield path, value
    if type(value) in PLAIN:
        return
    if type(value) is dict:
        for key, item in value.items():
            yield from reachable(key, f"{path}.keys()")
            yield from reachable(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for item in value[:3] if all(type(item) in PLAIN for item in value) else value:
            yield from reachable(item, f"{path}[]")
    else:
        for name in dir(value):
            if not name.startswith("_"):
                yield from reachable(getattr(value, name), f"{path}.{name}")


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_all_that_templates_get_is_plain_data_and_frozen_views_of_it(case: tuple[str, str]) -> None:
    context, config = searched(*case, iterations=3, refine="none")
    variables = {**template_variables(context, config), "show": Show(), "problems": (Problem(1, "a", "b"),)}
    found = list(reachable(variables, ""))
    assert len(found) > 300
    for path, value in found:
        if type(value) in (*PLAIN, list, dict) or isinstance(value, tuple):
            continue
        # Nothing else but views: frozen, and without a method, so that there is nothing to call.
        assert type(value).__module__.startswith("policygen."), (path, type(value))
        assert type(value).__dataclass_params__.frozen, (path, type(value))


REACHING = [
    "{{ best.policy.save('PATH') }}",
    "{{ leak.tofile('PATH') }}",
    "{{ leak['tofile']('PATH') }}",
    "{{ [leak] | map(attribute='tofile') | first }}",
    "{{ leak | first | attr('tofile') }}",
    "{{ [leak] | map('tofile', 'PATH') | list }}",
    "{{ path.write_text('x') }}",
    "{{ policy.save('PATH') }}",
    "{{ '{0.tofile}'.format(leak) }}",
    "{% set f = policy.save %}{{ f('PATH') }}",
    "{{ range.__class__ }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self._TemplateReference__context }}",
    "{% for x in [1] %}{{ loop._iterable }}{% endfor %}",
]


@pytest.mark.parametrize("text", REACHING)
def test_even_what_slips_in_cannot_be_used(small: tuple[Context, RunConfig], tmp_path: Path, text: str) -> None:
    target = tmp_path / "target"
    context, config = small
    slipped = {"leak": np.arange(3.0), "path": target, "policy": context.incumbent}
    written(text.replace("PATH", str(target)))
    with pytest.raises(TemplateError, match=r"unsafe|not safely callable|no attribute|undefined|No filter named"):
        render_template("improve", {**template_variables(context, config), **slipped})
    assert not target.exists()


def test_no_template_changes_what_the_search_knows(small: tuple[Context, RunConfig]) -> None:
    for text in ("{% set task.name = 'x' %}", "{% do attempts.clear() %}", "{{ best.played[0].clear() }}"):
        written(text)
        with pytest.raises(TemplateError):
            render_prompt(*small)


def test_templates_only_get_at_templates(small: tuple[Context, RunConfig], tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    for name in ("../secret.txt", str(tmp_path / "secret.txt"), "secret.txt"):
        written(f'{{% include "{name}" %}}')
        with pytest.raises(TemplateError, match="there is no template"):
            render_prompt(*small)


@pytest.mark.parametrize(
    "text",
    [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        '{% import "improve.j2" as m %}',
        '{% extends "improve.j2" %}',
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
    ],
)
def test_endless_nesting_is_one_sentence(small: tuple[Context, RunConfig], text: str) -> None:
    with shallow():
        message = refused(small, text)
    assert "without end" in message or "nested too deeply" in message


def test_a_huge_template_is_one_sentence(small: tuple[Context, RunConfig]) -> None:
    assert "has more than 200,000 characters" in refused(small, "x" * 300_000)


# --- that the rest of Jinja works ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ '{:.2f} of {{x}}, {a}'.format(1.234, a=task.name) }}", "1.23 of {x}, frozenlake"),
        ("{{ cycler(1, 2).next() }} {{ dict(a=1).a }} {{ namespace(a=2).a }}", "1 1 2"),
        ("{% for x in [1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.length }} {% endfor %}", "a2 b2"),
        ("{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call m(1) %}hi{% endcall %}", "1hi"),
        ("{% block b %}B{% endblock %}{{ self.b() }}", "BB"),
        ("{{ [1, 2, 3][1:] }} {{ task.observations | map(attribute='name') | list }}", "[2, 3] ['square']"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %} {{ 'a b'.split() | last }}", "a1 b"),
        ('{% include ["nope.j2", "_said.j2"] %}{% include "nope.j2" ignore missing %}', "said"),
    ],
)
def test_what_templates_usually_do_they_may(small: tuple[Context, RunConfig], text: str, said: str) -> None:
    written("said", "_said")
    written(text)
    assert texts(render_prompt(*small))[1].strip() == said
