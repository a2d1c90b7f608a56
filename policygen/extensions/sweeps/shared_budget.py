"""The shared budget of a sweep: one account on disk, and a ledger that checks it before each request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from policygen.errors import LogbookError, PolicygenError
from policygen.extensions.sweeps.plan import SweepLimits
from policygen.files import read_plain, write_atomically
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.runs.budget import Hold, Ledger, Price, affordable_hold
from policygen.runs.logbook import Logbook

FILE = "spent.json"
SECONDS_TO_WAIT = 60.0  # for the lock of the account


class SharedBudgetExhausted(PolicygenError):
    """The error for a request that could exceed the budget of a sweep; a larger budget lets the run be resumed."""


def open_account(folder: Path) -> None:
    """Write the account of a sweep, with the spending of each run so far; raise LogbookError if that is impossible."""
    spent = spent_so_far(folder)
    with _locked(_lock(folder)):
        write_atomically(folder / FILE, json.dumps({key: _entry(*amounts) for key, amounts in spent.items()}))


def _lock(folder: Path) -> FileLock:
    return FileLock(folder / ".spent.lock", timeout=SECONDS_TO_WAIT)


@contextmanager
def _locked(lock: FileLock) -> Iterator[None]:
    """Hold the lock of an account; raise LogbookError if another process does not release it in time."""
    try:
        lock.acquire()
    except Timeout:
        raise LogbookError(
            f"{lock.lock_file} stayed locked for {SECONDS_TO_WAIT:g} s by another process; stop that process, and "
            "resume the sweep"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _entry(calls: int, tokens: int, usd: float | None) -> dict[str, Any]:
    """Return the entry of a run, with nothing set aside; `usd` is None if a price is unknown."""
    return {"calls": calls, "tokens": tokens, "usd": usd, "aside_tokens": 0, "aside_usd": 0.0}


class SharedLedger(Ledger):
    """A run's ledger that also checks the account of its sweep, which all processes share.

    Before a request is sent, the most that it can cost is set aside in the account.

    Args:
        own: the ledger that this one continues.
        folder: the folder of the sweep.
        limits: the limits for all runs together.
        key: the name of the run in the account.
    """

    def __init__(self, own: Ledger, folder: Path, limits: SweepLimits, key: str) -> None:
        super().__init__(**{name: getattr(own, name) for name in Ledger.__dataclass_fields__ if name[0] != "_"})
        self._estimate_ratio = own._estimate_ratio
        self._limits, self._key = limits, key
        self._path, self._lock = folder / FILE, _lock(folder)
        self.settle()

    @contextmanager
    def _account(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Lock the account for a change; write it unless the change raises."""
        with _locked(self._lock):
            try:
                account = json.loads(read_plain(self._path))
            except (FileNotFoundError, ValueError):
                raise LogbookError(
                    f"{self._path} was removed or changed while the sweep ran; resume the sweep"
                ) from None
            yield account
            write_atomically(self._path, json.dumps(account))

    def settle(self) -> None:
        """Record the run's spending so far in the account, with nothing set aside."""
        with self._account() as account:
            account[self._key] = _entry(self.calls, self.tokens_in + self.tokens_out, self.usd)

    def charge_call(self) -> None:
        """Count one request to the model, before it is sent.

        Raises BudgetExhausted if it is one too many for the run, SharedBudgetExhausted if for the sweep.
        """
        super().charge_call()
        limit = self._limits.max_calls
        with self._account() as account:
            if limit is not None and sum(entry["calls"] for entry in account.values()) >= limit:
                self.calls -= 1
                raise SharedBudgetExhausted(f"all {limit:,} calls of the sweep (--max-calls) are used")
            account[self._key]["calls"] += 1

    def _within(self, wanted: Hold, price: Price) -> Hold:
        """Return `wanted` as far as both budgets allow it, and set its cost aside in place of the last request's."""
        wanted = super()._within(wanted, price)
        with self._account() as account:
            account[self._key] |= {"aside_tokens": 0, "aside_usd": 0.0}
            entries = account.values()
            tokens = sum(entry["tokens"] + entry["aside_tokens"] for entry in entries)
            unknown = any(entry["usd"] is None for entry in entries)
            usd = None if unknown else sum(entry["usd"] + entry["aside_usd"] for entry in entries)
            limits, error = (self._limits.max_tokens, self._limits.max_usd), SharedBudgetExhausted
            hold = affordable_hold(*limits, (tokens, usd), wanted, price, scope=" of the sweep", refusal=error)
            account[self._key] |= {"aside_tokens": hold.tokens, "aside_usd": hold.usd}
        return hold

    def release(self, hold: Hold) -> None:
        """Give back what was set aside for a request that was not answered, here and in the account."""
        super().release(hold)
        self.settle()

    def charge_reply(self, prompt: Prompt, reply: Reply, hold: Hold | None = None) -> tuple[int, int]:
        """Add a reply's tokens, cost and time, and record them in the account; return the tokens, in and out."""
        tokens = super().charge_reply(prompt, reply, hold)
        self.settle()
        return tokens


def spent_so_far(folder: Path) -> dict[str, tuple[int, int, float | None]]:
    """Return the calls, tokens and USD of each run of a language model, by folder name, without damaged runs."""
    found = {}
    for settings in sorted(folder.glob("*/config.toml")):
        with suppress(LogbookError):
            if (spent := _spent_in(Logbook(settings.parent))) is not None:
                found[settings.parent.name] = spent
    return found


def _spent_in(logbook: Logbook) -> tuple[int, int, float | None] | None:
    """Return the calls, tokens and USD of a run; None if it asked no language model."""
    summary = logbook.summary()
    if summary is not None:
        return (summary.llm_calls, summary.tokens_in + summary.tokens_out, summary.usd) if summary.llm_calls else None
    if not (logbook.folder / "transcript.jsonl").exists():
        return None
    ledger = Ledger(logbook.config())
    used_model = False
    for exchange in logbook.transcript.exchanges():
        ledger.calls += exchange.requests
        reply = getattr(exchange, "reply", None)
        used_model = used_model or reply is None or reply.model != NO_MODEL
        if reply is not None:
            ledger.charge_reply(exchange.prompt, reply)
    return (ledger.calls, ledger.tokens_in + ledger.tokens_out, ledger.usd) if used_model else None
