"""The base class of providers that send requests over HTTP through an SDK; keys; errors of servers."""

from __future__ import annotations

import email.utils
import math
import os
import re
import shlex
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2

from policygen.errors import PolicygenError, ProviderError, TransientProviderError, UsageError
from policygen.llm.base import SAMPLING, Diagnosis, LLMOptions, dropped_warning
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import INSIDE_200, is_local, proxy_for
from policygen.outgoing import shown

_TRANSIENT = frozenset({408, 409, 425, 429})
_LONGEST_MESSAGE = 600  # characters of a server's message that are shown
_LONGEST_READ = 2_000  # characters of a message that are searched, because the regular expressions take quadratic time

_UNSUPPORTED = re.compile(
    r"un(?:supported|recogni[sz]ed|known|expected)|not (?:supported|allowed|permitted|available|recogni[sz]ed|accepted)"
    r"|(?:does not|doesn't) support|deprecated|invalid|not permitted|only\b.*\b(?:allowed|supported)|cannot|can't",
    re.IGNORECASE | re.DOTALL,
)
# If a value is out of range, the user must correct it: to leave it out would silently change the experiment.
_OUT_OF_RANGE = re.compile(
    r"too (?:large|small|high|low|long)|maximum|minimum|at (?:most|least)|exceed|(?:less|greater) than|out of range"
    r"|must be between|<=|>=",
    re.IGNORECASE,
)
# Keys that servers echo in their messages: masked (sk-ab****yz), or recognised by their prefix.
_MASKED = re.compile(r"[^\s'\"(]*\*{3,}[^\s'\",)]*")
_SHAPED = re.compile(r"\b(?:sk|pk|gsk|xai|nvapi|hf)[-_][A-Za-z0-9_\-]{6,}|\bAIza[A-Za-z0-9_\-]{10,}")
_HIDDEN = "[key]"
# Most SDKs do not validate answers. Reading a field of the wrong type raises one of these.
_MALFORMED = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: the name of its environment variable, and its value, which is never printed."""

    name: str
    value: str = field(repr=False)

    def redact(self, text: str) -> str:
        """Replace this key, even shortened or masked, and other keys by `[key]`."""
        text = text.replace(self.value, _HIDDEN)
        if len(self.value) >= 12:  # the prefix of a shorter key could be an ordinary word
            text = re.sub(re.escape(self.value[:8]) + r"[^\s'\",)]*", _HIDDEN, text)
        return _SHAPED.sub(_HIDDEN, _MASKED.sub(_HIDDEN, text))


def check_destination(key: Key | None, options: LLMOptions, own: str) -> None:
    """Raise UsageError if `key` would go to an address from a file, or with request fields from a file.

    The provider's `own` address is always allowed.
    """
    chose_fields, chose_address = options.origin("extra_body"), options.origin("base_url")
    if key is not None and options.extra_body and chose_fields:
        raise UsageError(
            f"{chose_fields} would send fields of its own (extra_body: {', '.join(options.extra_body)}) "
            f"with the key in {key.name}, which may cost more or involve other servers; if you trust it, add --trust"
        )
    if key is None or options.base_url is None or not chose_address:
        return
    if own and _origin(options.base_url) == _origin(own):
        return
    typed = (
        f"--llm {shlex.quote(options.named_in)}" if options.named_in else f"--base-url {shlex.quote(options.base_url)}"
    )
    raise UsageError(
        f"{chose_address} would send the key in {key.name} to {options.base_url}: a file may not choose where "
        f"a key goes; if you trust this server, add {typed} or --trust; otherwise remove the address from the file"
    )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def find_key(*names: str) -> Key | None:
    """Return the key in the first of these environment variables that is set, or None.

    Raises UsageError if an HTTP header cannot carry the value.
    """
    for name in names:
        value = os.environ.get(name, "").strip()
        if value:
            if not re.fullmatch(r"[!-~]+", value):
                raise UsageError(f"the value of {name} contains a space or an unusual character: copy the key again")
            return Key(name, value)
    return None


def require_key(provider: str, *names: str) -> Key:
    """Return the key that `provider` needs; raise UsageError if none of these environment variables is set."""
    key = find_key(*names)
    if key is None:
        others = "".join(f" (or {name})" for name in names[1:])
        raise UsageError(
            f"{provider} needs an API key: set {names[0]}{others} in the environment, "
            f"or write the line {names[0]}=... into a file named .env in this folder"
        )
    return key


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the wait in s that a server asks for in `Retry-After-Ms` or `Retry-After` (RFC 9110, 10.2.3), or None."""
    text = headers.get("retry-after", "")
    for number, seconds in ((headers.get("retry-after-ms", ""), 0.001), (text, 1.0)):
        with suppress(ValueError):
            if math.isfinite(value := float(number)):
                return max(0.0, value * seconds)
    with suppress(TypeError, ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def rejected_parameter(message: str, sent: Collection[str], named: str | None = None) -> str | None:
    """Return which of the parameters `sent` the server rejects, or None.

    If the server `named` a parameter in a separate field, it is that one; otherwise the first in the message. A message
    about the range of a value rejects no parameter.
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


class HostedModel:
    """A model on a server. A subclass sends the requests through an SDK, and states the class attributes.

    Attributes:
        provider_id: the provider's name in specs.
        server: the server's name in messages.
        own_url: the provider's own address, to which its key may always be sent.
        start: advice if the server does not answer; {} stands for its name.
        missing: advice if the server does not know the model; {} stands for the model.
        timed_out, unreachable, refused, failed: the SDK's exceptions for no answer in time, no connection, an error
            status, and any other fault.
    """

    is_language_model = True
    provider_id: ClassVar[str]
    server: ClassVar[str]
    own_url: ClassVar[str] = ""
    start: ClassVar[str] = "start the server, or omit the address to use {} directly"
    missing: ClassVar[str] = "is {!r} a model that this key may use?"
    timed_out: ClassVar[type[Exception]]
    unreachable: ClassVar[type[Exception]]
    refused: ClassVar[type[Exception]]
    failed: ClassVar[type[Exception]]

    def __init__(self, model: str, options: LLMOptions, key: Key | None) -> None:
        check_destination(key, options, self.own_url)
        self.spec = f"{self.provider_id}:{model}"
        self.model = model
        self.base_url = options.base_url or self.own_url
        host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        self.key_goes_to = f"the key in {key.name} goes to {host}" if key else ""
        self._key = key
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
        """Answer `prompt` with one request; errors as in `Provider.complete`."""
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

    def _found(self, name: str, reads: int | None, writes: int | None) -> Diagnosis:
        """Return the diagnosis for a known model, whose limits in tokens are `reads` and `writes`."""
        limits = f"; it reads up to {reads} tokens and writes up to {writes or 'an unknown number'}" if reads else ""
        return Diagnosis(True, (f"{self.server} answers at {self.base_url} and knows {name}{limits}",))

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        """Send one request with the sampling parameters `sent`, and read the answer."""
        raise NotImplementedError

    def _look_up(self) -> Diagnosis:
        """Return what the server says about the model."""
        raise NotImplementedError

    def _refusal(self, error: Any, sent: Mapping[str, Any]) -> ProviderError:
        """Return the exception for an error status: `_fault`, or a more specific one, such as for exhausted credit."""
        raise NotImplementedError

    @contextmanager
    def _translated_errors(self, sent: Mapping[str, Any]) -> Iterator[None]:
        """Raise a PolicygenError instead of the SDK's exceptions and those that reading a malformed answer raises."""
        try:
            yield
        except PolicygenError:
            raise
        except self.timed_out:
            seconds = self._options.timeout_seconds
            raise TransientProviderError(f"{self.server} gave no answer within {seconds:g} s") from None
        except self.unreachable as error:
            raise self._connection_fault(error) from None
        except self.refused as error:
            raise self._refusal(error, sent) from None
        except self.failed as error:
            raise self._unreadable(f"{type(error).__name__}: {error}") from None
        except _MALFORMED:
            raise self._unreadable(f"it lacks a required field ({self.missing.format(self.model)})") from None

    def _fault(
        self, status: int, message: str, response: httpx2.Response | None, wait: float | None = None
    ) -> ProviderError:
        """Return the exception for an error status; it is transient for 408, 409, 425, 429 and 5xx.

        Args:
            wait: the wait in s that the body asks for; if None, that of the response's headers.
        """
        said = self._quoted(message)
        if status in (401, 403):
            which = f"the key in {self._key.name}" if self._key else "a request without a key"
            return ProviderError(f"{self.server} refused {which} ({status}): {said}")
        inside = response is not None and response.extensions.get(INSIDE_200)
        if status == 404 or (inside and status == 400):  # some servers answer a wrong path this way
            said += f" ({self.missing.format(self.model)})"
        sentence = f"{self.server} answered {'with an error' if inside else status}: {said}"
        if status in _TRANSIENT or status >= 500:
            wait = requested_wait(response.headers) if wait is None and response is not None else wait
            return TransientProviderError(sentence, wait)
        return ProviderError(sentence)

    def _connection_fault(self, error: BaseException) -> ProviderError:
        """Return the exception for an unreachable server.

        It is final if this machine refuses the connection or the answer cannot be decoded, else transient.
        """
        links: list[BaseException] = []
        link: BaseException | None = error
        while link is not None and link not in links:
            links.append(link)
            link = link.__cause__ or link.__context__
        if any(isinstance(one, httpx2.DecodingError) for one in links):
            return self._unreadable(str(links[-1]))
        host = urlsplit(self.base_url).hostname or self.base_url
        local = is_local(host) or host == "host.docker.internal"
        if local and any(isinstance(one, ConnectionRefusedError) for one in links):
            return ProviderError(f"no server answers at {self.base_url}: {self.start.format(self.server)}")
        cause = self._quoted(next((str(one) for one in reversed(links) if str(one)), type(error).__name__))
        variable, proxy = proxy_for(self.base_url)
        if proxy is not None and (at := urlsplit(proxy).netloc.rpartition("@")[2]):
            cause += f" (through the proxy {at}; if it is wrong, correct or unset {variable})"
        return TransientProviderError(f"{self.server} at {self.base_url} cannot be reached: {cause}")

    def _unreadable(self, why: str) -> ProviderError:
        """Return the exception for a malformed answer: final, because a retry would cost again."""
        return ProviderError(f"the answer of {self.server} at {self.base_url} cannot be read: {self._quoted(why)}")

    def _quoted(self, message: str) -> str:
        """Shorten a server's message to one line, without the key."""
        message = message[:_LONGEST_READ]
        line = shown(" ".join((self._key.redact(message) if self._key else message).split())).rstrip(".")
        return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " ..."
