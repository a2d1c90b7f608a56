"""OpenAI, Ollama, and other servers with OpenAI's chat protocol.

A key goes only to its own host: `openai` uses api.openai.com unless an address is given explicitly (OPENAI_BASE_URL is
not read), and the other two never get OPENAI_API_KEY.
"""

from __future__ import annotations

import difflib
import os
import warnings
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import openai
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageParam

from policygen.errors import PolicygenError, ProviderError, RejectedParameter, UsageError
from policygen.llm import faults
from policygen.llm.base import SAMPLING, Diagnosis, LLMOptions, counted, joined, not_taken, split_thinking, worded
from policygen.llm.keys import Key, check_destination, find_key, goes_to, require_key
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import BoundedClient

_OPENAI_URL = "https://api.openai.com/v1"
_OLLAMA_URL = "http://localhost:11434/v1"

# The new and the old name of the same limit; only a request shows which one a model takes.
_LIMITS = ("max_completion_tokens", "max_tokens")

_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})

# The estimate of four characters per token is rarely 20 % too high: half of it means that text was cut.
_CUT_BELOW = 0.5
_CUT_FROM_TOKENS = 500

# Fields for a model's context length: vLLM, OpenRouter, LM Studio.
_CONTEXT_FIELDS = ("max_model_len", "context_length", "max_context_length")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server, and its differences from the others.

    `limits` are the names of the parameter that bounds a reply, the likelier first; `start` says what to do if nothing
    answers, `missing` if the model is unknown.
    """

    provider_id: str
    name: str
    base_url: str
    key: Key | None
    limits: tuple[str, ...]
    start: str
    missing: str


class _Chat:
    """The common base of the three; one instance is one model on one server."""

    is_language_model = True

    def __init__(self, server: _Server, model: str, options: LLMOptions) -> None:
        base_url, key = server.base_url, server.key
        self.spec = f"{server.provider_id}:{model}"
        self.model = model
        self._provider_id = server.provider_id
        self._server = server.name
        self._options = options
        self.base_url = base_url
        self._key = key
        self._limits = server.limits
        self._start = server.start
        self._missing = server.missing
        self._dropped: set[str] = set()
        self.key_goes_to = goes_to(key, base_url)
        bearer = key.value if key else "none"
        self._client = openai.OpenAI(
            api_key=bearer,
            base_url=base_url,
            timeout=options.timeout_seconds,
            max_retries=0,
            http_client=BoundedClient(options.timeout_seconds),
            # Explicit: otherwise a header from OPENAI_CUSTOM_HEADERS would go to any server.
            default_headers={"Authorization": f"Bearer {bearer}"},
        )

    def drop(self, parameter: str) -> bool:
        """Stop sending `parameter`; False if it was dropped before or is required."""
        left = [name for name in self._limits if name not in self._dropped and name != parameter]
        if parameter in self._dropped or parameter not in (*SAMPLING, *self._limits) or not left:
            return False
        self._dropped.add(parameter)
        if parameter in SAMPLING:
            warnings.warn(not_taken(self.spec, parameter), stacklevel=2)
        return True

    @faults.unreadable_is_a_fault
    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request; errors as `Provider.complete` lists them."""
        parameters: dict[str, Any] = {}
        parameters[next(name for name in self._limits if name not in self._dropped)] = max_output_tokens
        sampling = {**{name: getattr(self._options, name) for name in SAMPLING if name != "seed"}, "seed": prompt.seed}
        parameters |= {
            name: value for name, value in sampling.items() if value is not None and name not in self._dropped
        }
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                messages=cast("list[ChatCompletionMessageParam]", messages),
                stream=False,
                extra_body=self._options.extra_body,
                **parameters,
            )
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            raise self._fault(error, tuple(parameters)) from None
        return self._reply(completion, prompt)

    @faults.unreadable_is_a_fault
    def diagnose(self) -> Diagnosis:
        """List the server's models and report what it says about this one."""
        lines = [f"the key is in {self._key.name}" if self._key else "no key is set, and none may be needed"]
        try:
            models = list(self._client.models.list().data)
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            return Diagnosis(False, (*lines, str(self._fault(error, ()))))
        lines.append(f"{self._server} answers at {self.base_url} and lists {len(models)} models")
        names = [model.id for model in models]
        found = next((model for model in models if model.id in (self.model, f"{self.model}:latest")), None)
        if found is None:
            near = difflib.get_close_matches(self.model, names, n=5, cutoff=0.4) or sorted(names)[:5]
            lines.append(f"it does not list {self.model!r}; it lists, among others, {', '.join(near) or 'nothing'}")
            return Diagnosis(False, tuple(lines))
        lines.append(f"it lists {found.id!r}")
        return Diagnosis(True, (*lines, *self._reported(found)))

    def _reported(self, model: Model) -> tuple[str, ...]:
        """Return sentences about the model's reported properties."""
        extra = model.model_extra or {}
        lines = [f"its context is {extra[name]} tokens" for name in _CONTEXT_FIELDS if isinstance(extra.get(name), int)]
        supported = extra.get("supported_parameters")
        if isinstance(supported, list):
            lines.append(f"it takes the parameters {', '.join(sorted(map(str, supported)))}")
        return tuple(lines)

    def _reply(self, completion: ChatCompletion, prompt: Prompt) -> Reply:
        if not isinstance(completion, ChatCompletion):
            raise ProviderError(
                f"{self._server} at {self.base_url} did not answer with a chat completion: "
                "does the address end as the server's manual says, mostly in /v1?"
            )
        failure = (completion.model_extra or {}).get("error")
        if failure and not completion.choices:  # some routers report an upstream fault with a 200
            detail = failure if isinstance(failure, dict) else {"message": failure}
            status = detail.get("code")
            raise faults.server_fault(
                self._server,
                status if isinstance(status, int) else 502,
                str(detail.get("message")),
                key=self._key,
            )
        usage = completion.usage
        tokens_in, tokens_out = counted(usage, "prompt_tokens"), counted(usage, "completion_tokens")
        self._check_context(prompt, tokens_in)
        text, thinking, finish = "", "", ""
        if completion.choices:
            choice = completion.choices[0]
            finish = worded(choice.finish_reason)
            if choice.message is not None:
                text, thinking = _content(choice.message), _reasoning(choice.message)
                if choice.message.refusal and not text:
                    finish = "refusal"
        thought = split_thinking(text)
        reported = worded(completion.model) or self.model
        return Reply(
            text=thought.text,
            model=reported,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            truncated=finish == "length" or thought.unclosed,
            reasoning=joined(thinking, thought.reasoning),
            finish_reason=finish,
        )

    def _check_context(self, prompt: Prompt, tokens_in: int | None) -> None:
        """Warn if the server cut the prompt silently; most answer 400 instead."""

    def _fault(self, error: Exception, sent: tuple[str, ...]) -> PolicygenError:
        if isinstance(error, openai.APITimeoutError):
            return faults.timeout_fault(self._server, self._options.timeout_seconds)
        if isinstance(error, openai.APIConnectionError):
            return faults.connection_fault(self._server, self.base_url, error, start=self._start)
        if not isinstance(error, openai.APIStatusError):
            return ProviderError(
                f"{self._server} at {self.base_url} gave an answer that cannot be read: "
                f"{faults.one_line(str(error), self._key)}"
            )
        message = _message(error)
        said = faults.one_line(message, self._key)
        if {worded(error.code), worded(error.type)} & _SPENT:
            return ProviderError(f"{self._server} says that the account is out of credit: {said}")
        if error.status_code in (400, 422):
            parameter = faults.rejected_parameter(message, sent, worded(error.param))
            # Another effort would be another experiment: the user must correct the value.
            if parameter and not (parameter == "reasoning_effort" and "value" in message.lower()):
                return RejectedParameter(f"{self.spec} does not take {parameter!r}: {said}", parameter)
        if error.status_code in (401, 403) and self._key is None:
            return ProviderError(f"{self._server} wants a key: set OPENAI_COMPATIBLE_API_KEY ({said})")
        if error.status_code == 404:
            message = f"{message.rstrip('.')} ({self._missing})"
        wait = faults.wait_asked(error.response.headers)
        return faults.server_fault(self._server, error.status_code, message, key=self._key, wait=wait)


class OpenAI(_Chat):
    """`openai:MODEL`, with the key in OPENAI_API_KEY."""

    def __init__(self, model: str, options: LLMOptions) -> None:
        key = require_key("openai", "OPENAI_API_KEY")
        check_destination(key, options, _OPENAI_URL)
        server = _Server(
            "openai",
            "OpenAI",
            options.base_url or _OPENAI_URL,
            key,
            _LIMITS,
            start="start the server, or leave the address out to ask OpenAI itself",
            missing=f"is {model!r} a model that this key may use?",
        )
        super().__init__(server, model, options)


class Compatible(_Chat):
    """`compatible:MODEL` at `LLMOptions.base_url`; the key, if the server wants one, in OPENAI_COMPATIBLE_API_KEY."""

    def __init__(self, model: str, options: LLMOptions) -> None:
        if options.base_url is None:
            raise UsageError(
                f"compatible:{model} needs the server's address, as in compatible:{model}@http://localhost:8000/v1"
            )
        key = find_key("OPENAI_COMPATIBLE_API_KEY")
        check_destination(key, options)
        server = _Server(
            "compatible",
            "the server",
            options.base_url,
            key,
            _LIMITS[::-1],
            start="start the server, or correct the address",
            missing=f"does it serve {model!r}, and does the address end as its manual says, mostly in /v1?",
        )
        super().__init__(server, model, options)
        # The SDK reads these from the environment; they are for OpenAI only.
        self._client.organization = self._client.project = None


class Ollama(_Chat):
    """`ollama:MODEL` on this machine, on OLLAMA_HOST, or at `LLMOptions.base_url`."""

    def __init__(self, model: str, options: LLMOptions) -> None:
        server = _Server(
            "ollama",
            "Ollama",
            options.base_url or _ollama_url(os.environ.get("OLLAMA_HOST", "")),
            None,
            _LIMITS[::-1],
            start="start Ollama (ollama serve)",
            missing=f"fetch the model with: ollama pull {model}",
        )
        super().__init__(server, model, options)
        self._client.organization = self._client.project = None

    def _reported(self, model: Model) -> tuple[str, ...]:
        """Return the context length of the loaded model, which only Ollama's own interface reports."""
        url = f"{self.base_url.removesuffix('/').removesuffix('/v1')}/api/ps"
        try:
            running = self._client.get(url, cast_to=cast("type[dict[str, Any]]", object)).get("models") or []
            lengths = [one["context_length"] for one in running if one.get("name") == model.id]
        except (openai.OpenAIError, ValueError, KeyError, AttributeError, TypeError):
            lengths = []
        if not lengths:
            return ("its context length shows once it is loaded; OLLAMA_CONTEXT_LENGTH sets it before Ollama starts",)
        return (f"its context is {lengths[0]} tokens as loaded",)

    def _check_context(self, prompt: Prompt, tokens_in: int | None) -> None:
        expected = prompt.estimated_tokens
        if tokens_in is not None and expected >= _CUT_FROM_TOKENS and tokens_in < _CUT_BELOW * expected:
            warnings.warn(
                f"Ollama read {tokens_in} of about {expected} tokens, so the prompt was cut: "
                "set OLLAMA_CONTEXT_LENGTH to a larger number and start Ollama again",
                stacklevel=4,
            )


def _ollama_url(host: str) -> str:
    """Convert Ollama's variable OLLAMA_HOST, [scheme://]host[:port][/path], to the chat address."""
    host = host.strip().strip("\"'")
    if not host:
        return _OLLAMA_URL
    explicit = "://" in host
    try:
        parts = urlsplit(host if explicit else f"http://{host}")
        port = parts.port or (None if explicit else 11434)
    except ValueError as error:
        raise UsageError(f"OLLAMA_HOST={host} is not an address such as localhost:11434: {error}") from None
    # 0.0.0.0 is an address to listen on, not to connect to.
    name = "localhost" if parts.hostname in (None, "0.0.0.0") else str(parts.hostname)
    name = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{path}/v1"


def _content(message: ChatCompletionMessage) -> str:
    """Return the message's text; some servers send a list of parts instead of a string."""
    content: object = message.content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _reasoning(message: ChatCompletionMessage) -> str:
    extra = message.model_extra or {}
    fields = (extra.get("reasoning"), extra.get("reasoning_content"))
    # Some servers send the same text under both names.
    return joined(*dict.fromkeys(text for text in fields if isinstance(text, str)))


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict):
        for name in ("message", "error", "detail"):
            if body.get(name):
                return str(body[name])
    return str(body) if body else error.message
