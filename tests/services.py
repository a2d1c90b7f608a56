"""What the tests of providers share: the services as a user would reach them, and one way to ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

from policygen.llm import LLMOptions, Provider, connect
from policygen.llm.base import ListedProvider
from policygen.llm.messages import Message, Prompt, Reply
from policygen.llm.retry import ask

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

    def at(self, url: str) -> str:
        """The spec with a server's address."""
        return f"{self.spec}@{url}{self.path}"

    def connect(self, url: str, **options: object) -> ListedProvider:
        return connect(self.at(url), LLMOptions(**options))  # type: ignore[arg-type]


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
        before_try: Callable[[], None] | None = None,
        **options: object,
    ) -> Reply:
        retries = options.pop("max_retries", 5)
        settings = LLMOptions(**options)  # type: ignore[arg-type]
        with patch("policygen.llm.retry.RETRIES", retries):
            return ask(
                provider,
                prompt,
                before_try=before_try or self.charge,
                max_output_tokens=settings.max_output_tokens,
                options=settings,
                sleep=self.waits.append,
            )
