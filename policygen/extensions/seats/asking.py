"""Questions to a model: each is asked once, several in parallel; an unreadable answer gets one repair request."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from policygen.errors import TemplateError
from policygen.llm import Provider
from policygen.llm.base import KeyedProvider
from policygen.llm.messages import Exchange, Message, Prompt, Reply
from policygen.prompts.templates import load_template, render_template
from policygen.runs.request_log import RequestLog

MOST_READ = 20_000  # number of characters at the end of an answer that are read
_MOST_REPEATED = 2_000  # number of characters at the end of an answer that a repair request shows
_QUOTED = 60  # number of characters of an answer that an error message quotes

Q = TypeVar("Q", bound=Hashable)  # a question
V = TypeVar("V")  # the value that an answer states
T = TypeVar("T")
R = TypeVar("R")


class UnreadableAnswer(ValueError):
    """An answer without the value asked for; the repair request shows the message."""


def read_reply(reply: Reply, read: Callable[[str], V]) -> V:
    """Return the value that `read` finds in the last `MOST_READ` characters of a reply.

    Raises:
        UnreadableAnswer: the reply is empty, was cut off, or `read` finds no value.
    """
    if reply.truncated:
        raise UnreadableAnswer("it was cut off by its length limit")
    text = reply.text[-MOST_READ:].strip()
    if not text:
        raise UnreadableAnswer("it is empty")
    return read(text)


def quoted(text: str) -> str:
    """Return part of an answer in backquotes, on one line, shortened to 60 characters."""
    words = " ".join(text.replace("`", "'").split())
    return f"`{words if len(words) <= _QUOTED else f'{words[: _QUOTED - 4]} ...'}`"


class Questions(ABC, Generic[Q]):
    """A renderer of questions to a model, and of repair requests for unreadable answers.

    Args:
        templates: names of the templates of the system message, of a question, and of a repair request.
        systems: variables of the system message, from its longest version to its shortest. The first version that
            takes at most 80% of a prompt is used, or else the shortest.
        prompt_tokens: maximum number of estimated tokens of a prompt.
        shared: variables of both questions and repair requests.

    Raises:
        TemplateError: a template is missing or broken, or the shortest system message is too long.
    """

    remedy = "show less in the template"  # for prompts that are too long

    def __init__(
        self,
        templates: tuple[str, str, str],
        systems: Iterable[Mapping[str, Any]],
        prompt_tokens: int,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        for name in templates:
            load_template(name)
        self._request, self._repair = templates[1:]
        self._prompt_tokens, self._shared = prompt_tokens, shared or {}
        for variables in systems:
            self._system = Prompt((Message("system", render_template(templates[0], variables)),))
            if self._system.estimated_tokens <= 0.8 * prompt_tokens:
                return
        self._check_length(self._system)

    @abstractmethod
    def prompt(self, question: Q) -> Prompt:
        """Render a question; raise TemplateError if it cannot be rendered or is too long."""

    def repair(self, prompt: Prompt, reply: str, problem: str) -> Prompt:
        """Return the prompt, the unreadable reply, and a request for another answer."""
        request = render_template(self._repair, {"problem": problem, **self._shared})
        return prompt.followed_by(Message("assistant", reply[-_MOST_REPEATED:] or "(empty)"), Message("user", request))

    def _render(self, variables: Mapping[str, Any], context: object) -> Prompt:
        """Render a prompt; it carries `context` for providers that are not language models."""
        request = Message("user", render_template(self._request, {**variables, **self._shared}))
        prompt = Prompt((*self._system.messages, request), context)
        self._check_length(prompt)
        return prompt

    def _check_length(self, prompt: Prompt) -> None:
        if prompt.estimated_tokens > self._prompt_tokens:
            raise TemplateError(
                f"the prompt has about {prompt.estimated_tokens:,} tokens; the limit is {self._prompt_tokens:,}; "
                f"raise --set prompt_tokens=N, {self.remedy}"
            )


@dataclass(eq=False)
class Asker:
    """A client of one provider that several threads use at a time; see `RequestLog`.

    The first request is sent alone, so that only one request fails if the model refuses a parameter.

    Args:
        concurrency: maximum number of requests under way; set to 1 for a provider without a server.
    """

    provider: Provider
    log: RequestLog
    concurrency: int = 1

    def __post_init__(self) -> None:
        self.concurrency = self.concurrency if isinstance(self.provider, KeyedProvider) else 1
        self.ledger = self.log.ledger
        self._answered = False

    def map_parallel(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call `work`, which asks, for each item in parallel; return the results in the order of the items.

        Raises:
            PolicygenError: the first error, in the order of the items, after the requests under way have ended.
        """
        one_by_one = len(items) if self.concurrency == 1 else 0 if self._answered else 1
        results = [work(item) for item in items[:one_by_one]]
        if len(items) <= one_by_one:
            return results
        with ThreadPoolExecutor(self.concurrency) as executor:
            futures = [executor.submit(work, item) for item in items[one_by_one:]]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # Cancel questions that are not yet asked; requests under way are paid for, and their answers kept.
                for future in futures:
                    future.cancel()
        # A failed question comes before all cancelled ones, so its error is the one raised.
        return results + [future.result() for future in futures]

    def ask(self, number: int, repair: int, prompt: Prompt) -> Exchange:
        """Ask question `number` (`repair` is 0), or request a repair of its answer (1). See `RequestLog.ask`."""
        exchange = self.log.ask(self.provider, number, repair, prompt)
        self._answered = self._answered or exchange.requests > 0
        return exchange


@dataclass
class Counts:
    """The counts of questions, repairs and fallbacks.

    Attributes:
        asked: number of different questions that got an answer, readable or not.
        repairs: number of these questions whose answer was unreadable, so that a repair was requested.
        fallbacks: number of these questions whose second answer was unreadable, too.
        fallback_uses: number of times that a fallback was used in place of an answer.
    """

    asked: int = 0
    repairs: int = 0
    fallbacks: int = 0
    fallback_uses: int = 0


class Answers(Generic[Q, V]):
    """A cache of a model's answers, which asks for those it lacks, with one repair request each.

    Args:
        counts: updated with every question asked.
        read: returns the value in the text of an answer to a question; raises UnreadableAnswer.
    """

    def __init__(self, asker: Asker, counts: Counts, questions: Questions[Q], read: Callable[[str, Q], V]) -> None:
        self._asker, self._counts, self._questions, self._read = asker, counts, questions, read
        self._known: dict[Q, V | None] = {}
        self._lock = threading.Lock()  # guards the counts and the answers

    def get_all(self, questions: Sequence[Q]) -> list[V | None]:
        """Return the answers to questions, asking all new ones in parallel; None where the repair is unreadable, too.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; answers received are kept for the next call.
        """
        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        numbered = list(enumerate(new, start=self._counts.asked + 1))
        self._asker.map_parallel(lambda item: self._ask(*item), numbered)
        return [self._known[question] for question in questions]

    def _ask(self, number: int, question: Q) -> None:
        prompt, value = self._questions.prompt(question), None
        for repair in (0, 1):
            reply = self._asker.ask(number, repair, prompt).reply
            try:
                value = read_reply(reply, lambda text: self._read(text, question))
                break
            except UnreadableAnswer as error:
                prompt = self._questions.repair(prompt, reply.text, str(error))
        with self._lock:
            self._counts.asked += 1
            self._counts.repairs += repair
            self._counts.fallbacks += value is None
            self._known[question] = value
