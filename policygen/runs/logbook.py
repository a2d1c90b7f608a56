"""The folder of a run: all that was asked, answered and scored, append-only or atomic, and read back to resume."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from policygen.episodes.buffer import ReplayBuffer
from policygen.errors import LogbookError, PolicyError, explain
from policygen.files import append_line, json_line, read_lines, write_atomically
from policygen.llm import read_spec
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Exchange, FailedExchange
from policygen.runs.example import Example, example_from_record, example_to_record
from policygen.runs.records import (
    Summary,
    attempt_from_record,
    attempt_to_record,
    curve_csv,
    exchange_from_record,
    summary_from_record,
    summary_to_record,
)
from policygen.runs.state import Attempt
from policygen.runs.texts import TemplateTexts, texts_from_record, texts_to_record
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Task

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
        provider = read_spec(config.llm).name
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

    def write_templates(self, versions: Sequence[TemplateTexts]) -> None:
        """Write `templates.json`: the texts that prompts were rendered from, and each change of them."""
        content = json.dumps(texts_to_record(versions), indent=1, ensure_ascii=False)
        write_atomically(self.folder / "templates.json", content)

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
        append_line(self.folder / "attempts.jsonl", attempt_to_record(attempt), durable=False)
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
        write_atomically(self.folder / "attempts.jsonl", _lines(attempt_to_record(a) for a in attempts))
        transcript = self.folder / "transcript.jsonl"
        if transcript.exists():
            write_atomically(transcript, _lines(read_lines(transcript)))

    def write_summary(self, summary: Summary) -> None:
        """Write `summary.json`, whose presence marks the run as finished."""
        write_atomically(self.folder / "summary.json", json.dumps(summary_to_record(summary), indent=2))

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
            return RunConfig(**settings).with_address_from(str(path))
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

    def templates(self) -> tuple[TemplateTexts, ...]:
        """The templates the run has used, each version with its first attempt; none where none were recorded.

        Raises:
            LogbookError: they are damaged.
        """
        path = self.folder / "templates.json"
        try:
            return texts_from_record(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

    def summary(self) -> Summary | None:
        """What a finished run reported, or None while it is unfinished.

        Raises:
            LogbookError: it is damaged.
        """
        path = self.folder / "summary.json"
        try:
            return summary_from_record(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, LogbookError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

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
                attempt = attempt_from_record(record, task)
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
            return [exchange_from_record(record) for record in read_lines(path)]
        except (KeyError, TypeError) as error:
            raise LogbookError(f"{path} is damaged: {error}") from None

    def buffer(self, capacity: int) -> ReplayBuffer:
        """The replay buffer as last saved; empty if it never was."""
        path = self.folder / "episodes.npz"
        return ReplayBuffer.load(path, capacity) if path.exists() else ReplayBuffer(capacity)


def _lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(map(json_line, records))


def _installed_versions() -> dict[str, str]:
    versions = {}
    for package in _VERSIONS:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
