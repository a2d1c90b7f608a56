from __future__ import annotations

import pytest

from policygen.errors import BudgetExhausted
from policygen.llm.messages import Message, Prompt, Reply
from policygen.runs.budget import SHORTEST_REPLY, Ledger
from policygen.runs.config import RunConfig


def ledger(**limits) -> Ledger:
    return Ledger(RunConfig(task="frozenlake", **limits))


def prompt(characters: int = 4_000) -> Prompt:
    return Prompt((Message("user", "x" * characters),))


def allowance(book: Ledger, asked: Prompt, usd: float | None = None) -> int:
    hold = book.hold(asked, lambda tokens_in, tokens_out: usd)
    book.held.remove(hold)
    return hold.tokens_out


def test_the_reply_may_be_as_long_as_the_tokens_that_are_left():
    book = ledger(max_tokens=5_000, max_output_tokens=4_000)
    assert allowance(book, prompt()) == 5_000 - 1_300  # the estimate of the prompt, with a margin
    book.charge_reply(prompt(), Reply("y" * 400, "m", tokens_in=1_000, tokens_out=100))
    assert (book.tokens_in, book.tokens_out) == (1_000, 100)
    assert allowance(book, prompt()) == 5_000 - 1_100 - 1_100  # the estimate follows the reported count
    with pytest.raises(BudgetExhausted, match=r"could exceed 5,000 tokens \(--max-tokens\)"):
        allowance(book, prompt(16_000))

    limit = 1_300 + SHORTEST_REPLY
    assert allowance(ledger(max_tokens=limit), prompt()) == SHORTEST_REPLY
    with pytest.raises(BudgetExhausted):
        allowance(ledger(max_tokens=limit - 1), prompt())


def test_an_unknown_price_is_unknown_and_never_zero():
    book = ledger()
    book.charge_reply(prompt(), Reply("", "m", usd=0.25, seconds=2.0))
    assert book.usd == 0.25
    book.charge_reply(prompt(), Reply("", "m", usd=None, seconds=1.0))
    book.charge_reply(prompt(), Reply("", "m", usd=0.25))
    assert book.usd is None
    assert book.llm_seconds == 3.0


def test_cost_is_checked_before_it_is_spent():
    book = ledger(max_usd=1.0)
    allowance(book, prompt(), 1.0)
    book.charge_reply(prompt(), Reply("", "m", usd=0.5))
    allowance(book, prompt(), 0.5)
    with pytest.raises(BudgetExhausted, match=r"could exceed 1 USD \(--max-usd\)"):
        allowance(book, prompt(), 0.51)
    with pytest.raises(BudgetExhausted, match="price is unknown"):
        allowance(book, prompt(), None)
    book.charge_reply(prompt(), Reply("", "m"))
    with pytest.raises(BudgetExhausted, match="price is unknown"):
        allowance(book, prompt(), 0.0)


def test_requests_under_way_exceed_no_budget_together():
    book = ledger(max_tokens=10_000, max_output_tokens=2_000, max_usd=1.0)
    first = book.hold(prompt(), lambda *tokens: 0.5)
    assert (first.tokens_in, first.tokens_out, book.tokens_in, book.usd) == (1_300, 2_000, 0, 0.0)
    with pytest.raises(BudgetExhausted, match="--max-usd"):
        book.hold(prompt(), lambda *tokens: 0.6)
    second = book.hold(prompt(), lambda *tokens: 0.5)
    with pytest.raises(BudgetExhausted, match="--max-usd"):
        book.hold(prompt(), lambda *tokens: 0.1)
    book.held.remove(second)
    book.charge_reply(prompt(), Reply("", "m", 1_000, 100, usd=0.1), first)
    assert (book.held, book.tokens_in, book.usd) == ([], 1_000, 0.1)


@pytest.mark.parametrize(("reported", "charged"), [(0, 500), (1, 500), (500, 500), (1_000, 1_000), (None, 1_000)])
def test_less_than_the_texts_can_be_is_not_believed(reported, charged):
    book = ledger()
    reply = Reply("y" * 3_000, "m", tokens_in=reported, tokens_out=reported, reasoning="z" * 1_000)
    assert book.charge_reply(prompt(), reply) == (charged, charged)
    assert book.charge_reply(prompt(), Reply("y" * 400, "builtin", 0, 0, 0.0)) == (0, 0)  # no language model
