"""Who may ask: the user's own browser on this machine, for these pages; other hosts' pages are refused.

A page of another site can make a browser send requests here, and can give its own name the address of this machine
(DNS rebinding). So a request must name this machine as its host, and whatever changes something must come from a page
of this very server, which browsers say in `Origin`. There is no login, and nothing listens beyond loopback.
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
    """Lets only such requests through to `app`, and adds to every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        bare = NAMES if port == 80 else ()  # browsers leave out the port that http has anyway
        self._hosts = frozenset((*(f"{name}:{port}" for name in NAMES), *bare))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks anything else
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        reason = self._refused(scope["method"], Headers(scope=scope))
        app: ASGIApp = PlainTextResponse(reason, 403) if reason else self._app
        await app(scope, receive, guarded)

    def _refused(self, method: str, headers: Headers) -> str:
        """Why a request is refused; empty where it is not."""
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site", "none")
        if host not in self._hosts:
            return "This server answers only to the name of this machine."
        if origin is not None and origin not in {f"http://{known}" for known in self._hosts}:
            return "This server answers no page of another site."
        if method not in _READING and origin != f"http://{host}":
            return "A change must come from a page of this server."
        # What says `cross-site` is a page elsewhere; the user may still follow a link from there.
        follows = method in _READING and headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not (follows and headers.get("sec-fetch-dest") == "document"):
            return "This server answers no page of another site."
        return ""
