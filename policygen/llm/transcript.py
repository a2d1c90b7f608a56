"""The transcript of a run: a line for each request before it is sent, and a line for its reply or error.

Because of the first line, a request is charged even if a crash loses its reply. The second line holds the messages,
the user's comments among them, and the reply. A long message is written once, with its digest; if it is sent again
soon, only the digest is written.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from policygen.errors import PolicyError, explain
from policygen.files import append_line, check_mark, damaged, mark, read_lines
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply, Role

KIND = "transcript"
REMEDY = "it records the run's spending: restore it from a copy, or start a new run"
_SHORT = 200  # a message of fewer characters is always written out
_RECENT = 200  # messages whose digests are remembered; a conversation has fewer
_MOST_REQUESTS = 10_000  # requests of one exchange, retries included
KILLED = "the run was killed while it waited for the reply"


@dataclass(frozen=True, slots=True)
class _MessageRecord:
    role: Role
    content: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _ExchangeRecord:
    attempt: int
    request: int
    requests: int
    messages: tuple[_MessageRecord, ...]
    reply: Reply | None
    error: str | None = None
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _SentRecord:
    attempt: int
    request: int


# Pydantic validates in compiled code: a long run has tens of thousands of lines.
_EXCHANGE, _SENT = TypeAdapter(_ExchangeRecord), TypeAdapter(_SentRecord)


class Transcript:
    """The file `transcript.jsonl`; its methods raise LogbookError if it is damaged, or cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = _Recent()

    def record_sent(self, attempt: int, request: int) -> None:
        """Append a line for a request that is about to be sent; it is on the disk when this returns.

        Raises LogbookError if it cannot be written; then the request must not be sent.
        """
        append_line(self.path, {**mark(KIND), "sent": {"attempt": attempt, "request": request}})

    def record(self, exchange: Exchange | FailedExchange) -> None:
        """Append a request with its reply, or with the error."""
        new: dict[str, str] = {}
        record: dict[str, Any] = {
            **mark(KIND),
            "attempt": exchange.attempt,
            "request": exchange.request,
            "requests": exchange.requests,
            "messages": [self._message_record(message, new) for message in exchange.prompt.messages],
            "reply": asdict(exchange.reply) if isinstance(exchange, Exchange) else None,
            "error": exchange.error if isinstance(exchange, FailedExchange) else None,
        }
        if exchange.prompt.comments:
            record["comments"] = list(exchange.prompt.comments)
        append_line(self.path, record)
        for digest, content in new.items():
            self._known[digest] = content

    def _message_record(self, message: Message, new: dict[str, str]) -> dict[str, str]:
        if len(message.content) < _SHORT:
            return asdict(message)
        digest = _digest(message.content)
        if digest in self._known:
            self._known[digest] = message.content  # it is now the most recent one
        if digest in new or digest in self._known:
            return {"role": message.role, "digest": digest}
        new[digest] = message.content
        return {**asdict(message), "digest": digest}

    def exchanges(self, remedy: str = REMEDY) -> Iterator[Exchange | FailedExchange]:
        """Yield all exchanges, in order; a request whose reply a crash lost is a failed exchange.

        An incomplete last line, from a crash, is ignored.

        Args:
            remedy: the advice in the message about a damaged file.
        """
        contents = _Recent()
        waiting: list[_SentRecord] = []
        for record in read_lines(self.path, remedy, skip_damaged=False):
            check_mark(record, self.path, KIND, remedy)
            try:
                if "sent" in record:
                    waiting.append(_SENT.validate_python(record["sent"]))
                    continue
                exchange = self._exchange(_EXCHANGE.validate_python(record), contents)
            except ValidationError as error:
                raise damaged(self.path, f"a request: {explain(error)}", remedy) from None
            except PolicyError as error:
                raise damaged(self.path, error, remedy) from None
            yield from _unanswered(waiting[: max(0, len(waiting) - exchange.requests)])
            waiting = []
            yield exchange
        yield from _unanswered(waiting)

    def _exchange(self, record: _ExchangeRecord, contents: _Recent) -> Exchange | FailedExchange:
        if record.attempt < 0 or record.request < 0 or not 0 <= record.requests <= _MOST_REQUESTS:
            raise PolicyError(f"a request: impossible numbers (attempt {record.attempt}, {record.requests} requests)")
        messages = tuple(Message(message.role, self._content(message, contents)) for message in record.messages)
        request = (record.attempt, record.request, Prompt(messages, comments=record.comments))
        if record.reply is None:
            return FailedExchange(*request, record.requests, record.error or "")
        for name, value in (("usd", record.reply.usd or 0.0), ("seconds", record.reply.seconds)):
            if not (math.isfinite(value) and value >= 0):
                raise PolicyError(f"a request: `reply.{name}`: input should be a number, 0 or more")
        return Exchange(*request, record.reply, record.requests)

    def _content(self, message: _MessageRecord, contents: _Recent) -> str:
        content = message.content
        if content is None:
            content = contents.get(message.digest)
            content = self._lost(message.digest) if content is None else content
        if content is None:
            raise PolicyError(f"no earlier line has the message with the digest `{message.digest}`")
        if message.digest:
            contents[message.digest] = content
        return content

    def _lost(self, digest: str) -> str | None:
        """Search the whole file for the message with a digest that is no longer remembered; None if there is none."""
        for record in read_lines(self.path):
            messages = record.get("messages")
            for message in messages if isinstance(messages, list) else ():
                if isinstance(message, dict) and message.get("digest") == digest:
                    content = message.get("content")
                    if isinstance(content, str):
                        return content
        return None


class _Recent(OrderedDict[str, str]):
    """The last `_RECENT` messages by their digests; a long run has too many to keep all."""

    def __setitem__(self, digest: str, content: str) -> None:
        super().__setitem__(digest, content)
        self.move_to_end(digest)
        if len(self) > _RECENT:
            self.popitem(last=False)


def _unanswered(sent: list[_SentRecord]) -> Iterator[FailedExchange]:
    for one in sent:
        yield FailedExchange(one.attempt, one.request, Prompt(()), 1, KILLED)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
