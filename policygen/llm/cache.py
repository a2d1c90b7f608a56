"""A cache of replies: a request that an earlier run with the same settings has sent is not sent again.

The cache is an SQLite file of JSON values; reading an untrusted one runs no code. It holds replies and digests of
requests, but no keys and no messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from policygen.errors import UsageError, reason_of
from policygen.files import json_line
from policygen.llm.base import MOST_TOKENS, LLMOptions, Provider
from policygen.llm.messages import Prompt, Reply, cut_to
from policygen.llm.transport import LONGEST_BODY
from policygen.outgoing import redacted

_FILE = "replies.sqlite"
_TABLE = "CREATE TABLE replies (digest TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"
_SCHEMA = "SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL"
_LOCK_TIMEOUT = 30.0  # seconds to wait for another process's lock
_MOST_USD = 1e9  # upper limit of a reply's cost
_VERSION = 3  # increased when the definition of equal requests changes
# Options that change replies.
_SETTINGS = ("temperature", "max_output_tokens", "reasoning_effort", "extra_body")
_REPLY = TypeAdapter(Reply)
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # the last bytes of a journal that names another file
_FAULTS = (sqlite3.Error, OSError, ValueError)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key of a request: the limit of its reply, and a digest of everything that affects the reply."""

    max_output_tokens: int
    digest: str


def cache_key(provider: Provider, options: LLMOptions, prompt: Prompt, seed: int) -> CacheKey:
    """Return the cache key of a request.

    Args:
        seed: the run's seed. Runs with different seeds share no replies and stay independent samples.
    """
    attempt, repair = prompt.key or (0, 0)
    request = {
        **{name: getattr(options, name) for name in _SETTINGS},
        **{"spec": provider.spec, "model": provider.model, "base_url": getattr(provider, "base_url", options.base_url)},
        **{"seed": seed, "attempt": attempt, "request": repair, "request_seed": prompt.seed},
        "messages": [asdict(message) for message in prompt.messages],
    }
    text = redacted(json.dumps([_VERSION, request], sort_keys=True))
    return CacheKey(options.max_output_tokens, hashlib.sha256(text.encode(errors="replace")).hexdigest())


class Cache:
    """The cached replies in a folder, which several processes may use at a time.

    After the first fault during a run it warns once, and returns and stores nothing more.

    Raises UsageError if the folder cannot be written, or its content is not a cache.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / _FILE
        self._broken = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._connection():
                pass
        except _FAULTS as error:
            raise UsageError(
                f"--cache {folder}: {self.path} cannot be used ({reason_of(error)}); "
                "delete the folder, or choose another"
            ) from None

    def get(self, key: CacheKey) -> Reply | None:
        """Return the stored reply with its original cost, or None."""
        return self._run_or_disable(lambda: self._get(key))

    def put(self, key: CacheKey, reply: Reply) -> None:
        """Store a reply unless one is stored already."""
        row = (key.digest, json_line(asdict(reply)))

        def work() -> None:
            with self._connection() as connection, connection:
                connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", row)

        self._run_or_disable(work)

    def _get(self, key: CacheKey) -> Reply | None:
        with self._connection() as connection:
            query = "SELECT reply FROM replies WHERE digest = ? AND length(reply) <= ?"
            row = connection.execute(query, (key.digest, LONGEST_BODY)).fetchone()
            try:
                return _reply(row[0], key.max_output_tokens) if row is not None else None
            except ValueError as error:
                with connection:
                    connection.execute("DELETE FROM replies WHERE digest = ?", (key.digest,))
                warnings.warn(f"a reply in {self.path} is damaged; its request is sent again: {error}", stacklevel=4)
                return None

    def _run_or_disable(self, work: Callable[[], _T]) -> _T | None:
        """Return the result of `work`; after the first fault, warn and never use the cache again."""
        if not self._broken:
            try:
                return work()
            except _FAULTS as error:
                self._broken = True
                warnings.warn(
                    f"{self.path} cannot be used any more ({reason_of(error)}); the run continues without it",
                    stacklevel=3,
                )
        return None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one operation: none stays open across a fork or keeps a lock."""
        for path in _files(self.folder):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise ValueError(f"{path.name} is a link, or not a plain file")
        _check_journal(self.folder / f"{_FILE}-journal")
        with closing(sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            if not (schema := connection.execute(_SCHEMA).fetchall()):
                with connection:
                    connection.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
                schema = connection.execute(_SCHEMA).fetchall()
            # An untrusted file could have triggers, or a view in place of the table.
            if schema != [("table", _TABLE)]:
                raise ValueError("it is not a cache of policygen")
            yield connection


def _files(folder: Path) -> list[Path]:
    """Return the cache's file and SQLite's files beside it."""
    return [folder / f"{_FILE}{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]


def _check_journal(path: Path) -> None:
    """Raise ValueError for a journal that names another file (a super-journal), which SQLite would delete.

    The cache never writes one. See "Super-Journals" in SQLite's description of its atomic commit.
    """
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
        if file.read() == _SUPER_JOURNAL:
            raise ValueError(f"{path.name} names a file outside the cache")


def _reply(text: object, tokens: int) -> Reply:
    """Read a cached reply, no longer than `tokens` allow; raise ValueError if it is damaged."""
    try:
        reply = _REPLY.validate_json(text if isinstance(text, str) else "", strict=True)
    except ValidationError:
        raise ValueError("it is not a reply") from None
    if any(count is not None and not 0 <= count <= MOST_TOKENS for count in (reply.tokens_in, reply.tokens_out)):
        raise ValueError("its token counts are impossible")
    if reply.usd is not None and not 0 <= reply.usd <= _MOST_USD:  # also true for NaN
        raise ValueError("its cost is impossible")
    return cut_to(replace(reply, seconds=0.0, cached=True), tokens)
