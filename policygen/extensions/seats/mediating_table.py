"""A Markdown page of what mediation achieved and what it cost."""

from __future__ import annotations

from textwrap import wrap

from policygen.extensions.seats.mediate import SHARE_OF_QUESTIONS, MediationResult, MediatorRow, with_interval
from policygen.extensions.seats.mediator import LEARNED

HEADER = "| room | mediator | doors opened | return | steps | questions |\n| --- | --- | --- | --- | --- | --- |"


def row_in_words(row: MediatorRow) -> tuple[str, str, str, str]:
    """Success, return, steps and questions, each with its 95% interval."""
    share, low, high = row.success
    returned, steps, questions = map(with_interval, (row.returns, row.steps, row.questions))
    return (
        f"{share:.2f} [{low:.2f}, {high:.2f}]",
        f"{returned[0]:.3f} ± {returned[1]:.3f}",
        f"{steps[0]:.1f} ± {steps[1]:.1f}",
        f"{questions[0]:.2f} ± {questions[1]:.2f}",
    )


def aim(outcome: MediationResult, room: str) -> str:
    """Whether the learned mediator opens as many doors as `always` for a third of its questions; empty without both."""
    learned, always = outcome.row(room, LEARNED), outcome.row(room, "always")
    if learned is None or always is None:
        return ""
    share = sum(learned.questions) / sum(always.questions)
    opened, before = sum(learned.opened), sum(always.opened)
    reached = opened >= before and share <= SHARE_OF_QUESTIONS
    more = "as many as" if opened == before else f"{abs(opened - before)} {'more' if opened > before else 'fewer'} than"
    fewer = [
        f"{row.mediator} with {with_interval(row.questions)[0]:.2f} questions an episode"
        for row in outcome.rows
        if row.room == room and sum(row.opened) >= opened and sum(row.questions) < sum(learned.questions)
    ]
    others = f"; no fewer are opened by {' and '.join(fewer)}" if fewer else ""
    return (
        f"{room}: {'reached' if reached else 'missed'}; {LEARNED} opens {opened} of {len(learned.opened)} doors, "
        f"{more} always, with {share:.0%} of its questions{others}"
    )


def page(outcome: MediationResult, command: str) -> str:
    """The whole page.

    Args:
        command: makes it again.
    """
    who = outcome.llm if outcome.is_language_model else f"{outcome.llm}, which goes by rules and is no language model"
    first = (
        "A robot opens the locked door of a room that it does not know, in the four rooms of When2Ask (arXiv "
        f"2306.03604). Plans come from {who}; a mediator decides in every step whether to ask for one. "
        f"{outcome.episodes} episodes of each, the same for all mediators, seed {outcome.seed}; intervals are 95%. The "
        "return is the room's own, without a cost of questions; while the learned ones were tuned, on other episodes "
        "and with the planner of rules, a question cost 0.01."
    )
    lines = ["# On call: when to ask a planner", "", *wrap(first, 120), "", HEADER]
    lines += [f"| {row.room} | {row.mediator} | {' | '.join(row_in_words(row))} |" for row in outcome.rows]
    aims = [sentence for room, _ in outcome.tables if (sentence := aim(outcome, room))]
    if aims:
        lines += ["", "The aim: as many doors as `always` with at most a third of its questions.", ""]
        lines += [f"- {sentence}." for sentence in aims]
    for room, text in outcome.tables:
        lines += ["", f"The learned mediator of {room}:", "", "```text", text.strip(), "```"]
    plans = (
        f"{outcome.counts.asked} different reports were planned for; {outcome.counts.repairs} answers had to be "
        f"repaired, and {outcome.counts.fallbacks} reports had no plan even then"
    )
    if outcome.is_language_model:
        usd = "cost unknown" if outcome.usd is None else f"{outcome.usd:.4f} USD"
        plans += f"; {outcome.requests} requests, {outcome.tokens_in + outcome.tokens_out:,} tokens, {usd}"
    lines += ["", f"{plans}.", "", "```sh", command, "```"]
    return "\n".join(lines) + "\n"
