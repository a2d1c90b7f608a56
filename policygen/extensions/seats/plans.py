"""The plan in a model's answer: the options behind the last `Plan:`, or what is wrong with them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from policygen.extensions.seats.decisions import MOST_READ
from policygen.extensions.worlds.locked.options import EXPLORE, GO_TO, OPEN, PUT, TAKE, Option, Plan
from policygen.extensions.worlds.locked.planner import Report
from policygen.extensions.worlds.locked.view import COLOURED, COLOURS, KINDS, KINDS_IN
from policygen.llm.messages import Reply

MOST_OPTIONS = 12
_SHOWN = 60  # characters of an answer that a sentence repeats
_MARKS = "*`\"'_ \t[]{}()."
_PLAN = re.compile(r"(?<!\w)plan[*`\"']{0,3}[ \t]{0,4}:", re.IGNORECASE)
_BETWEEN = re.compile(r"[,;\n]|->|→|\bthen\b", re.IGNORECASE)
_NUMBERING = re.compile(r"(?:[-*•]|\d{1,2}[.):]|and\b)\s*", re.IGNORECASE)
_VERBS = tuple(
    (verb, re.compile(pattern, re.IGNORECASE))
    for verb, pattern in (
        (EXPLORE, r"(?:explore|search)\b"),
        (GO_TO, r"(?:go|move|walk) ?to\b"),
        (TAKE, r"(?:pick|take|grab)\b"),
        (PUT, r"(?:drop|put)\b"),
        (OPEN, r"(?:open|toggle|unlock)\b"),
    )
)
_THING = re.compile(rf"\b(?:({'|'.join(COLOURS)}) )?({'|'.join(KINDS.values())})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The content of an answer: a plan, or the problem to name in a repair request."""

    plan: Plan | None
    problem: str = ""


def read_plan(reply: Reply, report: Report, room: str) -> ReadPlan:
    """The plan that an answer states last: behind `Plan:`, in its line or in the lines below it, or as its last line.

    What was not seen yet is explored for, and what is then picked up or opened is gone to first, whether the plan says
    so or not. Of several keys in sight it must say which.

    Args:
        room: one of `ROOM_NAMES`; they differ in what there is.
    """
    if reply.truncated:
        return ReadPlan(None, "it was cut off by its length limit")
    text = reply.text[-MOST_READ:].strip()
    if not text:
        return ReadPlan(None, "it is empty")
    options: list[Option] = []
    for part in _BETWEEN.split(_stated(text)):
        said = part.strip().lstrip("*`\"'_ [{(")
        said = _NUMBERING.sub("", said, count=1).strip(_MARKS) if _NUMBERING.match(said) else said.strip(_MARKS)
        if not said:
            continue
        found = _options(said, report, room, options)
        if isinstance(found, str):
            return ReadPlan(None, found)
        options += found
    if not options:
        held = f"; {report.carried} is in hand already" if report.carried else ""
        return ReadPlan(None, f"behind `Plan:` there is no option that is left to do{held}")
    if len(options) > MOST_OPTIONS:
        return ReadPlan(None, f"it has {len(options)} options, and {MOST_OPTIONS} are the most")
    return ReadPlan(tuple(options))


def _stated(text: str) -> str:
    """Return the text after the last `Plan:`, to the end of the line or, if the line is empty, of the paragraph."""
    found = list(_PLAN.finditer(text))
    if not found:
        return text.splitlines()[-1]
    rest = text[found[-1].end() :]
    line = rest.partition("\n")[0]
    return line if line.strip(_MARKS) else rest.strip(_MARKS + "\n").partition("\n\n")[0]


def _options(said: str, report: Report, room: str, before: list[Option]) -> list[Option] | str:
    """The option that some words mean, and what goes without saying before it; or what is wrong with them."""
    verb, match = next(((verb, match) for verb, pattern in _VERBS if (match := pattern.match(said))), (None, None))
    if verb is None or match is None:
        return (
            f"`{_short(said)}` is no option; options are explore, go to THING, pick up THING, drop and open THING, "
            "and commas stand between them"
        )
    if verb in (EXPLORE, PUT):
        return [Option(verb)]
    thing = _THING.search(said, match.end())
    if thing is None:
        return f"`{_short(said)}` names no key, box or door"
    colour, kind = (thing[1] or "").lower(), thing[2].lower()
    name = f"{colour} {kind}".strip() if room == COLOURED else kind
    fitting = [seen for seen in report.seen if seen == name or (seen.endswith(kind) and name == kind)]
    if fitting:
        if verb != GO_TO:
            return [Option(verb, name)]
        if len(fitting) > 1:
            return f"`{_short(said)}` does not say which: {' or '.join(fitting)}"
        return [Option(GO_TO, fitting[0])]
    if kind not in KINDS_IN[room]:
        return f"`{_short(said)}` names what this room does not have; it has {' and '.join(KINDS_IN[room])}"
    if report.carried == name and Option(PUT) not in before:  # what is in hand need not be fetched
        return []
    going = Option(GO_TO, name)
    then = [] if verb == GO_TO else [Option(verb, name)]
    if going in before:
        return then or [going]
    return [going, *then] if before and before[-1].verb == EXPLORE else [Option(EXPLORE), going, *then]


def _short(text: str) -> str:
    words = " ".join(text.replace("`", "'").split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 4]} ..."
