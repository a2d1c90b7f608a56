"""Requests and replies are charged and recorded as they happen; recorded ones are used first, and charged again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support import Written

from policygen.errors import BudgetExhausted, ProviderError, TransientProviderError
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, conversation_turn

PROMPT = Prompt((Message("system", "You improve policies."), Message("user", "Improve this one.")))
REPLY = Reply("a table", "m", 10, 5, 0.5)


def ledger(**settings: object) -> Ledger:
    return Ledger(RunConfig(task="frozenlake", **settings))


def log(spent: Ledger, seen: list[Any], **options: Any) -> RequestLog:
    return RequestLog(spent, on_exchange=seen.append, sleep=lambda seconds: None, **options)


class Scripted(Written):
    """A provider that gives these replies, and raises those that are exceptions."""

    def __init__(self, *script: Reply | BaseException) -> None:
        super().__init__(())
        self.script = list(script)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        one = self.script.pop(0)
        if isinstance(one, BaseException):
            raise one
        return one


def test_an_answer_is_charged_recorded_and_handed_back() -> None:
    spent, seen, sent = ledger(), [], []
    request_log = log(spent, seen, on_sent=lambda *place: sent.append((*place, len(seen))))
    exchange = request_log.ask(Scripted(TransientProviderError("busy", 0), REPLY), 3, 1, PROMPT)
    assert exchange == Exchange(3, 1, PROMPT, replace(REPLY, seconds=exchange.reply.seconds), 2, 10, 5)
    assert (seen, sent) == ([exchange], [(3, 1, 0), (3, 1, 0)])
    assert (spent.calls, spent.tokens_in, spent.tokens_out, spent.usd, spent.held) == (2, 10, 5, 0.5, [])


@pytest.mark.parametrize("fault", [ProviderError("no key"), KeyboardInterrupt()])
def test_a_request_without_a_reply_is_recorded_and_one_that_was_not_sent_is_not(fault: BaseException) -> None:
    spent, seen = ledger(max_calls=1), []
    request_log = log(spent, seen)
    with pytest.raises(type(fault)):
        request_log.ask(Scripted(fault), 1, 0, PROMPT)
    assert seen == [FailedExchange(1, 0, PROMPT, 1, str(fault) or "interrupted")]
    with pytest.raises(BudgetExhausted):
        request_log.ask(Scripted(), 1, 0, PROMPT)
    assert (len(seen), spent.held) == (1, [])


def test_recorded_exchanges_come_first_and_are_charged_again_but_not_written_again() -> None:
    spent, seen = ledger(), []
    recorded = [FailedExchange(1, 0, PROMPT, 2, "refused"), Exchange(1, 0, PROMPT, REPLY, 1)]
    request_log = log(spent, seen, recorded=recorded)
    assert request_log.ask(Scripted(), 1, 0, PROMPT).requests == 3
    assert (spent.calls, seen) == (3, [])
    assert request_log.ask(Scripted(REPLY), 2, 0, PROMPT).attempt == 2
    assert len(seen) == 1


def test_a_conversation_remembers_the_request_and_the_last_reply() -> None:
    first = Exchange(1, 0, PROMPT, Reply("nonsense", "m"), 1)
    repair = PROMPT.followed_by(Message("assistant", "nonsense"), Message("user", "repair it"))
    last = Exchange(1, 1, repair, Reply("", "m"), 1)
    assert conversation_turn([first]) == (PROMPT.messages[-1], Message("assistant", "nonsense"))
    assert conversation_turn([first, last]) == (PROMPT.messages[-1], Message("assistant", "(empty)"))
