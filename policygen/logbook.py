"""The folder of a run: all that was asked, answered and scored, append-only or atomic, and read back to resume."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import platform
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from policygen.buffer import ReplayBuffer
from policygen.config import RunConfig
from policygen.drafts import Problem
from policygen.errors import LogbookError, PolicyError
from policygen.evaluate import Score
from policygen.example import Example, example_from_record, example_to_record
from policygen.messages import Message, Prompt, Reply
from policygen.policies import from_record
from policygen.propose import Exchange, FailedExchange
from policygen.search import Attempt, Played
from policygen.storage import append_line, read_lines, write_atomically
from policygen.task_records import task_from_record, task_to_record
from policygen.tasks import Task, explain

# Rewriting the replay buffer costs time; what is missing after a crash is played again from its seeds.
SECONDS_BETWEEN_BUFFER_SAVES = 10.0
_VERSIONS = ("policygen", "gymnasium", "numpy", "openai", "google-genai", "anthropic", "mujoco")


class Logbook:
    """Reads and writes one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buffer_saved = 0.0

    # --- writing

    @classmethod
    def create(cls, out: Path, task: Task, config: RunConfig, example: Example | None = None) -> Logbook:
        """A new folder `<task>-<provider>-<time>-s<seed>` under `out`, with the settings, task and example in it.

        Raises:
            LogbookError: it cannot be written.
        """
        provider = config.llm.partition(":")[0]
        stem = f"{task.name}-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"
        for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
            folder = out / f"{stem}{suffix}"
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                if not folder.is_dir() or not out.is_dir():
                    raise LogbookError(f"{out} is not a folder; choose another --out") from None
            except OSError as error:
                raise LogbookError(f"cannot create {folder}: {error.strerror}; choose another --out") from None
        logbook = cls(folder)
        logbook.write_settings(config)
        write_atomically(folder / "task.json", json.dumps(task_to_record(task), indent=1))
        if example is not None:
            write_atomically(folder / "example.json", json.dumps(example_to_record(example), indent=1))
        return logbook

    def write_settings(self, config: RunConfig) -> None:
        """Write the settings and the versions of what plays and scores."""
        settings: dict[str, Any] = config.model_dump(exclude_none=True)
        settings["versions"] = {"python": platform.python_version(), **_installed_versions()}
        write_atomically(self.folder / "config.toml", tomli_w.dumps(settings))

    def record_exchange(self, exchange: Exchange | FailedExchange) -> None:
        """Append one request and its reply, or why there was none, to the transcript."""
        record = {
            "attempt": exchange.attempt,
            "request": exchange.request,
            "requests": exchange.requests,
            "messages": [asdict(message) for message in exchange.prompt.messages],
            "reply": asdict(exchange.reply) if isinstance(exchange, Exchange) else None,
            "error": exchange.error if isinstance(exchange, FailedExchange) else None,
        }
        append_line(self.folder / "transcript.jsonl", record)

    def record_attempt(self, attempt: Attempt, buffer: ReplayBuffer) -> None:
        """Append one attempt, and bring the best policy and, now and then, the replay buffer up to date."""
        # What a power failure takes from here is assessed again, from the replies that the transcript holds.
        append_line(self.folder / "attempts.jsonl", _attempt_to_record(attempt), durable=False)
        if attempt.accepted:
            self.save_best(attempt)
        if time.monotonic() - self._buffer_saved > SECONDS_BETWEEN_BUFFER_SAVES:
            self.save_buffer(buffer)

    def save_best(self, attempt: Attempt) -> None:
        """Write the policy of the best attempt."""
        if attempt.policy is not None:
            attempt.policy.save(self.folder / "best.json")

    def save_buffer(self, buffer: ReplayBuffer) -> None:
        """Write the replay buffer."""
        buffer.save(self.folder / "episodes.npz")
        self._buffer_saved = time.monotonic()

    def keep_only(self, attempts: Sequence[Attempt]) -> None:
        """Rewrite the log to these attempts (an interrupted round is assessed again as a whole), without torn lines."""
        write_atomically(self.folder / "attempts.jsonl", _lines(_attempt_to_record(a) for a in attempts))
        transcript = self.folder / "transcript.jsonl"
        if transcript.exists():
            write_atomically(transcript, _lines(read_lines(transcript)))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`, whose presence marks the run as finished."""
        write_atomically(self.folder / "summary.json", json.dumps(summary, indent=2))

    def write_curve(self, attempts: Sequence[Attempt]) -> None:
        """Write `learning_curve.csv`, one row per attempt."""
        write_atomically(self.folder / "learning_curve.csv", curve_csv(attempts))

    # --- reading

    def config(self) -> RunConfig:
        """The settings the run was started with.

        Raises:
            LogbookError: this is not a run folder, or its settings are damaged.
        """
        path = self.folder / "config.toml"
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
            settings.pop("versions", None)
            return RunConfig(**settings)
        except (FileNotFoundError, NotADirectoryError):
            raise LogbookError(f"{self.folder} is not a run folder (it has no config.toml)") from None
        except OSError as error:
            raise LogbookError(f"cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None
        except ValidationError as error:
            raise LogbookError(f"{path}: {explain(error)}") from None

    def task(self) -> Task:
        """The task as it was when the run started.

        Raises:
            LogbookError: it is missing or damaged.
        """
        path = self.folder / "task.json"
        try:
            return task_from_record(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise LogbookError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, PolicyError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

    def example(self) -> Example | None:
        """The worked example as it was when the run started, whatever has become of its source; None without one.

        Raises:
            LogbookError: the settings name one, and it is missing or damaged.
        """
        if not self.config().example:
            return None
        path = self.folder / "example.json"
        try:
            return example_from_record(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise LogbookError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError, PolicyError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

    def summary(self) -> dict[str, Any] | None:
        """What a finished run reported, or None while it is unfinished."""
        path = self.folder / "summary.json"
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None
        return summary if isinstance(summary, dict) else None

    def attempts(self) -> list[Attempt]:
        """All recorded attempts, in order.

        Raises:
            LogbookError: a line is damaged.
        """
        path = self.folder / "attempts.jsonl"
        task = self.task()
        found: list[Attempt] = []
        for record in read_lines(path):
            try:
                attempt = _attempt_from_record(record, task)
            except (KeyError, TypeError, ValueError, PolicyError) as error:
                raise LogbookError(f"{path} is damaged after attempt {len(found) - 1}: {error}") from None
            if attempt.number == len(found):
                found.append(attempt)
        return found

    def exchanges(self) -> list[Exchange | FailedExchange]:
        """The transcript, in order.

        Raises:
            LogbookError: a line is damaged.
        """
        path = self.folder / "transcript.jsonl"
        try:
            return [_exchange(record) for record in read_lines(path)]
        except (KeyError, TypeError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

    def buffer(self, capacity: int) -> ReplayBuffer:
        """The replay buffer as last saved; empty if it never was."""
        path = self.folder / "episodes.npz"
        return ReplayBuffer.load(path, capacity) if path.exists() else ReplayBuffer(capacity)


def _lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _installed_versions() -> dict[str, str]:
    versions = {}
    for package in _VERSIONS:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _exchange(record: dict[str, Any]) -> Exchange | FailedExchange:
    prompt = Prompt(tuple(Message(**message) for message in record["messages"]))
    place = (record["attempt"], record["request"], prompt)
    if record["reply"] is None:
        return FailedExchange(*place, record["requests"], record["error"])
    return Exchange(*place, Reply(**record["reply"]), record["requests"])


def _shallow(record: Any) -> dict[str, Any]:
    """The fields of a record by name; unlike `asdict` without a copy of each of its thousand numbers."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _attempt_to_record(attempt: Attempt) -> dict[str, Any]:
    record = _shallow(attempt)
    for name in ("policy", "proposed"):
        policy = record[name]
        # The task is the run's own and lies beside the log: only the policy itself is repeated.
        record[name] = {k: v for k, v in policy.to_record().items() if k != "task"} if policy is not None else None
    for name in ("score", "proposed_score"):
        record[name] = _shallow(record[name]) if record[name] is not None else None
    record["played"] = [[p.episode_return, p.length, p.ending, dict(p.terms)] for p in attempt.played]
    record["problems"] = [asdict(problem) for problem in attempt.problems]
    return record


def _attempt_from_record(record: dict[str, Any], task: Task) -> Attempt:
    known = {field.name for field in fields(Attempt)}
    values = {key: value for key, value in record.items() if key in known}
    for name in ("score", "proposed_score"):
        values[name] = _score(record[name]) if record.get(name) is not None else None
    for name in ("policy", "proposed"):
        values[name] = from_record(record[name], task) if record.get(name) is not None else None
    values["played"] = tuple(
        Played(value, length, ending, tuple(terms[0].items()) if terms else ())
        for value, length, ending, *terms in record["played"]
    )
    values["spread"] = tuple((place, value) for place, value in record.get("spread", ()))
    values["undefined"] = tuple((name, share) for name, share in record.get("undefined", ()))
    values["problems"] = tuple(Problem(**problem) for problem in record["problems"])
    return Attempt(**values)


def _score(record: dict[str, Any]) -> Score:
    interval = tuple(record["ci95"]) if record["ci95"] else None
    return Score(**{**record, "ci95": interval, "returns": tuple(record["returns"]), "seeds": tuple(record["seeds"])})


CURVE_COLUMNS = (
    "attempt",
    "proposed",
    "score",
    "std",
    "best",
    "accepted",
    "failed",
    "calls",
    "tokens_in",
    "tokens_out",
    "usd",
    "episodes",
    "env_steps",
    "wall_seconds",
)


def curve_csv(attempts: Sequence[Attempt]) -> str:
    """One row per attempt: its own score, the best so far, and what had been spent by then (running totals).

    `proposed` is the score before tuning, empty where nothing was tuned.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    calls = tokens_in = tokens_out = 0
    usd: float | None = 0.0
    for attempt in attempts:
        calls += attempt.calls
        tokens_in += attempt.tokens_in
        tokens_out += attempt.tokens_out
        usd = None if usd is None or attempt.usd is None else usd + attempt.usd
        score = attempt.score
        writer.writerow(
            [
                attempt.number,
                _cell(attempt.proposed_score.mean if attempt.proposed_score else None),
                _cell(score.mean if score else None),
                _cell(score.std if score else None),
                _cell(attempt.best_mean),
                int(attempt.accepted),
                int(attempt.number > 0 and attempt.policy is None),
                calls,
                tokens_in,
                tokens_out,
                _cell(usd),
                attempt.episodes,
                attempt.env_steps,
                f"{attempt.wall_seconds:.3f}",
            ]
        )
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
