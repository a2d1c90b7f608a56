"""Connections of browsers; idle ones are closed, so that they cannot block others."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64  # open connections
PATIENCE = 10.0  # seconds


class Connection(H11Protocol):
    """A connection that closes if no complete request arrives within PATIENCE seconds, or earlier to make room."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request; if MOST connections are open, close the one waiting longest."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._last = self.cycle
        self._timer = self.loop.call_later(PATIENCE, self._look)
        waiting = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._waits]
        if len(self.connections) >= MOST and waiting:
            longest = min(waiting, key=lambda one: one._since)
            self.connections.discard(longest)  # at once, because more may come before the close arrives
            longest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """Whether the browser has to send: no request yet, the last one answered, or its body incomplete."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        if self._waits and self.cycle is self._last:  # no new request within PATIENCE seconds
            self.transport.close()
            return
        self._last = self.cycle
        self._timer = self.loop.call_later(PATIENCE, self._look)
