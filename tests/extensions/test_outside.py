"""A package outside this one adds a statement, a note and a refine method, as CONTRIBUTING.md describes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import CHECKOUT, environment

LIMIT = """
from policygen.policies.lines import STATEMENTS, Statement
from policygen.quantities.tree import Call


def cap(equation, limit):
    limit = Call("fixed", (limit,))  # tuning keeps its numbers
    return Call("clip", (equation, Call("neg", (limit,)), limit))


STATEMENTS.add("limit", Statement(words=("limit",), rewrite=cap))
"""
CONTRIBUTING = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
(CHANGES,) = re.findall(r"^```python\n(.*?)^```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
SHAKE = """
import numpy as np

from policygen.runs.methods import METHODS, Method
from policygen.search.refine.tunable import Refined


def shake(policy, trials, seed):
    tunable, rng = trials.tunable(policy), np.random.default_rng(seed)
    tried = [policy, *(tunable.at(rng.normal(0, trials.first_step, tunable.size)) for _ in range(9))]
    seeds = trials.seeds(0, trials.episodes // len(tried))
    if not tunable.size or not seeds:
        return None
    best = int(np.argmax(trials.maximised(tried, seeds)))
    return Refined(tried[best], len(tried) * len(seeds), "shake", tunable.size)


METHODS.add("shake", Method(shake))
"""
POLICY = "limit torque = 0.5\ntorque = -3*rate - 2*sin\n"
SHORT = ("--episodes", "5", "--set", "final_episodes=5", "--set", "warmup_episodes=2", "--jobs", "1", "--report")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three modules, installed as a package that names them as entry points."""
    site = tmp_path / "site"
    (site / "mine-1.dist-info").mkdir(parents=True)
    points = ["[policygen]"]
    for name, text in (("limit", LIMIT), ("changes", CHANGES), ("shake", SHAKE)):
        (site / f"mine_{name}.py").write_text(text)
        points.append(f"{name} = mine_{name}")
    (site / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (site / "mine-1.dist-info" / "entry_points.txt").write_text("\n".join(points) + "\n")
    monkeypatch.chdir(tmp_path)
    return site


TYPED = """
import contextlib, io, json, sys
from pathlib import Path
from policygen.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["policygen", *words, *map(str, Path("results").glob("*") if len(words) == 1 else ())]
    with contextlib.suppress(SystemExit):
        main()
"""


def test_a_statement_a_note_and_a_method_from_outside(installed: Path) -> None:
    Path("start.txt").write_text(POLICY)
    options = ("--policy", "equations", "--start", "start.txt", "--iterations", "1", "--refine", "shake:100")
    commands = [["run", "pendulum", *options, *SHORT], ["show"], ["compare"]]
    done = subprocess.run(
        [sys.executable, "-c", TYPED, json.dumps(commands)],
        env=environment(PYTHONPATH=f"{installed}:{CHECKOUT}"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = Path("results").iterdir()
    assert "shake over 2 constants, 100 episodes" in (folder / "attempts.jsonl").read_text()
    assert "changes of the action" in (folder / "report.html").read_text()
    shown = done.stdout.partition("# equations for")[2]
    assert ", -fixed(0.5), fixed(0.5))" in shown
    assert "changes of the action" in shown.rpartition("# size")[2]


def test_the_worked_example_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "my_file.py").write_text(CHANGES)
    (typed,) = re.findall(r'^python (-c "import my_file; .*)$', CONTRIBUTING, re.MULTILINE)
    few = ("--episodes", "5", "--jobs", "1")
    done = subprocess.run(
        [sys.executable, *shlex.split(typed), *few],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(CHECKOUT)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "changes of the action" in done.stdout
