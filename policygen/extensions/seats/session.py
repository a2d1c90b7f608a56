"""Sessions, the shared base of drives and mediations: a model, a folder that one process locks, a saved result."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from policygen.errors import BudgetExhausted, PathError, UsageError
from policygen.extensions.seats.asking import Asker
from policygen.files import make_folder, mark, read_json, write_atomically
from policygen.llm import Provider, connect, read_spec
from policygen.llm.cache import Cache
from policygen.llm.retry import Wait
from policygen.llm.transcript import Transcript
from policygen.proposers.proposer import Proposer
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity
from policygen.runs.lock import RunLock
from policygen.runs.request_log import RequestLog, llm_options
from policygen.tasks.task import Task

# The run settings that also apply to `drive` and `mediate`.
SETTINGS = (
    *("llm", "seed", "base_url", "temperature", "reasoning_effort", "extra_body"),
    *("timeout_seconds", "prices", "max_output_tokens", "prompt_tokens"),
    *("max_calls", "max_tokens", "max_usd", "ablate", "step_timeout"),
)


def connect_model(config: RunConfig, refusal: str) -> Provider:
    """Return the provider of the setting `llm`, which must not be `builtin`.

    Args:
        refusal: what `builtin` cannot do, and which provider can, for the error message.

    Raises:
        UsageError: `llm` names `builtin`, or the folder to replay holds no answers.
    """
    if read_spec(config.llm).name == "builtin":
        raise UsageError(f"builtin proposes policies and {refusal}")
    return connect(config.llm, llm_options(config))


def default_folder(name: str, config: RunConfig) -> Path:
    """Return a new path in results/ that begins with `name`."""
    provider = re.sub(r"\W+", "-", read_spec(config.llm).name)
    return Path("results") / f"{name}-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """The results and costs of a session, as its file holds them. Subclasses add fields."""

    llm: str
    is_language_model: bool
    seed: int
    asked: int = 0  # this and the next three: see `Asker`
    repairs: int = 0
    fallbacks: int = 0
    fallback_uses: int = 0
    llm_calls: int = 0  # the same as `requests`, or 0 if the provider is not a language model
    requests: int = 0  # sent, retries included
    cached: int = 0  # answers taken from the cache of an earlier session
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    stopped: str = ""  # why the session ended early: `interrupted`, or the budget that ran out
    finished: bool = False  # whether the session ended by itself: its work was done or a budget ran out


ResultT = TypeVar("ResultT", bound=SessionResult)


class ModelSession(ABC, Generic[ResultT]):
    """The base class of a drive or mediation: work that asks a model, in a folder that this process locks.

    Args:
        folder: folder of the files; if it already holds this session, the answers stored there are used again.
        task: needed to check that a limit in USD can be enforced.
        result: the result before anything is asked; subclasses replace it as they work.
        concurrency: maximum number of questions under way at a time.
        tell: called before each wait to retry a failed request.

    Raises:
        UsageError: the folder holds something else, or a cost limit cannot be enforced.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    file: ClassVar[str]  # name of the saved result
    kind: ClassVar[str]  # of the saved file, and in messages: `drive` or `mediation`
    identity_fields: ClassVar[tuple[str, ...]]  # fields of the result; a session continues another if these are equal

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        provider: Provider,
        task: Task,
        result: ResultT,
        *,
        concurrency: int,
        tell: Callable[[Wait], None],
    ) -> None:
        def tell_waits(activity: Activity | None) -> None:
            if isinstance(activity, Wait) and activity.reason:
                tell(activity)

        if provider.is_language_model:
            Proposer(provider, config).check(task)
        self.folder, self.config, self.provider, self.result = folder, config, provider, result
        make_folder(folder, "choose another --out")
        try:
            present = {path.name for path in folder.iterdir()} - {".lock"}
        except OSError as error:
            raise PathError(f"cannot read {folder}: {error.strerror}; choose another --out") from None
        if present and self.file not in present:
            raise UsageError(f"{folder} holds other files; choose another --out")
        self._lock = RunLock(folder)
        with ExitStack() as after_error:
            after_error.callback(self._lock.release)
            if self.file in present:
                self._check_continues()
            self._write(result)  # a session that continues this one needs it, even if this one stops at once
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
            after_error.pop_all()

    def _check_continues(self) -> None:
        """Raise UsageError if the folder holds the result of another session."""
        saved = read_json(self.folder / self.file, self.kind, "restore it from a copy, or choose another --out")
        for name in self.identity_fields:
            was = saved.get(name) if isinstance(saved, dict) else None
            if was != (value := getattr(self.result, name)):
                raise UsageError(
                    f"{self.folder} holds a {self.kind} whose {name} is {was}, not {value}; choose another --out"
                )

    def carry_out(self) -> ResultT:
        """Work until all is done or a budget runs out, and return the result; save it, also after an interruption.

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
                self._write(self._result_with_costs(stopped))
            self._evaluate()
            result = self._result_with_costs(stopped, finished=True)
            self._write(result)
            return result
        finally:
            self._lock.release()

    @abstractmethod
    def _work(self) -> None:
        """Do everything that asks the model, and write the files besides the result, also if it is interrupted."""

    def _evaluate(self) -> None:
        """Score the results of the work; not called if it was interrupted."""

    def _current_result(self) -> ResultT:
        """Return the result so far; `_result_with_costs` adds the costs of asking."""
        return self.result

    def _result_with_costs(self, stopped: str, *, finished: bool = False) -> ResultT:
        ledger = self.asker.ledger
        return replace(
            self._current_result(),
            asked=self.asker.asked,
            repairs=self.asker.repairs,
            fallbacks=self.asker.fallbacks,
            fallback_uses=self.asker.fallback_uses,
            llm_calls=ledger.calls if self.provider.is_language_model else 0,
            requests=ledger.calls,
            cached=ledger.cached,
            tokens_in=ledger.tokens_in,
            tokens_out=ledger.tokens_out,
            usd=ledger.usd,
            stopped=stopped,
            finished=finished,
        )

    def _write(self, result: ResultT) -> None:
        write_atomically(self.folder / self.file, json.dumps({**mark(self.kind), **asdict(result)}, indent=1))
