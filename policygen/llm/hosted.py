"""The base class of providers that send requests over HTTP through an SDK, and the errors of their servers."""

from __future__ import annotations

import email.utils
import math
import re
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2

from policygen.errors import PolicygenError, ProviderError, TransientProviderError
from policygen.llm.base import SAMPLING, Diagnosis, LLMOptions, dropped_warning
from policygen.llm.keys import Key, check_destination, host_clause
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import shown

_TRANSIENT = frozenset({408, 409, 425, 429})
_LONGEST_MESSAGE = 600  # characters of a server's message that are shown
_LONGEST_READ = 2_000  # characters of a message that are searched: the expressions take quadratic time

_UNSUPPORTED = re.compile(
    r"un(?:supported|recogni[sz]ed|known|expected)|not (?:supported|allowed|permitted|available|recogni[sz]ed|accepted)"
    r"|(?:does not|doesn't) support|deprecated|invalid|not permitted|only\b.*\b(?:allowed|supported)|cannot|can't",
    re.IGNORECASE | re.DOTALL,
)
# The user must correct a value out of range: leaving it out would silently change the experiment.
_OUT_OF_RANGE = re.compile(
    r"too (?:large|small|high|low|long)|maximum|minimum|at (?:most|least)|exceed|(?:less|greater) than|out of range"
    r"|must be between|<=|>=",
    re.IGNORECASE,
)
# Most SDKs do not validate answers: a field that should be a list may be a number. Reading it raises one of these.
_MALFORMED = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status: its message, and the `wait` in s that the server asks for, if any."""

    status: int
    message: str
    wait: float | None = None


def server_fault(server: str, refusal: Refusal, *, key: Key | None) -> ProviderError:
    """Return the exception for an answer with an error status; it is transient for 408, 409, 425, 429 and 5xx."""
    status, message = refusal.status, one_line(refusal.message, key)
    if status in (401, 403):
        which = f"the key in {key.name}" if key else "a request without a key"
        return ProviderError(f"{server} refused {which} ({status}): {message}")
    sentence = f"{server} answered {status}: {message}"
    if status in _TRANSIENT or status >= 500:
        return TransientProviderError(sentence, refusal.wait)
    return ProviderError(sentence)


def connection_fault(server: str, url: str, error: BaseException, *, start: str) -> ProviderError:
    """Return the exception for an unreachable server.

    It is transient, except for a connection that this machine refuses (`start` then tells how to start the server) and
    an answer that cannot be decoded.
    """
    host = urlsplit(url).hostname or url
    local = host == "localhost" or host.startswith("127.") or host in ("::1", "0.0.0.0", "host.docker.internal")
    chain = _chain(error)
    if any(isinstance(link, httpx2.DecodingError) for link in chain):
        return unreadable(server, url, chain[-1])
    if local and any(isinstance(link, ConnectionRefusedError) for link in chain):
        return ProviderError(f"no server answers at {url}: {start}")
    cause = next((str(link) for link in reversed(chain) if str(link)), type(error).__name__)
    return TransientProviderError(f"{server} at {url} cannot be reached: {one_line(cause, None)}")


def unreadable(server: str, url: str, why: object, key: Key | None = None) -> ProviderError:
    """Return the exception for a malformed answer: final, because a retry would cost again."""
    return ProviderError(f"{server} at {url} gave an answer that cannot be read: {one_line(str(why), key)}")


def status_of(code: object) -> int:
    """Return an HTTP status as an int; 500 if `code` is not a number."""
    try:
        return int(str(code))
    except ValueError:
        return 500


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the server's requested wait in s (`Retry-After-Ms`, or `Retry-After` as number or date), or None.

    Source: RFC 9110, section 10.2.3.
    """
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def rejected_parameter(message: str, sent: Collection[str], named: str | None = None) -> str | None:
    """Return which of the parameters `sent` an error message rejects, or None.

    It is the one that the server `named` in a field of its own, else the first in the message. A message about the
    range of a value rejects no parameter.
    """
    message = message[:_LONGEST_READ]
    if _OUT_OF_RANGE.search(message):
        return None
    if named:
        last = re.split(r"[.\[\]]+", named.strip("]"))[-1]
        return last if last in sent else None
    if not _UNSUPPORTED.search(message):
        return None
    places = {name: re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", message) for name in sent}
    found = {name: match.start() for name, match in places.items() if match}
    return min(found, key=lambda name: found[name]) if found else None


def one_line(message: str, key: Key | None) -> str:
    """Shorten a server's message to one line, without the key."""
    message = message[:_LONGEST_READ]
    line = shown(" ".join((key.redact(message) if key else message).split())).rstrip(".")
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " ..."


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and advice for its error messages.

    Attributes:
        own_url: the provider's own address; a key may be sent there even if a file chose the address.
        start: advice if the server does not answer.
        missing: advice if the server does not know the model; {} stands for the model.
    """

    provider_id: str
    name: str
    own_url: str
    key: Key | None
    start: str
    missing: str = "is {!r} a model that this key may use?"


class HostedModel:
    """One model on one server. A subclass sends requests through its SDK and explains the SDK's error statuses.

    A subclass names the exceptions of its SDK: `timed_out` (no answer in time), `unreachable` (no connection),
    `refused` (an error status) and `failed` (anything else).
    """

    is_language_model = True
    timed_out: ClassVar[type[Exception]]
    unreachable: ClassVar[type[Exception]]
    refused: ClassVar[type[Exception]]
    failed: ClassVar[type[Exception]]

    def __init__(self, server: Server, model: str, options: LLMOptions) -> None:
        check_destination(server.key, options, server.own_url)
        self.spec = f"{server.provider_id}:{model}"
        self.model = model
        self.base_url = options.base_url or server.own_url
        self.key_goes_to = host_clause(server.key, self.base_url)
        self._server = server
        self._key = server.key
        self._options = options
        self._dropped: set[str] = set()

    def drop(self, parameter: str) -> bool:
        """Stop sending `parameter`; False if it was dropped before or is required."""
        if parameter not in SAMPLING or parameter in self._dropped:
            return False
        self._dropped.add(parameter)
        warnings.warn(dropped_warning(self.spec, parameter), stacklevel=2)
        return True

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request; for the errors see `Provider.complete`."""
        stated = {**{name: getattr(self._options, name, None) for name in SAMPLING}, "seed": prompt.seed}
        sent = {name: v for name, v in stated.items() if v is not None and name not in self._dropped}
        with self._translated_errors(sent):
            return self._ask(prompt, max_output_tokens, sent)

    def diagnose(self) -> Diagnosis:
        """Ask the server about the model."""
        lines = [f"the key is in {self._key.name}" if self._key else "no key is set; this server may not need one"]
        try:
            with self._translated_errors({}):
                found = self._look_up()
        except PolicygenError as error:
            return Diagnosis(False, (*lines, str(error)))
        return Diagnosis(found.ok, (*lines, *found.lines))

    def _found(self, name: str, reads: int | None, writes: int | None, *more: str) -> Diagnosis:
        """Return the diagnosis for a known model; `reads` and `writes` are its limits in tokens."""
        lines = [f"{self._server.name} answers at {self.base_url} and knows {name}"]
        if reads:
            lines.append(f"it reads up to {reads} tokens and writes up to {writes or 'an unknown number'}")
        return Diagnosis(True, (*lines, *more))

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        """Send one request with the sampling parameters `sent`, and read the answer."""
        raise NotImplementedError

    def _look_up(self) -> Diagnosis:
        """Return what the server says about the model."""
        raise NotImplementedError

    def _refusal(self, error: Any, sent: Mapping[str, Any]) -> Refusal | ProviderError:
        """Return status and message of an error answer, or the exception to raise in a special case (spent credit)."""
        raise NotImplementedError

    @contextmanager
    def _translated_errors(self, sent: Mapping[str, Any]) -> Iterator[None]:
        """Raise a PolicygenError in place of an exception of the SDK or of a malformed answer."""
        name = self._server.name
        try:
            yield
        except PolicygenError:
            raise
        except self.timed_out:
            seconds = self._options.timeout_seconds
            raise TransientProviderError(f"{name} gave no answer within {seconds:g} s") from None
        except self.unreachable as error:
            raise connection_fault(name, self.base_url, error, start=self._server.start) from None
        except self.refused as error:
            refusal = self._refusal(error, sent)
            if isinstance(refusal, ProviderError):
                raise refusal from None
            if refusal.status == 404:
                missing = self._server.missing.format(self.model)
                refusal = Refusal(404, f"{refusal.message.rstrip('.')} ({missing})")
            raise server_fault(name, refusal, key=self._key) from None
        except (self.failed, *_MALFORMED) as error:
            raise unreadable(name, self.base_url, f"{type(error).__name__}: {error}", self._key) from None
