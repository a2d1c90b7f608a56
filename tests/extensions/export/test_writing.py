"""Names and remarks that another language cannot misunderstand: no word of a task becomes code."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from exporting import EVIL, hostile_table, hostile_task, random_table, written
from hypothesis import given
from hypothesis import strategies as st

from policygen.extensions.export.formats import FORMATS, exported
from policygen.extensions.export.writing import comment_text, plain_ascii
from policygen.files import write_atomically
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.spaces import Actuator, Observation


@pytest.mark.parametrize(
    ("text", "shown"),
    [("m/s²", "m/s2"), ("°C", "degC"), ("µm", "um"), ("é", "e"), ("a\nb\u202ec", "a b_c"), ("中", "_")],
)
def test_units_are_spelled_in_ascii(text: str, shown: str) -> None:
    assert plain_ascii(text) == shown


@given(st.one_of(st.text(), st.text(alphabet="*/\\?\n", max_size=12), st.just(EVIL)))
def test_a_remark_ends_no_comment_and_no_line(text: str) -> None:
    quiet = comment_text(text)
    assert not [word for word in ("*/", "/*", "??", "\\") if word in quiet]
    assert not quiet or (quiet.isascii() and quiet.isprintable())


@pytest.mark.parametrize("to", FORMATS)
def test_an_authors_comments_are_in_every_language_and_end_none_of_its_own(to: str) -> None:
    text = f"# why it {EVIL.splitlines()[0]} leans\nright = (2*angle) + spin  # \u202e*/ twice\nleft = 0"
    program = exported(written(text, "cartpole"), to)
    for word in ("# why it", " leans", "right = (2*angle) + spin", "twice"):
        assert word in program
    for broken in ("\u202e", "*/ twice"):
        assert broken not in program or (to == "json" and broken == "*/ twice")


def test_json_keeps_names_as_they_are() -> None:
    text = exported(hostile_table(), "json")
    assert json.loads(text)["task"]["name"] == EVIL
    assert text.isascii()


def test_no_word_of_a_task_becomes_code_in_python() -> None:
    tree = ast.parse(exported(hostile_table(), "python"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {name for name in names if "evil" in name and not name.startswith(("q_", "pg_edges_"))}


def test_no_name_declares_an_encoding_in_which_a_comment_is_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = Grid((Dimension("x", (0.0,)),))
    evil = "+AAo-open('marker', 'w').close()+AAo-+ACM-"  # line ends and a comment in UTF-7
    for before in ("coding:utf-7 ", "\\\n# -*- coding: utf-7 -*-\n", "vim: set fileencoding=utf-7 :"):
        gears = (Actuator("gear", ("low", evil)), Actuator("horn", ("0", "1")))
        task = replace(hostile_task(), name=before + evil, observations=(Observation("x"),), actuators=gears, grid=None)
        file = tmp_path / "policy.py"
        write_atomically(file, exported(random_table(task, grid), "python"))
        subprocess.run([sys.executable, file], cwd=tmp_path, check=False, timeout=60)
        assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]
        exec(compile(file.read_bytes(), "exported", "exec"), {})
        assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]
        heading = file.read_bytes().splitlines()[:2]
        assert not any(b"coding" in line for line in heading), heading
