"""Exchanges are charged and recorded as they happen; those of an interrupted run come first and cost what they cost."""

from __future__ import annotations

import pytest

from policygen.errors import BudgetExhausted, ProviderError
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, first_sentence, turns

PROMPT = Prompt((Message("system", "You improve policies."), Message("user", "Improve this one.")))
REPLY = Reply("a table", "m", 10, 5, 0.5)


def ledger(**settings: object) -> Ledger:
    return Ledger(RunConfig(task="frozenlake", **settings))


def never() -> Reply:
    raise AssertionError("nobody is to be asked")


def test_an_answer_is_charged_recorded_and_handed_back() -> None:
    spent, seen = ledger(), []
    request_log = RequestLog(spent, on_exchange=seen.append)

    def answer() -> Reply:
        spent.charge_call()
        spent.charge_call()
        return REPLY

    exchange = request_log.exchange(3, 1, PROMPT, answer)
    assert exchange == Exchange(3, 1, PROMPT, REPLY, 2, 10, 5)
    assert seen == [exchange]
    assert (spent.calls, spent.tokens_in, spent.tokens_out, spent.usd) == (2, 10, 5, 0.5)


def test_a_request_that_was_sent_in_vain_is_recorded_and_one_that_was_not_sent_is_not() -> None:
    spent, seen = ledger(max_calls=1), []
    request_log = RequestLog(spent, on_exchange=seen.append)

    def refused() -> Reply:
        spent.charge_call()
        raise ProviderError("no key")

    with pytest.raises(ProviderError):
        request_log.exchange(1, 0, PROMPT, refused)
    assert seen == [FailedExchange(1, 0, PROMPT, 1, "no key")]
    with pytest.raises(BudgetExhausted):
        request_log.exchange(1, 0, PROMPT, refused)
    assert len(seen) == 1


def test_recorded_exchanges_come_first_and_are_charged_again_but_not_written_again() -> None:
    spent, seen = ledger(), []
    recorded = [FailedExchange(1, 0, PROMPT, 2, "refused"), Exchange(1, 0, PROMPT, REPLY, 1)]
    request_log = RequestLog(spent, recorded=recorded, on_exchange=seen.append)
    assert request_log.exchange(1, 0, PROMPT, never).requests == 3
    assert (spent.calls, seen) == (3, [])
    assert request_log.exchange(2, 0, PROMPT, lambda: REPLY).attempt == 2
    assert len(seen) == 1


def test_a_conversation_remembers_the_request_and_the_last_reply() -> None:
    first = Exchange(1, 0, PROMPT, Reply("nonsense", "m"), 1)
    repair = PROMPT.followed_by(Message("assistant", "nonsense"), Message("user", "repair it"))
    last = Exchange(1, 1, repair, Reply("", "m"), 1)
    assert turns([first]) == (PROMPT.messages[-1], Message("assistant", "nonsense"))
    assert turns([first, last]) == (PROMPT.messages[-1], Message("assistant", "(empty)"))


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ("The pole falls at 0.5 rad. So lean.\n```\nleft = 0\n```", "The pole falls at 0.5 rad."),
        ("```\nleft = 0\n```\nAfterwards: done!", "Afterwards: done!"),
        ("# Plan\n\n- **Swing** up\n  first\n\nthen rest", "Swing up first"),
        ("<think>hm. no.</think>\nRest early", "Rest early"),
        ("| a | b |\n|---|---|\n", ""),
        ("", ""),
        ("a\x00\x1b[31m b", "a [31m b"),
        ("x" * 500, "x" * 156 + " ..."),
    ],
)
def test_the_idea_of_a_reply_is_its_first_sentence(reply: str, sentence: str) -> None:
    assert first_sentence(reply) == sentence
