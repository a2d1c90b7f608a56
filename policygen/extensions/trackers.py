"""Trackers: listeners that write curve, policy, prompt and cost of every attempt to TensorBoard, W&B or MLflow.

They write to this machine unless their own variables (`WANDB_MODE`, `MLFLOW_TRACKING_URI`) say otherwise.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock

from policygen.errors import LogbookError, UsageError
from policygen.files import read_plain, write_atomically
from policygen.llm.messages import Exchange, FailedExchange
from policygen.outgoing import redacted
from policygen.runs.attempt import Attempt, Costs
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.runs.records import Summary

_PROJECT = "policygen"
_STATE = 2**16  # bytes


class Tracker(Listener, ABC):
    """Writes every attempt of a run once, including those that an earlier process did not write.

    Raises UsageError if the package is not installed.
    """

    name = ""
    package = ""
    variables: ClassVar[Mapping[str, str]] = {}  # environment variables, unless the user has set them

    def __init__(self) -> None:
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        try:
            self._module: Any = importlib.import_module(self.package)
        except ImportError:
            raise UsageError(f'--track {self.name} needs an extra: pip install "policygen[{self.name}]"') from None
        self._identifier = ""  # of the output; empty until it is open
        self._prompts: dict[int, str] = {}
        self._final: dict[str, float] = {}

    @abstractmethod
    def _open(self, run: RunView, stored: str) -> str:
        """Open the output; return its identifier. `stored` is that of an interrupted run, or empty."""

    @abstractmethod
    def _log(self, number: int, numbers: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Write an attempt: its scores, the best so far and the costs so far; and `policy`, `prompt`, `verdict`."""

    @abstractmethod
    def _close(self, final: Mapping[str, float]) -> None:
        """Write the final score, if there is one, and close the output."""

    def started(self, run: RunView) -> None:
        """Open the output, and write the attempts that it lacks."""
        self._state = run.folder / f"track-{self.name}.json"
        self._costs = Costs()
        count, stored = _state_in(self._state)
        attempts = run.search.attempts
        for exchange in Logbook(run.folder).transcript.exchanges() if attempts else ():
            if exchange.attempt >= count:
                self.exchanged(exchange)
        self._identifier = self._open(run, stored)
        for attempt in attempts:
            if attempt.number >= count:
                self.attempted(attempt)
            else:
                self._costs = self._costs.plus(attempt.requests)

    def exchanged(self, exchange: Exchange | FailedExchange) -> None:
        """Keep the prompt until its attempt is scored; repairs do not replace it."""
        if exchange.request == 0 and exchange.prompt.messages:
            parts = (f"--- {message.role} ---\n{message.content}" for message in exchange.prompt.messages)
            self._prompts[exchange.attempt] = "\n".join(parts)

    def attempted(self, attempt: Attempt) -> None:
        """Write the attempt, and that it is written."""
        self._costs = self._costs.plus(attempt.requests)
        texts = {
            "policy": attempt.policy.to_text(whole=True) if attempt.policy is not None else "",
            "prompt": self._prompts.pop(attempt.number, ""),
            "verdict": " ".join(filter(None, (attempt.requests.model, attempt.idea, f"({attempt.verdict})"))),
        }
        kept = {name: redacted(text) for name, text in texts.items() if text}
        numbers = {
            "score/attempt": attempt.score.value if attempt.score is not None else None,
            "score/proposed": attempt.tuned.proposed_score.value if attempt.tuned.proposed_score is not None else None,
            "score/best": attempt.standing.reported_best,
            "score/accepted": float(attempt.accepted),
            "cost/usd": self._costs.usd,
            "cost/calls": float(self._costs.llm_calls),
            "cost/tokens": float(self._costs.tokens),
            "cost/episodes": float(attempt.standing.episodes),
            "cost/steps": float(attempt.standing.env_steps),
            "cost/seconds": attempt.standing.wall_seconds,
        }
        known = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
        self._log(attempt.number, known, kept)
        write_atomically(self._state, json.dumps({"attempts": attempt.number + 1, "known": self._identifier}))

    def finished(self, summary: Summary) -> None:
        """Remember the final score."""
        if summary.final is not None:
            self._final = {"final/score": summary.final.value}

    def ended(self) -> None:
        """Close the output."""
        if self._identifier:
            self._close(self._final)


def _state_in(path: Path) -> tuple[int, str]:
    """Return how many attempts an earlier process has written, and the identifier of its output."""
    with suppress(FileNotFoundError, LogbookError, ValueError, KeyError, TypeError, RecursionError):
        state = json.loads(read_plain(path, _STATE))
        count, stored = state["attempts"], state["known"]
        if isinstance(count, int) and isinstance(stored, str) and (stored.isalnum() or not stored):
            return count, stored
    return 0, ""


def _folder_in(run: RunView, name: str) -> Path:
    """Return a folder of the run, which is made if it does not exist."""
    folder = run.folder / name
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link; remove it")
    folder.mkdir(exist_ok=True)
    return folder


def _settings(run: RunView) -> dict[str, Any]:
    settings = run.config.model_dump(mode="json", exclude_none=True)
    return {name: redacted(value) if isinstance(value, str) else value for name, value in settings.items()}


class TensorBoard(Tracker):
    """Event files in the run's folder `tensorboard`: tensorboard --logdir results."""

    name = "tensorboard"
    package = "tensorboardX"

    def _open(self, run: RunView, stored: str) -> str:
        # The names of event files state the second; another process may start in the same second.
        suffix = f".{secrets.token_hex(4)}"
        self._writer = self._module.SummaryWriter(str(_folder_in(run, self.name)), filename_suffix=suffix)
        self._last = 0
        if not stored:
            self._writer.add_text("settings", _block(json.dumps(_settings(run), indent=1)), 0)
        return "events"

    def _log(self, number: int, numbers: Mapping[str, float], texts: Mapping[str, str]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, number)
        for name, text in texts.items():
            self._writer.add_text(name, _block(text), number)
        self._last = number
        self._writer.flush()

    def _close(self, final: Mapping[str, float]) -> None:
        for name, value in final.items():
            self._writer.add_scalar(name, value, self._last)
        self._writer.close()


def _block(text: str) -> str:
    """Quote text for TensorBoard, which renders Markdown."""
    return "".join(f"    {line}\n" for line in text.split("\n"))


class WandB(Tracker):
    """An offline run in the run's folder `wandb`, to send with `wandb sync`; WANDB_MODE=online sends it at once."""

    name = "wandb"
    package = "wandb"
    variables: ClassVar[Mapping[str, str]] = {"WANDB_ERROR_REPORTING": "false"}

    def _open(self, run: RunView, stored: str) -> str:
        identity = stored or secrets.token_hex(8)
        quiet = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True, "save_code": False}
        self._run = self._module.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.folder.name,
            id=identity,
            resume="allow",
            dir=str(_folder_in(run, self.name).parent),  # W&B creates a folder `wandb` there
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=_settings(run),
            settings=self._module.Settings(**quiet),
        )
        return identity

    def _log(self, number: int, numbers: Mapping[str, float], texts: Mapping[str, str]) -> None:
        self._run.log({"attempt": number, **numbers, **texts})

    def _close(self, final: Mapping[str, float]) -> None:
        self._run.summary.update(dict(final))
        self._run.finish()


class MLflow(Tracker):
    """A run in the store of MLFLOW_TRACKING_URI; by default `mlflow.db` and `mlartifacts` beside the run's folder."""

    name = "mlflow"
    package = "mlflow"
    variables: ClassVar[Mapping[str, str]] = {"MLFLOW_DISABLE_TELEMETRY": "true"}

    def _open(self, run: RunView, stored: str) -> str:
        for noisy in ("alembic", "mlflow", "mlflow.store.db.utils"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        beside = run.folder.absolute().parent
        stated = os.environ.get("MLFLOW_TRACKING_URI")
        # The runs of a sweep start at the same time and share a store.
        with FileLock(beside / "mlflow.db.lock") if not stated else nullcontext():
            client = self._module.MlflowClient(tracking_uri=stated or _store(beside / "mlflow.db"))
            if client.get_experiment_by_name(_PROJECT) is None:
                place = None if stated else (beside / "mlartifacts").as_uri()
                client.create_experiment(_PROJECT, artifact_location=place)
            experiment = client.get_experiment_by_name(_PROJECT).experiment_id
        if not stored:
            stored = client.create_run(experiment, run_name=run.folder.name).info.run_id
            for name, value in _settings(run).items():
                client.log_param(stored, name, value)
        else:
            client.update_run(stored, status="RUNNING")
        self._client = client
        return stored

    def _log(self, number: int, numbers: Mapping[str, float], texts: Mapping[str, str]) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._identifier, name, value, step=number)
        for name, text in texts.items():
            self._client.log_text(self._identifier, text, f"attempts/{number:05d}/{name}.txt")

    def _close(self, final: Mapping[str, float]) -> None:
        for name, value in final.items():
            self._client.log_metric(self._identifier, name, value)
        # A run without a final score did not end.
        self._client.set_terminated(self._identifier, "FINISHED" if final else "KILLED")


def _store(path: Path) -> str:
    """Return the address of an SQLite file; its folder may have spaces and special characters in its name.

    `as_uri` escapes them, and with `uri=true` SQLite decodes them. For a plain `sqlite` address MLflow would create a
    folder with the escapes in its name.
    """
    from sqlalchemy import URL  # the extra `mlflow`

    return str(URL.create("sqlite+pysqlite", database=path.as_uri(), query={"uri": "true"}).render_as_string())


TRACKERS: dict[str, Callable[[], Tracker]] = {tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow)}


def trackers(names: Sequence[str]) -> tuple[Tracker, ...]:
    """Return the trackers with these names, each once; raise UsageError if the package of one is not installed."""
    return tuple(TRACKERS[name]() for name in dict.fromkeys(names))


@contextmanager
def training_reports(names: Sequence[str], out: Path, part: str) -> Iterator[list[str]]:
    """Yield the names of trackers for `report_to` of transformers' trainers, with their environment variables set.

    By default they write to this machine: TensorBoard (in a folder of its own for each `part` of a training) and W&B in
    the folder `out`, MLflow beside it. Variables that the user has set stay as they are. Raises as `trackers`.
    """
    found = [tracker.name for tracker in trackers(names)]
    stated: dict[str, str] = {}
    if "tensorboard" in found:
        stated["TENSORBOARD_LOGGING_DIR"] = str(out / "tensorboard" / part)
    if "wandb" in found:
        stated |= {"WANDB_PROJECT": _PROJECT, "WANDB_MODE": "offline", "WANDB_DIR": str(out), "WANDB_SILENT": "true"}
    if "mlflow" in found:
        stated |= {"MLFLOW_EXPERIMENT_NAME": _PROJECT}
        stated |= {"MLFLOW_TRACKING_URI": _store(out.absolute().parent / "mlflow.db")}
    new = {name: value for name, value in stated.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield found
    finally:
        for name in new:
            os.environ.pop(name, None)
