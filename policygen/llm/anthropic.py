"""Anthropic Claude through the anthropic SDK, an optional extra.

The server is Anthropic's unless an address is given explicitly (ANTHROPIC_BASE_URL is not read). Temperature and top_p
are not sent, since current models refuse them; nor is a seed, which no model takes.
"""

from __future__ import annotations

import warnings
from typing import cast

from policygen.errors import PolicygenError, ProviderError, UsageError
from policygen.llm import faults
from policygen.llm.base import Diagnosis, LLMOptions, counted, joined, not_taken, split_thinking, worded
from policygen.llm.keys import check_destination, goes_to, require_key
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import BoundedClient

try:
    import anthropic
    from anthropic.types import Message, MessageParam, OutputConfigParam
except ImportError:
    raise UsageError('anthropic models need an extra package: pip install "policygen[anthropic]"') from None

_ANTHROPIC_URL = "https://api.anthropic.com"

_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")  # counts of a prompt cache

_SPENT = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})


class Anthropic:
    """`anthropic:MODEL`, with the key in ANTHROPIC_API_KEY."""

    is_language_model = True

    def __init__(self, model: str, options: LLMOptions) -> None:
        self.spec = f"anthropic:{model}"
        self.model = model
        self._options = options
        self.base_url = options.base_url or _ANTHROPIC_URL
        self._key = require_key("anthropic", "ANTHROPIC_API_KEY")
        check_destination(self._key, options, _ANTHROPIC_URL)
        self.key_goes_to = goes_to(self._key, self.base_url)
        self._client = anthropic.Anthropic(
            api_key=self._key.value,
            base_url=self.base_url,
            timeout=options.timeout_seconds,
            max_retries=0,
            http_client=BoundedClient(options.timeout_seconds),
        )
        refused = {"temperature": options.temperature, "top_p": options.top_p, "seed": options.request_seed}
        for name in (name for name, value in refused.items() if value is not None):
            warnings.warn(not_taken(self.spec, name), stacklevel=3)

    @faults.unreadable_is_a_fault
    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request; errors as `Provider.complete` lists them."""
        system = joined(*(message.content for message in prompt.messages if message.role == "system"))
        spoken = [message for message in prompt.messages if message.role != "system"]
        turns = [{"role": message.role, "content": message.content} for message in spoken]
        effort = self._options.reasoning_effort
        try:
            message = self._client.messages.create(
                model=self.model,
                max_tokens=max_output_tokens,
                system=system or anthropic.omit,
                messages=cast("list[MessageParam]", turns),
                output_config=cast("OutputConfigParam", {"effort": effort}) if effort else anthropic.omit,
                extra_body=self._options.extra_body,
                stream=False,
            )
        except (anthropic.AnthropicError, ValueError, RecursionError) as error:
            raise self._fault(error) from None
        return self._reply(message)

    @faults.unreadable_is_a_fault
    def diagnose(self) -> Diagnosis:
        """Ask the server about the model."""
        lines = [f"the key is in {self._key.name}"]
        try:
            found = self._client.models.retrieve(self.model)
        except (anthropic.AnthropicError, ValueError, RecursionError) as error:
            return Diagnosis(False, (*lines, str(self._fault(error))))
        lines.append(f"Anthropic answers at {self.base_url} and knows {found.id}")
        if found.max_input_tokens:
            written = found.max_tokens or "an unknown number"
            lines.append(f"it reads up to {found.max_input_tokens} tokens and writes up to {written}")
        return Diagnosis(True, tuple(lines))

    def _reply(self, message: Message) -> Reply:
        if not isinstance(message, Message):
            raise ProviderError(f"the server at {self.base_url} did not answer with an Anthropic message")
        blocks = message.content or []
        thought = split_thinking("".join(block.text for block in blocks if block.type == "text"))
        thinking = (block.thinking for block in blocks if block.type == "thinking")
        usage = message.usage
        read = [counted(usage, name) for name in ("input_tokens", *_CACHED)]
        tokens_in = sum(count or 0 for count in read) if read[0] is not None else None
        tokens_out = counted(usage, "output_tokens")
        finish = worded(message.stop_reason)
        reported = worded(message.model) or self.model
        return Reply(
            text=thought.text,
            model=reported,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            truncated=finish in ("max_tokens", "model_context_window_exceeded") or thought.unclosed,
            reasoning=joined(*thinking, thought.reasoning),
            finish_reason=finish,
        )

    def _fault(self, error: Exception) -> PolicygenError:
        if isinstance(error, anthropic.APITimeoutError):
            return faults.timeout_fault("Anthropic", self._options.timeout_seconds)
        if isinstance(error, anthropic.APIConnectionError):
            start = "start the server, or leave the address out to ask Anthropic itself"
            return faults.connection_fault("Anthropic", self.base_url, error, start=start)
        if not isinstance(error, anthropic.APIStatusError):
            return ProviderError(
                f"Anthropic at {self.base_url} gave an answer that cannot be read: "
                f"{faults.one_line(str(error), self._key)}"
            )
        message = str(error.api_message or error.message)
        if worded(error.error_code) in _SPENT or error.type == "billing_error":
            said = faults.one_line(message, self._key)
            return ProviderError(f"Anthropic says that the account is out of credit: {said}")
        if error.status_code == 404:
            message = f"{message.rstrip('.')} (is {self.model!r} a model that this key may use?)"
        wait = faults.wait_asked(error.response.headers)
        return faults.server_fault("Anthropic", error.status_code, message, key=self._key, wait=wait)
