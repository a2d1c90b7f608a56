"""The parts that `drive` and `mediate` share: the model, a folder locked by one process, the saved result."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from policygen.errors import BudgetExhausted, PlaceError, ProviderError, UsageError
from policygen.extensions.seats.asking import Asker, Counts
from policygen.files import mark, read_json, write_atomically
from policygen.llm import Provider, ProviderPool, connect, read_spec
from policygen.llm.cache import Cache
from policygen.llm.messages import Prompt, Reply
from policygen.llm.replay import Replay
from policygen.llm.retry import Wait
from policygen.llm.transcript import Transcript
from policygen.proposers.proposer import LanguageModel
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity
from policygen.runs.lock import RunLock
from policygen.runs.request_log import RequestLog, llm_options
from policygen.tasks.task import Task

# The run settings that also apply to `drive` and `mediate`.
SETTINGS = (
    *("llm", "seed", "base_url", "temperature", "top_p", "reasoning_effort", "request_seed", "extra_body"),
    *("timeout_seconds", "price_in", "price_out", "max_output_tokens", "prompt_tokens"),
    *("max_calls", "max_tokens", "max_usd", "ablate", "step_timeout", "unseeded"),
)


class RecordedAnswers:
    """`replay:FOLDER` as a provider: the recorded answer to the same question, in any order.

    A run replays its replies one after the other; the questions of a session come from many episodes in parallel.
    """

    def __init__(self, replay: Replay) -> None:
        self.spec, self.model, self.is_language_model = replay.spec, replay.model, replay.is_language_model
        self._replay = replay
        self._replies = {exchange.prompt.messages: exchange.reply for exchange in replay.exchanges()}

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the recorded reply, at a cost of 0. Raises ProviderError if the question was never asked."""
        reply = self._replies.get(prompt.messages)
        if reply is None:
            raise ProviderError(
                f"{self._replay.folder} holds no answer to this question: replay it with the task, the seed, the "
                "template and the settings that it was recorded with, or ask a model"
            )
        return reply


def one_model(config: RunConfig, does: str) -> Provider:
    """Return the only model of the settings.

    Args:
        does: what it does, for the error message about several models: `drives`, `plans`.

    Raises:
        UsageError: there are several models, or the folder to replay holds no answers.
    """
    provider = connect(config.llm, llm_options(config))
    if isinstance(provider, ProviderPool):
        raise UsageError(f"one model {does}; name one of {config.llm}")
    return RecordedAnswers(provider) if isinstance(provider, Replay) else provider


def default_folder(name: str, config: RunConfig) -> Path:
    """Return a new path in results/ that begins with `name`."""
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


ResultT = TypeVar("ResultT", bound=SessionResult)


class ModelSession(ABC, Generic[ResultT]):
    """A model's work in a folder that this process locks; `carry_out` does the work.

    Args:
        folder: where the files go; if it holds the same session already, its answers are used again.
        task: for the check that the price of the model is known.
        initial: the result before anything is asked.
        concurrency: maximum number of questions under way at a time.
        tell: called with the waits that servers ask for.

    Raises:
        UsageError: the folder holds something else, or a cost limit cannot be enforced.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    file: ClassVar[str]  # name of the saved result
    kind: ClassVar[str]
    same: ClassVar[tuple[str, ...]]  # the fields of a saved result that a session in its folder must share

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        provider: Provider,
        task: Task,
        initial: ResultT,
        *,
        concurrency: int,
        tell: Callable[[Wait], None],
    ) -> None:
        def tell_waits(activity: Activity | None) -> None:
            if isinstance(activity, Wait) and activity.reason:
                tell(activity)

        if provider.is_language_model:
            LanguageModel(provider, config).check(task)
        self.folder, self.config, self.provider, self._initial = folder, config, provider, initial
        self._lock = self._locked()
        try:
            self._write(initial)  # other sessions must see whose folder it is before anything is asked
            transcript = Transcript(folder / "transcript.jsonl")
            log = RequestLog(
                Ledger(config),
                on_exchange=transcript.record,
                on_sent=transcript.record_sent,
                tell=tell_waits,
                cache=Cache(folder / "answers") if provider.is_language_model else None,
                by_attempt=False,
            )
            self.asker = Asker(provider, log, concurrency)
        except BaseException:
            self._lock.release()
            raise

    def carry_out(self) -> ResultT:
        """Work until all is done or a budget is used up; save the results, also of an interrupted session.

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
        """Do everything that asks the model."""

    def _keep(self) -> None:
        """Write the files besides the saved result, whatever ended the work."""

    def _finish(self) -> None:
        """Do the rest after work that was not interrupted."""

    @abstractmethod
    def _current_result(self) -> ResultT:
        """Return the results so far; `_outcome` adds the costs of asking."""

    def _outcome(self, stopped: str, *, finished: bool = False) -> ResultT:
        ledger = self.asker.ledger
        return replace(
            self._current_result(),
            llm_calls=ledger.calls if self.provider.is_language_model else 0,
            requests=ledger.calls,
            cached=ledger.cached,
            tokens_in=ledger.tokens_in,
            tokens_out=ledger.tokens_out,
            usd=ledger.usd,
            stopped=stopped,
            finished=finished,
        )

    def _write(self, outcome: ResultT) -> None:
        record = asdict(outcome)
        record |= record.pop("counts")
        write_atomically(self.folder / self.file, json.dumps({**mark(self.kind), **record}, indent=1))

    def _locked(self) -> RunLock:
        """Create and lock the folder, unless it holds something other than this session."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = {path.name for path in self.folder.iterdir()} - {".lock"}
        except OSError as error:
            raise PlaceError(f"cannot create {self.folder}: {error.strerror}; choose another --out") from None
        if others and self.file not in others:
            raise UsageError(f"{self.folder} holds other files; choose another --out")
        lock = RunLock(self.folder)
        try:
            if self.file in others:
                remedy = "restore it from a copy, or choose another --out"
                before = read_json(self.folder / self.file, self.kind, remedy)
                for name in self.same:
                    was, value = before.get(name) if isinstance(before, dict) else None, getattr(self._initial, name)
                    if was != value:
                        raise UsageError(
                            f"{self.folder} holds a {self.kind} whose {name} is {was}, not {value}; "
                            "choose another --out"
                        )
        except BaseException:
            lock.release()
            raise
        return lock
