"""The budget of a run: limits are checked before each expense, and failures are charged too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from policygen.errors import BudgetExhausted
from policygen.llm.messages import Prompt, Reply, charged_tokens
from policygen.runs.config import RunConfig

# Token counts may exceed their estimate by this factor (non-English names, digits), until the server reports counts.
ESTIMATE_MARGIN = 1.3
SHORTEST_REPLY = 256  # tokens

Price = Callable[[int, int], float | None]
"""USD for tokens in and out; None if the price is unknown."""


def episodes_within(steps: int, longest: int, usual: int = 0) -> int:
    """Return how many episodes fit into `steps`, with the last one at full length, so that the limit always holds.

    Args:
        longest: maximum number of steps of an episode.
        usual: measured number of steps of an episode; 0: unknown, use `longest`.
    """
    return 1 + (steps - longest) // max(1, usual or longest) if steps >= max(1, longest) else 0


@dataclass(frozen=True, slots=True)
class Hold:
    """The maximum cost of an unfinished request; `tokens_out` is the maximum length of its reply."""

    tokens_in: int
    tokens_out: int
    usd: float = 0.0


@dataclass
class Ledger:
    """The totals of a run's spending so far, checked against its limits."""

    config: RunConfig
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0  # the cost; None once the price of a reply is unknown
    episodes: int = 0
    env_steps: int = 0
    tuning_steps: int = 0  # the part of `env_steps` that tuning played
    longest: int = 0  # maximum number of steps of an episode
    usual: int = 0  # measured number of steps of an episode; 0: unknown, `longest` counts
    llm_seconds: float = 0.0
    cached: int = 0  # number of replies from a cache
    # the maximum costs of the unfinished requests, so that together they exceed no budget
    held: list[Hold] = field(default_factory=list)
    _estimate_ratio: float = ESTIMATE_MARGIN

    def charge_call(self) -> None:
        """Count a request to the model before it is sent; raise BudgetExhausted if it would exceed the limit."""
        limit = self.config.max_calls
        if limit is not None and self.calls >= limit:
            raise BudgetExhausted(f"all {limit} calls (--max-calls) are used")
        self.calls += 1

    def hold(self, prompt: Prompt, price: Price) -> Hold:
        """Add the maximum cost of the request for `prompt` to `held`; raise BudgetExhausted if it is not affordable."""
        tokens_in = round(prompt.estimated_tokens * self._estimate_ratio)  # corrected by the server's counts so far
        tokens_out, usd = self.config.max_output_tokens, 0.0
        if (limit := self.config.max_tokens) is not None:
            spent = self.tokens_in + self.tokens_out + sum(hold.tokens_in + hold.tokens_out for hold in self.held)
            left = limit - spent - tokens_in
            if left < SHORTEST_REPLY:
                raise BudgetExhausted(f"the next call could exceed {limit:,} tokens (--max-tokens)")
            tokens_out = min(tokens_out, left)
        if (most := self.config.max_usd) is not None:
            cost = price(tokens_in, tokens_out)
            if cost is None or self.usd is None:
                raise BudgetExhausted(
                    "--max-usd cannot be enforced because a model's price is unknown; "
                    "state it with --set prices=IN/OUT, in USD per million tokens in and out"
                )
            if self.usd + sum(hold.usd for hold in self.held) + cost > most:
                raise BudgetExhausted(f"the next call could exceed {most:g} USD (--max-usd)")
            usd = cost
        hold = Hold(tokens_in, tokens_out, usd)
        self.held.append(hold)
        return hold

    def charge_reply(self, prompt: Prompt, reply: Reply, hold: Hold | None = None) -> tuple[int, int]:
        """Charge a reply's tokens, cost and time in place of its `hold`; return the tokens, in and out.

        Estimates replace counts that the server omits or that are impossible.
        """
        if hold is not None:
            self.held.remove(hold)
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
        """Count episodes before they are played; raise BudgetExhausted if they would exceed a limit."""
        self.check_episodes(count)
        self.episodes += count

    def count_steps(self, steps: int, *, tuning: bool = False) -> None:
        """Count steps of the environment after they are played."""
        self.env_steps += steps
        if tuning:
            self.tuning_steps += steps

    def check_episodes(self, count: int) -> None:
        """Raise BudgetExhausted if `count` further episodes would exceed a limit."""
        if self.affords_episodes(count):
            return
        by_episodes, by_steps = self._left_by_limit
        if by_steps < by_episodes:
            about = f"about {self.usual:,} and " if 0 < self.usual < self.longest else ""
            limit = f"of {about}up to {self.longest:,} steps could exceed {self.config.max_steps:,} steps (--max-steps)"
        else:
            limit = f"would exceed {self.config.max_episodes:,} (--max-episodes)"
        raise BudgetExhausted(f"the next {count} episodes {limit}")

    @property
    def episodes_left(self) -> int | None:
        """The number of further episodes within the limits (see `episodes_within`); None without a limit."""
        left = min(self._left_by_limit)
        return None if left == math.inf else max(0, int(left))

    @property
    def _left_by_limit(self) -> tuple[float, float]:
        """The numbers of episodes that `max_episodes` and `max_steps` allow; infinity without a limit."""
        by_episodes = math.inf if self.config.max_episodes is None else self.config.max_episodes - self.episodes
        if self.config.max_steps is None:
            return by_episodes, math.inf
        return by_episodes, episodes_within(self.config.max_steps - self.env_steps, self.longest, self.usual)

    @property
    def safe_episodes(self) -> int | None:
        """The number of episodes of full length that fit into the limit of steps; None without a limit."""
        if self.config.max_steps is None:
            return None
        return max(0, self.config.max_steps - self.env_steps) // max(1, self.longest)

    def affords_episodes(self, count: int) -> bool:
        """Whether `count` further episodes are within the limits."""
        left = self.episodes_left
        return left is None or count <= left
