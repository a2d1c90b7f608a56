"""Faulty environments without a task file, and those that no exception can interrupt: one sentence, in limited time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import faulty
import pytest
from attack.test_environments import ONES, ZEROS
from attacks import LONG, Tallies
from support import CHECKOUT, attempts_of, in_a_process, sentences, summary_of, the_run

from policygen.errors import TaskError
from policygen.runs.config import load_limits
from policygen.tasks import faults
from policygen.tasks.load import load_task

TESTS = str(Path(faulty.__file__).parent)
# What random actions meet; what is a number and too large, or no reward, a search will meet later.
MET = [name for name in faulty.STEPPED if name not in (*faulty.DEADLY, "blocks") and not name.startswith("rewards")]


def test_an_environment_that_nobody_described_fails_in_a_sentence(tally: Tallies) -> None:
    held = tally("a faulty environment without a task file gives a one-line error message")
    for fault in (*MET, *faulty.RESETS):
        faulty.met.clear()
        with held.one():
            with pytest.raises(TaskError) as caught:
                load_task(f"faulty:Zoo-{fault}-v0", step_timeout=0.3)
            said = str(caught.value)
            doing = "reset" if fault in faulty.RESETS else "step"
            assert said.startswith(f"Zoo-{fault}-v0 failed in `{doing}` (")
            assert "faulty.py, line " in said
            assert str(CHECKOUT) not in said
            assert "\n" not in said
    faulty.met.clear()


def test_an_environment_whose_making_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty.Zoo, "__init__", lambda self, fault: faulty.forever())
    said = r"Zoo-calm-v0 cannot be made: no answer within 0\.3 s; more time: --set step_t"
    with pytest.raises(TaskError, match=said):
        load_task("faulty:Zoo-calm-v0", step_timeout=0.3)


def test_a_task_file_whose_environment_hangs_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "zoo.toml"
    path.write_text('name = "zoo"\ngym_id = "faulty:Zoo-hangs-v0"\n')
    assert load_task(str(path), trust=True, step_timeout=0.3).facts == ()


def test_the_limit_is_known_before_the_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("step_timeout = 3")
    assert load_limits(file, (), {})["step_timeout"] == 3
    assert load_limits(file, ("step_timeout=2.5", "max_steps=70"), {}) == {"step_timeout": 2.5, "max_steps": 70}
    wrong = load_limits(None, ("step_timeout=never",), {})  # refused when the task is known
    assert wrong["step_timeout"] == faults.STEP_TIMEOUT


NEEDS_A_LOCK = pytest.mark.skipif(
    os.name == "nt" or sys.platform == "darwin", reason="needs a lock that blocks its holder"
)
PATH = f"{CHECKOUT}{os.pathsep}{TESTS}"
LIMITS = ("--set", "step_timeout=0.3", "--jobs", 1)


@NEEDS_A_LOCK
def test_what_cannot_be_interrupted_ends_the_command(tally: Tallies, tmp_path: Path) -> None:
    with tally("a command whose environment blocks in compiled code exits with an error message").one():
        unknown = in_a_process("run", "faulty:Zoo-blocks-v0", *LIMITS, cwd=tmp_path, PYTHONPATH=PATH)
        assert unknown.returncode == 1
        (said,) = sentences(unknown.stderr)
        assert "did not answer within 0.3 s and cannot be interrupted (Zoo-blocks-v0, faulty.py, line" in said


@NEEDS_A_LOCK
@pytest.mark.parametrize("fault", ["blocks", *(sorted(faulty.DEADLY) if LONG else ())])
def test_a_run_whose_process_ends_goes_on_without_the_policy_that_ended_it(
    fault: str, tally: Tallies, tmp_path: Path
) -> None:
    with tally("a run whose process the environment ended goes on").one():
        (tmp_path / "zoo.toml").write_text(f'name = "zoo"\ngym_id = "faulty:Zoo-{fault}-v0"\nabout = "x"\n')
        (tmp_path / "replies").mkdir()
        (tmp_path / "replies" / "reply-001.md").write_text(ONES)
        (tmp_path / "replies" / "reply-002.md").write_text(ZEROS)
        small = ("--set", "warmup_episodes=0", "--iterations", 2, "--episodes", 2, "--set", "final_episodes=2")
        asked = ("--trust", "--llm", "manual:replies", "--policy", "linear")
        begun = in_a_process("run", "zoo.toml", *asked, *small, *LIMITS, cwd=tmp_path, PYTHONPATH=PATH)
        assert begun.returncode != 0 or fault == "leaves"
        folder = the_run(tmp_path / "results")
        if fault == "blocks":
            said, hint = sentences(begun.stderr)[-2:]
            assert "cannot be interrupted (Zoo-blocks-v0, faulty.py, line" in said
            assert hint.startswith("Nothing is lost; continue with: policygen resume ")
            assert hint.endswith(" --trust")
        resumed = in_a_process("resume", folder, "--trust", cwd=tmp_path, PYTHONPATH=PATH)
        assert resumed.returncode == 0, resumed.stderr
        failed, found = attempts_of(folder)[1:3]
        assert "was killed" in failed["problems"][0]["found"]
        assert found["score"]["mean"] == faulty.STEPS
        assert summary_of(folder)["final"]["mean"] == faulty.STEPS
