"""What every provider is and hands back: options, the provider protocol, diagnoses, thinking split from the answer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from policygen.errors import UsageError
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import HIDDEN, hide_login

MOST_TOKENS = 10_000_000
"""No prompt and no reply has more, whatever a server reports."""

SAMPLING = ("temperature", "top_p", "reasoning_effort", "seed")
"""Parameters of a request that a model may not take, and that are then left out, with a warning."""


@dataclass(frozen=True, slots=True)
class LLMOptions:
    """How to reach and ask a model.

    `base_url` is the server's address (None: the provider's own), and `base_url_from` the file that chose it, or
    nothing where the user did: no key is sent to an address out of a file; `named_in` is the spec that holds the
    address, if one does. `provider_from` is likewise the file that chose the provider: no folder that a file names is
    written to. `temperature`, `top_p` and `reasoning_effort` None leave it to the model; `request_seed` says that the
    user wants seeds sent (see `Prompt.seed`); `extra_body` are further fields of each request, which go to no server
    that gets a key where a file (`extra_body_from`) chose them. `max_output_tokens` bounds one reply (thinking
    included), `timeout_seconds` bounds one request, `max_retries` counts the repetitions of a request that failed for a
    passing reason. `price_in` and `price_out`, in USD per million tokens, are given together and replace the price
    list.

    Raises UsageError for a value out of range.
    """

    base_url: str | None = None
    base_url_from: str = ""
    named_in: str = ""
    provider_from: str = ""
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    request_seed: int | None = None
    extra_body: dict[str, Any] | None = None
    extra_body_from: str = ""
    max_output_tokens: int = 8192
    timeout_seconds: float = 300.0
    max_retries: int = 5
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if self.base_url is not None and not re.match(r"https?://[^/\s]+", self.base_url):
            raise UsageError(f"the server address {self.base_url!r} must look like http://localhost:8000/v1")
        if self.base_url is not None and f"://{HIDDEN}@" in self.base_url:
            raise UsageError(
                f"the user name and password of the server address {self.base_url} are not stored: "
                "give it again, with them in the place of the stars, by --base-url ADDRESS"
            )
        hide_login(self.base_url or "")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"the temperature must be a number of at least 0, not {self.temperature}")
        if self.max_output_tokens < 1:
            raise UsageError(f"a reply needs at least 1 token, not {self.max_output_tokens}")
        if not (math.isfinite(self.timeout_seconds) and self.timeout_seconds > 0):
            raise UsageError(f"the timeout must be a positive number of seconds, not {self.timeout_seconds}")
        if self.max_retries < 0:
            raise UsageError(f"the number of retries must be at least 0, not {self.max_retries}")
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("give both prices, for tokens in and for tokens out, in USD per million tokens")
        for value in (self.price_in, self.price_out):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"a price must be a number of at least 0, in USD per million tokens, not {value}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether a provider can be asked, and the sentences that say what was found; never the value of a key."""

    ok: bool
    lines: tuple[str, ...]


def counted(usage: object, name: str) -> int | None:
    """The token count `name` that a server reports; None where there is none, or where what it says is no count."""
    value = getattr(usage, name, None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def worded(value: object) -> str:
    """What a server says where a word belongs, as one short word; nothing where it is no text."""
    return value[:200] if isinstance(value, str) else ""


def not_taken(spec: str, parameter: str) -> str:
    """The warning that a parameter is left out."""
    name = {"temperature": "a temperature", "seed": "a seed of its sampling"}.get(parameter, parameter)
    return f"{spec} does not take {name}: asking without it"


class Provider(Protocol):
    """Something that answers prompts. `spec` is what the user wrote, such as `openai:gpt-5-mini`."""

    spec: str
    model: str
    is_language_model: bool

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request, never repeated.

        Raises TransientProviderError where asking again may help, RejectedParameter where asking without that parameter
        may help, and ProviderError where neither does.
        """
        ...

    def diagnose(self) -> Diagnosis:
        """Say whether the key is there, whether the server answers, and what it reports about the model."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A provider that may hold a key: `key_goes_to` says which key goes to which host; nothing where there is none."""

    @property
    def key_goes_to(self) -> str:
        """A clause such as `the key in OPENAI_API_KEY goes to api.openai.com`."""
        ...


@runtime_checkable
class Adaptable(Protocol):
    """A provider that can leave out a request parameter that its model does not take."""

    def drop(self, parameter: str) -> bool:
        """Send `parameter` no more; False if it was dropped before or cannot be left out."""
        ...


@runtime_checkable
class Ordered(Protocol):
    """A provider whose replies come in an order of their own, whatever the prompt."""

    def skip(self, replies: int) -> None:
        """Pass over so many replies, which an interrupted run has used."""
        ...


@dataclass(frozen=True, slots=True)
class Thought:
    """A reply taken apart: the answer `text`, the `reasoning` around it, and whether the thinking was never closed."""

    text: str
    reasoning: str
    unclosed: bool


_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Models open their thinking at the start of a line; a tag that prose merely mentions must not cost what follows it.
_OPENING = re.compile(r"^[ \t]*<think(?:ing)?>", re.MULTILINE | re.IGNORECASE)


def split_thinking(text: str) -> Thought:
    """Separate `<think>...</think>` from the answer.

    Chat templates often swallow the opening tag, so all text before a lone closing tag is reasoning. A tag that is
    opened and never closed means that the reply was cut off while thinking: what follows it is reasoning.
    """
    reasoning, kept, end, opened = [], [], 0, None
    for tag in _TAG.finditer(text):  # one pass: a reply may be a million tags
        if not tag.group(1):
            opened = opened or tag
        elif opened is not None:
            reasoning.append(text[opened.end() : tag.start()])
            kept.append(text[end : opened.start()])
            end, opened = tag.end(), None
    answer = "".join((*kept, text[end:]))
    unclosed = False
    closings = list(_CLOSING.finditer(answer))
    if closings:
        reasoning.insert(0, _CLOSING.sub("", answer[: closings[-1].start()]))
        answer = answer[closings[-1].end() :]
    opening = _OPENING.search(answer)
    if opening:
        unclosed = True
        reasoning.append(answer[opening.end() :])
        answer = answer[: opening.start()]
    return Thought(answer.strip(), joined(*reasoning), unclosed)


def joined(*parts: str) -> str:
    """The parts that hold text, stripped, with an empty line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
