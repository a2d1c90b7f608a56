"""The attempts of a run as a page shows them: changes, score, verdict, requests and replies."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from policygen.episodes.score import Score
from policygen.extensions.compare.words import in_brackets, number
from policygen.llm.messages import NO_MODEL, Exchange, FailedExchange, Reply
from policygen.llm.prices import dollars
from policygen.llm.transcript import KILLED
from policygen.policies.table import TablePolicy
from policygen.progress import duration
from policygen.runs.attempt import Attempt
from policygen.runs.records import FinalScore

MOST_ATTEMPTS = 400  # of a longer run the page shows only former bests and the latest attempts
NO_REPLY = "the reply has not arrived yet, or the run was killed while waiting"
MOST_CHARACTERS = 6_000_000  # of all prompts on one page
_MOST_LINES = 500  # longer policies list only their new lines
_MOST_CHANGES = 80  # lines


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message of a prompt; if an earlier attempt sent the same one, `same_as` is its number and `text` is empty."""

    role: str
    text: str
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its reply."""

    exchange: Exchange | FailedExchange
    messages: tuple[ShownMessage, ...]  # the messages that are new in this request
    earlier: int  # number of messages of the same conversation that earlier attempts show
    error: str = ""  # why there is no reply
    left_out: bool = False  # whether the prompt is left out to keep the page small

    @property
    def reply(self) -> Reply | None:
        """The reply; None if there was none."""
        return self.exchange.reply if isinstance(self.exchange, Exchange) else None

    @property
    def remark(self) -> str:
        """Model, tokens, cost and time of the reply."""
        reply = self.reply
        if reply is None:
            return ""
        if reply.model == NO_MODEL:
            return "builtin, no language model"
        parts = [reply.model]
        if reply.tokens_in is not None and reply.tokens_out is not None:
            parts.append(f"{reply.tokens_in:,} tokens in, {reply.tokens_out:,} out")
        parts += [dollars(reply.usd), f"{reply.seconds:.1f} s"]
        if self.exchange.requests > 1:
            parts.append(f"{self.exchange.requests} requests")
        if reply.truncated:
            parts.append("cut off by its length limit")
        return ", ".join(parts)


@dataclass(frozen=True)
class ShownAttempt:
    """An attempt as a page shows it, or one in progress, which has requests only."""

    number: int
    attempt: Attempt | None = None
    # the best attempt before it, with which `changes` and `changed_cells` compare; None for a first policy
    parent: Attempt | None = None
    is_best: bool = False
    turns: tuple[Turn, ...] = ()
    comments: tuple[str, ...] = ()  # the user's comments in the prompt

    @property
    def state(self) -> str:
        """The state of the attempt, also its style on the page.

        It is `open` (in progress), `random` (random actions), `best`, `accepted` (the best until a later attempt),
        `refused` (scored but not kept), `failed`, or the kind of an attempt that is no proposal.
        """
        if self.attempt is None:
            return "open"
        if self.number == 0:
            return "random"
        if self.attempt.accepted:
            return "best" if self.is_best else "accepted"
        if self.attempt.kind != "proposal":
            return self.attempt.kind
        return "refused" if self.attempt.score is not None else "failed"

    @property
    def verdict(self) -> str:
        """The reason why the attempt was kept or not, and the held-out score of a kept one."""
        attempt = self.attempt
        if attempt is None:
            return "not scored yet"
        words = attempt.verdict or "no policy" * attempt.failed
        standing = attempt.standing
        if attempt.accepted and standing.validated_mean is not None:
            held_out = f"{number(standing.validated_mean)} on {standing.validated_episodes} held-out episodes"
            words += f"; {held_out}"
        return words

    @property
    def changes(self) -> list[str]:
        """The lines in which the proposed policy differs from its parent's, each with `+`, `-` or a space before it.

        Changes have one line of context. A first policy has all its lines, a very long one only those that are new.
        """
        after = self.attempt.proposed if self.attempt is not None else None
        before = self.parent.policy if self.parent is not None else None
        new, old = ([] if policy is None else policy.to_text().splitlines() for policy in (after, before))
        if after is None:
            return []
        if before is None or max(len(new), len(old)) > _MOST_LINES:
            kept = set(old)
            changes = [f"+{line}" for line in new if line not in kept]
        else:
            lines = difflib.unified_diff(old, new, n=1, lineterm="")
            changes = [line for line in lines if line[:3] not in ("---", "+++") and line[0] in "+- "]
        if len(changes) > _MOST_CHANGES:
            changes[_MOST_CHANGES:] = [f" ... ({len(changes) - _MOST_CHANGES:,} more lines)"]
        return changes

    @property
    def changed_cells(self) -> str:
        """A sentence about the cells whose action differs from the parent's; empty for equations or another grid."""
        before = self.parent.policy if self.parent is not None else None
        after = self.attempt.proposed if self.attempt is not None else None
        if not (isinstance(before, TablePolicy) and isinstance(after, TablePolicy)) or before.grid != after.grid:
            return ""
        mine, theirs = (table.actions.reshape(table.grid.size, -1) for table in (after, before))
        return f"{int((mine != theirs).any(axis=1).sum()):,} of {after.grid.size:,} cells have another action."

    @property
    def cost(self) -> str:
        """Time, tokens and cost of the attempt, in words."""
        attempt = self.attempt
        if attempt is None or self.number == 0:
            return ""
        tokens = attempt.requests.tokens_in + attempt.requests.tokens_out
        return f"{duration(attempt.seconds)}{f', {tokens:,} tokens, {dollars(attempt.requests.usd)}' if tokens else ''}"


def score_words(score: Score | FinalScore) -> str:
    """Format a score with its interval in brackets."""
    return number(score.mean) + (" (exact)" if score.exact else in_brackets(score.ci95))


def shown_attempts(
    attempts: Sequence[Attempt], best: Attempt | None, turns: dict[int, tuple[Turn, ...]]
) -> list[ShownAttempt]:
    """Return the attempts to show and those in progress; of a long run the former bests and the latest attempts.

    `turns` has the requests of each attempt, by its number.
    """
    numbers = [attempt.number for attempt in attempts]
    if len(attempts) > MOST_ATTEMPTS:
        accepted = [attempt.number for attempt in attempts if attempt.accepted]
        numbers = (accepted + numbers[-MOST_ATTEMPTS:])[-2 * MOST_ATTEMPTS :]
    shown = frozenset(numbers)
    views: list[ShownAttempt] = []
    parent: Attempt | None = None
    for attempt in attempts:
        if attempt.number in shown:
            own_turns = turns.get(attempt.number, ())
            views.append(ShownAttempt(attempt.number, attempt, parent, attempt is best, own_turns))
        if attempt.accepted:
            parent = attempt
    for unscored in sorted(turns.keys() - set(range(len(attempts)))):
        waiting = tuple(replace(turn, error=NO_REPLY) if turn.error == KILLED else turn for turn in turns[unscored])
        views.append(ShownAttempt(unscored, turns=waiting))
    return views


def turns_of(exchanges: Iterable[Exchange | FailedExchange], kept: frozenset[int]) -> dict[int, tuple[Turn, ...]]:
    """Return the requests of each attempt by its number; the prompts of `kept` attempts are never left out."""
    found: dict[int, list[Turn]] = {}
    seen: dict[str, int] = {}
    for exchange in exchanges:
        turns = found.setdefault(exchange.attempt, [])
        sent = exchange.prompt.messages
        # A repair repeats the prompt and the reply before it; a longer conversation repeats everything.
        new = sent[-1:] if turns or len(sent) < 2 else (sent[0], sent[-1])
        messages = []
        for message in new:
            first = seen.setdefault(message.content, exchange.attempt)
            same = first if first != exchange.attempt else None
            messages.append(ShownMessage(message.role, "" if same is not None else message.content, same))
        earlier = 0 if turns else max(0, len(sent) - 2)
        error = exchange.error if isinstance(exchange, FailedExchange) else ""
        turns.append(Turn(exchange, tuple(messages), earlier, error))
    room = MOST_CHARACTERS
    for attempt in sorted(found, key=lambda n: (n not in kept, -n)):
        room -= sum(len(message.text) for turn in found[attempt] for message in turn.messages)
        if room < 0 and attempt not in kept:
            found[attempt] = [replace(turn, messages=(), left_out=True) for turn in found[attempt]]
    return {attempt: tuple(turns) for attempt, turns in found.items()}
