"""Proposals of a language model: repairs, budgets, and the sentence that describes an attempt."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, MALFORMED_LAKE, NO_POLICY, Written

import policygen
from policygen.errors import BudgetExhausted, ProviderError, TransientProviderError
from policygen.llm.messages import Prompt, Reply
from policygen.policies.lines import Problem
from policygen.prompts.render import render_prompt
from policygen.proposers.proposer import CUT_OFF, EMPTY, Proposal, Proposer, first_sentence
from policygen.runs.budget import ESTIMATE_MARGIN, Ledger
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog
from policygen.search.loop import new_search

TASK = policygen.load_task("frozenlake")


class Asked:
    """A proposer with a provider, its first prompt, and all that was recorded."""

    def __init__(self, provider: Any, **more: Any) -> None:
        self.config = RunConfig(task="frozenlake", llm="written:by-hand", **more)
        self.context = replace(new_search(TASK).context(self.config), number=1)
        self.seen: list[Any] = []
        self.ledger = Ledger(self.config)
        self.log = RequestLog(self.ledger, on_exchange=self.seen.append, sleep=lambda seconds: None)
        self.prompt, self.proposer = render_prompt(self.context, self.config), Proposer(provider, self.config)

    def propose(self, number: int = 1) -> Proposal:
        return self.proposer.propose(self.prompt, replace(self.context, number=number), self.log)


class Said(Written):
    """A provider that gives these replies, and raises those that are exceptions."""

    def __init__(self, *replies: Reply | Exception | str) -> None:
        super().__init__(())
        self.replies = list(replies)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        self.prompts.append(prompt)
        one = self.replies[len(self.prompts) - 1]
        if isinstance(one, Exception):
            raise one
        return Reply(one, self.model, 1000, 50) if isinstance(one, str) else one


# --- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repairs", [0, 1, 3])
def test_as_many_repairs_as_allowed_are_asked_for(repairs: int) -> None:
    asked = Asked(Said(*[NO_POLICY] * 9), repairs=repairs)
    proposal = asked.propose()
    assert proposal.parsed.policy is None
    assert proposal.parsed.problems
    assert len(proposal.exchanges) == len(asked.seen) == asked.ledger.calls == repairs + 1


def test_every_repair_continues_the_same_conversation() -> None:
    asked = Asked(Said(MALFORMED_LAKE, NO_POLICY, ALWAYS_DOWN))
    assert asked.propose().parsed.policy is not None
    prompts = [exchange.prompt for exchange in asked.seen]
    assert [len(p.messages) for p in prompts] == [2, 4, 6]
    for earlier, later in itertools.pairwise(prompts):
        assert later.messages[: len(earlier.messages)] == earlier.messages
    assert all(p.context is asked.prompt.context for p in prompts)


@pytest.mark.parametrize(
    ("reply", "told", "problems"),
    [
        (Reply(BEST_LAKE, "by-hand", truncated=True), CUT_OFF, 1),
        (Reply(" \n", "by-hand", truncated=True, reasoning="| a | b |"), CUT_OFF, 1),
        (Reply(" \n", "by-hand", reasoning="| a | b |"), EMPTY, 1),  # and no advice on rows
    ],
)
def test_a_cut_off_or_empty_reply_is_repaired_by_what_is_known(reply: Reply, told: Problem, problems: int) -> None:
    asked = Asked(Said(reply, ALWAYS_DOWN))
    assert asked.propose().parsed.policy is not None
    request = asked.seen[1].prompt.messages[-1].content
    assert str(told) in request
    assert request.count("\n- ") == problems


@pytest.mark.parametrize("reason", ["content_filter", "refusal", "SAFETY", "PROHIBITED_CONTENT"])
@pytest.mark.parametrize("text", ["", BEST_LAKE])
def test_a_blocked_reply_is_final_and_names_what_blocked_it(reason: str, text: str) -> None:
    asked = Asked(Said(Reply(text, "by-hand", finish_reason=reason), BEST_LAKE))
    parsed = asked.propose().parsed
    assert parsed.policy is None
    assert [problem.found for problem in parsed.problems] == [f"the reply was blocked ({reason})"]
    assert len(asked.seen) == 1


def test_a_repair_that_cannot_be_afforded_leaves_a_failed_attempt_and_the_reason() -> None:
    proposal = Asked(Said(NO_POLICY, BEST_LAKE), max_calls=1).propose()
    assert proposal.parsed.policy is None
    assert proposal.stopped == "all 1 calls (--max-calls) are used"


# --- budgets, whatever happens ---------------------------------------------------------------------------------------


class Greedy(Written):
    """A provider that bills the maximum: the margin on the prompt, and every allowed token of the reply."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(())
        self.events = iter(events)
        self.asked: list[int] = []

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        event = next(self.events, "good")
        self.asked.append(max_output_tokens)
        if event == "busy":
            raise TransientProviderError("busy", 0)
        tokens_in = int(prompt.estimated_tokens * ESTIMATE_MARGIN)
        text = {"good": ALWAYS_RIGHT, "bad": MALFORMED_LAKE, "none": "", "cut": ALWAYS_DOWN}[event]
        usd = (3.0 * tokens_in + 7.0 * max_output_tokens) / 1e6
        return Reply(text, self.model, tokens_in, max_output_tokens, usd, truncated=event == "cut")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(st.sampled_from(["good", "bad", "none", "cut", "busy"]), max_size=12),
    max_calls=st.none() | st.integers(0, 6),
    max_tokens=st.none() | st.integers(1, 30_000),
    max_usd=st.none() | st.floats(0, 0.2),
    repairs=st.integers(0, 3),
)
def test_no_budget_is_exceeded(
    events: list[str], max_calls: int | None, max_tokens: int | None, max_usd: float | None, repairs: int
) -> None:
    provider = Greedy(events)
    limits: dict[str, Any] = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd}
    asked = Asked(provider, **limits, repairs=repairs, prices=(3.0, 7.0), max_output_tokens=3000)
    ledger = asked.ledger
    try:
        for number in range(1, 5):
            asked.propose(number)
    except BudgetExhausted as error:
        assert str(error).count("--max-") == 1  # noqa: PT017
    except ProviderError:
        assert events.count("busy") >= 6
    assert ledger.calls == len(provider.asked) == sum(e.requests for e in asked.seen)
    assert max_calls is None or ledger.calls <= max_calls
    assert max_tokens is None or ledger.tokens_in + ledger.tokens_out <= max_tokens
    assert ledger.usd is not None
    assert max_usd is None or ledger.usd <= max_usd
    assert all(allowed >= 256 for allowed in provider.asked)


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ("The pole falls at 0.5 rad. So lean.\n```\nleft = 0\n```", "The pole falls at 0.5 rad."),
        ("**Change (one sentence).** I turn the hand. It pushes.", "I turn the hand."),
        ("```\nleft = 0\n```\nAfterwards: done!", "Afterwards: done!"),
        ("# Plan\n\n- **Swing** up\n  first\n\nthen rest", "Swing up first"),
        ("<think>hm. no.</think>\nRest early", "Rest early"),
        ("| a | b |\n|---|---|\n", ""),
        ("", ""),
        ("a\x00\x1b[31m b", "a [31m b"),
        ("x" * 500, "x" * 236 + " ..."),
    ],
)
def test_the_idea_of_a_reply_is_its_first_sentence(reply: str, sentence: str) -> None:
    assert first_sentence(reply) == sentence
