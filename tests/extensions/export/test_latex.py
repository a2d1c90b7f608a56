"""Exported LaTeX: well formed, with nothing in it that a name could make LaTeX obey."""

from __future__ import annotations

import re

import pytest
from exporting import EQUATIONS, REMEMBERING, hostile_task, random_table, shipped, tables, written
from support import PAIR

from policygen.extensions.export.formats import exported
from policygen.policies.policy import Policy

COMMANDS = (
    "begin end toprule midrule bottomrule endhead text mathrm operatorname frac sqrt lfloor rfloor sin cos tan tanh "
    "exp ln arctan min max le ge ne in cdot quad usepackage textbackslash textasciicircum textasciitilde textless "
    "textgreater begingroup endgroup allowdisplaybreaks"
)


def well_formed(policy: Policy) -> str:
    text = exported(policy, "latex")
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= set(COMMANDS.split())
    begun = re.findall(r"\\(begin|end)\{(\w+\*?)\}", text)
    stack: list[str] = []
    for kind, name in begun:
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    bare = re.sub(r"\\\\|\\[{}$&#_%,]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    return text


def test_a_table_has_intervals_for_bins_and_words_for_actions() -> None:
    text = well_formed(shipped("frozenlake8x8"))
    assert r"$8\text{--}13$ & up \\" in text
    assert "any & right" in text
    text = well_formed(tables()["few rows"])
    assert r"\ge " in text
    assert re.search(r"\$\[-?[\d.]+, -?[\d.]+\)\$", text)


@pytest.mark.parametrize("name", ["lunarlander", "walker2d", "taxi"])
def test_shipped_policies(name: str) -> None:
    well_formed(shipped(name))


def test_equations_with_their_definitions() -> None:
    text = well_formed(written(EQUATIONS["cartpole"], "cartpole"))
    assert r"\frac{\begin{cases} {\mathrm{angle}}^{3} & \text{if } \mathrm{angle} > 0.1 \\" in text
    assert "highest score" in text
    assert r"\mathrm{sum}_{t-1} = \mathrm{x}" in well_formed(written(REMEMBERING["equations"], PAIR))


def test_a_long_table_breaks_over_pages() -> None:
    assert r"\begin{longtable}" in well_formed(tables()["cartpole"])


def test_whatever_a_task_calls_its_things_latex_obeys_none_of_it() -> None:
    task = hostile_task()
    assert task.grid is not None
    text = well_formed(random_table(task, task.grid))
    assert r"\textbackslash{}evil" in text
    assert text.isascii()
