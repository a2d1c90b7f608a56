"""Long fields of old attempts, compressed in memory and unpacked when they are read."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json, to_json

MOST_UNPACKED = 256  # values that are kept for the next who asks: those that one prompt looks at
_FASTEST = 1  # of zlib's levels


class Packed:
    """Fields of a record as compressed JSON.

    Args:
        fields: their JSON values, by name.
        read: makes a field's value of its name and JSON value.
        digests: of its texts, by field: what is compared with those of other attempts is not unpacked for that.
    """

    __slots__ = ("_content", "_read", "digests")

    def __init__(
        self, fields: Mapping[str, Any], read: Callable[[str, Any], Any], digests: Mapping[str, bytes]
    ) -> None:
        self._content = zlib.compress(to_json(fields, inf_nan_mode="constants"), _FASTEST)
        self._read = read
        self.digests = digests

    def __len__(self) -> int:
        return len(self._content)

    def __getitem__(self, name: str) -> Any:
        return _unpacked(self, name)

    def _unpacked(self, name: str) -> Any:
        return self._read(name, from_json(zlib.decompress(self._content))[name])


@functools.lru_cache(maxsize=MOST_UNPACKED)
def _unpacked(packed: Packed, name: str) -> Any:
    return packed._unpacked(name)


class Unpacking:
    """In the place of a slot: gives what is packed in it as if it were not."""

    def __init__(self, owner: type, name: str) -> None:
        self._slot = owner.__dict__[name]
        self._name = name

    def __get__(self, record: Any, owner: type | None = None) -> Any:
        if record is None:
            return self
        value = self._slot.__get__(record)
        return value[self._name] if type(value) is Packed else value

    def __set__(self, record: Any, value: Any) -> None:
        self._slot.__set__(record, value)

    def packed(self, record: Any) -> Packed | None:
        """Return the packed fields that the slot holds; None if its value is not packed."""
        value = self._slot.__get__(record)
        return value if type(value) is Packed else None
