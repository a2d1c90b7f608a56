"""Faulty environments: a failed attempt with a sentence that says where, and a next one as if nothing had been."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty
import pytest
from attacks import Tallies
from support import CHECKOUT, Line, Written, attempts_of, discovered, fenced, the_run, transcript_of

from policygen.episodes.simulator import ParallelSimulator
from policygen.errors import EnvironmentFault
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.config import effective_config
from policygen.search.resume import resume
from policygen.search.run import carry_out, start
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("quickly_discovered")
ONES, ZEROS = fenced("action_0 = 0", "action_1 = 1"), fenced("action_0 = 1", "action_1 = 0")
SETTINGS = {"episodes": 3, "warmup_episodes": 0, "final_episodes": 4, "iterations": 2, "policy": "linear"}
INTERRUPTIBLE = [name for name in (*faulty.STEPPED, *faulty.RESETS) if name not in (*faulty.DEADLY, "blocks")]


def task_with(fault: str) -> Task:
    return replace(discovered("faulty:Zoo-calm-v0"), gym_id=f"faulty:Zoo-{fault}-v0")


def search(task: Task, provider: Written, out: Path, **settings: Any) -> None:
    """A run without pictures."""
    options = {**SETTINGS, "llm": provider.spec, **settings}
    carry_out(start(task, effective_config(task, task.name, options=options), out, provider))


def strict(text: str) -> Any:
    """JSON without `NaN` and `Infinity`, which are no JSON."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def assert_held(folder: Path, fault: str) -> None:
    """The first attempt failed with a sentence, the second one found the best there is."""
    failed, found = attempts_of(folder)[1:3]
    (problem,) = failed["problems"]
    assert failed["policy"] is None
    assert failed["score"] is None
    assert f"faulty:Zoo-{fault}-v0" in problem["found"]
    if fault not in faulty.DEADLY:
        assert "faulty.py, line " in problem["found"]
        assert "`reset`" in problem["found"] if fault in faulty.RESETS else "`step`" in problem["found"]
    assert str(CHECKOUT) not in problem["found"]
    assert "\n" not in problem["found"]
    assert found["score"]["mean"] == faulty.STEPS
    assert found["accepted"]
    asked = transcript_of(folder)[1]["messages"][-1]["content"]
    assert "- 1: failed (this policy could not be scored" in asked
    summary = strict((folder / "summary.json").read_text())
    assert summary["final"]["mean"] == faulty.STEPS
    for line in (folder / "attempts.jsonl").read_text().splitlines():
        strict(line)
    strict((folder / "best.json").read_text())


def test_a_fault_is_a_failed_attempt_and_the_next_one_is_played(tally: Tallies, tmp_path: Path) -> None:
    held = tally("a faulty environment is a failed attempt with a sentence")
    for fault in INTERRUPTIBLE:
        with held.one():
            out = tmp_path / fault
            search(task_with(fault), Written([ONES, ZEROS]), out, step_timeout=0.4)
            assert_held(the_run(out), fault)


@pytest.mark.parametrize("fault", faulty.CLOSED)
def test_an_environment_that_cannot_be_closed_costs_a_warning(fault: str, line: Line) -> None:
    faulty_task = ("--set", "step_timeout=0.4", "--set", "jobs=1", "--iterations", 2, "--out", "runs")
    said = line("run", f"faulty:Zoo-{fault}-v0", "--episodes", 3, "--set", "final_episodes=4", *faulty_task)
    assert said.code == 0, said.err
    warned = [sentence for sentence in said.err.splitlines() if "close" in sentence]
    assert warned
    assert all(re.match(rf"Warning: (faulty:)?Zoo-{fault}-v0 failed in `close` \(.*, line \d+\): ", w) for w in warned)
    (summary,) = Path("runs").glob("*/summary.json")
    assert strict(summary.read_text())["stopped"]
    assert line("eval", summary.parent, "--episodes", 2, "--trust").code == 0


def test_an_environment_that_changes_its_directory_moves_no_file_of_the_run(line: Line) -> None:
    here = Path.cwd()
    said = line("run", "faulty:Zoo-moves-v0", "--episodes", 3, "--set", "final_episodes=4", "--iterations", 2)
    assert said.code == 0, said.err
    assert Path.cwd() == here
    (folder,) = Path("results").iterdir()
    assert {"best.json", "summary.json", "attempts.jsonl", "task.json"} <= {path.name for path in folder.iterdir()}
    # A copy of the environment that is made later makes its folder inside.
    assert not [path for path in Path("moved").rglob("*") if path.is_file()]


def test_an_environment_that_always_fails_is_not_paid_for_to_the_end(tmp_path: Path) -> None:
    asked = Written([ONES] * 20)
    with pytest.raises(EnvironmentFault, match=r"Zoo-raises-v0 failed in `step` \(.*faulty.py, line \d+\): Zero"):
        search(task_with("raises"), asked, tmp_path / "random", warmup_episodes=5)  # under random actions
    assert asked.prompts == []
    with pytest.raises(EnvironmentFault, match="failed for 5 proposals in a row"):
        search(task_with("raises"), asked, tmp_path / "out", iterations=20)
    assert len(asked.prompts) == 5
    # The user mends it, or does not: the run goes on where it was.
    with pytest.raises(EnvironmentFault):
        carry_out(resume(the_run(tmp_path / "out"), Written([ONES] * 20), trust=True))
    assert len(attempts_of(the_run(tmp_path / "out"))) == 1 + 4 + 4


def policy_of(task: Task, text: str) -> Policy:
    policy = parse(text, task, "linear").policy
    assert policy is not None
    return policy


@pytest.mark.parametrize("fault", ["raises", "exits", "hangs", "blocks", "crashes", "is-killed"])
def test_worker_processes_serve_the_next_attempt(fault: str, tally: Tallies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(faulty.__file__).parent), prepend=":")
    held = tally("worker processes survive what an environment does to them")
    task = task_with(fault)
    with ParallelSimulator(task, jobs=2, step_timeout=0.5) as players, held.one():
        players.isolated = True
        with pytest.raises(EnvironmentFault, match=f"Zoo-{fault}-v0"):
            players.play(policy_of(task, ONES), (1, 2, 3, 4))
        played = players.play(policy_of(task, ZEROS), (1, 2, 3, 4))
        assert [t.episode_return for t in played] == [faulty.STEPS] * 4
