"""An executor that carries out cells as tasks of Slurm job arrays, submitted with submitit.

All machines must see the sweep's folder and the working directory under the same paths: the locks of runs, the sweep's
budget and the messages of jobs are files there. A cell whose job is lost (failed machine, time limit, killed) is
submitted again and resumes its run. A cell whose job was cancelled waits for `policygen resume`.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policygen.errors import UsageError
from policygen.extensions.sweeps import worker
from policygen.extensions.sweeps.executor import SECONDS_TO_STOP, ClusterError
from policygen.files import check_name

MOST_AT_A_TIME = 1_000  # cells queued or running; Slurm's default limit of an array
RETRIES = 3  # of a cell whose job was lost and whose run made no progress
SECONDS_TO_WAIT = 1.0  # for news of the jobs
SECONDS_BETWEEN_LOOKS = 10.0  # at the queue, which all users of the cluster share
SECONDS_TO_ARRIVE = 30.0  # a result may appear in the shared folder this long after the end of its job
SECONDS_TO_HOLD = 60.0  # wait before the next submission if Slurm refused one while other cells were running

_ENDED = frozenset((
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LOST", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED", "TIMEOUT",
))  # fmt: skip
_OWN_OPTIONS = frozenset(("array", "chdir", "error", "job_name", "open_mode", "output", "wrap"))  # not for the user
_MESSAGES = "_said.jsonl"  # end of the name of a job's file of messages
_MOST_CHARACTERS = 300  # of an error message of Slurm or a job


class SlurmExecutor:
    """Carries out cells as Slurm jobs.

    Jobs inherit the environment of this process, including keys, because `sbatch` passes it on.

    Args:
        folder: folder of the sweep; a subfolder holds output and messages of jobs while they run.
        options: options of `sbatch` by long name: `NAME=VALUE`, or `NAME` alone.
        size: maximum number of cells queued or running; None: 1,000.

    Raises:
        UsageError: submitit or Slurm is missing, or an option is not allowed.
    """

    def __init__(self, folder: Path, options: Sequence[str] = (), size: int | None = None) -> None:
        try:
            import submitit  # the extra `slurm`
        except ImportError:
            raise UsageError('--on slurm needs submitit: pip install "policygen[slurm]"') from None
        self._submitit: Any = submitit
        given = _read_options(options)
        processors = str(given.get("cpus_per_task", 1))
        if not processors.isdecimal() or int(processors) < 1:
            raise UsageError(f"--slurm cpus-per-task={processors}: write a number, as in cpus-per-task=4")
        self.jobs: int | None = int(processors)  # processes of one cell, not Slurm jobs
        self._folder = Path(check_name(folder.absolute()))  # a line break would start a new line of the job script
        if "%" in str(self._folder):
            raise UsageError(f"--out {folder}: Slurm would read the % in {self._folder}; choose another folder")
        self.size = size or MOST_AT_A_TIME
        self._queue = _Queue(self._folder)
        self._queue.clear()  # of jobs that an earlier, killed process of this sweep left there
        # Results are pickles, so they go to a new folder that only this user can write.
        self._logs = Path(tempfile.mkdtemp(prefix="slurm-", dir=self._folder))
        self._executor: Any = submitit.SlurmExecutor(self._logs)
        # Before a job's time ends, Slurm sends the signal that submitit chooses; it would kill a Python that is still
        # starting. SIGCONT, one second before the end, does no harm.
        given = {"job_name": self._queue.name, "signal": "CONT@1", **given}
        own = {"time": None, "wckey": None, "array_parallelism": self.size, "stderr_to_stdout": True}
        self._executor.update_parameters(**own, additional_parameters=given)
        self._waiting: list[worker.Order] = []  # for the next job array
        self._cells: dict[Any, worker.Order] = {}
        self._bytes_read: dict[Any, int] = {}  # of each job's messages
        self._ended: dict[Any, float] = {}  # when each job was found to have ended without a result
        # By cell: the size of its run's log when its job was last lost, and how often it was lost at that size.
        self._lost: dict[str, tuple[int, int]] = {}
        self._kept = set[str]()  # names of the output of failed jobs
        self._looked = self._held = float("-inf")  # when the queue was last read, and when Slurm last refused

    def submit(self, order: worker.Order) -> None:
        """Keep an order for the next job array."""
        self._waiting.append(order)

    def events(self) -> list[worker.Event]:
        """Submit waiting orders, read messages of jobs, and check which have ended; return the new events.

        Raises ClusterError if Slurm refuses a submission while no cell is queued or running.
        """
        if self._waiting and time.monotonic() >= self._held + SECONDS_TO_HOLD:
            self._submit()
        sizes: dict[str, int] = {}
        with os.scandir(self._logs) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a job renames its result when it is complete
                    if not entry.is_symlink():
                        sizes[entry.name] = entry.stat().st_size
        now, states = time.monotonic(), None
        if self._cells and now >= self._looked + SECONDS_BETWEEN_LOOKS:
            self._looked, states = now, self._queue.states()
        found: list[worker.Event] = []
        for job in list(self._cells):
            found += self._messages_of(job, sizes)
            if job.paths.result_pickle.name in sizes:
                found.append(self._result(job))
            elif states is not None:
                state = states.get(job.job_id, "LOST")  # Slurm forgets a job some minutes after its end
                found += self._lost_cell(job, state, now)
        if not found:
            time.sleep(SECONDS_TO_WAIT)
        return found

    def _submit(self) -> None:
        """Submit the waiting orders as one job array; keep them if Slurm refuses it while other cells are running."""
        orders, self._waiting = self._waiting, []
        directories = [str(Path.cwd())] * len(orders)
        try:
            with redirect_stderr(io.StringIO()):  # submitit prints the error there as well
                jobs = self._executor.map_array(_carry_out, orders, directories)
        except (self._submitit.core.utils.FailedJobError, OSError) as error:
            if not self._cells:
                why = " ".join(str(error).replace("sbatch: error: ", "").split())[:_MOST_CHARACTERS]
                raise ClusterError(
                    f"--on slurm: {why} (change the request by --slurm, or its size by --workers)"
                ) from None
            self._waiting, self._held = orders, time.monotonic()
            return
        self._cells.update(zip(jobs, orders, strict=True))

    def _messages_of(self, job: Any, sizes: Mapping[str, int]) -> list[worker.Event]:
        """Return the new messages of a job; `sizes` are those of the files in the folder of logs."""
        name, start = f"{job.job_id}{_MESSAGES}", self._bytes_read.get(job, 0)
        if sizes.get(name, 0) <= start:
            return []
        with (self._logs / name).open("rb") as file:
            file.seek(start)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._bytes_read[job] = start + len(whole)
        rows = [json.loads(row) for row in whole.splitlines()]
        return [worker.Note(**row) if "sentence" in row else worker.Progress(**row) for row in rows]

    def _result(self, job: Any) -> worker.CellResult:
        order = self._cells.pop(job)
        error = job.exception()
        if error is None:
            result: worker.CellResult = job.result()
        else:
            trace = str(error).partition("\n---")[2].partition("\n---")[0].strip()
            why = trace.rpartition("\n")[2][-_MOST_CHARACTERS:]
            result = worker.CellResult(order.cell.key, "failed", f"{why}; its output is in {job.paths.stdout}")
        self._tidy(job, keep=result.state == "failed")
        return result

    def _lost_cell(self, job: Any, state: str, now: float) -> list[worker.CellResult]:
        """Return the result of a cell whose job ended without one; empty if it may still arrive, or is tried again.

        A lost cell is submitted again as long as its run makes progress, else RETRIES times. A job that failed before
        its run began would fail again.
        """
        if state not in _ENDED:
            self._ended.pop(job, None)
            return []
        since = self._ended.setdefault(job, now)
        if now < since + SECONDS_TO_ARRIVE or job.paths.result_pickle.exists():
            return []
        order = self._cells.pop(job)
        key = order.cell.key
        if state == "CANCELLED":
            self._tidy(job, keep=False)
            return [worker.CellResult(key, "interrupted", f"job {job.job_id} was cancelled")]
        size, times = self._lost.get(key, (0, 0))
        with suppress(OSError):
            now_size = (self._folder / key / "attempts.jsonl").stat().st_size
            size, times = now_size, times if now_size == size else 0
        self._lost[key] = size, times + 1
        if times < RETRIES and (size > 0 or state != "FAILED"):
            self._waiting.append(order)
            self._tidy(job, keep=False)
            return []
        self._tidy(job, keep=True)
        sentence = f"job {job.job_id} ended without a result ({state}), and is not submitted again"
        return [worker.CellResult(key, "failed", f"{sentence}; its output is in {job.paths.stdout}")]

    def _tidy(self, job: Any, *, keep: bool) -> None:
        """Forget an ended job, and remove its files unless `keep`."""
        self._bytes_read.pop(job, None)
        self._ended.pop(job, None)
        if keep:
            self._kept.add(job.paths.stdout.name)
            return
        messages = self._logs / f"{job.job_id}{_MESSAGES}"
        for path in (job.paths.stdout, job.paths.submitted_pickle, job.paths.result_pickle, messages):
            path.unlink(missing_ok=True)

    def end(self) -> list[worker.CellResult]:
        """Cancel all jobs, and return the results of those that ended; only the output of failed ones is kept."""
        if self._cells or self._waiting:
            self._queue.clear()
        results = [self._result(job) for job in list(self._cells) if job.paths.result_pickle.exists()]
        self._cells.clear()
        self._waiting.clear()
        for path in self._logs.iterdir():
            if path.name not in self._kept:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self._logs.rmdir()
        return results


class _Queue:
    """The jobs of this sweep in Slurm's queue: they share one name, which no other sweep has.

    Slurm's accounting knows more about ended jobs, but many clusters have none.
    """

    def __init__(self, folder: Path) -> None:
        lacking = [command for command in ("sbatch", "squeue", "scancel", "srun") if shutil.which(command) is None]
        if lacking:
            raise UsageError(
                f"--on slurm: there is no `{lacking[0]}` here; run the command on a machine that submits Slurm jobs"
            )
        self.name = f"policygen-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
        self._user = f"--user={getpass.getuser()}"

    def states(self, *which: str) -> dict[str, str] | None:
        """Return the state of each job of this user that Slurm remembers, by its id; None if Slurm does not answer.

        `which` are further options of `squeue`, which select jobs.
        """
        command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T", self._user, *which]
        try:
            output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        except (subprocess.SubprocessError, OSError):
            return None
        return {words[0]: words[1] for row in output.splitlines() if len(words := row.split()) == 2}

    def clear(self) -> None:
        """Cancel the jobs of this sweep, and wait until they have released their runs, at most SECONDS_TO_STOP."""
        deadline = time.monotonic() + SECONDS_TO_STOP
        asked, named = False, f"--name={self.name}"
        while time.monotonic() < deadline:
            states = self.states(named)
            if states is not None and all(state in _ENDED for state in states.values()):
                return
            if not asked:
                with suppress(subprocess.SubprocessError, OSError):
                    subprocess.run(["scancel", self._user, named], capture_output=True, timeout=60, check=True)
                    asked = True
            time.sleep(SECONDS_TO_WAIT)


def _read_options(options: Sequence[str]) -> dict[str, Any]:
    """Return the values of `sbatch` options by name; an option without a value has True."""
    found: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not re.fullmatch("[a-z][a-z0-9_]+", name) or not value.isprintable():
            raise UsageError(f"--slurm {text}: write NAME=VALUE with a long option name of sbatch, as in time=4:00:00")
        if name in _OWN_OPTIONS:
            raise UsageError(f"--slurm {name.replace('_', '-')}: policygen sets this option itself; leave it out")
        found[name] = value.strip() if equals else True
    return found


# --- in a job --------------------------------------------------------------------------------------------------------


def _carry_out(order: worker.Order, directory: str) -> worker.CellResult:
    """Carry out an order in a job, in the working directory of the process that gave the order."""
    from submitit import JobEnvironment  # the extra `slurm`

    job = JobEnvironment()
    # Slurm sends SIGTERM before it kills a job; submitit alone would ignore it.
    signal.signal(signal.SIGTERM, worker.interrupt_once)
    path = job.paths.folder / f"{job.job_id}{_MESSAGES}"

    def tell(event: worker.Event) -> None:
        with path.open("a", encoding="utf-8") as file:
            print(json.dumps(asdict(event)), file=file)

    result = worker.carry_out_remotely(order, directory, tell)
    if result.state == "interrupted":
        raise SystemExit(1)  # no result: Slurm may start the job again, and its state says why it ended
    return result
