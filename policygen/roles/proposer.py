"""Ask a model for a policy, read the reply, and ask for a repair while it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

from policygen.errors import BudgetExhausted
from policygen.llm.messages import Message, Prompt, Reply
from policygen.policies.lines import Problem
from policygen.policies.parse import Parsed, parse
from policygen.prompts.render import render_repair
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Correspondent, Exchange
from policygen.runs.state import Context

CUT_OFF = Problem(
    None, "the reply was cut off by its length limit", "think briefly and write the whole policy in fewer lines"
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a model proposed: a policy or problems, and the exchanges it took.

    `turns` is what a continued conversation remembers: the request and the last reply. `stopped` is the reason if a
    budget ended before the reply could be repaired.
    """

    parsed: Parsed
    exchanges: tuple[Exchange, ...]
    turns: tuple[Message, ...]
    stopped: str = ""


def propose(correspondent: Correspondent, number: int, prompt: Prompt, context: Context, config: RunConfig) -> Proposal:
    """A policy for attempt `number`, or the problems that remain after `config.repairs` repairs.

    Raises:
        BudgetExhausted: not even the first request is affordable.
        ProviderError: the model cannot be asked.
    """
    exchanges: list[Exchange] = []
    parsed, reply, stopped = Parsed(None, ()), None, ""
    current = prompt
    for round_ in range(config.repairs + 1):
        if reply is not None:
            current = render_repair(current, reply.text, parsed.problems, context, config)
        try:
            exchange = correspondent.ask(number, round_, current)
        except BudgetExhausted as error:
            if not exchanges:
                raise
            stopped = str(error)
            break
        exchanges.append(exchange)
        reply = exchange.reply
        parsed = _read(reply, context, config)
        if parsed.policy is not None:
            break
    return Proposal(parsed, tuple(exchanges), _turns(prompt, exchanges[-1].reply), stopped)


def _turns(prompt: Prompt, reply: Reply) -> tuple[Message, ...]:
    return prompt.messages[-1], Message("assistant", reply.text or "(empty)")


def _read(reply: Reply, context: Context, config: RunConfig) -> Parsed:
    parsed = parse(
        reply.text,
        context.task,
        context.kind,
        context.incumbent,
        free_grid=config.grid == "free",
        definitions={definition.name: definition.node for definition in context.definitions},
    )
    if reply.truncated:
        # Even if what arrived happens to read as a policy, its last row may be half a row.
        return Parsed(None, (CUT_OFF, *parsed.problems))
    return parsed
