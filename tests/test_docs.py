"""The reference in docs/ is true: its grammar describes what the parser reads, its tables name every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import LarkStrategy
from lark import Lark
from support import CHECKOUT

import policygen
from policygen.extensions.sweeps.plan import PROTOCOL, Suite
from policygen.policies.parse import parse
from policygen.quantities.operations import FUNCTION_NAMES
from policygen.runs.facts import CURVE_COLUMNS
from policygen.tasks import taskfile
from policygen.tasks.task import PERTURBATIONS, PolicyKind, Task

DOCS = CHECKOUT / "docs"
GRAMMAR = (DOCS / "language.lark").read_text(encoding="utf-8")
# What is written twice, limits, and a START outside its range: no grammar of this kind can say them.
BEYOND = ("is defined differently", "too large", "START must lie between LOW and HIGH")
PRINTABLE = st.characters(codec="ascii")
PENDULUM = policygen.load_task("pendulum")
CARTPOLE = policygen.load_task("cartpole")
NAMES = {
    "FEATURE": ("f1", "f2", "f3"),
    "OUTPUT": ("torque",),
    "COLUMN": ("angle", "spin"),
    "EDGES": ("-1, 1", "0, 0.25"),
    "COLUMNS": ("angle | spin",),
    "ACTUATOR": ("action",),
    "ACTION": ("left", "right"),
}


def texts(start: str, task: Task) -> st.SearchStrategy[str]:
    """Texts that the grammar generates, with the names of a task."""
    names = NAMES | dict.fromkeys(("OBSERVATION", "SENSOR"), task.observation_names)
    used = {symbol.name for rule in Lark(GRAMMAR, start=start).rules for symbol in rule.expansion}
    explicit = {name: st.sampled_from(values) for name, values in names.items() if name in used}
    return LarkStrategy(Lark(GRAMMAR, start=start), start=start, explicit=explicit, alphabet=PRINTABLE)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(text=texts("equations", PENDULUM))
def test_the_parser_reads_every_text_of_equations_that_the_grammar_generates(text: str) -> None:
    whole = f"{text}torque = 1\n" if "torque = " not in text else text
    assert not _misread(whole, PENDULUM, "linear"), whole


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(text=texts("table", CARTPOLE))
def test_the_parser_reads_every_table_that_the_grammar_generates(text: str) -> None:
    assert not _misread(text, CARTPOLE, "table"), text


def _misread(text: str, task: Task, kind: PolicyKind) -> list[str]:
    """Problems of a text, except those that its grammar cannot rule out."""
    found = map(str, parse(text, task, kind).problems)
    return [problem for problem in found if not any(words in problem for words in BEYOND)]


def test_the_grammar_names_every_function() -> None:
    stated = set(re.findall(r'"(\w+)"', "".join(re.findall(r"FUNCTION\d:.*", GRAMMAR))))
    assert stated == set(FUNCTION_NAMES)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("language", FUNCTION_NAMES),
        ("files", [field.alias or name for name, field in taskfile.TaskFile.model_fields.items()]),
        ("files", [field.alias or name for name, field in taskfile._RequirementEntry.model_fields.items()]),
        ("files", [*Suite.model_fields, *(name for name in PROTOCOL if name.startswith("max_"))]),
        ("files", PERTURBATIONS),
        ("files", CURVE_COLUMNS),
        ("library", policygen.__all__),
    ],
)
def test_a_page_names_every_key(page: str, names: list[str]) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text))
    assert not [name for name in names if name not in words]


def test_the_provider_of_the_library_page_is_the_model_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "library.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, "library.md", "exec"), names)
    assert names["result"].policy is not None
    assert names["result"].config.llm == "lean"
