"""`policygen export` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import BEST_LAKE, in_a_process

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
    [("c", "int frozenlake_act("), ("python", "def act("), ("json", '"codes"'), ("latex", "tabular")],
)
def test_export_prints_or_writes(to: str, word: str, best: Path, tmp_path: Path) -> None:
    printed = in_a_process("export", best, "--to", to, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert word in printed.stdout
    written = in_a_process("export", best, "--to", to, "-o", "policy.out", cwd=tmp_path)
    assert written.stdout.strip() == "policy.out"
    assert (tmp_path / "policy.out").read_text() == printed.stdout


def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path, best: Path) -> None:
    said = in_a_process("export", tmp_path / "none.json", "--to", "c", cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("Error: cannot read")
    assert "Traceback" not in said.stderr
    said = in_a_process("export", best, "--to", "fortran", cwd=tmp_path)
    assert said.returncode == 2
    assert "'fortran' is not one of" in said.stderr
    record = json.loads(best.read_text())
    record["kind"] = "oracle"
    best.write_text(json.dumps(record))
    said = in_a_process("export", best, "--to", "c", cwd=tmp_path)
    assert said.returncode == 1
    assert "there is no kind `oracle`" in said.stderr
