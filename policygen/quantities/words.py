"""Texts in rows of numbers: a text is a run of columns that hold three bytes of its UTF-8 form each.

So it is observed, kept, saved and sent to other processes as numbers are, exactly even in single precision, and
`contains(NAME, "phrase")` of many rows is one search of numpy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BYTES = 3  # a column: whole numbers below 2**24 are exact in single precision
PHRASE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 .,:;!?'()/_+-]{0,58}[A-Za-z0-9.,:!?')+-])?")


def column_of(name: str, index: int) -> str:
    """The name of a column of a text; no name of the expression language, so that none reads it as a number."""
    return f"{name}[{index}]"


def columns_for(characters: int, bytes_each: int) -> int:
    """How many columns hold every text of so many characters."""
    return -(-characters * bytes_each // BYTES)


def encoded(text: str, columns: int) -> npt.NDArray[np.float64]:
    """A text as a row of `columns` numbers, filled up with zeros.

    Raises:
        TypeError: it is no text.
        ValueError: it does not fit.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text is observed, and there is a {type(text).__name__} in its place")
    data = text.encode("utf-8", "replace")
    if len(data) > BYTES * columns:
        raise ValueError(f"a text has {len(data):,} bytes; the observation space has room for {BYTES * columns:,}")
    triples = np.frombuffer(data.ljust(BYTES * columns, b"\0"), np.uint8).reshape(columns, BYTES)
    return np.asarray(triples @ np.array([65536.0, 256.0, 1.0]), np.float64)


def decoded(row: npt.ArrayLike) -> str:
    """The text that a row holds; see `encoded`."""
    return _bytes(row).rstrip(b"\0").decode("utf-8", "replace")


def contains_batch(columns: Sequence[npt.NDArray[Any]], phrase: str) -> npt.NDArray[np.float64]:
    """1 for each of n texts, given as columns of shape (n,), that has the phrase, else 0; capitals do not count."""
    table = np.ascontiguousarray(np.stack(columns, axis=1), dtype=">u4")  # (n, columns), the highest byte is 0
    data = np.ascontiguousarray(table.view(np.uint8).reshape(len(table), len(columns), 4)[:, :, 1:])
    texts = data.reshape(len(table), -1).view(f"S{BYTES * len(columns)}").reshape(len(table))
    return np.asarray(np.strings.find(np.strings.lower(texts), phrase.lower().encode()) >= 0, np.float64)


def contains_scalar(row: Sequence[float], phrase: str) -> float:
    """`contains_batch` for one text, given as plain floats."""
    return float(phrase.lower().encode() in _bytes(row).lower())


def _bytes(row: npt.ArrayLike) -> bytes:
    with np.errstate(invalid="ignore"):  # what is no text at all contains nothing
        table = np.asarray(row).astype(">u4")
    return table.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
