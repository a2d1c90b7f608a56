"""Sweeps as jobs: submitit's own processes in the place of Slurm's here, and real Slurm where there is one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attacks import LONG
from support import Line, environment, sentences
from sweeping import SWEPT, assert_as_alone, conducted, opened

from policygen.errors import UsageError
from policygen.extensions.cluster import on_slurm
from policygen.extensions.cluster.on_slurm import SlurmExecutor
from policygen.extensions.sweeps.conduct import open_sweep
from policygen.extensions.sweeps.worker import Event, Progress
from policygen.search.resume import resume
from policygen.search.run import carry_out

submitit = pytest.importorskip("submitit", reason="submitit is not installed")
pytestmark = pytest.mark.usefixtures("workplace")


def there_is_slurm() -> bool:
    """Whether jobs can be submitted here, and a controller answers."""
    if shutil.which("sbatch") is None:
        return False
    return subprocess.run(["squeue"], capture_output=True, timeout=60, check=False).returncode == 0


class LocalQueue:
    """The processes that stand in for jobs, as Slurm's queue shows them."""

    name = "here"
    jobs: ClassVar[list[Any]] = []

    def __init__(self, folder: Path) -> None:
        self.jobs.clear()

    def states(self) -> dict[str, str]:
        return {job.job_id: "FAILED" if job.done() else "RUNNING" for job in self.jobs}

    def clear(self) -> None:
        for job in self.jobs:
            job.cancel()
        deadline = time.monotonic() + 60
        while "RUNNING" in self.states().values() and time.monotonic() < deadline:
            time.sleep(0.1)


class LocalExecutor(submitit.LocalExecutor):  # type: ignore[name-defined]
    """submitit's own stand-in for Slurm."""

    def update_parameters(self, **of_slurm: Any) -> None:
        super().update_parameters(timeout_min=24 * 60, stderr_to_stdout=True)

    def map_array(self, *work: Any) -> list[Any]:
        jobs: list[Any] = super().map_array(*work)
        LocalQueue.jobs += jobs
        return jobs


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are over in a second want to be looked at more often than those of a cluster."""
    monkeypatch.setattr(on_slurm, "SECONDS_TO_WAIT", 0.05)
    monkeypatch.setattr(on_slurm, "SECONDS_BETWEEN_LOOKS", 1.0)
    monkeypatch.setattr(on_slurm, "SECONDS_TO_ARRIVE", 2.0)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitit, "SlurmExecutor", LocalExecutor)
    monkeypatch.setattr(on_slurm, "_Queue", LocalQueue)


@pytest.mark.skipif(sys.platform != "linux", reason="finds a job's process: Linux")
@pytest.mark.usefixtures("local")
def test_a_lost_job_is_submitted_again_and_what_is_interrupted_goes_on_elsewhere() -> None:
    sweep = opened("cartpole", seeds=(100,), iterations=16)
    executor = SlurmExecutor(sweep.folder)
    lost: list[str] = []

    def tell(event: Event) -> None:
        if not isinstance(event, Progress) or event.attempt < 2:
            return
        (job,) = executor._cells
        if not lost:
            lost.append(job.job_id)
            children = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text()
            os.kill(int(children), signal.SIGKILL)
        elif job.job_id not in lost:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conducted(sweep, tell, executor)
    assert lost
    assert not list(SWEPT.glob("slurm-*"))
    ((key, one),) = sweep.outcomes.items()
    if one.state == "interrupted":  # a run of seconds may be over before the interruption reaches it
        carry_out(resume(SWEPT / key))
    assert_as_alone("cartpole", 100, iterations=16)


# --- Slurm itself ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not there_is_slurm(), reason="there is no Slurm here")
def test_jobs_of_slurm_that_are_killed_requeued_cancelled_or_interrupted_lose_nothing(line: Line) -> None:
    asked = tuple(os.environ.get("POLICYGEN_SLURM", "").split())  # partition=P account=A, where a cluster wants them
    seeds = (100, 101, 102)
    sweep = opened("cartpole", seeds=seeds, iterations=16)
    executor = SlurmExecutor(sweep.folder, asked)
    killed, cancelled, requeued = (f"cartpole-builtin-s{seed}" for seed in seeds)
    fates = {killed: ["scancel", "--signal=ABRT"], cancelled: ["scancel"]}
    if LONG:  # Slurm lets a job wait for two minutes first
        fates[requeued] = ["scontrol", "requeue"]

    def tell(event: Event) -> None:
        if isinstance(event, Progress) and event.attempt >= 2 and event.key in fates:
            job = next(job for job, order in executor._cells.items() if order.cell.key == event.key)
            subprocess.run([*fates.pop(event.key), job.job_id], check=True)

    conducted(sweep, tell, executor)
    assert not fates
    states = {key: one.state for key, one in sweep.outcomes.items()}
    assert states == {killed: "finished", cancelled: "interrupted", requeued: "finished"}

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conducted(open_sweep(SWEPT), interrupt, SlurmExecutor(SWEPT, asked))
    running = subprocess.run(["squeue", "--noheader", "--me"], capture_output=True, text=True, check=True)
    assert running.stdout == ""
    words = [word for text in asked for word in ("--slurm", text)]
    done = line("resume", "swept", "--on", "slurm", *words)
    assert done.code == 0, done.err
    for seed in seeds:
        assert_as_alone("cartpole", seed, iterations=16)
    assert not list(SWEPT.glob("slurm-*"))


@pytest.mark.usefixtures("local")
def test_a_result_that_is_renamed_during_a_look_is_seen_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = SlurmExecutor(opened("cartpole").folder)
    unfinished = executor._logs / "1_0_result.pkl.save_tmp"
    unfinished.touch()

    @contextmanager
    def slow(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            found = list(entries)
        unfinished.unlink()
        yield found

    scandir = os.scandir
    monkeypatch.setattr(on_slurm.os, "scandir", slow)
    assert executor.events() == []


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local")
def test_a_job_whose_python_lacks_what_it_needs_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sweep = opened("cartpole", seeds=(100,))
    (tmp_path / "policygen").mkdir()
    (tmp_path / "policygen" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    conducted(sweep, executor=SlurmExecutor(sweep.folder))
    (one,) = sweep.outcomes.values()
    assert one.state == "failed"
    assert one.sentence.startswith("ModuleNotFoundError: No module named 'policygen.extensions'; its output is in")
    assert Path(one.sentence.rpartition(" ")[2]).exists()


def test_what_is_missing_or_cannot_be_taken_is_a_sentence(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SWEPT
    folder.mkdir()
    for option, sentence in (
        ("time:4", "--slurm time:4: write NAME=VALUE with a long option name of sbatch"),
        ("comment=two\nlines", "write NAME=VALUE"),
        ("job-name=mine", "--slurm job-name: policygen sets this option itself; leave it out"),
        ("cpus-per-task=many", "--slurm cpus-per-task=many: write a number"),
    ):
        with pytest.raises(UsageError, match=sentence):
            SlurmExecutor(folder, [option])
    assert not list(folder.iterdir())
    monkeypatch.setenv("PATH", str(folder))

    def refused(*options: object, code: int = 2) -> str:
        done = line("sweep", "nim", "--seeds", 1, *options)
        assert done.code == code
        (said,) = sentences(done.err)
        return said

    here = ("--out", folder / "a", "--on", "slurm")
    missing = "there is no `sbatch` here; run the command on a machine that submits Slurm jobs"
    assert refused(*here) == f"Error: --on slurm: {missing}"
    fails = "echo sbatch: error: invalid partition specified: x >&2; exit 1"
    for name, does in {"sbatch": fails, "squeue": "exit", "scancel": "exit", "srun": "exit"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    remedy = "(change the request by --slurm, or its size by --workers)"
    said = refused(*here, "--slurm", "partition=x", code=1)
    assert said == f"Error: --on slurm: invalid partition specified: x {remedy}"
    assert not list((folder / "a").glob("slurm-*"))
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert refused(*here) == 'Error: --on slurm needs submitit: pip install "policygen[slurm]"'
    assert refused("--out", folder / "b", "--slurm", "time=1:00") == "Error: --slurm time=1:00: add --on slurm"
    assert not (folder / "b").exists()


@pytest.mark.usefixtures("local")
def test_a_folder_whose_name_would_end_a_comment_of_the_jobs_script_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x\ntouch marker\n#"
    folder.mkdir()
    with pytest.raises(UsageError, match="holds a control character; choose another name"):
        SlurmExecutor(folder)
    assert not list(folder.iterdir())
