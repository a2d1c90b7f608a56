"""Stores of replies: the transcript of a run, the provider `replay`, which reads one, and the cache of several runs."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from policygen.errors import LogbookError, ProviderError, UsageError, explain
from policygen.files import (
    append_line,
    check_mark,
    damaged,
    find_run,
    make_folder,
    mark,
    read,
    read_lines,
    write_atomically,
)
from policygen.llm.base import MOST_TOKENS, Diagnosis, LLMOptions, Provider
from policygen.llm.messages import NO_MODEL, Exchange, FailedExchange, Message, Prompt, Reply, Role, cut_to
from policygen.outgoing import redacted

KIND = "transcript"
REMEDY = "it records the run's spending: restore it from a copy, or start a new run"
KILLED = "the run was killed while it waited for the reply"
_SHORT = 200  # a message with fewer characters is always written out
# Upper limits of the numbers of a stored reply; larger numbers and NaN mean that the file is damaged.
_LARGEST = {"tokens_in": MOST_TOKENS, "tokens_out": MOST_TOKENS, "usd": 1e9, "seconds": 1e9}
_Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class _MessageRecord:
    role: Role
    content: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _SentRecord:
    attempt: _Number
    request: _Number


@dataclass(frozen=True, slots=True)
class _ExchangeRecord:
    attempt: _Number
    request: _Number
    requests: Annotated[int, Field(ge=0, le=10_000)]  # retries included
    messages: tuple[_MessageRecord, ...]
    reply: Reply | None
    error: str | None = None
    comments: tuple[str, ...] = ()


# Pydantic validates in compiled code: a long run has tens of thousands of lines.
_EXCHANGE, _SENT, _REPLY = TypeAdapter(_ExchangeRecord), TypeAdapter(_SentRecord), TypeAdapter(Reply)


def _check_numbers(reply: Reply) -> None:
    for name, most in _LARGEST.items():
        value = getattr(reply, name)
        if value is not None and not 0 <= value <= most:
            raise ValueError(f"`reply.{name}` is {value:g}; expected a number from 0 to {most:g}")


class Transcript:
    """The file `transcript.jsonl`: a line for each request before it is sent, and a line for its reply or error.

    The first line is there so that a request is charged even if a crash loses its reply. The second has the messages
    and the reply. A long message is written once, with its digest; when it is sent again, only the digest is written.
    The methods raise LogbookError if the file is damaged, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: set[str] = set()  # the digests of the long messages in the file

    def record_sent(self, attempt: int, request: int) -> None:
        """Write to disk that a request is about to be sent; if this raises LogbookError, it must not be sent."""
        append_line(self.path, {**mark(KIND), "sent": {"attempt": attempt, "request": request}})

    def record(self, exchange: Exchange | FailedExchange) -> None:
        """Append a request with its reply or error."""
        written = set(self._written)
        record: dict[str, Any] = {
            **mark(KIND),
            "attempt": exchange.attempt,
            "request": exchange.request,
            "requests": exchange.requests,
            "messages": [_message_record(message, written) for message in exchange.prompt.messages],
            "reply": asdict(exchange.reply) if isinstance(exchange, Exchange) else None,
            "error": exchange.error if isinstance(exchange, FailedExchange) else None,
        }
        if exchange.prompt.comments:
            record["comments"] = list(exchange.prompt.comments)
        append_line(self.path, record)
        self._written = written

    def exchanges(self, remedy: str = REMEDY) -> Iterator[Exchange | FailedExchange]:
        """Yield all exchanges in order; a request whose reply was lost in a crash is a failed exchange.

        An incomplete last line is ignored. `remedy` is the advice in the message about a damaged file.
        """
        contents: dict[str, str] = {}
        waiting: list[_SentRecord] = []
        for record in read_lines(self.path, remedy, skip_damaged=False):
            check_mark(record, self.path, KIND, remedy)
            try:
                if "sent" in record:
                    waiting.append(_SENT.validate_python(record["sent"]))
                    continue
                exchange = _exchange(_EXCHANGE.validate_python(record), contents)
            except ValueError as error:
                fault = explain(error) if isinstance(error, ValidationError) else error
                raise damaged(self.path, f"a request: {fault}", remedy) from None
            yield from _unanswered(waiting[: max(0, len(waiting) - exchange.requests)])
            waiting = []
            yield exchange
        yield from _unanswered(waiting)


def _message_record(message: Message, written: set[str]) -> dict[str, str]:
    if len(message.content) < _SHORT:
        return asdict(message)
    digest = hashlib.blake2b(message.content.encode(errors="replace"), digest_size=12).hexdigest()
    if digest in written:
        return {"role": message.role, "digest": digest}
    written.add(digest)
    return {**asdict(message), "digest": digest}


def _exchange(record: _ExchangeRecord, contents: dict[str, str]) -> Exchange | FailedExchange:
    """Return the exchange in a record; `contents` holds the earlier long messages by digest."""
    messages = []
    for one in record.messages:
        content = contents.get(one.digest) if one.content is None else one.content
        if content is None:
            raise ValueError(f"no earlier line has the message with the digest `{one.digest}`")
        if one.digest:
            contents[one.digest] = content
        messages.append(Message(one.role, content))
    request = (record.attempt, record.request, Prompt(tuple(messages), comments=record.comments))
    if record.reply is None:
        return FailedExchange(*request, record.requests, record.error or "")
    _check_numbers(record.reply)
    return Exchange(*request, record.reply, record.requests)


def _unanswered(sent: list[_SentRecord]) -> Iterator[FailedExchange]:
    for one in sent:
        yield FailedExchange(one.attempt, one.request, Prompt(()), 1, KILLED)


# --- replay ----------------------------------------------------------------------------------------------------------

_ADVICE = "use the task, seed, template and settings of the recording, with at most as many iterations, or ask a model"


class Replay:
    """The provider `replay:RUN`; RUN is the folder of a run, or of `drive` or `mediate`.

    Replies keep the recorded model and token counts, and cost 0. Raises UsageError if there are no readable replies.
    """

    def __init__(self, run: str, options: LLMOptions) -> None:
        self.spec = f"replay:{run}"
        self.folder = find_run(run).expanduser()
        self.path = self.folder / "transcript.jsonl"
        self._replies: dict[tuple[int, int] | tuple[Message, ...] | None, Reply] = {}  # by key, and by question
        models: list[str] = []
        needs = f"replay:RUN needs a run folder with a {self.path.name}"
        if not os.path.lexists(self.path):
            raise UsageError(f"{needs}: there is no {self.path}")
        try:
            for exchange in Transcript(self.path).exchanges("restore it from a copy, or replay another run"):
                if isinstance(exchange, Exchange):
                    models.append(exchange.reply.model)
                    reply = replace(exchange.reply, usd=0.0, seconds=0.0, cached=False)
                    self._replies.setdefault((exchange.attempt, exchange.request), reply)
                    self._replies.setdefault(_question(exchange.prompt), reply)
        except LogbookError as error:
            raise UsageError(f"{needs}: {error}") from None
        if not models:
            raise UsageError(f"{self.path} holds no replies to replay")
        self.model = models[0]
        self.is_language_model = any(model != NO_MODEL for model in models)
        self._holds = f"{self.path} holds {'1 reply' if len(models) == 1 else f'{len(models)} replies'}"

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the reply recorded for the same attempt and repair, else for the same question in `drive`.

        Other messages may differ from the recorded ones, for example because a template was edited. Raises
        ProviderError if no reply was recorded.
        """
        reply = self._replies.get(prompt.key) or self._replies.get(_question(prompt))
        if reply is None:
            raise ProviderError(f"{self._holds}, but none for this request; {_ADVICE}")
        return reply

    def diagnose(self) -> Diagnosis:
        """Report how many replies are recorded, and of which model."""
        return Diagnosis(True, (f"{self._holds} of {self.model}",))


def _question(prompt: Prompt) -> tuple[Message, ...]:
    return tuple(message for message in prompt.messages if message.role != "system")


# --- cache -----------------------------------------------------------------------------------------------------------

_VERSION = 4  # increased when the definition of equal requests changes
# Options that change replies.
_SETTINGS = ("temperature", "max_output_tokens", "reasoning_effort", "extra_body")


def cache_key(provider: Provider, options: LLMOptions, prompt: Prompt, seed: int) -> str:
    """Return the cache key of a request: a digest of everything that affects the reply.

    Runs with different `seed` share no replies, so that they stay independent samples.
    """
    attempt, repair = prompt.key or (0, 0)
    request = {
        **{name: getattr(options, name) for name in _SETTINGS},
        **{"spec": provider.spec, "model": provider.model, "base_url": getattr(provider, "base_url", options.base_url)},
        **{"seed": seed, "attempt": attempt, "request": repair, "request_seed": prompt.seed},
        "messages": [asdict(message) for message in prompt.messages],
    }
    text = redacted(json.dumps([_VERSION, request], sort_keys=True))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


class Cache:
    """A folder of replies, by which a request that an earlier run has sent is answered without sending it again.

    Each reply is a file, named by the key of its request, without API keys and messages. Several processes may share
    the folder. If a file cannot be written, the cache is not used for the rest of the run.

    Raises UsageError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._broken = False
        make_folder(folder, "choose another --cache")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"--cache {folder}: the folder cannot be written; choose another")

    def get(self, key: str, tokens: int) -> Reply | None:
        """Return the stored reply, cut to `tokens`, or None; a damaged file is removed, with a warning."""
        path = self.folder / f"{key}.json"
        try:
            reply = None if self._broken else read(path, _cached_reply)
        except FileNotFoundError:
            return None
        except LogbookError as error:
            warnings.warn(f"a stored reply is ignored, and its request is sent again: {error}", stacklevel=3)
            with suppress(OSError):
                path.unlink()
            return None
        return cut_to(reply, tokens) if reply is not None else None

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply, unless there is one already."""
        path = self.folder / f"{key}.json"
        if self._broken or path.exists():
            return
        try:
            write_atomically(path, json.dumps(asdict(reply), ensure_ascii=False))
        except LogbookError as error:
            self._broken = True
            warnings.warn(f"{error}; the run continues without the cache", stacklevel=3)


def _cached_reply(text: str) -> Reply:
    try:
        reply = _REPLY.validate_json(text, strict=True)
    except ValidationError:
        raise ValueError("is not a reply") from None
    _check_numbers(reply)
    return replace(reply, seconds=0.0, cached=True)
