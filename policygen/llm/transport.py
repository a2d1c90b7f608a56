"""The HTTP client of all providers: bounded in time and size, without redirects, and with the user's proxy."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import urllib.request
from concurrent.futures import Future, wait
from typing import Any
from urllib.parse import urlsplit

import httpx2

from policygen.errors import UsageError
from policygen.outgoing import hide_login

LONGEST_BODY = 16 * 2**20
"""Most bytes of a response body: over a hundred times those of a reply of some thousand tokens."""

INSIDE_200 = "error in a body with status 200"
"""The key among a response's extensions that tells whether its error arrived with status 200."""

_SEARCHED = 2_000  # characters of an error message that are searched
# Words in messages about temporary errors.
_PASSING = re.compile(
    r"rate.?limit|too many requests|overloaded|capacity|busy|unavailable|tempora|timed? ?out|try again|internal.?server"
    r"|server.?error|bad gateway|upstream",
    re.IGNORECASE,
)


class BodyTooLong(httpx2.DecodingError):
    """A response body has more than LONGEST_BODY bytes."""


class BoundedClient(httpx2.Client):
    """A client for the providers' SDKs whose requests end within `seconds`, whatever the server does.

    The timeouts of httpx2 limit each read, so a server that drips bytes could hold a request forever. Here each request
    has its own connection and daemon thread; when its time is up, the connection is shut down, which ends the thread.
    Redirects are not followed, because the key would be sent to their target. An error that arrives with status 200
    gets a status of its own, see `status_of_body`.

    Args:
        seconds: time limit of a request.
        base_url: the address of all requests; a proxy is used unless the address is on this machine.

    Raises UsageError if an environment variable names an unusable proxy or certificate file.
    """

    def __init__(self, seconds: float, base_url: str) -> None:
        variable, proxy = proxy_for(base_url)
        try:
            super().__init__(
                timeout=seconds,
                follow_redirects=False,
                limits=httpx2.Limits(max_keepalive_connections=0),
                verify=_certificates(),
                proxy=proxy,
                trust_env=False,
            )
        except ImportError:
            raise UsageError(
                f"{variable} names a SOCKS proxy, which needs another package: pip install socksio; or unset {variable}"
            ) from None
        except (ValueError, httpx2.InvalidURL):
            raise UsageError(
                f"{variable} is not the address of a proxy such as http://127.0.0.1:7890; correct or unset it"
            ) from None
        self._seconds = seconds

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the whole response; raise httpx2.ReadTimeout after `seconds`, BodyTooLong, or an error of httpx2."""
        connection, answer = _Connection(), Future[httpx2.Response]()
        request.extensions = {**request.extensions, "trace": connection.note}
        request.headers["accept-encoding"] = "gzip, deflate"  # other encodings can unpack a few bytes to gigabytes
        options["stream"], options["follow_redirects"] = True, False
        send = super().send

        def work() -> None:
            try:
                answer.set_result(_read_body(send(request, **options)))
            except BaseException as error:  # re-raised in the waiting thread
                answer.set_exception(error)

        threading.Thread(target=work, daemon=True, name="request to a model").start()
        in_time = False
        try:
            in_time = bool(wait([answer], self._seconds).done)
        finally:
            if not in_time:
                connection.abandon()
        if not in_time:
            raise httpx2.ReadTimeout(f"no whole answer within {self._seconds:g} s", request=request)
        response = answer.result()
        self.cookies.clear()  # no server should recognise a run
        return response


class _Connection:
    """The connection of one request."""

    def __init__(self) -> None:
        self._abandoned = False
        self._socket: socket.socket | None = None

    def note(self, event: str, info: dict[str, Any]) -> None:
        """Record the socket, or raise if the request was abandoned; httpcore2 calls this for each event."""
        stream = info.get("return_value")
        if event.endswith(("connect_tcp.complete", "start_tls.complete")) and stream is not None:
            self._socket = stream.get_extra_info("socket")
        if self._abandoned and event.endswith(".started") and "close" not in event:
            raise httpx2.ReadTimeout("the request was abandoned")

    def abandon(self) -> None:
        """Shut down the connection, which ends the thread of its request."""
        self._abandoned = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown, which would change the object while the other thread uses it.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _read_body(response: httpx2.Response) -> httpx2.Response:
    """Return the response with its decoded body."""
    try:
        chunks, length = [], 0
        for chunk in response.iter_bytes():
            chunks.append(chunk)
            length += len(chunk)
            if length > LONGEST_BODY:
                raise BodyTooLong(f"the answer is longer than {LONGEST_BODY // 2**20} MB")
    finally:
        response.close()
    transfer_headers = ("content-encoding", "content-length", "transfer-encoding")
    body, status = b"".join(chunks), response.status_code
    inside = status_of_body(body) if status == 200 else None
    return httpx2.Response(
        inside[0] if inside else status,
        headers=[(k, v) for k, v in response.headers.multi_items() if k.lower() not in transfer_headers],
        content=inside[1] if inside else body,
        request=response.request,
        extensions={"http_version": response.extensions.get("http_version", b"HTTP/1.1"), INSIDE_200: bool(inside)},
    )


def status_of_body(body: bytes) -> tuple[int, bytes] | None:
    """Return the status and the body of an error inside a body with status 200; None if there is no error.

    Routers report a fault of the server behind them like this, at the top level or in the first choice, and some local
    servers a wrong path. The status is the error's own code; without one, it is 503 if the message sounds temporary,
    else 400.
    """
    if b'"error"' not in body:
        return None
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    error, choices = answer.get("error"), answer.get("choices")
    if not error and isinstance(choices, list) and choices and isinstance(choices[0], dict):
        error = choices[0].get("error")
    if not error:
        return None
    details = error if isinstance(error, dict) else {}
    stated = next((code for name in ("code", "status") if (code := _error_status(details.get(name)))), None)
    passing = _PASSING.search(json.dumps(error)[:_SEARCHED])
    return stated or (503 if passing else 400), json.dumps({"error": error}).encode()


def _error_status(code: object) -> int | None:
    """Return a code from 400 to 599, a number or a string, as an int; None for anything else."""
    found = re.fullmatch(r"[45]\d\d", str(code))
    return int(found[0]) if found else None


def proxy_for(url: str) -> tuple[str, str | None]:
    """Return the proxy for an address, or None, after the name of the environment variable that sets it.

    An address on this machine has no proxy. NO_PROXY is interpreted by Python's `urllib.request`.
    """
    parts = urlsplit(url)
    if is_local(parts.hostname or ""):
        return "", None
    proxies = urllib.request.getproxies()
    for scheme in (parts.scheme, "all"):
        if (proxy := proxies.get(scheme)) and not urllib.request.proxy_bypass(parts.hostname or ""):
            hide_login(proxy if "://" in proxy else f"http://{proxy}")
            names = [name for name in os.environ if name.lower() == f"{scheme}_proxy" and os.environ[name]]
            named = next(iter(names), f"the system's {scheme} proxy")
            return named, proxy if "://" in proxy else f"http://{proxy}"
    return "", None


def is_local(host: str) -> bool:
    """Whether a host name means this machine."""
    if host in ("localhost", "0.0.0.0") or host.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _certificates() -> ssl.SSLContext:
    try:
        return httpx2.create_ssl_context(trust_env=True)
    except OSError as error:
        file = os.environ.get("SSL_CERT_FILE")
        named = f"SSL_CERT_FILE={file} cannot be read" if file else "the certificates of this machine cannot be read"
        remedy = "correct or unset SSL_CERT_FILE" if file else "set SSL_CERT_FILE to a file that holds some"
        raise UsageError(f"{named} ({error.strerror or error}); {remedy}") from None
