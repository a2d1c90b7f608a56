"""Exported LaTeX: well formed, with nothing in it that a name could make LaTeX obey."""

from __future__ import annotations

import re

import pytest
from exporting import CASES, hostile_table, shipped, tables

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
    stack: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        assert kind == "begin" or stack.pop() == name
        stack += [name] * (kind == "begin")
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
    assert r"\begin{longtable}" in well_formed(tables()["cartpole"])


@pytest.mark.parametrize("name", ["lunarlander", "walker2d", "taxi"])
def test_shipped_policies(name: str) -> None:
    well_formed(shipped(name))


def test_equations_with_their_definitions() -> None:
    text = well_formed(CASES["equations, cartpole"]())
    assert r"\frac{\begin{cases} {\mathrm{angle}}^{3} & \text{if } \mathrm{angle} > 0.1 \\" in text
    assert "highest score" in text
    assert r"\mathrm{sum}_{t-1} = \mathrm{x}" in well_formed(CASES["remembering, equations"]())


def test_whatever_a_task_calls_its_things_latex_obeys_none_of_it() -> None:
    text = well_formed(hostile_table())
    assert r"\textbackslash{}evil" in text
    assert text.isascii()
