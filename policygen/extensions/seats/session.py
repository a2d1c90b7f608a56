"""What `drive` and `mediate` share: a model to ask, and a folder that this process locks.

Each question is asked once, several in parallel; an unreadable answer gets one repair request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from policygen.errors import TemplateError, UsageError
from policygen.files import json_of, make_folder, mark, read, write_atomically
from policygen.llm import Provider, connect, read_spec
from policygen.llm.base import dollars
from policygen.llm.messages import NO_MODEL, Message, Prompt, Reply
from policygen.llm.store import Cache, Transcript
from policygen.outgoing import redacted
from policygen.prompts.templates import load_template, render_template
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity
from policygen.runs.logbook import lock_folder
from policygen.runs.request_log import RequestLog

MOST_READ = 20_000  # maximum number of characters read, at the end of an answer
_MOST_REPEATED = 2_000  # maximum number of characters that a repair request repeats, at the end of an answer
_QUOTED = 60  # maximum number of characters that an error message quotes

V = TypeVar("V")  # the value that an answer states


@dataclass
class ProgramProvider:
    """A provider that is not a language model: a function that answers from the context of a prompt."""

    spec: str
    answer: Callable[[Any], str]

    model = NO_MODEL
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the function's answer."""
        return Reply(self.answer(prompt.context), NO_MODEL, 0, 0, 0.0)


def connect_model(config: RunConfig, refusal: str) -> Provider:
    """Return the provider of the setting `llm`; raise UsageError with `refusal` for `builtin` and `random`."""
    if (name := read_spec(config.llm).name) in ("builtin", "random"):
        raise UsageError(f"{name} proposes policies and {refusal}")
    return connect(config.llm, config)


class UnreadableAnswer(ValueError):
    """An answer does not contain the value asked for; the message appears in the repair request."""


class Session:
    """A model to ask, and a folder with the transcript, the answers and the result, locked until `close` is called.

    If the folder already holds this session, its stored answers are used again.

    Args:
        kind: `drive` or `mediate`; the result is saved as KIND.json.
        identity: further fields of the result. A session continues another if these, the model and the seed are equal.
        concurrency: maximum number of requests at a time; without a server, always 1.
        tell: called with every wait, and with None when it ends.

    Raises:
        UsageError: the folder holds something else.
        LogbookError: the folder cannot be written, or another process works in it.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        provider: Provider,
        kind: str,
        identity: Mapping[str, Any],
        *,
        concurrency: int = 4,
        tell: Callable[[Activity | None], None] = lambda activity: None,
    ) -> None:
        self.folder, self.config, self.provider = folder, config, provider
        self.concurrency = concurrency if hasattr(provider, "key_goes_to") else 1
        self.stopped = "interrupted"  # why the session ended early; empty if it is complete
        self.fallback_uses = 0  # number of times that a default replaced a missing value
        # For each question the value of its answer (None: unreadable, even after the repair) and the number of repairs.
        self._known: dict[Prompt, tuple[Any, int]] = {}
        self._kind, self._file = kind, folder / f"{kind}.json"
        self._identity = {**identity, "llm": redacted(config.llm), "seed": config.seed}
        make_folder(folder, "choose another --out")
        if self._file.exists():
            saved = read(self._file, json_of, "restore it from a copy, or choose another --out", kind=kind)
            for name, value in self._identity.items():
                if (was := saved.get(name)) != value:
                    raise UsageError(
                        f"{folder} belongs to another `policygen {kind}`: its {name} is {was}, not {value}; "
                        "choose another --out"
                    )
        elif {path.name for path in folder.iterdir()} - {".lock"}:
            raise UsageError(f"{folder} holds other files; choose another --out")
        transcript = Transcript(folder / "transcript.jsonl")
        self.log = RequestLog(
            Ledger(config),
            on_exchange=transcript.record,
            on_sent=transcript.record_sent,
            tell=tell,
            cache=Cache(folder / "answers") if provider.is_language_model else None,
            by_attempt=False,
        )
        lock = lock_folder(folder)
        self.close = lock.release
        self.save({})  # so that another session can continue this one even if it stops at once

    @property
    def asked(self) -> int:
        """Number of different questions that were answered, readably or not."""
        return len(self._known)

    def save(self, found: Mapping[str, Any], *, finished: bool = False) -> dict[str, Any]:
        """Save and return the result: the fields `found`, and the costs so far."""
        ledger = self.log.ledger
        result = {
            **self._identity,
            "is_language_model": self.provider.is_language_model,
            **found,
            "asked": self.asked,
            "repairs": sum(repairs for _, repairs in self._known.values()),
            "fallbacks": sum(value is None for value, _ in self._known.values()),
            "fallback_uses": self.fallback_uses,
            "requests": ledger.calls,  # including retries
            "llm_calls": ledger.calls if self.provider.is_language_model else 0,
            "cached": ledger.cached,  # answers stored by an earlier session
            "tokens_in": ledger.tokens_in,
            "tokens_out": ledger.tokens_out,
            "usd": ledger.usd,
            "stopped": self.stopped,
            "finished": finished,
        }
        write_atomically(self._file, json.dumps({**mark(self._kind), **result}, indent=1))
        return result

    def answers(self, questions: Sequence[Prompt], read: Callable[[str, Any], V], form: str = "") -> list[V | None]:
        """Return the values of the answers; None where an answer is unreadable even after the repair.

        New questions are asked in parallel. The first question of a session is asked alone, so that only one request
        fails if the model refuses a parameter.

        Args:
            read: returns the value in an answer, given its text and the prompt's context; raises UnreadableAnswer.
            form: the format of an answer, for the repair request.

        Raises:
            BudgetExhausted, ProviderError: not all questions were asked; the answers so far are kept for the next call.
        """

        def ask(numbered: tuple[int, Prompt]) -> None:
            number, question = numbered
            prompt, value = question, None
            for repair in (0, 1):
                reply = self.log.ask(self.provider, number, repair, prompt).reply
                try:
                    value = read(readable(reply), question.context)
                    break
                except UnreadableAnswer as error:
                    prompt = repaired(self._kind, question, reply.text, str(error), form)
            self._known[question] = value, repair

        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        numbered = list(enumerate(new, start=self.asked + 1))
        alone = len(new) if self.concurrency == 1 else 0 if self.log.ledger.calls else 1
        for one in numbered[:alone]:
            ask(one)
        if len(new) > alone:
            with ThreadPoolExecutor(self.concurrency) as executor:
                list(executor.map(ask, numbered[alone:]))
        return [self._known[question][0] for question in questions]


def system_message(kind: str, variables: Mapping[str, Any]) -> Message:
    """Render the system message of `drive` or `mediate`; raise TemplateError if one of its templates is missing."""
    for name in (kind, f"{kind}_repair"):
        load_template(name)
    return Message("system", render_template(f"{kind}_system", variables))


def question(kind: str, system: Message, variables: Mapping[str, Any], context: object, most_tokens: int) -> Prompt:
    """Render a question. Its `context` serves to read the answer, and providers that are not language models.

    Raises:
        TemplateError: the template is broken, or the prompt has more than `most_tokens` estimated tokens.
    """
    prompt = Prompt((system, Message("user", render_template(kind, variables))), context)
    if prompt.estimated_tokens > most_tokens:
        raise TemplateError(
            f"the prompt has about {prompt.estimated_tokens:,} tokens; the limit is {most_tokens:,}; "
            f"raise --prompt-tokens N, or show less in the template {kind}"
        )
    return prompt


def repaired(kind: str, prompt: Prompt, reply: str, problem: str, form: str) -> Prompt:
    """Return the prompt, the unreadable reply, and a request for another answer."""
    request = render_template(f"{kind}_repair", {"problem": problem, **({"form": form} if form else {})})
    return prompt.followed_by(Message("assistant", reply[-_MOST_REPEATED:] or "(empty)"), Message("user", request))


def readable(reply: Reply) -> str:
    """Return the last 20,000 characters of a reply; raise UnreadableAnswer if it is empty or was cut off."""
    if reply.truncated:
        raise UnreadableAnswer("it was cut off by its length limit")
    text = reply.text[-MOST_READ:].strip()
    if not text:
        raise UnreadableAnswer("it is empty")
    return text


def quoted(text: str) -> str:
    """Return a text in backquotes, on one line, shortened to 60 characters."""
    words = " ".join(text.replace("`", "'").split())
    return f"`{words if len(words) <= _QUOTED else f'{words[: _QUOTED - 4]} ...'}`"


def request_words(result: Mapping[str, Any]) -> str:
    """Describe the requests, stored answers, tokens and costs of a saved result."""
    cached = f", {result['cached']} answers stored by an earlier command" if result["cached"] else ""
    if not result["is_language_model"]:
        return f"{result['requests']:,} requests, none to a language model{cached}"
    tokens = result["tokens_in"] + result["tokens_out"]
    return f"{result['requests']:,} requests{cached}, {tokens:,} tokens, {dollars(result['usd'])}"
