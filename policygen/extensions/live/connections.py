"""Connections of browsers: those that ask nothing are closed, so that they keep nobody out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64  # connections at a time
PATIENCE = 10.0  # seconds


class Connection(H11Protocol):
    """A connection that is closed where no whole request comes in PATIENCE seconds, or earlier to make room."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are MOST connections, close the one that has waited longest."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._last = self.cycle
        self._timer = self.loop.call_later(PATIENCE, self._look)
        waiting = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._waits]
        if len(self.connections) >= MOST and waiting:
            longest = min(waiting, key=lambda one: one._since)
            self.connections.discard(longest)  # at once: more may come before it is told that it is closed
            longest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """Whether it is the browser's turn: no request has begun, the last one is answered, or its body is not here."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        if self._waits and self.cycle is self._last:  # still the request of PATIENCE seconds ago
            self.transport.close()
            return
        self._last = self.cycle
        self._timer = self.loop.call_later(PATIENCE, self._look)
