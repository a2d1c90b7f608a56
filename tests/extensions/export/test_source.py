"""Exported code: every function is numpy's, hostile words become no code, and it fits a microcontroller."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exporting import EVIL, HOSTILE, compiled, every_function, hostile_table, random_table, tables, written
from hypothesis import given
from hypothesis import strategies as st
from support import Line, summary_of, the_run

from policygen.extensions.export.formats import FORMATS, exported
from policygen.extensions.export.source import comment_text, plain_ascii
from policygen.files import write_atomically
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.spaces import Actuator, Observation


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")
def test_every_function_has_numpy_s_manners(tmp_path: Path) -> None:
    texts, policy = every_function()
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 710.0, -746.0, 1e300, -1e300, 5e-324, np.inf, -np.inf, np.nan]
    rows = np.array([[x, y] for x in values for y in values])
    ours = compiled(policy, tmp_path)(rows)
    theirs = np.array([policy.act_one(row) for row in rows])
    for i, text in enumerate(texts):
        assert np.isclose(ours[:, i], theirs[:, i], rtol=1e-6, atol=0).all(), text


def test_no_word_of_a_task_becomes_code() -> None:
    for to, brackets in (("c", ("/*", "*/")), ("st", ("(*", "*)"))):
        text = exported(hostile_table(), to)
        assert set(re.findall(r"[^ -~]", text)) == {"\n"}
        opening, closing = map(re.escape, brackets)
        code = re.sub(f"{opening}.*?{closing}", "", text, flags=re.DOTALL)
        assert brackets[1] not in code
        words = re.findall(r"\w*evil\w*", code)
        assert words
        assert all(re.match(r"q_|pg_edges_|int_evil|in_|out_|policy_", word) for word in words), words
    assert plain_ascii("m/s² °C µm é a\nb\u202ec 中") == "m/s2 degC um e a b_c _"
    # Names of Structured Text.
    assert not any("__" in word or word.endswith("_") for word in re.findall(r"\w+", code))
    tree = ast.parse(exported(hostile_table(), "python"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {name for name in names if "evil" in name and not name.startswith(("q_", "pg_edges_"))}


def test_names_that_differ_in_what_c_cannot_say_stay_apart() -> None:
    names = [f"{EVIL}/", f"{EVIL}*", "a" * 200, "a" * 199 + "b", "a_b", "a b"]
    grid = Grid(tuple(Dimension(name, (0.0,)) for name in names))
    task = replace(HOSTILE, observations=tuple(map(Observation, names)), grid=grid)
    declared = re.findall(r"const double (\w+) =", exported(random_table(task, grid), "c"))
    assert len(declared) == len(set(declared)) == len(names)
    assert all(len(name) <= 63 for name in declared)


def test_the_head_says_what_a_run_s_policy_scores_and_the_first_rows_of_a_long_table(line: Line) -> None:
    few = ("--policy", "equations", "--iterations", 1, "--episodes", 5, "--set", "final_episodes=10", "--jobs", 1)
    assert line("run", "cartpole", *few).code == 0
    folder = the_run(Path("results"))
    assert line("export", folder, "--to", "c", "-o", "firmware").code == 0
    head = Path("firmware/cartpole.h").read_text()
    assert f"Run {folder.name}, attempt 1:" in head
    assert f"final score: {summary_of(folder)['final']['mean']:.4g} [" in head
    assert "over 10 fresh episodes that the search never saw, 95% interval." in head
    Path("file").write_text("")
    for options, refusal in (
        (("c", "-o", "file"), "file"),
        (("python", "--float32"), "--float32 is for policies exported to c"),
    ):
        refused = line("export", folder, "--to", *options)
        assert refused.code == 2
        assert refusal in refused.err
        assert "Traceback" not in refused.err
    text = exported(tables()["large"], "c")
    assert "more rows" in text.partition("#include")[0]
    assert len(text) < 200_000


@given(st.one_of(st.text(), st.text(alphabet="*/\\?\n", max_size=12), st.just(EVIL)))
def test_a_remark_ends_no_comment_and_no_line(text: str) -> None:
    quiet = comment_text(text)
    assert not [word for word in ("*/", "/*", "??", "\\") if word in quiet]
    assert not quiet or (quiet.isascii() and quiet.isprintable())


@pytest.mark.parametrize("to", FORMATS)
def test_an_authors_comments_are_in_every_language_and_end_none_of_its_own(to: str) -> None:
    text = f"# why it {EVIL.splitlines()[0]} leans\nright = 2*angle + spin  # \u202e*/ twice\nleft = 0"
    program = exported(written(text, "cartpole"), to)
    for word in ("# why it", " leans", "right = 2*angle + spin", "twice"):
        assert word in program
    for broken in ("\u202e", "*/ twice"):
        assert broken not in program
    assert "Sample time: one call every 0.02 s." in program
    assert "Sample time: one call every step of the environment" in exported(hostile_table(), to)


def test_no_name_declares_an_encoding_in_which_a_comment_is_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = Grid((Dimension("x", (0.0,)),))
    evil = "+AAo-open('marker', 'w').close()+AAo-+ACM-"  # line ends and a comment in UTF-7
    for before in ("coding:utf-7 ", "\\\n# -*- coding: utf-7 -*-\n", "vim: set fileencoding=utf-7 :"):
        gears = (Actuator("gear", ("low", evil)), Actuator("horn", ("0", "1")))
        task = replace(HOSTILE, name=before + evil, observations=(Observation("x"),), actuators=gears, grid=None)
        file = tmp_path / "policy.py"
        write_atomically(file, exported(random_table(task, grid), "python"))
        subprocess.run([sys.executable, file], cwd=tmp_path, check=True, timeout=60)
        assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]
