"""Convert faults of a model's server or connection to exceptions for the retry policy."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from policygen.errors import ProviderError, TransientProviderError
from policygen.llm.keys import Key
from policygen.outgoing import shown

_TRANSIENT = frozenset({408, 409, 425, 429})
_LONGEST_MESSAGE = 600
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status: its message, and the wait in s that the server asked for, if it did."""

    status: int
    message: str
    wait: float | None = None


def server_fault(server: str, refusal: Refusal, *, key: Key | None) -> ProviderError:
    """Return the exception for an answer with an error status, transient if the status is."""
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

    A refused connection on this machine is final, and `start` says how to start the server; elsewhere it is transient.
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
    """Return an HTTP status, also from text; 500 if it is not one."""
    try:
        return int(str(code))
    except ValueError:
        return 500


def timeout_fault(server: str, seconds: float) -> TransientProviderError:
    """Return the exception for a request without answer within `seconds`."""
    return TransientProviderError(f"{server} gave no answer within {seconds:g} s")


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the server's requested wait in s (`Retry-After-Ms`, or `Retry-After` as number or date), or None.

    Source: RFC 9110, section 10.2.3.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def rejected_parameter(message: str, sent: Collection[str], named: str | None = None) -> str | None:
    """Return which of the parameters `sent` a 400 refuses: the one the server `named`, else the first in its message.

    None if it names none of them, or refuses the value's range and not the parameter.
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


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
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
