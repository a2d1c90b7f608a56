"""Executors: killed sweeps and lost processes lose nothing; Ray, Dask and submitit with the real packages.

It tests `extensions.sweeps.worker`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attacks import amount
from support import Line, environment, sentences, start_process
from sweeping import SWEPT, assert_as_alone, stated, swept

from policygen.extensions.sweeps import conduct

pytestmark = pytest.mark.usefixtures("workplace")
WORDS = tuple(word for text in stated() for word in ("--set", text))
MANY = 6  # so many iterations that the sweep is not over before it is interrupted
LONG = ("sweep", "cartpole", "--seeds", "3..4", "--workers", 2, "--set", f"iterations={MANY}", *WORDS[2:])


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT][: amount(1, 2)])
def test_a_killed_sweep_goes_on_as_if_it_had_not_been(number: int, line: Line, tmp_path: Path) -> None:
    process = start_process(*LONG, "--out", "swept", cwd=tmp_path, stderr=tmp_path / "said")
    deadline = time.monotonic() + 300  # of a busy machine
    while sum(log.read_bytes().count(b"\n") for log in SWEPT.glob("*/attempts.jsonl")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    process.wait()
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "Interrupted. Nothing is lost; repeat the command to continue." in (tmp_path / "said").read_text()
    # Processes of the killed one may hold their runs for a moment, which is waited for.
    done = line(*LONG, "--workers", 1, "--out", "swept")
    assert done.code == 0, done.err
    assert "2 of 2 runs finished" in done.out
    assert_as_alone("cartpole", 3, iterations=MANY)


DEADLY = """
import multiprocessing, os, signal
import gymnasium as gym
class Deadly(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0, {}
    def step(self, action):
        self.steps += 1
        if os.getpid() != int(os.environ["DRIVER"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return 0, 1.0, self.steps > 3, False, {}
gym.register("Deadly-v0", Deadly)
"""


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.usefixtures("quickly_discovered")
def test_a_run_that_kills_its_process_fails_and_the_others_go_on(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{environment()['PYTHONPATH']}{os.pathsep}{tmp_path}")
    # The driver looks at an environment without a task file: there it must live.
    monkeypatch.setenv("DRIVER", str(os.getpid()))
    asked = ("sweep", "deadly:Deadly-v0", "nim", "--seeds", 1, "--out", "swept", *WORDS, "--set", "jobs=1")
    done = line(*asked, "--workers", 2)
    assert done.code == 1
    assert "1 of 2 runs finished, 1 failed" in done.err
    assert done.err.count("its process or machine was lost before the run ended") == 1
    done = line(*asked, "--workers", 1)  # in this process, where it lives
    assert done.code == 0, done.err


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_plays_the_runs_that_would_be_played_here(
    backend: Any, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[backend])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    done = line("sweep", "nim", "--seeds", "3..4", "--workers", 2, "--backend", backend, "--out", "swept", *WORDS)
    assert done.code == 0, done.err
    assert "2 of 2 runs finished" in done.out
    assert_as_alone("nim", 4)


# --- Slurm -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Jobs of submitit's own stand-in for Slurm, as they are submitted."""
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    jobs: list[Any] = []

    class LocalExecutor(submitit.LocalExecutor):  # type: ignore[name-defined,misc]
        def update_parameters(self, **of_slurm: Any) -> None:
            assert of_slurm["additional_parameters"] == {"cpus_per_task": "2", "exclusive": True}
            super().update_parameters(timeout_min=24 * 60, stderr_to_stdout=True)

        def map_array(self, *work: Any) -> list[Any]:
            jobs[:] = super().map_array(*work)
            return list(jobs)

    monkeypatch.setattr(submitit, "SlurmExecutor", LocalExecutor)
    monkeypatch.setattr(submitit.core.core.Job, "_results_timeout_s", 0.5)  # of a killed job
    monkeypatch.setattr(conduct.shutil, "which", lambda name: name)
    monkeypatch.setattr(conduct, "SECONDS_BETWEEN_LOOKS", 0.05)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    return jobs


OPTIONS = ("cpus-per-task=2", "--exclusive")


@pytest.mark.skipif(sys.platform != "linux", reason="finds a job's process: Linux")
def test_a_killed_job_is_said_and_its_run_goes_on_with_the_same_command(slurm: list[Any]) -> None:
    def kill_one(line: str) -> None:
        if not killed:
            job = slurm[1]
            killed.extend(map(int, Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()))
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    asked: dict[str, Any] = {"backend": "slurm", "slurm": OPTIONS, "settings": stated(iterations=10)}
    orders = swept("nim", "cartpole", seeds=(100,), say=kill_one, **asked)
    assert [order.summary() is not None for order in orders] == [True, False]
    assert "; its output is in " in orders[1].fault()
    assert Path(orders[1].fault().rpartition(" ")[2]).exists()
    orders = swept("nim", "cartpole", seeds=(100,), **asked)
    assert all(order.summary() is not None for order in orders)
    assert_as_alone("cartpole", 100, iterations=10)


def test_slurm_refuses_in_a_sentence(line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    assert "--slurm time=1:00: add --backend slurm" in line("sweep", "nim", "--slurm", "time=1:00").err
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = ("sweep", "nim", "--seeds", 1, "--out", "swept", "--backend", "slurm", "--slurm", "partition=x")
    missing = "Error: there is no `sbatch` here; run the command on a machine that submits Slurm jobs"
    assert sentences(line(*asked).err) == [missing]
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\necho sbatch: error: invalid partition specified: x >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    done = line(*asked)
    assert done.code == 1
    assert "Error: --backend slurm: sbatch: error: invalid partition specified: x (see --slurm)" in done.err
    assert not list(SWEPT.glob("slurm-*"))
