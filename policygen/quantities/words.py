"""Texts as columns of numbers: each column holds three bytes of a text in UTF-8.

In this form texts are stored and sent like other observations, exactly even in single precision, and numpy evaluates
`contains(NAME, "phrase")` for many rows in one call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BYTES = 3  # bytes per column: integers below 2**24 are exact in single precision
PHRASE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 .,:;!?'()/_+-]{0,58}[A-Za-z0-9.,:!?')+-])?")


def column_of(name: str, index: int) -> str:
    """Return the name of a text's column: `text[0]`; expressions cannot contain it, so none reads the column."""
    return f"{name}[{index}]"


def columns_for(characters: int, bytes_each: int) -> int:
    """Return the number of columns for a text of so many characters, each of at most `bytes_each` bytes."""
    return -(-characters * bytes_each // BYTES)


def encoded(text: str, columns: int) -> npt.NDArray[np.float64]:
    """Encode a text as a row of `columns` numbers, padded with zeros.

    Raises:
        TypeError, ValueError: `text` is not a string; it has more bytes than the columns hold.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text, but the observation holds a {type(text).__name__}")
    data = text.encode("utf-8", "replace")
    if len(data) > BYTES * columns:
        raise ValueError(f"a text has {len(data):,} bytes; the observation space has room for {BYTES * columns:,}")
    triples = np.frombuffer(data.ljust(BYTES * columns, b"\0"), np.uint8).reshape(columns, BYTES)
    return np.asarray(triples @ np.array([65536.0, 256.0, 1.0]), np.float64)


def decoded(row: npt.ArrayLike) -> str:
    """Return the text of a row written by `encoded`."""
    return _bytes(row).rstrip(b"\0").decode("utf-8", "replace")


def contains_batch(columns: Sequence[npt.NDArray[Any]], phrase: str) -> npt.NDArray[np.float64]:
    """Return 1 for each of n texts that contains the phrase, else 0; the columns have shape (n,).

    Upper and lower case are the same.
    """
    table = np.ascontiguousarray(np.stack(columns, axis=1), dtype=">u4")  # (n, columns), the highest byte is 0
    data = np.ascontiguousarray(table.view(np.uint8).reshape(len(table), len(columns), 4)[:, :, 1:])
    texts = data.reshape(len(table), -1).view(f"S{BYTES * len(columns)}").reshape(len(table))
    return np.asarray(np.strings.find(np.strings.lower(texts), phrase.lower().encode()) >= 0, np.float64)


def contains_scalar(row: Sequence[float], phrase: str) -> float:
    """Apply `contains_batch` to one text, given as plain floats."""
    return float(phrase.lower().encode() in _bytes(row).lower())


def _bytes(row: npt.ArrayLike) -> bytes:
    with np.errstate(invalid="ignore"):  # NaN: the row is not a text, and contains no phrase
        table = np.asarray(row).astype(">u4")
    return table.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
