"""What models on call took, as a table in Markdown, beside figures of the published code."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import NamedTuple

from policygen.extensions.seats.mediate import SHARE_OF_QUESTIONS, MediationResult, MediatorRow, with_interval
from policygen.extensions.seats.mediator import LEARNED


class Figures(NamedTuple):
    """Share of opened doors, and means of return, steps and questions."""

    success: float
    returned: float
    steps: float
    questions: float


# Measured with the published code on its seeds 0 to 99, a script in the place of its language model (Vicuna-7B). What
# stands for `learned` is no learned mediator, but a rule: ask where a thing is new or the plan is over.
MEASURED = {
    ("SimpleDoorKey", "hard-coded"): Figures(0.59, 0.375, 64.90, 1.58),
    ("SimpleDoorKey", "always"): Figures(1.00, 0.768, 25.78, 25.78),
    ("SimpleDoorKey", "random"): Figures(1.00, 0.762, 26.46, 13.92),
    ("SimpleDoorKey", LEARNED): Figures(1.00, 0.768, 25.82, 2.75),
    ("KeyInBox", "hard-coded"): Figures(0.59, 0.373, 65.17, 2.27),
    ("KeyInBox", "always"): Figures(1.00, 0.759, 26.78, 26.78),
    ("KeyInBox", "random"): Figures(1.00, 0.754, 27.35, 15.27),
    ("KeyInBox", LEARNED): Figures(1.00, 0.759, 26.82, 4.21),
    ("RandomBoxKey", "hard-coded"): Figures(0.56, 0.352, 67.16, 2.15),
    ("RandomBoxKey", "always"): Figures(0.94, 0.722, 30.26, 30.26),
    ("RandomBoxKey", "random"): Figures(0.94, 0.715, 31.04, 16.91),
    ("RandomBoxKey", LEARNED): Figures(0.94, 0.721, 30.30, 3.91),
    ("ColoredDoorKey", "hard-coded"): Figures(0.33, 0.204, 80.98, 1.87),
    ("ColoredDoorKey", "always"): Figures(0.46, 0.358, 65.34, 65.34),
    ("ColoredDoorKey", "random"): Figures(0.89, 0.610, 42.09, 22.59),
    ("ColoredDoorKey", LEARNED): Figures(0.90, 0.642, 38.64, 5.16),
}

HEADER = (
    "| room | mediator | doors opened | return | steps | questions | published code: the same four |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


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


def table(outcome: MediationResult) -> Iterator[str]:
    """The lines of the table."""
    yield HEADER
    for row in outcome.rows:
        figures = MEASURED.get((row.room, row.mediator))
        published = (
            f"{figures.success:.2f}, {figures.returned:.3f}, {figures.steps:.1f}, {figures.questions:.2f}"
            + (" (a rule)" if row.mediator == LEARNED else "")
            if figures is not None
            else ""
        )
        yield f"| {row.room} | {row.mediator} | {' | '.join(row_in_words(row))} | {published} |"


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
    last = (
        "The last column was measured with the published code on its own seeds 0 to 99, a script in the place of its "
        "language model; in the row of `learned` it is that of a rule: ask where a thing is new or the plan is over. "
        "The paper's own results were not at hand. `random` tosses a coin in every step and asks where a plan is over; "
        "`never` asks once. Options behave as published: exploring pushes against keys and boxes for ever, and "
        "`always` interrupts the exchange of two keys (ColoredDoorKey) over and over; but a plan may go to what "
        "was not seen yet, which is then explored for, and the published ones may not."
    )
    lines = ["# On call: when to ask a planner", "", *wrap(first, 120), "", *table(outcome), "", *wrap(last, 120)]
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
