"""The provider protocol, the options of requests and their price, and the reading of a model's raw text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from policygen.errors import UsageError
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import HIDDEN, hide_login

MOST_TOKENS = 10_000_000
"""Upper limit of the tokens of one prompt or reply; a larger count from a server is ignored."""

SAMPLING = ("temperature", "reasoning_effort", "seed")
"""Request parameters that are left out, with a warning, if a model refuses them."""


@dataclass(frozen=True, slots=True)
class LLMOptions:
    """Settings of requests to a model. A field `..._from` names the file that chose a value; empty: the user chose it.

    Attributes:
        base_url: the server's address; None: the provider's own. No key is sent to an address that a file chose.
        named_in: the spec that holds the address, if any.
        provider_from: the file that chose the provider. `manual:DIR` is then refused, because it would write to DIR.
        temperature, reasoning_effort: None leaves them to the model.
        extra_body: further fields of each request. If a file chose them, a provider with a key refuses them.
        max_output_tokens: limit of one reply, thinking included.
        timeout_seconds: limit of one request.
        max_retries: repetitions of a request after transient faults.
        prices: USD per million tokens in, and out; they replace the price list.

    Raises UsageError for a malformed address. The run's settings check the ranges.
    """

    base_url: str | None = None
    base_url_from: str = ""
    named_in: str = ""
    provider_from: str = ""
    temperature: float | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] | None = None
    extra_body_from: str = ""
    max_output_tokens: int = 8192
    timeout_seconds: float = 300.0
    max_retries: int = 5
    prices: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.base_url is not None and not re.match(r"https?://[^/\s]+", self.base_url):
            raise UsageError(f"the server address {self.base_url!r} must look like http://localhost:8000/v1")
        if self.base_url is not None and f"://{HIDDEN}@" in self.base_url:
            raise UsageError(
                f"the user name and password in {self.named_in or self.base_url} are not stored: replace the stars by "
                f"them, and pass it again with {'--llm' if self.named_in else '--base-url'}"
            )
        hide_login(self.base_url or "")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether a provider works, and sentences with the findings; never the value of a key."""

    ok: bool
    lines: tuple[str, ...]


def token_count(usage: object, *names: str) -> int | None:
    """Return the sum of the token counts `names` that a server reports; None if it reports no plausible one."""
    values: list[Any] = [getattr(usage, name, None) for name in names]
    # A user's own provider may count in numpy's integers; a flag is no count.
    numbers = [one for one in values if not isinstance(one, bool) and issubclass(type(one), Real)]
    counts = [int(one) for one in numbers if 0 <= one <= MOST_TOKENS and one == int(one)]
    return sum(counts) if counts else None


def short_text(value: object) -> str:
    """Return the first 200 characters of a server's value; empty if it is not a string."""
    return value[:200] if isinstance(value, str) else ""


def dropped_warning(spec: str, parameter: str) -> str:
    """Return the warning that a request parameter is left out."""
    name = {"temperature": "a temperature", "seed": "a sampling seed"}.get(parameter, parameter)
    return f"{spec} does not take {name}: asking without it"


class Provider(Protocol):
    """A source of replies to prompts. `spec` is the user's text, such as `openai:gpt-5-mini`."""

    spec: str
    model: str
    is_language_model: bool

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request, without retries.

        Raises TransientProviderError if a retry may help, RejectedParameter if leaving out that parameter may help,
        and ProviderError otherwise.
        """

    # A provider may have two things more. `key_goes_to`: a clause such as `the key in OPENAI_API_KEY goes to
    # api.openai.com`, empty without a key; its requests end in time. `drop(parameter)`: stop sending a parameter that
    # the model rejects; false if it was dropped before or is required.


class ListedProvider(Provider, Protocol):
    """A provider in the table `PROVIDERS`, or a pool of them; `policygen doctor` checks it."""

    def diagnose(self) -> Diagnosis:
        """Check the key and the server, and report what the server says about the model."""


_LISTED = {"openai": "openai", "gemini": "google", "anthropic": "anthropic"}


def dollars(usd: float | None) -> str:
    """Format a cost in USD; None is unknown."""
    return "cost unknown" if usd is None else f"${usd:.4f}"


def cost(options: LLMOptions, spec: str, model: str, tokens_in: int, tokens_out: int) -> float | None:
    """Return the cost in USD of one request, by the user's prices if given, else by the price list; None if unknown.

    A model on your own machine (`ollama`, `local`) costs 0. A hosted model at another address, as in
    `openai:gpt-5-mini@URL`, has no known price. Source: the price list in the installed package genai-prices.
    """
    if options.prices is not None:
        return (options.prices[0] * tokens_in + options.prices[1] * tokens_out) / 1e6
    provider = spec.partition(":")[0].strip().lower()
    if provider in ("ollama", "local"):
        return 0.0
    if provider not in _LISTED or "@http" in spec:
        return None
    from genai_prices import Usage, calc_price  # start-up time: the list is long

    try:
        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return float(calc_price(usage, model, provider_id=_LISTED[provider]).total_price)
    except LookupError:
        return None


# The marks of thinking that chat templates use; servers that do not know a model's template leave them in its text.
_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)"
_OPEN = rf"<{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>"
_CLOSE = rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>"
_TAG = re.compile(rf"(?P<open>{_OPEN})|{_CLOSE}", re.IGNORECASE)
_CLOSING = re.compile(_CLOSE, re.IGNORECASE)
# Models open their thinking at the start of a line; a tag mentioned in prose must not hide the text after it.
_OPENING = re.compile(rf"^[ \t]*(?:{_OPEN})", re.MULTILINE | re.IGNORECASE)
# Channels as gpt-oss writes them: all but `final` are thinking.
_CHANNEL = re.compile(r"(?:<\|start\|>\s*assistant)?\s*<\|channel\|>\s*(\w+)[^<]*<\|message\|>")
# Marks of a template's turns, such as <|end|>, <|im_end|>, <|eot_id|> and </s>.
_TURN_MARKS = re.compile(r"<\|[A-Za-z_]{2,30}\|>|</s>\s*\Z")


def read_reply(text: str, model: str, *, thinking: Iterable[str] = (), truncated: bool = False, **more: Any) -> Reply:
    """Return the reply of a model, with `<think>...</think>` and its like moved from its text to its reasoning.

    Chat templates often swallow the opening tag, so all text before a lone closing tag is reasoning. After a tag that
    is never closed, everything is reasoning: the reply was cut off while thinking, and counts as truncated.

    Args:
        thinking: pieces of reasoning that the server sent beside the text.
        more: further fields of `Reply`.
    """
    text, reasoning, cut = _final_channel(text)
    kept, end, opened = [], 0, None
    for tag in _TAG.finditer(text):  # one pass: a reply may be a million tags
        if tag["open"]:
            opened = opened or tag
        elif opened is not None:
            reasoning.append(text[opened.end() : tag.start()])
            kept.append(text[end : opened.start()])
            end, opened = tag.end(), None
    answer = "".join((*kept, text[end:]))
    if closings := list(_CLOSING.finditer(answer)):
        reasoning.insert(0, _CLOSING.sub("", answer[: closings[-1].start()]))
        answer = answer[closings[-1].end() :]
    if opening := _OPENING.search(answer):
        cut = True
        reasoning.append(answer[opening.end() :])
        answer = answer[: opening.start()]
    reasoning = [part.strip() for part in (*thinking, *(_TURN_MARKS.sub("", one) for one in reasoning)) if part.strip()]
    answer = _TURN_MARKS.sub("", answer).strip()
    return Reply(answer, model, truncated=truncated or cut, reasoning="\n\n".join(reasoning), **more)


def _final_channel(text: str) -> tuple[str, list[str], bool]:
    """Return the text outside channels and in the channel `final`, the other channels, and whether `final` is missing.

    A text without channels is returned as it is.
    """
    channels = list(_CHANNEL.finditer(text))
    if not channels:
        return text, [], False
    kept, thought, final = [text[: channels[0].start()]], [], False
    for channel, following in zip(channels, [*channels[1:], None], strict=True):
        content = text[channel.end() : following.start() if following is not None else None]
        if channel[1].lower() == "final":
            kept.append(content)
            final = True
        else:
            thought.append(content)
    return "".join(kept), thought, not final
