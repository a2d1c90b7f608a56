"""Registries, in which extensions enter what they add to the kernel, and the loading of extensions.

The kernel imports no extension. The first look into any registry loads those of this package
(`policygen.extensions.ENTERING`), and the entry points of the group `policygen` of installed packages. A module that a
program imports itself may enter something at any time.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from policygen.errors import UsageError

T = TypeVar("T")
EXTENSIONS = "policygen.extensions"


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they were added; messages call them `what`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Add an entry; raise UsageError if another one has its name."""
        if self._entries.setdefault(name, entry) != entry:
            raise UsageError(f"there are two {self._what}s called `{name}`; rename one of them")

    def __getitem__(self, name: str) -> T:
        load_extensions()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        load_extensions()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        load_extensions()
        return len(self._entries)


_loaded = False


def load_extensions() -> None:
    """Load the extensions, once; one of another package that fails is left out with a warning.

    Each extension of this package may be missing.
    """
    global _loaded
    if _loaded:
        return
    _loaded = True
    for name in getattr(_imported(EXTENSIONS), "ENTERING", ()):
        _imported(f"{EXTENSIONS}.{name}")
    for point in entry_points(group="policygen"):
        try:
            point.load()
        except Exception as error:
            warnings.warn(f"extension {point.name} ({point.value}) is left out: {error}", stacklevel=2)


def _imported(name: str) -> Any:
    """Import a module of the extensions; None if it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None


def resolved(address: Any) -> Any:
    """Import the object at an address `MODULE:NAME`; return any other value unchanged."""
    if not isinstance(address, str):
        return address
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)
