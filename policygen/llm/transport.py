"""The HTTP client of all providers: bounded in time and size, without redirects."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import Future, wait
from typing import Any

import httpx2

LONGEST_BODY = 16 * 2**20
"""Most bytes of a response body; a reply of some thousand tokens has less than one per cent of this."""


class BodyTooLong(httpx2.DecodingError):
    """The error for a response body of more than LONGEST_BODY bytes."""


class BoundedClient(httpx2.Client):
    """A client for the providers' SDKs whose requests end within `seconds`, whatever the server does.

    The timeouts of httpx2 bound each read, so a server that drips bytes could hold a request for ever. Here each
    request has its own connection and daemon thread. When the time is over, the connection is shut down, which ends the
    thread. Redirects are not followed, because the key would be sent to their target.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds, follow_redirects=False, limits=httpx2.Limits(max_keepalive_connections=0))
        self._seconds = seconds

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the whole response to `request`.

        Raises httpx2.ReadTimeout after `seconds`, BodyTooLong for a body beyond LONGEST_BODY, httpx2.DecodingError for
        a wrong encoding, and other errors of httpx2.
        """
        connection, answer = _Connection(), Future[httpx2.Response]()
        request.extensions = {**request.extensions, "trace": connection.note}
        request.headers["accept-encoding"] = "gzip, deflate"  # other encodings unpack a few bytes to gigabytes at once
        options["stream"], options["follow_redirects"] = True, False
        send = super().send

        def work() -> None:
            try:
                answer.set_result(_read_body(send(request, **options)))
            except BaseException as error:  # raised again in the waiting thread
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
        self.cookies.clear()  # servers must not recognise a run
        return response


class _Connection:
    """The connection of one request."""

    def __init__(self) -> None:
        self._abandoned = False
        self._socket: socket.socket | None = None

    def note(self, event: str, info: dict[str, Any]) -> None:
        """Record the connection, or raise if the request was abandoned; httpcore2 calls this for each event."""
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
                # Not SSLSocket.shutdown, which changes the object while the other thread uses it.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _read_body(response: httpx2.Response) -> httpx2.Response:
    """Return the response with its body, decoded; raise BodyTooLong if the body is too long."""
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
    return httpx2.Response(
        response.status_code,
        headers=[(k, v) for k, v in response.headers.multi_items() if k.lower() not in transfer_headers],
        content=b"".join(chunks),
        request=response.request,
        extensions={"http_version": response.extensions.get("http_version", b"HTTP/1.1")},
    )
