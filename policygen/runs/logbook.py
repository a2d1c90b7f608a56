"""The folder of a run: requests, replies, attempts and results; files are appended to or replaced atomically."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.score import Score
from policygen.errors import LogbookError, PathError, PolicyError, PolicygenError, explain, reason_of
from policygen.files import (
    append_line,
    check_mark,
    check_name,
    damaged,
    json_line,
    json_of,
    make_folder,
    mark,
    read,
    read_lines,
    remove_parts,
    toml_of,
    write_atomically,
)
from policygen.llm import read_spec
from policygen.llm.store import Transcript
from policygen.runs.attempt import DAMAGE, DELETE_AND_SCORE, Attempt, Costs
from policygen.runs.config import RunConfig
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Task
from policygen.tasks.trust import why_refused

# The replay buffer is saved only now and then; episodes that are missing after a crash are replayed from their seeds.
LEAST_BETWEEN_SAVES = 1.0  # seconds
SAVING_SHARE = 0.02  # largest share of the run's time spent saving it
_RESTORE = "restore it from a copy, or begin a new run"
T = TypeVar("T")
_TEXTS = TypeAdapter(dict[str, str])
_LONGEST_NAME = 80  # characters of a task's or provider's name in a file name
_VERSIONS = ("policygen", "gymnasium", "numpy", "openai", "google-genai", "anthropic", "mujoco")


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run, saved as `summary.json`; the other figures of the run follow from its attempts.

    Attributes:
        final: the final score; None if no reply was a policy.
        perturbed: the best policy's score under the perturbations `perturbed_by`, on the first seeds of `final`; None
            if it was not measured.
        stopped: the reason why the search ended, as a sentence.
        seconds: the time that the final score took.
        asks_a_model: whether replies came from a language model.
        spent: the costs of all requests, including those without a reply.
    """

    final: Score | None = None
    perturbed: Score | None = None
    perturbed_by: tuple[str, ...] = ()
    stopped: str = ""
    seconds: float = 0.0
    asks_a_model: bool = True
    spent: Costs = field(default_factory=Costs)


SUMMARY = TypeAdapter(Summary)


class Logbook:
    """Reads and writes one run folder; `transcript` has its requests and replies.

    The methods raise LogbookError if a file is missing or damaged, or cannot be read or written. `create` and `lock`
    also raise it if another process has locked the folder; reading needs no lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._next_save = 0.0  # earliest time of the next save of the replay buffer, on the monotonic clock
        self._lock: FileLock | None = None
        self.transcript = Transcript(folder / "transcript.jsonl")

    def resume_command(self, *options: str) -> str:
        """Return the command that resumes the run, with --trust if it needs the user's trust."""
        command, trust = "resume", ""
        with suppress(PolicygenError):
            task, model = self.task(), read_spec(self.config().llm)
            command = "mcp" if model.name == "mcp" else command  # `policygen resume` has no assistant to ask
            writes_prompts = model.name == "manual" and model.argument  # into a folder named in the settings
            if ":" in task.gym_id or why_refused(task) or writes_prompts:
                trust = "--trust"
        return shlex.join(filter(None, ["policygen", command, str(self.folder), *options, trust]))

    # --- writing

    @classmethod
    def create(
        cls, out: Path, task: Task, config: RunConfig, templates: Mapping[str, str] | None = None, *, name: str = ""
    ) -> Logbook:
        """Create a folder under `out` with the settings, the task and the templates of a run.

        Args:
            templates: the texts of the templates that the run uses, by name.
            name: name of the folder, which may exist if it holds no run; by default
                `<task>-<provider>-<time>-s<seed>`.
        """
        check_name(out, "choose another --out")
        provider = _file_name(read_spec(config.llm).name)
        stem = f"{_file_name(task.name)}-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"
        existed = bool(name) and (out / name).exists()
        if name:
            make_folder(out / name, "choose another --out")
            if (out / name / "config.toml").exists():
                command = cls(out / name).resume_command()
                raise PathError(f"{out / name} already holds a run; continue it with: {command}")
        logbook = cls(out / name if name else _new_folder(out, stem))
        logbook.lock()  # before the `try`: if another process has begun this run, its files must stay
        try:
            own = {"assumed": list(task.assumed), "steps_taken": task.steps_taken}
            logbook._write_json("task.json", "task", {**task_to_record(task), **own})
            logbook._write_json("templates.json", "templates", {"texts": dict(templates or {})})
            # Last, because a folder with settings is a run that can be resumed.
            logbook.write_settings(config)
        except BaseException:
            logbook.release()
            for file in ("task.json", "templates.json", "config.toml"):
                (logbook.folder / file).unlink(missing_ok=True)
            if not existed:  # else it may hold the user's files
                shutil.rmtree(logbook.folder, ignore_errors=True)
            raise
        return logbook

    def lock(self) -> None:
        """Lock the folder against other processes until `release` or the end of this process."""
        self._lock = lock_folder(self.folder)

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _write_json(self, name: str, kind: str, record: dict[str, Any]) -> None:
        content = json.dumps({**mark(kind), **record}, indent=1, ensure_ascii=False)
        write_atomically(self.folder / name, content)

    def write_settings(self, config: RunConfig) -> None:
        """Write the settings and the versions of the packages that play and score."""
        settings: dict[str, Any] = {**mark("run"), **config.model_dump(exclude_none=True)}
        settings["versions"] = {"python": platform.python_version(), **_installed_versions()}
        write_atomically(self.folder / "config.toml", tomli_w.dumps(settings))

    def record_attempt(self, attempt: Attempt, buffer: ReplayBuffer) -> None:
        """Append an attempt; save its policy if it is the new best, and from time to time the replay buffer."""
        # Not durable: an attempt lost in a power failure is assessed again from its replies in the transcript.
        append_line(self.folder / "attempts.jsonl", attempt_to_record(attempt), durable=False)
        if attempt.accepted:
            self.save_best(attempt)
        if time.monotonic() > self._next_save:
            self.save_buffer(buffer)

    def rewrite_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Replace the recorded attempts, for example because the totals of the last one have grown."""
        records = map(attempt_to_record, attempts)
        write_atomically(self.folder / "attempts.jsonl", "".join(map(json_line, records)))

    def save_best(self, attempt: Attempt) -> None:
        """Write `best.json`, the policy of the best attempt."""
        if attempt.policy is not None:
            attempt.policy.save(self.folder / "best.json")

    def save_buffer(self, buffer: ReplayBuffer) -> None:
        """Write the replay buffer."""
        started = time.monotonic()
        buffer.save(self.folder / "episodes.npz")
        saved = time.monotonic()
        self._next_save = saved + max(LEAST_BETWEEN_SAVES, (saved - started) / SAVING_SHARE)

    def clear_up(self, attempts: Sequence[Attempt]) -> None:
        """Remove the remains of an interruption: later attempts, torn lines, partial files, and the summary."""
        remove_parts(self.folder)
        self.rewrite_attempts(attempts)
        if (path := self.transcript.path).exists():
            write_atomically(path, "".join(map(json_line, read_lines(path))))
        (self.folder / "summary.json").unlink(missing_ok=True)

    def write_summary(self, summary: Summary) -> None:
        """Write `summary.json`, which marks the run as finished."""
        self._write_json("summary.json", "summary", SUMMARY.dump_python(summary))

    def write_curve(self, curve: str) -> None:
        """Write `learning_curve.csv`."""
        write_atomically(self.folder / "learning_curve.csv", curve)

    # --- reading

    def _read(
        self, name: str, form: Callable[[str], Any], kind: str, make: Callable[[Any], T], remedy: str = _RESTORE
    ) -> T:
        """Read a file and convert its content with `make`; raise FileNotFoundError if it is missing."""
        path = self.folder / name
        try:
            return make(read(path, form, remedy, kind=kind))
        except LogbookError:
            raise
        except DAMAGE as error:
            raise damaged(path, explain(error) if isinstance(error, ValidationError) else error, remedy) from None

    def _settings(self, make: Callable[[dict[str, Any]], T]) -> T:
        try:
            return self._read("config.toml", toml_of, "run", make)
        except FileNotFoundError:
            raise PathError(f"{self.folder} is not a run folder (it has no config.toml)") from None

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that made the run, by name; empty if none are recorded."""
        versions = self._settings(lambda settings: settings.get("versions"))
        return {str(name): str(value) for name, value in versions.items()} if isinstance(versions, dict) else {}

    def config(self) -> RunConfig:
        """Return the settings of the run, including changes made when it was resumed."""
        others = ("versions", "format")
        config = self._settings(lambda found: RunConfig(**{name: found[name] for name in found if name not in others}))
        return config.chosen_by(str(self.folder / "config.toml"))

    def task(self) -> Task:
        """Return the run's task as it was when the run started."""
        return self._required("task.json", "task", task_from_record)

    def templates(self) -> dict[str, str]:
        """Return the texts of the run's templates by name, as they were when the run started."""
        return self._required("templates.json", "templates", lambda record: _TEXTS.validate_python(record["texts"]))

    def _required(self, name: str, kind: str, make: Callable[[Any], T]) -> T:
        try:
            return self._read(name, json_of, kind, make)
        except FileNotFoundError:
            raise LogbookError(f"{self.folder / name} is missing; {_RESTORE}") from None

    def summary(self) -> Summary | None:
        """Return the summary of a finished run; None for an unfinished one."""
        remedy = f"delete it, and make it again with: policygen resume {shlex.quote(str(self.folder))}"
        with suppress(FileNotFoundError):
            return self._read("summary.json", json_of, "summary", SUMMARY.validate_python, remedy)
        return None

    def attempts(self) -> list[Attempt]:
        """Return the recorded attempts in order, up to the first that is missing.

        A resumed run assesses that one and the later ones again, from their recorded replies.
        """
        path = self.folder / "attempts.jsonl"
        remedy, task = f"{DELETE_AND_SCORE} {shlex.quote(str(self.folder))}", self.task()
        found: list[Attempt] = []
        for record in read_lines(path):
            check_mark(record, path, "attempt", remedy)
            try:
                attempt = attempt_from_record(record, task, path)
            except DAMAGE as error:
                where = f"after attempt {len(found) - 1}" if found else "at attempt 0"
                raise damaged(path, f"{where}, {error}", remedy) from None
            if attempt.number == len(found):
                found.append(attempt)
        return found

    def buffer(self) -> ReplayBuffer:
        """Return the replay buffer as last saved; empty if it never was."""
        path = self.folder / "episodes.npz"
        return ReplayBuffer.load(path) if path.exists() or path.is_symlink() else ReplayBuffer()


def _file_name(name: str) -> str:
    """Return the name of a task or provider, which an untrusted file may choose, as part of a file name."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:_LONGEST_NAME]
    return kept or "unnamed"


def _new_folder(out: Path, stem: str) -> Path:
    make_folder(out, "choose another --out")
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        folder = out / f"{stem}{suffix}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise PathError(f"cannot create {str(folder)!r}: {reason_of(error)}; choose another --out") from None
    raise PathError(f"{out} holds a thousand runs that began this second; choose another --out")


@functools.cache
def _installed_versions() -> dict[str, str]:
    versions = {}
    for package in _VERSIONS:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


_ATTEMPT = TypeAdapter(Attempt)


def attempt_to_record(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as JSON values, with the mark of its format; tuples stand for lists."""
    return {**mark("attempt"), **_ATTEMPT.dump_python(attempt, by_alias=True)}


def attempt_from_record(record: dict[str, Any], task: Task, log: Path | None = None) -> Attempt:
    """Read an attempt that `attempt_to_record` wrote; its policies are parsed on first access.

    Args:
        task: the task of the policies.
        log: the file of the record, named in the message about a damaged policy.

    Raises PolicyError if the record is damaged; the message says where.
    """
    try:
        attempt = _ATTEMPT.validate_python(record, context=(task, log))
    except ValidationError as error:
        raise PolicyError(explain(error)) from None
    if attempt.score is not None and len(attempt.score.returns) != len(attempt.score.seeds):
        raise PolicyError("its score needs one seed for each return")
    played = attempt.played
    columns = (played.lengths, played.terminated, *played.terms.values(), attempt.returns)
    if len(set(map(len, columns))) > 1:
        raise PolicyError("each of its episodes needs a return, a length, an ending and all terms")
    return attempt


_SCORE = TypeAdapter(Score)


def score_record(score: Score) -> dict[str, Any]:
    """Return a score as JSON values, with its number of episodes; NaN is null."""
    record: dict[str, Any] = json.loads(_SCORE.dump_json(score))
    return {**record, "episodes": score.episodes}


class FolderInUse(LogbookError):
    """Another process works in the folder."""


def lock_folder(folder: Path) -> FileLock:
    """Lock a run folder until `release` or the end of this process, even by a crash.

    Raises FolderInUse if another process works in the folder, LogbookError if the folder cannot be written.
    """
    lock = FileLock(folder / ".lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        use = "is in use: another process runs or resumes it; wait for it, or stop it first"
        raise FolderInUse(f"{folder} {use}") from None
    except (OSError, NotImplementedError) as error:
        remedy = "copy the folder to where you may write, and use the copy"
        raise LogbookError(f"cannot write to {folder} ({reason_of(error)}); {remedy}") from None
    return lock
