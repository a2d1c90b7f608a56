"""What the tests share: a workplace without keys, addresses or files from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import foreign_variables


@pytest.fixture
def workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty working directory, and an environment without keys, server addresses and proxies."""
    before = dict(os.environ)
    for name in foreign_variables():
        os.environ.pop(name, None)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)
