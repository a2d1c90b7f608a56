"""The base class of providers that send requests over HTTP through an SDK."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from policygen.errors import PolicygenError, ProviderError
from policygen.llm import faults
from policygen.llm.base import SAMPLING, Diagnosis, LLMOptions, dropped_warning
from policygen.llm.keys import Key, check_destination, goes_to
from policygen.llm.messages import Prompt, Reply

# The SDKs do not validate answers: a field that should be a list may be a number. Reading it raises one of these.
_MALFORMED = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and advice for its error messages.

    Attributes:
        own_url: the provider's own address; a key may be sent there even if a file chose the address.
        start: advice if the server does not answer; `missing`: advice if it does not know the model.
    """

    provider_id: str
    name: str
    own_url: str
    key: Key | None
    start: str
    missing: str = "is {!r} a model that this key may use?"


class HostedModel:
    """One model on one server. A subclass sends requests through its SDK and explains the SDK's error statuses.

    A subclass names its SDK's exceptions: `timed_out` (no answer in time), `unreachable` (no connection), `refused`
    (an error status) and `failed` (anything else).
    """

    is_language_model = True
    timed_out: ClassVar[type[Exception]]
    unreachable: ClassVar[type[Exception]]
    refused: ClassVar[type[Exception]]
    failed: ClassVar[type[Exception]]

    def __init__(self, server: Server, model: str, options: LLMOptions) -> None:
        check_destination(server.key, options, server.own_url)
        self.spec = f"{server.provider_id}:{model}"
        self.model = model
        self.base_url = options.base_url or server.own_url
        self.key_goes_to = goes_to(server.key, self.base_url)
        self._server = server
        self._key = server.key
        self._options = options
        self._dropped: set[str] = set()

    def drop(self, parameter: str) -> bool:
        """Stop sending `parameter`; False if it was dropped before or is required."""
        if parameter not in SAMPLING or parameter in self._dropped:
            return False
        self._dropped.add(parameter)
        warnings.warn(dropped_warning(self.spec, parameter), stacklevel=2)
        return True

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt` with one request; errors as `Provider.complete` lists them."""
        stated = {**{name: getattr(self._options, name, None) for name in SAMPLING}, "seed": prompt.seed}
        sent = {name: v for name, v in stated.items() if v is not None and name not in self._dropped}
        with self._translated_errors(sent):
            return self._ask(prompt, max_output_tokens, sent)

    def diagnose(self) -> Diagnosis:
        """Ask the server about the model."""
        lines = [f"the key is in {self._key.name}" if self._key else "no key is set; this server may not need one"]
        try:
            with self._translated_errors({}):
                found = self._look_up()
        except PolicygenError as error:
            return Diagnosis(False, (*lines, str(error)))
        return Diagnosis(found.ok, (*lines, *found.lines))

    def _ask(self, prompt: Prompt, max_output_tokens: int, sent: Mapping[str, Any]) -> Reply:
        """Send one request with the sampling parameters `sent`, and read the answer."""
        raise NotImplementedError

    def _look_up(self) -> Diagnosis:
        """Return what the server says about the model."""
        raise NotImplementedError

    def _refusal(self, error: Any, sent: Mapping[str, Any]) -> faults.Refusal | ProviderError:
        """Return status and message of an answer; for a special case, such as spent credit, the exception to raise."""
        raise NotImplementedError

    @contextmanager
    def _translated_errors(self, sent: Mapping[str, Any]) -> Iterator[None]:
        """Raise a PolicygenError in place of each of the SDK's exceptions, and for a malformed answer."""
        name = self._server.name
        try:
            yield
        except PolicygenError:
            raise
        except self.timed_out:
            raise faults.timeout_fault(name, self._options.timeout_seconds) from None
        except self.unreachable as error:
            raise faults.connection_fault(name, self.base_url, error, start=self._server.start) from None
        except self.refused as error:
            refusal = self._refusal(error, sent)
            if isinstance(refusal, ProviderError):
                raise refusal from None
            if refusal.status == 404:
                missing = self._server.missing.format(self.model)
                refusal = faults.Refusal(404, f"{refusal.message.rstrip('.')} ({missing})")
            raise faults.server_fault(name, refusal, key=self._key) from None
        except (self.failed, *_MALFORMED) as error:
            raise faults.unreadable(name, self.base_url, f"{type(error).__name__}: {error}", self._key) from None
