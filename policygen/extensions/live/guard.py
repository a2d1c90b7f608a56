"""Request checks: only the user's own browser on this machine may use these pages.

A page of another site can make a browser send requests here, and can resolve its own name to this machine (DNS
rebinding). A request must therefore name this machine as its host, and a change must come from a page of this server
(`Origin` header). There is no login, and the server listens on loopback only.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost", "[::1]")
RULES = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": RULES,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING = ("GET", "HEAD")


class Guard:
    """Forwards permitted requests to `app`, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        bare = NAMES if port == 80 else ()  # browsers omit the default port of http
        self._hosts = frozenset((*(f"{name}:{port}" for name in NAMES), *bare))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        reason = self._refused(scope["method"], Headers(scope=scope))
        app: ASGIApp = PlainTextResponse(reason, 403) if reason else self._app
        await app(scope, receive, guarded)

    def _refused(self, method: str, headers: Headers) -> str:
        """Return the reason why a request is refused; empty if it is permitted."""
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site", "none")
        if host not in self._hosts:
            return "This server answers only under the name of this machine."
        if origin is not None and origin not in {f"http://{known}" for known in self._hosts}:
            return "This server does not answer pages of other sites."
        if method not in _READING and origin != f"http://{host}":
            return "A change must come from a page of this server."
        # `cross-site` marks requests by pages of other sites; a link that the user follows is permitted.
        follows = method in _READING and headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not (follows and headers.get("sec-fetch-dest") == "document"):
            return "This server does not answer pages of other sites."
        return ""
