"""The parts that `drive` and `mediate` share: the model, a folder locked by one process, the saved result."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from policygen.errors import BudgetExhausted, PlaceError, UsageError
from policygen.extensions.seats.answers import Counts
from policygen.extensions.seats.asker import Asker
from policygen.extensions.seats.recorded import Recorded
from policygen.files import mark, read_json, write_atomically
from policygen.llm import Provider, Several, connect, read_spec
from policygen.llm.cache import Cache
from policygen.llm.replay import Replay
from policygen.llm.retry import Wait
from policygen.llm.transcript import Transcript
from policygen.proposers.proposer import LanguageModel
from policygen.runs.config import RunConfig
from policygen.runs.lock import RunLock
from policygen.runs.request_log import llm_options
from policygen.tasks.task import Task

# What of a run's settings makes a difference to a seat.
SETTINGS = (
    *("llm", "seed", "base_url", "temperature", "top_p", "reasoning_effort", "request_seed", "extra_body"),
    *("timeout_seconds", "price_in", "price_out", "max_output_tokens", "prompt_tokens"),
    *("max_calls", "max_tokens", "max_usd", "ablate", "step_timeout", "unseeded"),
)
_REMEDY = "restore it from a copy, or choose another --out"


def one_model(config: RunConfig, does: str) -> Provider:
    """The one model of the settings, which is asked as things come.

    Args:
        does: what it does, for the sentence that refuses several: `drives`, `plans`.

    Raises:
        UsageError: it is several models, or a folder without recorded answers.
    """
    provider = connect(config.llm, llm_options(config))
    if isinstance(provider, Several):
        raise UsageError(f"one model {does}; name one of {config.llm}")
    return Recorded(provider) if isinstance(provider, Replay) else provider


def check_price(provider: Provider, config: RunConfig, task: Task) -> None:
    """Refuse a limit of cost that cannot be held.

    Raises:
        UsageError: the model's price is unknown.
    """
    if provider.is_language_model:
        LanguageModel(provider, config).check(task)


def default_folder(name: str, config: RunConfig) -> Path:
    """A new name under results/ for what is called `name`."""
    provider = re.sub(r"\W+", "-", read_spec(config.llm).name)
    return Path("results") / f"{name}-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """The results and costs of a session. Subclasses add fields; the saved file has all of them on one level.

    Attributes:
        is_language_model: whether the provider is a language model; any other makes no `llm_calls`.
        counts: questions asked, repairs and fallbacks.
        requests: requests sent, including repeated ones.
        cached: answers taken from the cache, paid for before.
        stopped: why the session ended early; empty if it did not.
    """

    llm: str
    is_language_model: bool
    seed: int
    counts: Counts = field(default_factory=Counts)
    llm_calls: int = 0
    requests: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    stopped: str = ""
    finished: bool = False


Found = TypeVar("Found", bound=SessionResult)


class ModelSession(ABC, Generic[Found]):
    """A model in a seat, in a folder that this process holds; `carry_out` lets it work.

    Args:
        folder: where its files go; one that holds the same already goes on from the answers kept there.
        begun: what is known before anything is asked.
        concurrency: questions under way at a time.
        tell: told of the waits that servers ask for.

    Raises:
        UsageError: the folder holds something else.
        LogbookError: it cannot be written, or another process works in it.
    """

    file: ClassVar[str]  # of what came of it
    kind: ClassVar[str]
    same: ClassVar[tuple[str, ...]]  # what a folder must say of the one that goes on in it

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        provider: Provider,
        begun: Found,
        *,
        concurrency: int,
        tell: Callable[[Wait], None],
    ) -> None:
        self.folder, self.config, self.provider, self._begun = folder, config, provider, begun
        self._lock = _held(folder, self.file, self.kind, {name: getattr(begun, name) for name in self.same})
        try:
            self._write(begun)  # says what it is before anything is asked
            self.asker = _asker(folder, provider, config, concurrency=concurrency, tell=tell)
        except BaseException:
            self._lock.release()
            raise

    def carry_out(self) -> Found:
        """Work until all is done or a budget is spent, and write everything down; also what an interruption leaves.

        Raises:
            ProviderError: the model cannot be asked.
            EnvironmentFault: the environment failed.
        """
        stopped = "interrupted"
        try:
            try:
                self._work()
                stopped = ""
            except BudgetExhausted as error:
                stopped = str(error)
            finally:
                self._keep()
                self._write(self._outcome(stopped))
            self._finish()
            outcome = self._outcome(stopped, finished=True)
            self._write(outcome)
            return outcome
        finally:
            self._lock.release()

    @abstractmethod
    def _work(self) -> None:
        """Do all that asks the model."""

    def _keep(self) -> None:
        """Write files beside what was found, whatever ended the work."""

    def _finish(self) -> None:
        """Do the rest after work that was not interrupted."""

    @abstractmethod
    def _found(self) -> Found:
        """Return the results so far; `_outcome` adds the costs of asking."""

    def _outcome(self, stopped: str, *, finished: bool = False) -> Found:
        ledger = self.asker.ledger
        return replace(
            self._found(),
            llm_calls=ledger.calls if self.provider.is_language_model else 0,
            requests=ledger.calls,
            cached=ledger.cached,
            tokens_in=ledger.tokens_in,
            tokens_out=ledger.tokens_out,
            usd=ledger.usd,
            stopped=stopped,
            finished=finished,
        )

    def _write(self, outcome: Found) -> None:
        record = asdict(outcome)
        record |= record.pop("counts")
        write_atomically(self.folder / self.file, json.dumps({**mark(self.kind), **record}, indent=1))


def _held(folder: Path, file: str, kind: str, told: Mapping[str, Any]) -> RunLock:
    """A folder for what `kind` names, held by this process; one that holds the same already is gone on with.

    Args:
        file: says what the folder holds.
        told: what must be the same in it.

    Raises:
        UsageError: the folder holds something else.
        LogbookError: it cannot be made, or another process works in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in folder.iterdir()} - {".lock"}
    except OSError as error:
        raise PlaceError(f"cannot create {folder}: {error.strerror}; choose another --out") from None
    if others and file not in others:
        raise UsageError(f"{folder} holds other files; choose another --out")
    lock = RunLock(folder)
    try:
        if file in others:
            before = read_json(folder / file, kind, _REMEDY)
            for name, value in told.items():
                was = before.get(name) if isinstance(before, dict) else None
                if was != value:
                    raise UsageError(
                        f"{folder} holds a {kind} whose {name} is {was}, not {value}; choose another --out"
                    )
    except BaseException:
        lock.release()
        raise
    return lock


def _asker(
    folder: Path,
    provider: Provider,
    config: RunConfig,
    *,
    concurrency: int,
    tell: Callable[[Wait], None],
) -> Asker:
    """Return an asker that keeps a transcript and, for a language model, its answers in the folder."""
    transcript = Transcript(folder / "transcript.jsonl")
    return Asker(
        provider,
        config,
        concurrency=concurrency,
        cache=Cache(folder / "answers") if provider.is_language_model else None,
        on_exchange=transcript.record,
        on_sent=transcript.record_sent,
        tell=tell,
    )
