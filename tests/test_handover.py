"""`policygen export` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import BEST_LAKE, Line

from policygen.policies.parse import parse
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture
def best(tmp_path: Path) -> Path:
    """A saved policy."""
    policy = parse(BEST_LAKE, load_task("frozenlake")).policy
    assert policy is not None
    policy.save(tmp_path / "best.json")
    return tmp_path / "best.json"


@pytest.mark.parametrize(
    ("to", "word"),
    [
        ("c", "int frozenlake_act("),
        ("python", "def act("),
    ],
)
def test_export_prints_or_writes(to: str, word: str, best: Path, tmp_path: Path, line: Line) -> None:
    printed = line("export", best, "--to", to)
    assert printed.code == 0, printed.err
    assert word in printed.out
    written = line("export", best, "--to", to, "-o", "policy.out")
    assert written.out.strip() == "policy.out"
    assert (tmp_path / "policy.out").read_text() == printed.out


def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path, best: Path, line: Line) -> None:
    said = line("export", tmp_path / "none.json", "--to", "c")
    assert said.code == 2
    assert said.err.startswith("Error: cannot read")
    assert "Traceback" not in said.err
    said = line("export", best, "--to", "fortran")
    assert said.code == 2
    assert "'fortran' is not one of" in said.err
    record = json.loads(best.read_text())
    record["kind"] = "oracle"
    best.write_text(json.dumps(record))
    said = line("export", best, "--to", "c")
    assert said.code == 2
    assert "there is no kind `oracle`" in said.err
