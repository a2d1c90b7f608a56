"""The requests and replies of a run, by attempt, as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from policygen.llm.messages import NO_MODEL, Exchange, FailedExchange

MOST_CHARACTERS = 6_000_000  # of all prompts on one page
_CLIPPED = 400_000  # characters shown of a single message or reply


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message; `same_as` is an earlier attempt with the same message."""

    role: str
    text: str
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its reply.

    Attributes:
        said: the messages that are new in this request.
        left_out: whether the prompt is left out to keep the page small; transcript.jsonl has it.
        reply: None if there was none; `error` then gives the reason.
        remark: model, tokens, cost and time in words.
        earlier: number of messages that earlier attempts of the same conversation have shown.
    """

    request: int
    said: tuple[ShownMessage, ...]
    reply: str | None
    reasoning: str = ""
    error: str = ""
    remark: str = ""
    earlier: int = 0
    left_out: bool = False


def turns_of(exchanges: Iterable[Exchange | FailedExchange], kept: frozenset[int]) -> dict[int, tuple[Turn, ...]]:
    """Return the requests of each attempt, in order.

    Args:
        kept: attempts whose prompts are always shown, however large the page becomes.
    """
    found: dict[int, list[Turn]] = {}
    seen: dict[str, int] = {}
    for exchange in exchanges:
        before = found.setdefault(exchange.attempt, [])
        found[exchange.attempt].append(_turn(exchange, bool(before), seen))
    room = MOST_CHARACTERS
    for number in sorted(found, key=lambda n: (n not in kept, -n)):
        size = sum(len(said.text) for turn in found[number] for said in turn.said)
        room -= size
        if room < 0 and number not in kept:
            found[number] = [replace(turn, said=(), left_out=True) for turn in found[number]]
    return {number: tuple(turns) for number, turns in found.items()}


def _turn(exchange: Exchange | FailedExchange, repeated: bool, seen: dict[str, int]) -> Turn:
    messages = exchange.prompt.messages
    # A repair repeats the prompt and the reply before it; a longer conversation repeats everything.
    new = messages[-1:] if repeated else tuple(m for i, m in enumerate(messages) if i in (0, len(messages) - 1))
    said = []
    for message in new:
        first = seen.setdefault(message.content, exchange.attempt)
        same = first if first != exchange.attempt else None
        said.append(ShownMessage(message.role, "" if same is not None else _clipped(message.content), same))
    earlier = 0 if repeated else max(0, len(messages) - 2)
    if isinstance(exchange, FailedExchange):
        return Turn(exchange.request, tuple(said), None, error=exchange.error, earlier=earlier)
    reply = exchange.reply
    return Turn(
        exchange.request,
        tuple(said),
        _clipped(reply.text),
        reasoning=_clipped(reply.reasoning),
        remark=_remark(exchange),
        earlier=earlier,
    )


def _clipped(text: str) -> str:
    return text if len(text) <= _CLIPPED else f"{text[:_CLIPPED]}\n... ({len(text) - _CLIPPED:,} more characters)"


def _remark(exchange: Exchange) -> str:
    reply = exchange.reply
    if reply.model == NO_MODEL:
        return "builtin, no language model"
    parts = [reply.model]
    if reply.tokens_in is not None and reply.tokens_out is not None:
        parts.append(f"{reply.tokens_in:,} tokens in, {reply.tokens_out:,} out")
    parts.append("cost unknown" if reply.usd is None else f"${reply.usd:.4f}")
    parts.append(f"{reply.seconds:.1f} s")
    if exchange.requests > 1:
        parts.append(f"{exchange.requests} requests")
    if reply.truncated:
        parts.append("cut off by its length limit")
    return ", ".join(parts)
