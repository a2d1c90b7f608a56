"""Fixtures for tests of providers: an environment without keys, addresses and proxies, and every service in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import ChatServer
from services import SERVICES, Asked, Service


@pytest.fixture(autouse=True)
def clean_environment(workplace: Path) -> None:
    """No keys, addresses or proxies from outside, no `.env` file, and none left behind."""


@pytest.fixture
def keys(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for service in SERVICES:
        monkeypatch.setenv(service.variable, service.key)


@pytest.fixture(params=SERVICES, ids=lambda service: service.name)
def service(request: pytest.FixtureRequest, keys: None) -> Service:
    chosen: Service = request.param
    return chosen


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def unused_url() -> str:
    """The address of a server that was there and is gone."""
    with ChatServer() as server:
        return server.url
