"""Answers recorded in a seat, given again by what was asked."""

from __future__ import annotations

from dataclasses import replace

from policygen.errors import LogbookError, ProviderError, UsageError
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Exchange, Prompt, Reply
from policygen.llm.replay import Replay
from policygen.llm.transcript import Transcript


class Recorded:
    """`replay:FOLDER` in a seat: what was answered to the same question before, in whatever order they come.

    A run replays its replies one after the other; the questions of a seat come from many episodes side by side.

    Raises:
        UsageError: the transcript is damaged.
    """

    def __init__(self, replay: Replay) -> None:
        self.spec, self.model, self.is_language_model = replay.spec, replay.model, replay.is_language_model
        self._replay = replay
        try:
            answered = [one for one in Transcript(replay.path).exchanges() if isinstance(one, Exchange)]
        except LogbookError as error:
            raise UsageError(str(error)) from None
        self._replies = {one.prompt.messages: one.reply for one in answered}

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The recorded reply, at a cost of 0. Raises ProviderError if the question was never asked."""
        reply = self._replies.get(prompt.messages)
        if reply is None:
            raise ProviderError(
                f"{self._replay.folder} holds no answer to this question: replay it with the task, the seed, the "
                "template and the settings that it was recorded with, or ask a model"
            )
        return replace(reply, usd=0.0, seconds=0.0, cached=False)

    def diagnose(self) -> Diagnosis:
        """Say how many replies are recorded, and of which model."""
        return self._replay.diagnose()
