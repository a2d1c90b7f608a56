"""What the provider tests share: a clean environment, the services as a user would reach them, and one way to ask."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for chat_server, whatever directory the tests start in

from chat_server import ChatServer

from policygen.llm import LLMOptions, Provider, connect
from policygen.llm.retry import ask
from policygen.messages import Message, Prompt, Reply

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

PROMPT = Prompt((Message("system", "You improve policies."), Message("user", "Here is one. Improve it.")))


@dataclass(frozen=True)
class Service:
    """A provider as the tests reach it; `path` is what its address has beyond the server's."""

    name: str
    model: str
    variable: str
    key: str
    path: str = ""

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.model}"

    def connect(self, url: str, **options: object) -> Provider:
        return connect(self.spec, LLMOptions(base_url=url + self.path, **options))  # type: ignore[arg-type]


OPENAI = Service("openai", "gpt-5-mini", "OPENAI_API_KEY", "sk-proj-abcdefgh12345678WXYZ", "/v1")
COMPATIBLE = Service("compatible", "qwen3", "OPENAI_COMPATIBLE_API_KEY", "token-abcdefgh12345678WXYZ", "/v1")
GEMINI = Service("gemini", "gemini-2.5-flash", "GEMINI_API_KEY", "AIzaSyAbcdefgh12345678WXYZ")
ANTHROPIC = Service("anthropic", "claude-sonnet-4-6", "ANTHROPIC_API_KEY", "sk-ant-abcdefgh12345678WXYZ")
SERVICES = (OPENAI, COMPATIBLE, GEMINI, ANTHROPIC)


@dataclass
class Asked:
    """Asks a provider through the retry policy, noting the charges and the waits instead of waiting."""

    charges: int = 0
    waits: list[float] = field(default_factory=list)

    def charge(self) -> None:
        self.charges += 1

    def __call__(
        self,
        provider: Provider,
        prompt: Prompt = PROMPT,
        charge: Callable[[], None] | None = None,
        **options: object,
    ) -> Reply:
        settings = LLMOptions(**options)  # type: ignore[arg-type]
        return ask(
            provider,
            prompt,
            charge=charge or self.charge,
            max_output_tokens=settings.max_output_tokens,
            options=settings,
            sleep=self.waits.append,
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
