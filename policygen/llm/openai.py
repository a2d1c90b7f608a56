"""OpenAI, Ollama, and other servers that speak OpenAI's chat protocol.

`openai` sends its key to api.openai.com, unless an address is given explicitly (OPENAI_BASE_URL is ignored). `ollama`
and `compatible` never send OPENAI_API_KEY.
"""

from __future__ import annotations

import difflib
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

import openai
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageParam

from policygen.errors import ProviderError, RejectedParameter, UsageError
from policygen.llm.base import Diagnosis, LLMOptions, read_reply, short_text, token_count
from policygen.llm.hosted import HostedModel, Key, find_key, rejected_parameter, require_key
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import BoundedClient

_OLLAMA_URL = "http://localhost:11434/v1"

_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})

# The estimate of four characters per token is rarely 20% too high. A server that read less than this share of a prompt
# of at least this many tokens has probably cut it.
_CUT_BELOW = 0.5
_CUT_FROM_TOKENS = 500

# Fields for a model's context length, as named by vLLM, OpenRouter and LM Studio.
_CONTEXT_FIELDS = ("max_model_len", "context_length", "max_context_length")


class _Chat(HostedModel):
    """The base class of the providers in this module.

    `limits` are the two names for the parameter that limits the length of a reply, the likelier one first. Only a
    request shows which name a model accepts.
    """

    timed_out, unreachable = openai.APITimeoutError, openai.APIConnectionError
    refused, failed = openai.APIStatusError, openai.OpenAIError
    limits: ClassVar[tuple[str, ...]] = ("max_tokens", "max_completion_tokens")

    def __init__(self, model: str, options: LLMOptions, key: Key | None) -> None:
        super().__init__(model, options, key)
        bearer = key.value if key else "none"
        self._client = openai.OpenAI(
            api_key=bearer,
            base_url=self.base_url,
            timeout=options.timeout_seconds,
            max_retries=0,
            http_client=BoundedClient(options.timeout_seconds, self.base_url),
            # Explicit: otherwise a header from OPENAI_CUSTOM_HEADERS would go to any server.
            default_headers={"Authorization": f"Bearer {bearer}"},
        )
        if self.provider_id != "openai":
            # The SDK reads both from the environment; only OpenAI may get them.
            self._client.organization = self._client.project = None

    def drop(self, parameter: str) -> bool:
        """Stop sending `parameter`; False if that is impossible. Of the two names in `limits`, one must remain."""
        if parameter not in self.limits:
            return super().drop(parameter)
        if parameter in self._dropped or self._dropped & set(self.limits):
            return False
        self._dropped.add(parameter)
        return True

    @property
    def _limit(self) -> str:
        return next(name for name in self.limits if name not in self._dropped)

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        parameters: dict[str, Any] = {self._limit: max_output_tokens, **sent}
        completion = self._client.chat.completions.create(
            model=self.model,
            messages=cast("list[ChatCompletionMessageParam]", messages),
            stream=False,
            extra_body=self._options.extra_body,
            **parameters,
        )
        if not isinstance(completion, ChatCompletion):
            raise self._misses("a chat completion")
        usage = completion.usage
        tokens_in, tokens_out = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
        self._check_context(prompt, tokens_in)
        text, thinking, finish = "", [], ""
        if completion.choices:
            choice = completion.choices[0]
            finish = short_text(choice.finish_reason)
            if choice.message is not None:
                text, thinking = _content(choice.message), _reasoning(choice.message)
                if choice.message.refusal and not text:
                    finish = "refusal"
        return read_reply(
            text,
            short_text(completion.model) or self.model,
            thinking=thinking,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            truncated=finish == "length",
            finish_reason=finish,
        )

    def _look_up(self) -> Diagnosis:
        page = self._client.models.list()
        if not isinstance(page.data, list):
            raise self._misses("a list of models")
        models = page.data
        lines = [f"{self.server} answers at {self.base_url} and lists {len(models)} model{'s' * (len(models) != 1)}"]
        names = [model.id for model in models]
        found = next((model for model in models if model.id in (self.model, f"{self.model}:latest")), None)
        if found is None:
            near = difflib.get_close_matches(self.model, names, n=5, cutoff=0.4) or sorted(names)[:5]
            lines.append(f"it does not list {self.model!r}; it lists, among others, {', '.join(near) or 'nothing'}")
            return Diagnosis(False, tuple(lines))
        return Diagnosis(True, (*lines, f"{found.id!r} is among them", *self._reported(found)))

    def _misses(self, expected: str) -> ProviderError:
        return ProviderError(
            f"{self.server} at {self.base_url} did not answer with {expected}: check the address "
            "in the server's manual; it usually ends in /v1"
        )

    def _reported(self, model: Model) -> tuple[str, ...]:
        """Return what the server reports about the model, in sentences."""
        extra = model.model_extra or {}
        return tuple(f"its context is {extra[x]} tokens" for x in _CONTEXT_FIELDS if isinstance(extra.get(x), int))

    def _check_context(self, prompt: Prompt, tokens_in: int | None) -> None:
        """Warn if the server cut the prompt without an error, as only Ollama does: others answer 400."""

    def _refusal(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> ProviderError:
        message = message_of(error.body) or error.message
        shown = self._quoted(message)
        if {short_text(error.code), short_text(error.type)} & _SPENT:
            return ProviderError(f"{self.server} says that the account is out of credit: {shown}")
        if error.status_code in (400, 422):
            parameter = rejected_parameter(message, (self._limit, *sent), short_text(error.param))
            # If only the value is wrong, the user must correct it: to drop the parameter would change the experiment.
            if parameter and not (parameter == "reasoning_effort" and "value" in message.lower()):
                return RejectedParameter(f"{self.spec} does not take {parameter!r}: {shown}", parameter)
        if error.status_code in (401, 403) and self._key is None:
            also = "" if self.provider_id == "compatible" else f", and name the model compatible:{self.model}@URL"
            return ProviderError(f"{self.server} wants a key: set OPENAI_COMPATIBLE_API_KEY{also} ({shown})")
        return self._fault(error.status_code, message, error.response)


class OpenAI(_Chat):
    """The provider `openai:MODEL`, with the key in OPENAI_API_KEY."""

    provider_id, server, own_url = "openai", "OpenAI", "https://api.openai.com/v1"
    limits = ("max_completion_tokens", "max_tokens")

    def __init__(self, model: str, options: LLMOptions) -> None:
        super().__init__(model, options, require_key("openai", "OPENAI_API_KEY"))


class Compatible(_Chat):
    """The provider `compatible:MODEL` at `LLMOptions.base_url`, with the key, if any, in OPENAI_COMPATIBLE_API_KEY."""

    provider_id, server, start = "compatible", "the server", "start the server, or correct the address"
    missing = "does it serve {!r}, and is the address complete? it usually ends in /v1"

    def __init__(self, model: str, options: LLMOptions) -> None:
        if options.base_url is None:
            raise UsageError(
                f"compatible:{model} needs the server's address, as in compatible:{model}@http://localhost:8000/v1"
            )
        super().__init__(model, options, find_key("OPENAI_COMPATIBLE_API_KEY"))


class Ollama(_Chat):
    """The provider `ollama:MODEL`, on this machine, on OLLAMA_HOST, or at `LLMOptions.base_url`."""

    provider_id, server, start = "ollama", "Ollama", "start Ollama (ollama serve)"
    missing = "fetch the model with: ollama pull {}"

    def __init__(self, model: str, options: LLMOptions) -> None:
        url = options.base_url or _ollama_url(os.environ.get("OLLAMA_HOST", ""))
        super().__init__(model, options.model_copy(update={"base_url": url}), None)

    def _reported(self, model: Model) -> tuple[str, ...]:
        """Return the context length of the loaded model."""
        length = self._loaded_context(model.id)
        if length is None:
            return (
                "Ollama reports the context length of loaded models only; to change the length, set "
                "OLLAMA_CONTEXT_LENGTH and restart Ollama",
            )
        return (f"its context is {length} tokens as loaded",)

    def _loaded_context(self, name: str) -> int | None:
        """Return the context length in tokens from Ollama's own interface, or None."""
        url = f"{self.base_url.removesuffix('/').removesuffix('/v1')}/api/ps"
        try:
            running = self._client.get(url, cast_to=cast("type[dict[str, Any]]", object)).get("models") or []
            lengths = [int(one["context_length"]) for one in running if one.get("name") in (name, f"{name}:latest")]
        except (openai.OpenAIError, ValueError, KeyError, AttributeError, TypeError):
            lengths = []
        return lengths[0] if lengths else None

    def _check_context(self, prompt: Prompt, tokens_in: int | None) -> None:
        expected = prompt.estimated_tokens
        if tokens_in is None or expected < _CUT_FROM_TOKENS or tokens_in >= _CUT_BELOW * expected:
            return
        # Ollama does not count tokens kept from an earlier request, so a low count alone does not prove a cut.
        length = self._loaded_context(self.model)
        if length is not None and length < expected:
            warnings.warn(
                f"Ollama's context has {length} tokens, so it cut this prompt of about {expected}: "
                "set OLLAMA_CONTEXT_LENGTH to a larger number and restart Ollama",
                stacklevel=4,
            )


def _ollama_url(host: str) -> str:
    """Return the chat address for OLLAMA_HOST, which has the form [scheme://]host[:port][/path]."""
    host = host.strip().strip("\"'")
    if not host:
        return _OLLAMA_URL
    explicit = "://" in host
    try:
        parts = urlsplit(host if explicit else f"http://{host}")
        port = parts.port or (None if explicit else 11434)
    except ValueError as error:
        raise UsageError(f"OLLAMA_HOST={host} is not an address such as localhost:11434: {error}") from None
    # Servers listen on 0.0.0.0, but clients cannot connect to it.
    name = "localhost" if parts.hostname in (None, "0.0.0.0") else str(parts.hostname)
    name = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{path}/v1"


def _content(message: ChatCompletionMessage) -> str:
    """Return the text of a message, which some servers send as a list of parts."""
    content: object = message.content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _reasoning(message: ChatCompletionMessage) -> list[str]:
    """Return the thinking that some servers send in a separate field, or in two fields with the same text."""
    extra = message.model_extra or {}
    fields = (extra.get("reasoning"), extra.get("reasoning_content"))
    return [*dict.fromkeys(text for text in fields if isinstance(text, str))]


def message_of(body: object) -> str:
    """Return the message in an error's body, wherever the server puts it.

    The message of a router such as OpenRouter says only that the server behind it failed; that server's own message,
    often JSON, is in `metadata.raw`, and is appended.
    """
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            inner = json.loads(body)
            if isinstance(inner, dict | list):
                return message_of(inner) or body
        return body
    if isinstance(body, list):
        return "; ".join(filter(None, map(message_of, body[:3]))) or str(body)
    if not isinstance(body, dict):
        return ""
    named = (body[name] for name in ("message", "error", "detail", "errors", "msg") if body.get(name))
    words = next(filter(None, map(message_of, named)), "") or str(body)
    if isinstance(body.get("loc"), list):  # a validator's report
        words = f"{'.'.join(map(str, body['loc']))}: {words}"
    metadata = body.get("metadata")
    raw = message_of(metadata.get("raw")) if isinstance(metadata, dict) else ""
    return f"{words}: {raw}" if raw and raw not in words else words
