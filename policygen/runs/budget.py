"""What a run has spent and what it may spend; checked before spending, charged for failures too."""

from __future__ import annotations

from dataclasses import dataclass

from policygen.errors import BudgetExhausted
from policygen.llm.messages import Prompt, Reply, charged_tokens
from policygen.runs.config import RunConfig

# How far a prompt may exceed its estimated tokens (non-English names, digits) before real counts are known.
ESTIMATE_MARGIN = 1.3
SHORTEST_REPLY = 256


@dataclass
class Ledger:
    """Running totals and their limits.

    `usd` is None as soon as one reply's price is unknown. `cached` counts replies that were paid for before.
    """

    config: RunConfig
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    episodes: int = 0
    env_steps: int = 0
    llm_seconds: float = 0.0
    cached: int = 0
    _estimate_ratio: float = ESTIMATE_MARGIN

    def charge_call(self) -> None:
        """Count one request to the model, before it is sent.

        Raises:
            BudgetExhausted: it would be one too many.
        """
        limit = self.config.max_calls
        if limit is not None and self.calls >= limit:
            raise BudgetExhausted(f"all {limit} calls (--max-calls) are used")
        self.calls += 1

    def reply_allowance(self, prompt: Prompt) -> int:
        """Tokens the reply to `prompt` may have so that no token budget is exceeded.

        Raises:
            BudgetExhausted: not even a short reply fits.
        """
        allowance = self.config.max_output_tokens
        if self.config.max_tokens is not None:
            left = self.config.max_tokens - self.tokens_in - self.tokens_out - self.expected_tokens(prompt)
            if left < SHORTEST_REPLY:
                raise BudgetExhausted(f"the next call could exceed {self.config.max_tokens:,} tokens (--max-tokens)")
            allowance = min(allowance, left)
        return allowance

    def expected_tokens(self, prompt: Prompt) -> int:
        """A careful estimate of a prompt's tokens, corrected by what the server has reported so far."""
        return round(prompt.estimated_tokens * self._estimate_ratio)

    @property
    def holds_cost(self) -> bool:
        """Whether requests must be refused that may cost too much."""
        return self.config.max_usd is not None

    def check_cost(self, most: float | None) -> None:
        """Refuse a call that may cost `most` USD where that exceeds what is left.

        Raises:
            BudgetExhausted: it would, or its price is unknown.
        """
        if self.config.max_usd is None:
            return
        if most is None or self.usd is None:
            raise BudgetExhausted(
                "--max-usd cannot be held because the model's price is unknown; set price_in and price_out"
            )
        if self.usd + most > self.config.max_usd:
            raise BudgetExhausted(f"the next call could exceed {self.config.max_usd:g} USD (--max-usd)")

    def charge_reply(self, prompt: Prompt, reply: Reply) -> tuple[int, int]:
        """Add a reply's tokens, cost and time; what a server did not report, or cannot mean, is estimated.

        Returns the tokens charged, in and out.
        """
        tokens_in, tokens_out = charged_tokens(prompt, reply)
        self.cached += reply.cached
        if reply.tokens_in is not None and not reply.cached and prompt.estimated_tokens:
            self._estimate_ratio = max(1.05, 1.1 * tokens_in / prompt.estimated_tokens)
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        if not reply.cached:
            self.usd = None if self.usd is None or reply.usd is None else self.usd + reply.usd
        self.llm_seconds += reply.seconds
        return tokens_in, tokens_out

    def charge_episodes(self, count: int) -> None:
        """Count episodes, before they are played.

        Raises:
            BudgetExhausted: they would exceed the limit.
        """
        if not self.affords_episodes(count):
            raise BudgetExhausted(
                f"the next {count} episodes would exceed {self.config.max_episodes:,} (--max-episodes)"
            )
        self.episodes += count

    def affords_episodes(self, count: int) -> bool:
        """Whether so many further episodes are within the limit."""
        return self.config.max_episodes is None or self.episodes + count <= self.config.max_episodes
