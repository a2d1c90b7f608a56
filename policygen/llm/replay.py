"""The provider `replay`: the recorded replies of an earlier run, without any network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace

from policygen.errors import LogbookError, ProviderError, UsageError
from policygen.files import find_run
from policygen.llm.base import Diagnosis, LLMOptions
from policygen.llm.messages import NO_MODEL, Exchange, Prompt, Reply
from policygen.llm.transcript import Transcript

_TRANSCRIPT = "transcript.jsonl"
_REMEDY = "restore it from a copy, or replay another run"
_ADVICE = "use the task, seed, template and settings of the recording, with at most as many iterations, or ask a model"


class Replay:
    """The provider `replay:RUN`, where RUN is the folder of a run or of a drive or mediation.

    Replies keep the recorded model and token counts; they cost 0.

    Raises UsageError if the folder holds no readable replies.
    """

    def __init__(self, run: str, options: LLMOptions) -> None:
        self.spec = f"replay:{run}"
        self.folder = find_run(run).expanduser()
        self.path = self.folder / _TRANSCRIPT
        self._replies: dict[tuple[int, int] | bytes | None, Reply] = {}  # by key, and by digest of the messages
        models: list[str] = []
        for exchange in self._exchanges():
            models.append(exchange.reply.model)
            for key in ((exchange.attempt, exchange.request), _digest(exchange.prompt)):
                self._replies.setdefault(key, exchange.reply)
        if not models:
            raise UsageError(f"{self.path} holds no replies to replay")
        self.model, self._count = models[0], len(models)
        self.is_language_model = any(model != NO_MODEL for model in models)

    def _exchanges(self) -> Iterator[Exchange]:
        """Yield all answered requests; the cost of their replies is set to 0.

        Raises UsageError if there is no transcript, or it is damaged.
        """
        if not os.path.lexists(self.path):
            raise UsageError(f"replay:RUN needs a run folder with a {_TRANSCRIPT}: there is no {self.path}")
        try:
            for exchange in Transcript(self.path).exchanges(_REMEDY):
                if isinstance(exchange, Exchange):
                    yield replace(exchange, reply=replace(exchange.reply, usd=0.0, seconds=0.0, cached=False))
        except LogbookError as error:
            raise UsageError(f"replay:RUN needs a run folder with a {_TRANSCRIPT}: {error}") from None

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the reply recorded for the prompt's attempt and repair, or else for the same messages.

        The messages of an attempt may differ from the recorded ones, for example because a template was edited.

        Raises ProviderError if there is none.
        """
        reply = self._replies.get(prompt.key) or self._replies.get(_digest(prompt))
        if reply is None:
            raise ProviderError(f"{self._holds}, and none to this request; {_ADVICE}")
        return reply

    def diagnose(self) -> Diagnosis:
        """Describe how many replies are recorded, and of which model."""
        return Diagnosis(True, (f"{self._holds} of {self.model}",))

    @property
    def _holds(self) -> str:
        return f"{self.path} holds {'1 reply' if self._count == 1 else f'{self._count} replies'}"


def _digest(prompt: Prompt) -> bytes:
    return hashlib.blake2b(repr(prompt.messages).encode(errors="replace"), digest_size=16).digest()
