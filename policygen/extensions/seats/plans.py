"""The plan in a model's answer, for a robot in a locked room."""

from __future__ import annotations

import re

from policygen.extensions.seats.session import UnreadableAnswer, quoted
from policygen.extensions.worlds.robot import (
    COLOURED,
    COLOURS,
    EXPLORE,
    GO_TO,
    KINDS,
    KINDS_IN,
    OPEN,
    PUT,
    TAKE,
    Option,
    Plan,
    RoomReport,
)

MOST_OPTIONS = 12  # in a plan
FALLBACK: Plan = (Option(EXPLORE),)  # if the repaired answer states no plan either
_MARKS = "*`\"'_ \t[]{}()."
_PLAN = re.compile(r"(?<!\w)plan[*`\"']{0,3}[ \t]{0,4}:", re.IGNORECASE)
_BETWEEN = re.compile(r"[,;\n]|->|→|\bthen\b", re.IGNORECASE)
_NUMBERING = re.compile(r"(?:[-*•]|\d{1,2}[.):]|and\b)\s*", re.IGNORECASE)
_VERBS = {
    EXPLORE: re.compile(r"(?:explore|search)\b", re.IGNORECASE),
    GO_TO: re.compile(r"(?:go|move|walk) ?to\b", re.IGNORECASE),
    TAKE: re.compile(r"(?:pick|take|grab)\b", re.IGNORECASE),
    PUT: re.compile(r"(?:drop|put)\b", re.IGNORECASE),
    OPEN: re.compile(r"(?:open|toggle|unlock)\b", re.IGNORECASE),
}
_THING = re.compile(rf"\b(?:({'|'.join(COLOURS)}) )?({'|'.join(KINDS.values())})\b", re.IGNORECASE)


def read_plan(text: str, report: RoomReport, room: str) -> Plan:
    """Return the last plan in an answer: the text after `Plan:`, or without `Plan:` the last line.

    For a thing not seen yet, `explore` and `go to` are added before the option. If several keys were seen, the plan
    must say which one to go to.

    Args:
        room: one of `ROOM_NAMES`, which differ in their things.

    Raises:
        UnreadableAnswer: the text states no plan.
    """
    options: list[Option] = []
    for part in _BETWEEN.split(_plan_text(text)):
        words = part.strip().lstrip("*`\"'_ [{(")
        words = _NUMBERING.sub("", words, count=1).strip(_MARKS) if _NUMBERING.match(words) else words.strip(_MARKS)
        if words:
            options += _options(words, report, room, options)
    if not options:
        held = f"; {report.carried} is in hand already" if report.carried else ""
        raise UnreadableAnswer(f"its plan has no option to carry out{held}")
    if len(options) > MOST_OPTIONS:
        raise UnreadableAnswer(f"it has {len(options)} options; the maximum is {MOST_OPTIONS}")
    return tuple(options)


def _plan_text(text: str) -> str:
    """Return the text after the last `Plan:`, to the end of the line or, if the line is empty, of the paragraph."""
    found = list(_PLAN.finditer(text))
    if not found:
        return text.splitlines()[-1]
    rest = text[found[-1].end() :]
    line = rest.partition("\n")[0]
    return line if line.strip(_MARKS) else rest.strip(_MARKS + "\n").partition("\n\n")[0]


def _options(words: str, report: RoomReport, room: str, before: list[Option]) -> list[Option]:
    """Return the options of one part of a plan: the option that its words state, and before it those that it needs."""
    verb, match = next(
        ((verb, match) for verb, pattern in _VERBS.items() if (match := pattern.match(words))), (None, None)
    )
    if verb is None or match is None:
        raise UnreadableAnswer(
            f"{quoted(words)} is no option; options are explore, go to THING, pick up THING, drop and open THING, "
            "separated by commas"
        )
    if verb in (EXPLORE, PUT):
        return [Option(verb)]
    thing = _THING.search(words, match.end())
    if thing is None:
        raise UnreadableAnswer(f"{quoted(words)} names no key, box or door")
    colour, kind = (thing[1] or "").lower(), thing[2].lower()
    name = f"{colour} {kind}".strip() if room == COLOURED else kind
    fitting = [seen for seen in report.seen if seen == name or (seen.endswith(kind) and name == kind)]
    if fitting:
        if verb != GO_TO:
            return [Option(verb, name)]
        if len(fitting) > 1:
            raise UnreadableAnswer(f"{quoted(words)} does not say which: {' or '.join(fitting)}")
        return [Option(GO_TO, fitting[0])]
    if kind not in KINDS_IN[room]:
        raise UnreadableAnswer(f"{quoted(words)} names nothing in this room; it has {' and '.join(KINDS_IN[room])}")
    if report.carried == name and Option(PUT) not in before:  # a thing in hand need not be fetched
        return []
    going = Option(GO_TO, name)
    then = [] if verb == GO_TO else [Option(verb, name)]
    if going in before:
        return then or [going]
    return [going, *then] if before and before[-1].verb == EXPLORE else [Option(EXPLORE), going, *then]
