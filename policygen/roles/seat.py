"""What a model needs in any seat beside the loop: who it is, a folder that one process holds, questions on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from policygen.errors import PlaceError, UsageError
from policygen.files import read_json
from policygen.llm import Provider, Several, connect, read_spec
from policygen.llm.cache import Cache
from policygen.llm.retry import Wait
from policygen.roles.proposer import LanguageModel
from policygen.roles.questions import Asker, Record
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Exchange, FailedExchange, llm_options
from policygen.runs.lock import RunLock
from policygen.runs.transcript import Transcript
from policygen.tasks.task import Task

# What of a run's settings makes a difference to a seat.
SETTINGS = (
    *("llm", "seed", "base_url", "temperature", "timeout_seconds", "price_in", "price_out", "max_output_tokens"),
    *("prompt_tokens", "max_calls", "max_tokens", "max_usd", "ablate", "step_timeout"),
)
_REMEDY = "restore it from a copy, or choose another --out"


def one_model(config: RunConfig, does: str) -> Provider:
    """The one model of the settings, which is asked as things come.

    Args:
        does: what it does, for the sentence that refuses several: `drives`, `plans`.

    Raises:
        UsageError: it is several models, or the replies of a run.
    """
    provider = connect(config.llm, llm_options(config))
    if isinstance(provider, Several):
        raise UsageError(f"one model {does}; name one of {config.llm}")
    if read_spec(config.llm).name == "replay":
        raise UsageError(f"a replay has the replies of a run to its own prompts; no replay {does}")
    return provider


def folder_held(folder: Path, file: str, kind: str, told: Mapping[str, Any]) -> RunLock:
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


def asker_in(
    folder: Path,
    provider: Provider,
    config: RunConfig,
    *,
    concurrency: int,
    tell: Callable[[Wait], None],
) -> Asker:
    """Who asks the provider, and keeps a transcript and the answers of a language model in the folder."""
    transcript = Transcript(folder / "transcript.jsonl")
    asked = provider.is_language_model

    def said(exchange: Exchange | FailedExchange) -> None:
        if isinstance(exchange, Exchange):
            transcript.record(exchange)

    return Asker(
        provider,
        config,
        concurrency=concurrency,
        cache=Cache(folder / "answers") if asked else None,
        record=Record(transcript.record_sent, transcript.record) if asked else Record(exchanged=said),
        tell=tell,
    )


def check_price(provider: Provider, config: RunConfig, task: Task) -> None:
    """Refuse a limit of cost that cannot be held.

    Raises:
        UsageError: the model's price is unknown.
    """
    if provider.is_language_model:
        LanguageModel(provider, config).check(task)
