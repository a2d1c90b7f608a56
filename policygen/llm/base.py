"""The protocol of providers, the settings and the price of requests, and the text of replies without its thinking."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Protocol, Self

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, field_validator

from policygen.errors import UsageError
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import HIDDEN, hide_login

MOST_TOKENS = 10_000_000
"""Most tokens of a prompt or a reply; a larger count from a server is ignored."""

SAMPLING = ("temperature", "reasoning_effort", "seed")
"""Request parameters that are left out, with a warning, if a model rejects them."""

# Fields that `extra_body` may not set, in lower case and without underscores: the program sends them.
_RESERVED_FIELDS = frozenset(
    (
        *("model", "models", "route", "messages", "contents", "prompt", "system", "systeminstruction", "stream", "n"),
        *("candidatecount", "maxtokens", "maxcompletiontokens", "maxoutputtokens"),
        *("temperature", "seed", "reasoningeffort"),
    )
)

MOST_SECONDS = 1e7  # the largest time limit that can be set
# An untrusted file could use these settings to send a key to another server, to send other fields with it, or to write
# into a folder. They take effect only if the user chose them or trusts the file.
SENSITIVE = ("base_url", "llm", "extra_body")

_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _read_prices(value: Any) -> Any:
    prices = value.split("/") if isinstance(value, str) else value
    if prices is not None and not (isinstance(prices, list | tuple) and len(prices) == 2):
        raise ValueError("write IN/OUT, as in 0.25/2")
    return prices


class LLMOptions(BaseModel):
    """The settings of requests to a model. They record which file set those that are `SENSITIVE`.

    No key is sent to an address from a file, or with an `extra_body` from a file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_output_tokens: int = Field(8_192, ge=64, description="maximum tokens of a reply")
    temperature: float | None = Field(
        None, ge=0, le=2, description="sampling temperature; if set, each request also has a seed (the model's default)"
    )
    reasoning_effort: str | None = Field(
        None, title="WORD", pattern=r"^[a-z]{1,20}$", description="how long a reasoning model thinks: low, medium, high"
    )
    extra_body: dict[str, Any] | None = Field(
        None, title="TABLE", description="extra fields of each request, a TOML table such as '{ top_k = 20 }'"
    )
    base_url: str | None = Field(
        None, title="URL", description="server for `compatible:` and `ollama:` models without @URL"
    )
    timeout_seconds: float = Field(300, gt=0, le=MOST_SECONDS, description="seconds to wait for one reply")
    prices: Annotated[tuple[_Price, _Price] | None, BeforeValidator(_read_prices)] = Field(
        None, title="IN/OUT", description="USD per million input and output tokens, as in 0.25/2 (built-in list)"
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _named_in: str = PrivateAttr("")

    @property
    def named_in(self) -> str:
        """The spec that contains the address; empty if `base_url` was set by itself."""
        return self._named_in

    def at(self, address: str, spec: str) -> Self:
        """Return the settings with the address that `spec` contains; whichever file set the spec set the address."""
        copy = self.model_copy(update={"base_url": address}).chosen_by(self.origin("llm"), "base_url")
        copy._named_in = spec
        return copy

    def origin(self, setting: str) -> str:
        """Return the file that set a `SENSITIVE` setting; empty if the user set it."""
        return self._origins.get(setting, "") if getattr(self, setting, True) else ""

    def chosen_by(self, file: str, *settings: str) -> Self:
        """Return a copy which records that `file` set these settings, by default all `SENSITIVE` ones."""
        copy = self.model_copy()
        origins = self._origins | dict.fromkeys(settings or SENSITIVE, file)
        copy._origins = {setting: origin for setting, origin in origins.items() if origin}
        return copy

    def trusted(self) -> Self:
        """Return the settings as if the user had typed them."""
        return self.chosen_by("")

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        fields = [
            *(value or ()),
            *(name for inner in (value or {}).values() if isinstance(inner, dict) for name in inner),
        ]
        for name in fields:
            if name.lower().replace("_", "") in _RESERVED_FIELDS:
                raise ValueError(f"`{name}` cannot be set here: the program sends it, or has a setting for it")
        try:
            json.dumps(value, allow_nan=False)
            tomli_w.dumps(value or {})
        except (TypeError, ValueError, RecursionError):
            raise ValueError("fields are texts, finite numbers, true, false, lists and tables of them") from None
        return value


def check_url(options: LLMOptions) -> None:
    """Raise UsageError if the server's address is malformed; from now on hide its user name and password in output."""
    url, named_in = options.base_url or "", options.named_in
    if url and not re.match(r"https?://[^/\s]+", url):
        raise UsageError(f"the server address {url!r} must look like http://localhost:8000/v1")
    if f"://{HIDDEN}@" in url:
        raise UsageError(
            f"the user name and password in {named_in or url} are not stored: replace the stars, and pass the "
            f"address again with {'--llm' if named_in else '--base-url'}"
        )
    hide_login(url)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether a provider works, and what was found, in sentences without any key."""

    ok: bool
    lines: tuple[str, ...]


def token_count(usage: object, *names: str) -> int | None:
    """Return the sum of the token counts `names` that a server reports; None if it reports no plausible one."""
    values: list[Any] = [getattr(usage, name, None) for name in names]
    # A provider of the user's may count with numpy integers.
    numbers = [one for one in values if not isinstance(one, bool) and issubclass(type(one), Real)]
    counts = [int(one) for one in numbers if 0 <= one <= MOST_TOKENS and one == int(one)]
    return sum(counts) if counts else None


def short_text(value: object) -> str:
    """Return the first 200 characters of a server's value; empty if it is not a string."""
    return value[:200] if isinstance(value, str) else ""


def dropped_warning(spec: str, parameter: str) -> str:
    """Return the warning about a request parameter that is left out."""
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

    # Optional members: `key_goes_to`, such as "the key in OPENAI_API_KEY goes to api.openai.com", empty without a key
    # (a provider that has it also ends its requests in time); and `drop(parameter)`, which stops sending a parameter
    # that the model rejects and returns False if it is required or already dropped.


class ListedProvider(Provider, Protocol):
    """A provider in `PROVIDERS`, which `policygen doctor` can check."""

    def diagnose(self) -> Diagnosis:
        """Check the key and the server; report what the server says about the model."""


_LISTED = {"openai": "openai", "gemini": "google", "anthropic": "anthropic"}


def dollars(usd: float | None) -> str:
    """Format a cost in USD; None means unknown."""
    return "cost unknown" if usd is None else f"${usd:.4f}"


def cost(options: LLMOptions, spec: str, model: str, tokens_in: int, tokens_out: int) -> float | None:
    """Return the cost of one request in USD; None if it is unknown.

    The user's prices take precedence over the list of the package genai-prices. A model on your own machine (`ollama`,
    `local`) costs 0. The price of a model at an address of your own, as in `openai:gpt-5-mini@URL`, is unknown.
    """
    if options.prices is not None:
        return (options.prices[0] * tokens_in + options.prices[1] * tokens_out) / 1e6
    provider = spec.partition(":")[0].strip().lower()
    if provider in ("ollama", "local"):
        return 0.0
    if provider not in _LISTED or "@http" in spec:
        return None
    from genai_prices import Usage, calc_price  # slow to import: the list is long

    try:
        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return float(calc_price(usage, model, provider_id=_LISTED[provider]).total_price)
    except LookupError:
        return None


# Chat templates mark thinking with these tags. Servers that do not know a model's template leave them in the text.
_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)"
_OPEN = rf"<{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>"
_CLOSE = rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>"
_TAG = re.compile(rf"(?P<open>{_OPEN})|{_CLOSE}", re.IGNORECASE)
_CLOSING = re.compile(_CLOSE, re.IGNORECASE)
# An opening tag counts only at the start of a line: one that prose mentions must not hide the text after it.
_OPENING = re.compile(rf"^[ \t]*(?:{_OPEN})", re.MULTILINE | re.IGNORECASE)
# gpt-oss writes in channels; all but `final` are thinking.
_CHANNEL = re.compile(r"(?:<\|start\|>\s*assistant)?\s*<\|channel\|>\s*(\w+)[^<]*<\|message\|>")
# Marks of a template's turns, such as <|end|>, <|im_end|>, <|eot_id|> and </s>.
_TURN_MARKS = re.compile(r"<\|[A-Za-z_]{2,30}\|>|</s>\s*\Z")


def read_reply(text: str, model: str, *, thinking: Iterable[str] = (), truncated: bool = False, **more: Any) -> Reply:
    """Return a model's reply, with `<think>...</think>` and similar parts moved from `text` to `reasoning`.

    Text before a lone closing tag is reasoning, because chat templates often swallow the opening tag. If a tag is never
    closed, the rest is reasoning, and the reply counts as truncated: it was cut off while thinking.

    Args:
        thinking: reasoning that the server sent separately from the text.
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
    """Return the answer (the text outside channels and in `final`), the thinking, and whether `final` is missing."""
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
