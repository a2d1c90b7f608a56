"""The one way a request goes to a model's server: bounded in time and size, and never on to another host."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import httpx2

LONGEST_BODY = 16 * 2**20
"""Bytes; a reply of some thousand tokens has less than one per cent of it."""


class Unreadable(httpx2.DecodingError):
    """An answer that arrived and is none."""


class BoundedClient(httpx2.Client):
    """A client for the providers' SDKs whose requests end within `seconds`, whatever the server does.

    The timeouts of httpx2 bound each read, so that a server which drips bytes holds a request for as long as it likes.
    Here a request runs in a thread of its own, which is left behind when the time is over: its connection is shut down,
    so that it ends as well, and it never keeps the process alive. Redirects are not followed, because the headers with
    the key would go along; each request has its own connection.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds, follow_redirects=False, limits=httpx2.Limits(max_keepalive_connections=0))
        self._seconds = seconds

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The whole response to `request`.

        Raises httpx2.ReadTimeout when the time is over, Unreadable for a body beyond LONGEST_BODY or a wrong encoding,
        and the other errors of httpx2.
        """
        exchange = _Exchange()
        request.extensions = {**request.extensions, "trace": exchange.note}
        request.headers["accept-encoding"] = "gzip, deflate"  # others unpack a few bytes to gigabytes at once
        options["stream"], options["follow_redirects"] = True, False
        send = super().send

        def work() -> None:
            try:
                exchange.response = _whole(send(request, **options))
            except BaseException as error:  # passed on to the thread that waits for it
                exchange.error = error
            finally:
                exchange.done.set()

        threading.Thread(target=work, daemon=True, name="request to a model").start()
        try:
            in_time = exchange.done.wait(self._seconds)
        finally:
            exchange.abandon()
        if not in_time:
            raise httpx2.ReadTimeout(f"no whole answer within {self._seconds:g} s", request=request)
        if exchange.error is not None:
            raise exchange.error
        assert exchange.response is not None
        self.cookies.clear()  # a server has no business in recognising a run
        return exchange.response


class _Exchange:
    """One request on its way: its connection, and what came of it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.response: httpx2.Response | None = None
        self.error: BaseException | None = None
        self._over = False
        self._socket: socket.socket | None = None

    def note(self, event: str, info: dict[str, Any]) -> None:
        """Keep the connection as soon as it is there (a trace function of httpcore2), and go no further when late."""
        stream = info.get("return_value")
        if event.endswith(("connect_tcp.complete", "start_tls.complete")) and stream is not None:
            self._socket = stream.get_extra_info("socket")
        if self._over and not self.done.is_set() and event.endswith(".started") and "close" not in event:
            raise httpx2.ReadTimeout("the request was given up")

    def abandon(self) -> None:
        """Wake the thread out of whatever it waits for; it finds the connection closed."""
        self._over = True
        if not self.done.is_set() and self._socket is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown, which changes the object under the other thread's hands.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _whole(response: httpx2.Response) -> httpx2.Response:
    """The same response with its body read, unless that is too long."""
    try:
        chunks, length = [], 0
        for chunk in response.iter_bytes():
            chunks.append(chunk)
            length += len(chunk)
            if length > LONGEST_BODY:
                raise Unreadable(f"the answer is longer than {LONGEST_BODY // 2**20} MB")
    finally:
        response.close()
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() != "content-encoding"]
    return httpx2.Response(
        response.status_code,
        headers=[
            (name, value) for name, value in headers if name.lower() not in ("content-length", "transfer-encoding")
        ],
        content=b"".join(chunks),
        request=response.request,
        extensions={"http_version": response.extensions.get("http_version", b"HTTP/1.1")},
    )
