"""Anthropic Claude through the anthropic SDK, an optional extra.

The server is Anthropic's unless an address is given explicitly (ANTHROPIC_BASE_URL is ignored). No temperature is
sent, because current models reject it, and no seed, which no model takes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, cast

from policygen.errors import ProviderError, UsageError
from policygen.llm.base import Diagnosis, LLMOptions, dropped_warning, read_reply, short_text, token_count
from policygen.llm.hosted import HostedModel, require_key
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import BoundedClient

try:
    import anthropic
    from anthropic.types import Message, MessageParam, OutputConfigParam
except ImportError:
    raise UsageError('anthropic models need an extra package: pip install "policygen[anthropic]"') from None

# Together these are the tokens of a prompt: `input_tokens` lacks those of the cache.
_COUNTED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_SPENT = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})


class Anthropic(HostedModel):
    """The provider `anthropic:MODEL`, with the key in ANTHROPIC_API_KEY."""

    provider_id, server, own_url = "anthropic", "Anthropic", "https://api.anthropic.com"
    timed_out, unreachable = anthropic.APITimeoutError, anthropic.APIConnectionError
    refused, failed = anthropic.APIStatusError, anthropic.AnthropicError

    def __init__(self, model: str, options: LLMOptions) -> None:
        key = require_key("anthropic", "ANTHROPIC_API_KEY")
        super().__init__(model, options, key)
        self._client = anthropic.Anthropic(
            api_key=key.value,
            base_url=self.base_url,
            timeout=options.timeout_seconds,
            max_retries=0,
            http_client=BoundedClient(options.timeout_seconds, self.base_url),
        )
        if options.temperature is not None:
            warnings.warn(dropped_warning(self.spec, "temperature"), stacklevel=3)

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        system, spoken = prompt.system, [message for message in prompt.messages if message.role != "system"]
        turns = [{"role": message.role, "content": message.content} for message in spoken]
        effort = sent.get("reasoning_effort")
        message = self._client.messages.create(
            model=self.model,
            max_tokens=max_output_tokens,
            system=system or anthropic.omit,
            messages=cast("list[MessageParam]", turns),
            output_config=cast("OutputConfigParam", {"effort": effort}) if effort else anthropic.omit,
            extra_body=self._options.extra_body,
            stream=False,
        )
        if not isinstance(message, Message):
            raise ProviderError(f"the server at {self.base_url} did not answer with an Anthropic message")
        blocks = message.content or []
        usage = message.usage
        finish = short_text(message.stop_reason)
        return read_reply(
            "".join(block.text for block in blocks if block.type == "text"),
            short_text(message.model) or self.model,
            thinking=(block.thinking for block in blocks if block.type == "thinking"),
            tokens_in=token_count(usage, *(_COUNTED if token_count(usage, "input_tokens") is not None else ())),
            tokens_out=token_count(usage, "output_tokens"),
            truncated=finish in ("max_tokens", "model_context_window_exceeded"),
            finish_reason=finish,
        )

    def _look_up(self) -> Diagnosis:
        found = self._client.models.retrieve(self.model)
        return self._found(found.id, found.max_input_tokens, found.max_tokens)

    def _refusal(self, error: anthropic.APIStatusError, sent: Mapping[str, Any]) -> ProviderError:
        message = str(error.api_message or error.message)
        if short_text(error.error_code) in _SPENT or error.type == "billing_error":
            return ProviderError(f"Anthropic says that the account is out of credit: {self._quoted(message)}")
        return self._fault(error.status_code, message, error.response)
