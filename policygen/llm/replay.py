"""The provider `replay`: the recorded replies of an earlier run, in their order and without any network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from policygen.errors import LogbookError, ProviderError, UsageError
from policygen.files import find_run
from policygen.llm.base import Diagnosis, LLMOptions
from policygen.llm.messages import Exchange, Prompt, Reply
from policygen.llm.transcript import Transcript

_TRANSCRIPT = "transcript.jsonl"
_REMEDY = "restore it from a copy, or replay another run"


class Replay:
    """The provider `replay:RUN`, where RUN is the folder of a run.

    Replies keep the recorded model and token counts; they cost 0.

    Raises UsageError if the run holds no readable replies.
    """

    def __init__(self, run: str, options: LLMOptions) -> None:
        self.spec = f"replay:{run}"
        self.folder = find_run(run).expanduser()
        self.path = self.folder / _TRANSCRIPT
        self._replies = tuple(exchange.reply for exchange in self.exchanges())
        if not self._replies:
            raise UsageError(f"{self.path} holds no replies to replay")
        self._next = 0
        self.model = self._replies[0].model
        self.is_language_model = any(reply.model != "builtin" for reply in self._replies)

    def exchanges(self) -> Iterator[Exchange]:
        """Yield all answered requests, in order; the cost of their replies is set to 0.

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
        """Return the next recorded reply; the prompt is ignored.

        Raises ProviderError if all replies have been replayed.
        """
        if self._next == len(self._replies):
            raise ProviderError(
                f"{self.path} holds {_count(len(self._replies))}, and all have been replayed: "
                "the run asks for more than the recorded one did"
            )
        self._next += 1
        return self._replies[self._next - 1]

    def skip(self, replies: int) -> None:
        """Skip replies that an interrupted run has used."""
        self._next = min(self._next + replies, len(self._replies))

    def diagnose(self) -> Diagnosis:
        """Describe how many replies are recorded, and of which model."""
        return Diagnosis(True, (f"{self.path} holds {_count(len(self._replies))} of {self.model}",))


def _count(number: int) -> str:
    return "1 reply" if number == 1 else f"{number} replies"
