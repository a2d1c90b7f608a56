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
from policygen.llm.messages import NO_MODEL, Exchange, Message, Prompt, Reply
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


@dataclass
class ProgramProvider:
    """A provider that is not a language model: a function answers, from the context that a prompt carries."""

    spec: str
    answer: Callable[[Any], str]

    model = NO_MODEL
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the function's answer, which costs nothing."""
        return Reply(self.answer(prompt.context), NO_MODEL, 0, 0, 0.0)


@dataclass(eq=False)
class Asker:
    """A client of one provider that several threads use at a time; see `RequestLog`.

    The first request is sent alone, so that only one request fails if the model refuses a parameter.
    """

    provider: Provider
    log: RequestLog
    concurrency: int = 1  # maximum number of requests under way; set to 1 for a provider without a server
    asked: int = 0  # number of different questions that got an answer, readable or not
    repairs: int = 0  # number of these whose answer was unreadable, so that a repair was requested
    fallbacks: int = 0  # number of these whose second answer was unreadable, too
    fallback_uses: int = 0  # number of times that a fallback was used in place of an answer

    def __post_init__(self) -> None:
        self.concurrency = self.concurrency if isinstance(self.provider, KeyedProvider) else 1
        self.ledger = self.log.ledger
        self._has_reply = False
        self.lock = threading.Lock()  # guards the counts

    def map_parallel(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call `work`, which asks, for each item in parallel; return the results in the order of the items.

        Raises:
            PolicygenError: the first error, in the order of the items, after the requests under way have ended.
        """
        one_by_one = len(items) if self.concurrency == 1 else 0 if self._has_reply else 1
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
        self._has_reply = self._has_reply or exchange.requests > 0
        return exchange


class Questions(ABC, Generic[Q, V]):
    """The questions of one kind to a model; it renders them, asks each once, and remembers the answers.

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
        self._known: dict[Q, V | None] = {}
        for variables in systems:
            self._system = Prompt((Message("system", render_template(templates[0], variables)),))
            if self._system.estimated_tokens <= 0.8 * prompt_tokens:
                return
        self._check_length(self._system)

    @abstractmethod
    def prompt(self, question: Q) -> Prompt:
        """Render a question; raise TemplateError if it cannot be rendered or is too long."""

    @abstractmethod
    def read(self, text: str, question: Q) -> V:
        """Return the value in the text of an answer; raise UnreadableAnswer if there is none."""

    def answers(self, questions: Sequence[Q], asker: Asker) -> list[V | None]:
        """Return the answers to questions, asking all new ones in parallel; None where the repair is unreadable, too.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; answers received are kept for the next call.
        """
        new = [question for question in dict.fromkeys(questions) if question not in self._known]

        def ask(numbered: tuple[int, Q]) -> None:
            number, question = numbered
            prompt, value = self.prompt(question), None
            for repair in (0, 1):
                reply = asker.ask(number, repair, prompt).reply
                try:
                    value = read_reply(reply, lambda text: self.read(text, question))
                    break
                except UnreadableAnswer as error:
                    prompt = self.repair(prompt, reply.text, str(error))
            with asker.lock:
                asker.asked += 1
                asker.repairs += repair
                asker.fallbacks += value is None
            self._known[question] = value

        asker.map_parallel(ask, list(enumerate(new, start=asker.asked + 1)))
        return [self._known[question] for question in questions]

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
                f"raise --set prompt_tokens=N or {self.remedy}"
            )
