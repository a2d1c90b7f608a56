"""Answers recorded in a seat, given again by what was asked."""

from __future__ import annotations

from policygen.errors import ProviderError
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Prompt, Reply
from policygen.llm.replay import Replay


class Recorded:
    """`replay:FOLDER` in a seat: what was answered to the same question before, in whatever order they come.

    A run replays its replies one after the other; the questions of a seat come from many episodes side by side.
    """

    def __init__(self, replay: Replay) -> None:
        self.spec, self.model, self.is_language_model = replay.spec, replay.model, replay.is_language_model
        self._replay = replay
        self._replies = {exchange.prompt.messages: exchange.reply for exchange in replay.exchanges()}

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The recorded reply, at a cost of 0. Raises ProviderError if the question was never asked."""
        reply = self._replies.get(prompt.messages)
        if reply is None:
            raise ProviderError(
                f"{self._replay.folder} holds no answer to this question: replay it with the task, the seed, the "
                "template and the settings that it was recorded with, or ask a model"
            )
        return reply

    def diagnose(self) -> Diagnosis:
        """Say how many replies are recorded, and of which model."""
        return self._replay.diagnose()
