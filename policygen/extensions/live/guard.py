"""Protection of the server from pages of other sites and from idle connections.

A page of another site can make a browser send requests here, and can resolve its own name to this machine (DNS
rebinding). The host that a request names must therefore be one of `HOSTS`, and a change must come from a page of this
server (`Origin` header). There is no login; the server listens on loopback only.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
REQUEST_TIMEOUT = 10.0  # seconds
HOSTS = ("127.0.0.1", "localhost", "[::1]")
CONTENT_SECURITY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING = ("GET", "HEAD")


class Guard:
    """An ASGI application that forwards permitted requests to `app`, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        bare = HOSTS if port == 80 else ()  # browsers omit the default port of http
        self._hosts = frozenset((*(f"{name}:{port}" for name in HOSTS), *bare))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        reason = self._reason_to_refuse(scope["method"], Headers(scope=scope))
        app: ASGIApp = PlainTextResponse(reason, 403) if reason else self._app
        await app(scope, receive, guarded)

    def _reason_to_refuse(self, method: str, headers: Headers) -> str:
        """Return why a request is refused; empty if it is permitted."""
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site", "none")
        if host not in self._hosts:
            return "This server answers only as localhost, 127.0.0.1 or [::1]: open one of these addresses."
        if origin is not None and origin not in {f"http://{known}" for known in self._hosts}:
            return "This server does not answer pages of other sites."
        if method not in _READING and origin != f"http://{host}":
            return "A change must come from a page of this server."
        # `cross-site` marks requests by pages of other sites; a link that the user follows is permitted.
        follows = method in _READING and headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not (follows and headers.get("sec-fetch-dest") == "document"):
            return "This server does not answer pages of other sites."
        return ""


class Connection(H11Protocol):
    """A connection that is closed if no complete request arrives within REQUEST_TIMEOUT, or earlier to make room."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; if MOST_CONNECTIONS connections are open, close the idle one that is oldest."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._last = self.cycle
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._close_if_idle)
        waiting = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._is_idle]
        if len(self.connections) >= MOST_CONNECTIONS and waiting:
            longest = min(waiting, key=lambda one: one._since)
            self.connections.discard(longest)  # at once, because more may come before the close arrives
            longest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        """Whether the browser has to send something: no request is under way, or the body of one is incomplete."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_if_idle(self) -> None:
        if self._is_idle and self.cycle is self._last:  # no new request within REQUEST_TIMEOUT seconds
            self.transport.close()
            return
        self._last = self.cycle
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._close_if_idle)
