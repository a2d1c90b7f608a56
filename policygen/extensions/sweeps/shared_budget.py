"""The shared budget of a sweep: one account on disk, and a ledger that checks the account before it spends."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from policygen.errors import LogbookError, PolicygenError
from policygen.extensions.sweeps.plan import Limits
from policygen.files import read_plain, write_atomically
from policygen.llm.messages import Prompt, Reply
from policygen.runs.budget import Hold, Ledger, Price, within
from policygen.runs.logbook import Logbook

FILE = "spent.json"
SECONDS_TO_WAIT = 60.0


class SharedBudgetExhausted(PolicygenError):
    """The next request could exceed what a sweep may spend; its run is left as it is, to go on when there is more."""


class SharedBudget:
    """The account of a sweep. Processes share it: what may be spent is set aside before a request is sent.

    An account holds for every cell its calls, tokens and USD so far (None: unknown), and what is set aside.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.limits = limits
        self._path = folder / FILE
        self._lock = FileLock(folder / ".spent.lock", timeout=SECONDS_TO_WAIT)

    def open(self, spent: dict[str, tuple[int, int, float | None]]) -> None:
        """Begin with what cells have spent, as their run folders say; nothing is set aside.

        Raises:
            LogbookError: the account cannot be written.
        """
        with self._lock:
            self._write({key: self._entry(*amounts) for key, amounts in spent.items()})

    def call(self, key: str) -> None:
        """Count one request of a cell, before it is sent.

        Raises:
            SharedBudgetExhausted: it would be one too many.
        """
        with self._lock:
            account = self._read()
            limit = self.limits.max_calls
            if limit is not None and sum(entry["calls"] for entry in account.values()) >= limit:
                raise SharedBudgetExhausted(f"all {limit:,} calls of the sweep (--max-calls) are used")
            account[key]["calls"] += 1
            self._write(account)

    def hold(self, key: str, wanted: Hold, price: Price) -> Hold:
        """Set aside what the request of a cell may cost at most, in place of what was set aside for it before.

        Raises:
            SharedBudgetExhausted: it could exceed what is left, or a price is unknown.
        """
        with self._lock:
            account = self._read()
            account[key] |= {"aside_tokens": 0, "aside_usd": 0.0}
            entries = account.values()
            tokens = sum(entry["tokens"] + entry["aside_tokens"] for entry in entries)
            unknown = any(entry["usd"] is None for entry in entries)
            usd = None if unknown else sum(entry["usd"] + entry["aside_usd"] for entry in entries)
            hold = within(
                self.limits, (tokens, usd), wanted, price, scope=" of the sweep", refusal=SharedBudgetExhausted
            )
            account[key] |= {"aside_tokens": hold.tokens, "aside_usd": hold.usd}
            self._write(account)
        return hold

    def settle(self, key: str, calls: int, tokens: int, usd: float | None) -> None:
        """Say what a cell has spent by now; nothing is set aside for it any more."""
        with self._lock:
            account = self._read()
            account[key] = self._entry(calls, tokens, usd)
            self._write(account)

    def _entry(self, calls: int, tokens: int, usd: float | None) -> dict[str, Any]:
        return {"calls": calls, "tokens": tokens, "usd": usd, "aside_tokens": 0, "aside_usd": 0.0}

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            account: dict[str, dict[str, Any]] = json.loads(read_plain(self._path))
        except (FileNotFoundError, ValueError):
            raise LogbookError(f"{self._path} was removed or changed while the sweep ran; resume the sweep") from None
        return account

    def _write(self, account: dict[str, dict[str, Any]]) -> None:
        write_atomically(self._path, json.dumps(account))


class SharedLedger(Ledger):
    """A run's ledger that also asks the sweep's account.

    Args:
        own: the ledger of the run as it stands.
    """

    def __init__(self, own: Ledger, shared: SharedBudget, key: str) -> None:
        super().__init__(**{name: getattr(own, name) for name in Ledger.__dataclass_fields__ if name[0] != "_"})
        self._estimate_ratio = own._estimate_ratio
        self._shared = shared
        self._key = key
        self.settle()

    def settle(self) -> None:
        """Tell the sweep what the run has spent."""
        self._shared.settle(self._key, self.calls, self.tokens_in + self.tokens_out, self.usd)

    def charge_call(self) -> None:
        """Count one request to the model, before it is sent; see `Ledger` and `SharedBudget` for what they raise."""
        super().charge_call()
        try:
            self._shared.call(self._key)
        except SharedBudgetExhausted:
            self.calls -= 1
            raise

    def _within(self, wanted: Hold, price: Price) -> Hold:
        return self._shared.hold(self._key, super()._within(wanted, price), price)

    def release(self, hold: Hold) -> None:
        """Give back what was held for a request that was not answered, here and in the sweep."""
        super().release(hold)
        self.settle()

    def charge_reply(self, prompt: Prompt, reply: Reply, hold: Hold | None = None) -> tuple[int, int]:
        """Add a reply's tokens, cost and time, and settle with the sweep."""
        tokens = super().charge_reply(prompt, reply, hold)
        self.settle()
        return tokens


def spent_in(folder: Path) -> tuple[int, int, float | None] | None:
    """Calls, tokens and USD that a run has spent on a language model; None where it has none, or was never begun.

    Raises:
        LogbookError: the run is damaged.
    """
    logbook = Logbook(folder)
    summary = logbook.summary()
    if summary is not None:
        return (summary.llm_calls, summary.tokens_in + summary.tokens_out, summary.usd) if summary.llm_calls else None
    if not (folder / "transcript.jsonl").exists():
        return None
    ledger = Ledger(logbook.config())
    asked = False
    for exchange in logbook.exchanges():
        ledger.calls += exchange.requests
        reply = getattr(exchange, "reply", None)
        asked = asked or reply is None or reply.model != "builtin"
        if reply is not None:
            ledger.charge_reply(exchange.prompt, reply)
    return (ledger.calls, ledger.tokens_in + ledger.tokens_out, ledger.usd) if asked else None


def spent_so_far(folder: Path) -> dict[str, tuple[int, int, float | None]]:
    """Return the spending of each cell of a sweep, by folder name; damaged runs are left out, as they do not go on."""
    found = {}
    for settings in sorted(folder.glob("*/config.toml")):
        with suppress(LogbookError):
            spent = spent_in(settings.parent)
            if spent is not None:
                found[settings.parent.name] = spent
    return found
