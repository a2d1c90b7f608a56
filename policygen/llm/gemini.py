"""Google Gemini through the google-genai SDK.

The server is Google's unless an address is given explicitly: the SDK's environment variables for other servers and
for Google Cloud are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types

from policygen.errors import ProviderError, RejectedParameter, UsageError
from policygen.llm.base import SAMPLING, Diagnosis, LLMOptions, read_reply, short_text, token_count
from policygen.llm.hosted import HostedModel, find_key, rejected_parameter, require_key
from policygen.llm.messages import Prompt, Reply
from policygen.llm.transport import BoundedClient

_EFFORTS = tuple(level.value.lower() for level in types.ThinkingLevel if not level.value.endswith("UNSPECIFIED"))
# Our parameters by the names that Google's error messages use.
_NAMES = dict.fromkeys(("thinkingLevel", "thinking_level", "Thinking level"), "reasoning_effort")
_NAMES |= {name: name for name in SAMPLING}


class Gemini(HostedModel):
    """The provider `gemini:MODEL`, with the key in GOOGLE_API_KEY or, as in Google's tools, GEMINI_API_KEY."""

    provider_id, server, own_url = "gemini", "Gemini", "https://generativelanguage.googleapis.com"
    timed_out, unreachable = httpx2.TimeoutException, httpx2.HTTPError
    refused = failed = errors.APIError

    def __init__(self, model: str, options: LLMOptions) -> None:
        key = find_key("GOOGLE_API_KEY") or require_key("gemini", "GEMINI_API_KEY", "GOOGLE_API_KEY")
        super().__init__(model.removeprefix("models/"), options, key)
        if options.reasoning_effort not in (None, *_EFFORTS):
            raise UsageError(
                f"reasoning_effort {options.reasoning_effort}: {self.spec} takes one of {', '.join(_EFFORTS)}"
            )
        self._client = genai.Client(
            vertexai=False,
            api_key=key.value,
            http_options=types.HttpOptions(
                base_url=self.base_url,
                api_version="v1beta",  # serves preview models and system instructions
                timeout=max(1, round(options.timeout_seconds * 1000)),
                httpx_client=BoundedClient(options.timeout_seconds, self.base_url),
                async_client_args={"trust_env": False},  # unused, but it would read proxy variables
            ),
        )

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        effort, extra = sent.get("reasoning_effort"), self._options.extra_body
        config = types.GenerateContentConfig(
            system_instruction=prompt.system or None,
            max_output_tokens=max_output_tokens,
            temperature=sent.get("temperature"),
            seed=sent.get("seed"),
            thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort.upper()))
            if effort
            else None,
            http_options=types.HttpOptions(extra_body=extra) if extra else None,
        )
        roles = {"assistant": "model", "user": "user"}
        spoken = [message for message in prompt.messages if message.role in roles]
        contents: list[Any] = [
            types.Content(role=roles[one.role], parts=[types.Part(text=one.content)]) for one in spoken
        ]
        response = self._client.models.generate_content(model=self.model, contents=contents, config=config)
        candidate = response.candidates[0] if response.candidates else None
        finish = ""
        if candidate and candidate.finish_reason:
            finish = candidate.finish_reason.value
        elif response.prompt_feedback and response.prompt_feedback.block_reason:
            finish = response.prompt_feedback.block_reason.value
        # Not `response.text`: it is None if thinking used up the allowance, and lacks the thoughts.
        parts = (candidate.content.parts if candidate and candidate.content else None) or []
        usage = response.usage_metadata
        return read_reply(
            "".join(part.text for part in parts if part.text and not part.thought),
            short_text(response.model_version) or self.model,
            thinking=(part.text for part in parts if part.text and part.thought),
            tokens_in=token_count(usage, "prompt_token_count"),
            # Thoughts are billed as output but counted separately.
            tokens_out=token_count(usage, "candidates_token_count", "thoughts_token_count"),
            truncated=finish == "MAX_TOKENS",
            finish_reason=finish,
        )

    def _look_up(self) -> Diagnosis:
        found = self._client.models.get(model=self.model)
        return self._found(found.name or self.model, found.input_token_limit, found.output_token_limit)

    def _refusal(self, error: errors.APIError, sent: Mapping[str, Any]) -> ProviderError:
        message = str(error.message or error)
        response = error.response if isinstance(error.response, httpx2.Response) else None
        shown = self._quoted(message)
        details = list(_details(error))
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            return self._fault(401, message, response)  # Google says 400
        if error.code == 429 and _beyond_waiting(message, details):
            return ProviderError(
                f"this key has no Gemini quota for {self.model}, or none left today; choose another model or key, or "
                f"resume tomorrow: {shown}"
            )
        if error.code == 400:
            named = rejected_parameter(message, [name for name, ours in _NAMES.items() if ours in sent])
            if named:
                return RejectedParameter(f"{self.spec} does not take {named!r}: {shown}", _NAMES[named])
        # A protobuf duration such as `38.5s`.
        stated = (re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay"))) for detail in details)
        delay = next((float(found[1]) for found in stated if found), None)
        return self._fault(response.status_code if response is not None else 500, message, response, delay)


def _details(error: errors.APIError) -> Iterator[dict[str, Any]]:
    """Yield the typed details of a Google error (google.rpc.Status.details), if any."""
    body = error.details.get("error", error.details) if isinstance(error.details, dict) else {}
    details = body.get("details") if isinstance(body, dict) else None
    yield from (detail for detail in (details if isinstance(details, list) else ()) if isinstance(detail, dict))


def _beyond_waiting(message: str, details: list[dict[str, Any]]) -> bool:
    """Whether a 429 is about a daily quota, a quota of zero, or exhausted credit, so that waiting does not help."""
    listed = [detail["violations"] for detail in details if isinstance(detail.get("violations"), list)]
    violations = [violation for some in listed for violation in some if isinstance(violation, dict)]
    daily = any("perday" in str(violation.get("quotaId", "")).lower() for violation in violations)
    return daily or bool(re.search(r"limit: 0\b(?!\.)|credits? (?:are|is) depleted", message))
