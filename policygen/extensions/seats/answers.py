"""A cache of a model's answers: each question is asked once, and an unreadable answer gets one repair request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from policygen.extensions.seats.asker import Asker
from policygen.llm.messages import Prompt, Reply


@dataclass
class Counts:
    """The counts of questions, repairs and fallbacks.

    Attributes:
        asked: different questions that were answered.
        repairs: of them, asked again because the answer could not be read.
        fallbacks: of them, questions whose repaired answer could not be read either.
        fallback_uses: how often a fallback was used in place of an answer.
    """

    asked: int = 0
    repairs: int = 0
    fallbacks: int = 0
    fallback_uses: int = 0


class ReadAnswer(Protocol):
    """The content read from an answer."""

    @property
    def problem(self) -> str:
        """Why nothing could be read; empty where something was."""
        ...


Q = TypeVar("Q", bound=Hashable)
S = TypeVar("S", bound=ReadAnswer)


class Answers(Generic[Q, S]):
    """A cache of a model's answers that asks for the missing ones.

    Args:
        counts: updated with every question asked.
        prompt: renders a question.
        repair: renders a repair request from the prompt, the text of the unreadable reply, and the problem.
        read: reads a reply to a question.
    """

    def __init__(
        self,
        asker: Asker,
        counts: Counts,
        prompt: Callable[[Q], Prompt],
        *,
        repair: Callable[[Prompt, str, str], Prompt],
        read: Callable[[Reply, Q], S],
    ) -> None:
        self._asker, self._counts = asker, counts
        self._prompt, self._repair, self._read = prompt, repair, read
        self._known: dict[Q, S] = {}
        self._lock = threading.Lock()  # of what several threads keep

    def to(self, questions: Sequence[Q]) -> list[S]:
        """The answers to questions that come up side by side; those that are new are asked together.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; what was answered is known the next time.
        """
        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        numbered = list(enumerate(new, start=self._counts.asked + 1))
        self._asker.together(lambda item: self._ask(*item), numbered)
        return [self._known[question] for question in questions]

    def _ask(self, number: int, question: Q) -> None:
        prompt, repairs = self._prompt(question), 0
        reply = self._asker.ask(number, 0, prompt).reply
        said = self._read(reply, question)
        if said.problem:
            repairs = 1
            said = self._read(
                self._asker.ask(number, 1, self._repair(prompt, reply.text, said.problem)).reply, question
            )
        with self._lock:
            self._counts.asked += 1
            self._counts.repairs += repairs
            self._counts.fallbacks += bool(said.problem)
            self._known[question] = said
