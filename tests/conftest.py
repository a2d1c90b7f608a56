"""What the tests share: their folder on the path, and a workplace without keys, addresses or files from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for chat_server and support, whatever directory the tests start in

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
