"""Proposers of policies: their interface to the loop, and the proposer that asks a language model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from policygen.errors import BudgetExhausted, UsageError
from policygen.llm import LLMOptions, Provider
from policygen.llm.messages import NO_MODEL, Exchange, Prompt, Reply
from policygen.llm.prices import cost
from policygen.policies.lines import Problem
from policygen.policies.parse import ParseResult, parse
from policygen.prompts.render import render_repair
from policygen.runs.config import FOR_TABLES, RunConfig
from policygen.runs.request_log import RequestLog, llm_options
from policygen.runs.state import Context
from policygen.tasks.task import Task

CUT_OFF = Problem(
    None, "the reply was cut off by its length limit", "think briefly and write the whole policy in fewer lines"
)
MAX_SENTENCE_CHARACTERS = 240  # of the sentence that describes an attempt
MAX_SEARCHED_CHARACTERS = 20_000  # of a reply that are searched for that sentence
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HEADING = re.compile(r"^\w+ \([^)]*\)[.:]\s+")  # such as "Change (one sentence):"
_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for an attempt: a policy or problems, and the exchanges with the provider."""

    number: int  # the attempt's number
    parsed: ParseResult
    exchanges: tuple[Exchange, ...]
    stopped: str = ""  # the reason if a budget ended before the reply could be repaired
    # whether the policy's constants weigh standardised quantities, so that all have a similar size
    standardised: bool = False
    model: str = ""  # the spec of the provider that was asked

    @property
    def idea(self) -> str:
        """The first sentence of the first reply that has one."""
        return next(filter(None, (first_sentence(exchange.reply.text) for exchange in self.exchanges)), "")


def first_sentence(reply: str) -> str:
    """Return the first sentence of a reply's prose on one line, cut to `MAX_SENTENCE_CHARACTERS`."""
    text = _THOUGHT.sub("", reply[:MAX_SEARCHED_CHARACTERS])
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            if lines:
                break
        elif not fenced and line.strip() and not line.lstrip().startswith(("#", "|", "---")):
            lines.append(line.strip().lstrip("*->• "))
        elif lines:
            break
    words = " ".join("".join(c if c.isprintable() else " " for c in " ".join(lines)).replace("**", "").split())
    sentence = _END.split(_HEADING.sub("", words), maxsplit=1)[0]
    cut = f"{sentence[: MAX_SENTENCE_CHARACTERS - 4].rstrip()} ..."
    return sentence if len(sentence) <= MAX_SENTENCE_CHARACTERS else cut


class Proposer(Protocol):
    """A source of policies in a run.

    Attributes:
        provider: the provider that is asked.
        introduction: its name in the first line that a run prints.
    """

    provider: Provider
    introduction: str
    is_language_model: bool

    def check(self, task: Task) -> None:
        """Refuse settings that would otherwise fail after episodes were played and a folder was made.

        Raises:
            UsageError: the provider cannot be used for the task with the run's settings.
        """
        ...

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return a policy for attempt `context.number`, or the problems that remain.

        Raises:
            BudgetExhausted: not even the first request is affordable.
            ProviderError: the provider cannot be asked.
        """
        ...


class LanguageModel:
    """A proposer that asks a language model within the budget, and asks for repairs of a reply that cannot be read."""

    is_language_model = True

    def __init__(self, provider: Provider, config: RunConfig, options: LLMOptions | None = None) -> None:
        self.provider = provider
        self.introduction = provider.spec
        self._config = config
        self._options = options or llm_options(config)

    def check(self, task: Task) -> None:
        """Refuse a cost limit that cannot be enforced; raise UsageError if the model's price is unknown."""
        if self._config.max_usd is None:
            return
        if cost(self._options, self.provider.spec, self.provider.model, 1, 1) is None:
            raise UsageError(
                f"--max-usd cannot be enforced because the price of {self.provider.spec} is unknown; "
                "state it with --set price_in=USD --set price_out=USD, per million tokens"
            )

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Ask for a policy and, while it cannot be read, for up to `config.repairs` repairs; see `Proposer.propose`."""
        exchanges: list[Exchange] = []
        parsed, stopped = ParseResult(None, ()), ""
        for request in range(self._config.repairs + 1):
            if exchanges:
                prompt = render_repair(prompt, exchanges[-1].reply.text, parsed.problems, context, self._config)
            try:
                exchange = request_log.ask(self.provider, context.number, request, prompt, self._options)
            except BudgetExhausted as error:
                if not exchanges:
                    raise
                stopped = str(error)
                break
            exchanges.append(exchange)
            parsed = read(exchange.reply, context, self._config)
            if parsed.policy is not None or parsed.resigned:
                break
        return Proposal(context.number, parsed, tuple(exchanges), stopped, model=self.provider.spec)


@dataclass(frozen=True, slots=True)
class Round:
    """The proposals of a round; `stopped` is the reason if a budget ended before all were made."""

    proposals: tuple[Proposal, ...]
    stopped: str = ""


def propose_round(
    proposer: Proposer, prompts: Sequence[Prompt], contexts: Sequence[Context], request_log: RequestLog
) -> Round:
    """Ask for one proposal per prompt; if a budget ends, return the proposals made before.

    Raises:
        ProviderError: the provider cannot be asked.
    """
    proposals: list[Proposal] = []
    for prompt, context in zip(prompts, contexts, strict=True):
        try:
            proposals.append(proposer.propose(prompt, context, request_log))
        except BudgetExhausted as error:
            return Round(tuple(proposals), str(error))
    return Round(tuple(proposals))


def read(reply: Reply, context: Context, config: RunConfig) -> ParseResult:
    """Return the policy in a reply, or the problems that prevent reading one."""
    parsed = parse(
        reply.text,
        context.task,
        context.kind,
        context.incumbent,
        free_grid=config.grid == "free",
        definitions={definition.name: definition.node for definition in context.definitions},
        learner=config.refine.method in FOR_TABLES,
    )
    if reply.model == NO_MODEL and parsed.policy is not None:
        # `builtin` wrote the text, so it has no author's comments and order to keep.
        parsed = replace(parsed, policy=replace(parsed.policy, written=()))
    if reply.truncated:
        # The part that arrived may read as a policy, but its last row may be incomplete.
        return ParseResult(None, (CUT_OFF, *parsed.problems))
    return parsed
