"""The source of a run's policies: it asks a language model, or a search, and reads the replies."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from policygen.errors import BudgetExhausted, PolicyError, UsageError
from policygen.llm import Provider
from policygen.llm.base import cost
from policygen.llm.messages import NO_MODEL, Exchange, Prompt, Reply
from policygen.policies.lines import Problem
from policygen.policies.parse import ParseResult, parse
from policygen.policies.table import TablePolicy
from policygen.prompts.render import render_repair
from policygen.proposers.builtin import check_search
from policygen.runs.attempt import START
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog
from policygen.runs.state import Context
from policygen.tasks.task import KIND_WORDS, Task

CUT_OFF = Problem(
    None, "the reply was cut off by its length limit", "think briefly and write the whole policy in fewer lines"
)
EMPTY = Problem(None, "the reply is empty", "write the policy as the answer itself, after any thinking")
MAX_SENTENCE_CHARACTERS = 240  # maximum length of the sentence that describes an attempt
MAX_SEARCHED_CHARACTERS = 20_000  # the start of a reply that is searched for this sentence
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HEADING = re.compile(r"^\w+ \([^)]*\)[.:]\s+")  # such as "Change (one sentence):"
_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for an attempt: a policy or problems, and the exchanges with the provider."""

    number: int  # of the attempt
    parsed: ParseResult
    exchanges: tuple[Exchange, ...]
    stopped: str = ""  # the reason if a budget was used up before the reply could be repaired
    standardised: bool = False  # whether the policy weighs standardised quantities, so that all weights are similar
    model: str = ""  # the spec of the provider that was asked

    @property
    def idea(self) -> str:
        """The first sentence of the first reply that has one."""
        return next(filter(None, (first_sentence(exchange.reply.text) for exchange in self.exchanges)), "")


class Proposer:
    """The source of a run's policies: a language model, or a search without one.

    With the setting `start`, attempt 1 is the policy that the user gave. `introduction` names the source in the first
    line that a run prints.
    """

    def __init__(self, provider: Provider, config: RunConfig) -> None:
        self.provider = provider
        self.is_language_model = provider.is_language_model
        name = provider.spec if provider.is_language_model else f"{config.llm} (search without a language model)"
        self.introduction = f"the policy given with --start, then {name}" if config.start else name
        self._config = config

    def check(self, task: Task) -> None:
        """Refuse settings that would otherwise fail after episodes were played and a folder was made.

        Raises:
            UsageError: a model's price is unknown, so a cost limit cannot be enforced; or see `check_search`.
            PolicyError: the given policy has problems; the message lists all of them with their lines.
        """
        config, spec = self._config, self.provider.spec
        if not self.is_language_model:
            check_search(task, config)
        elif config.max_usd is not None and cost(config, spec, self.provider.model, 1, 1) is None:
            raise UsageError(
                f"--max-usd cannot be enforced because the price of {spec} is unknown; "
                "state it with --set prices=IN/OUT, in USD per million tokens in and out"
            )
        if config.start and (parsed := self._given_policy(task)).policy is None:
            found = "\n".join(f"  {problem}" for problem in parsed.problems)
            kind = KIND_WORDS[config.policy]
            raise PolicyError(f"--start: the text cannot be read as a policy of this run (--policy {kind}):\n{found}")

    def _given_policy(self, task: Task) -> ParseResult:
        return parse(self._config.start or "", task, self._config.policy, policy_only=True)

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return a policy for attempt `context.number`, or the problems that remain after `config.repairs` repairs.

        Raises:
            BudgetExhausted: the budget does not cover the first request.
            ProviderError: the provider cannot be asked.
        """
        if self._config.start and context.number == 1:
            return Proposal(1, self._given_policy(context.task), (), model=START)
        exchanges: list[Exchange] = []
        parsed, stopped = ParseResult(None, ()), ""
        for request in range(self._config.repairs + 1 if self.is_language_model else 1):
            if exchanges:
                prompt = render_repair(prompt, exchanges[-1].reply.text, parsed.problems, context, self._config)
            try:
                exchange = request_log.ask(self.provider, context.number, request, prompt, self._config)
            except BudgetExhausted as error:
                if not exchanges:
                    raise
                stopped = str(error)
                break
            exchanges.append(exchange)
            parsed = read(exchange.reply, context, self._config)
            if parsed.policy is not None or parsed.resigned or exchange.reply.is_blocked:
                break
        standardised, model = not self.is_language_model, self.provider.spec
        return Proposal(context.number, parsed, tuple(exchanges), stopped, standardised=standardised, model=model)


def read(reply: Reply, context: Context, config: RunConfig) -> ParseResult:
    """Return the policy in a reply, or the problems that prevent reading one."""
    if reply.is_blocked:
        blocked = f"the reply was blocked ({reply.finish_reason})"
        remedy = "change the wording of the task or the template, or the model"
        return ParseResult(None, (Problem(None, blocked, remedy),))
    if not reply.text.strip():
        return ParseResult(None, (CUT_OFF if reply.truncated else EMPTY,))
    parsed = parse(
        reply.text,
        context.task,
        context.kind,
        context.incumbent,
        free_grid=config.grid == "free",
        learner=config.refine.for_tables,
    )
    if reply.model == NO_MODEL and isinstance(parsed.policy, TablePolicy):
        # `builtin` plans all rows anew; comments on the rows that it replaces do not describe them.
        parsed = replace(parsed, policy=replace(parsed.policy, comments={}))
    if reply.truncated:
        # The part that arrived may be a valid policy, but its last row may be incomplete.
        return ParseResult(None, (CUT_OFF, *parsed.problems))
    return parsed


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
