"""What the tests of providers share: an environment without keys, addresses and proxies, and every service in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer
from services import SERVICES, Asked, Service

_VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_COMPATIBLE_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "OPENAI_CUSTOM_HEADERS",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GEMINI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OLLAMA_HOST",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No keys, addresses or proxies from outside, no `.env` file, and none left behind."""
    before = dict(os.environ)
    for name in _VARIABLES:
        os.environ.pop(name, None)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)


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
