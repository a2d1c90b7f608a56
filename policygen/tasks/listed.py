"""Names of numbers from plain lists in documentation: `Observation: level (m, measured), setpoint (m).`"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from policygen.tasks.documentation import without_markup
from policygen.tasks.task import is_name

LONGEST, LONGEST_LIST = 20_000, 1_500  # characters of a documentation and of a list that are read
MOST_BEGINS = 20  # places where a list may begin
MOST_WORDS = 4  # of a name; longer parts of a sentence name nothing
_SUBJECTS = {
    "observation": r"observations?|observation space|observed|observes|state",
    "action": r"actions?|action space|inputs?|controls?",
}
# After the subject: up to a colon, or a verb that begins a list; or the list itself (`Observes level, setpoint`).
_INTRODUCTION = r"(?:[^:=.,;\n]{0,40}?(?::|=|\b(?:is|are|of|holds?|contains?|has)\b))?\s*"
_OTHER_SUBJECT = r"^\s*(?:[-*#]+\s*)?(?:observ|action|reward|episode|start|terminat|truncat|argument|state)"
_END = r"\.(?:\s|$)|\n\s*\n|[.,;]\s*(?=(?:actions?|controls?|inputs?|rewards?)\b\s*(?::|=|\bis\b|\bare\b))"
_UNIT_WORDS = (
    "m cm mm km s ms min h Hz rpm rad deg ° kg g t N kN Nm K C °C degC F Pa kPa bar V mV A mA W kW J kJ L l mol %"
)
_UNITS = frozenset(_UNIT_WORDS.split())
# Words of sentences about a space, which name none of its numbers.
_NO_NAMES = re.compile(
    r"\b(?:ndarray|array|box|vector|float\d*|tuple|dict|shape|space|values?|numbers?|following|elements?|none|with|where"
    r"|which|that|this|of|is|are|see|one|to|by|for|as)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"(?:(?:the|an?|and)\s+)*([A-Za-z][\w /-]*?)\s*(?:[(\[](.*)[)\]])?\s*(?:(?::|\bin\b| - )\s*(.*))?", re.DOTALL
)


class Listed(NamedTuple):
    """A number as a list describes it; `unit` and `about` are empty if it says nothing."""

    name: str
    unit: str
    about: str


def listed(documentation: str, subject: str, count: int) -> list[Listed]:
    """Return the numbers that a list names, in one line or a line each; empty if no list has `count` names.

    Args:
        subject: "observation" or "action".
    """
    begins = re.finditer(rf"\b(?:{_SUBJECTS[subject]})\b", documentation[:LONGEST], re.IGNORECASE)
    for begin in itertools.islice(begins, MOST_BEGINS):
        rest = documentation[begin.end() : begin.end() + LONGEST_LIST]
        for parts in (*_lists(rest), _lines(rest)):
            found = [item for part in parts if (item := _item(part)) is not None]
            if len(found) == len(parts) == count and len({item.name.lower() for item in found}) == count:
                return found
    return []


def _lists(text: str) -> Iterator[list[str]]:
    """Yield the parts of a list that may begin a text, for each place where it may end."""
    introduction = re.match(_INTRODUCTION, text)
    start = introduction.end() if introduction else 0
    line_end = re.search(r"[^,;\s]\s*\n", text[start:])
    for end in (line_end.end() if line_end else len(text), len(text)):
        sentence = re.split(_END, text[start : start + end], maxsplit=1)[0].strip().rstrip(".")
        inside = re.fullmatch(r"\[(.*)\]|\(([^()]*)\)", sentence, re.DOTALL)
        sentence = (inside[1] or inside[2] or "") if inside else re.sub(r"^Box\([^()]*\)\s*[:,]?\s*", "", sentence)
        parts = [part.strip() for part in re.split(r"[,;](?![^()\[\]]*[)\]])", sentence)]
        parts = [one for part in parts for one in re.split(r"\s+and\s+(?![^()\[\]]*[)\]])", part) if one]
        # "The observation is noisy, delayed" is a sentence; a list has a colon, brackets or units.
        if inside or ":" in text[:start] or "=" in text[:start] or re.search(r"[(\[]|\bin\b", sentence):
            yield parts


def _lines(text: str) -> list[str]:
    """Return the items of a list with a line each, bulleted or numbered, that begins a text."""
    block = re.split(_OTHER_SUBJECT, text.partition("\n")[2], maxsplit=1, flags=re.IGNORECASE | re.MULTILINE)[0]
    items = re.findall(r"^\s*(?:[-*]\s+|(?:[-*]\s+)?\w*\[?\d+\]?\s*[:=.)]\s*)(.+)$", block, re.MULTILINE)
    return [str(item) for item in items]


def _item(text: str) -> Listed | None:
    """Read `level (m, measured)`, `speed in m/s` or `level: the measured height`."""
    found = _ITEM.fullmatch(" ".join(without_markup(text).replace("`", "").split()).strip(" ."))
    if found is None or _NO_NAMES.search(found[1]) or len(re.findall(r"[^\W_]+", found[1])) > MOST_WORDS:
        return None
    name = re.sub(r"\W+", "_", found[1]).strip("_")
    name = name if name.isupper() else name.lower()
    inside = [part.strip() for part in (found[2] or "").split(",") if part.strip()]
    parts = [*inside, *([found[3]] if found[3] else [])]
    unit = next((part for part in parts if _is_unit(part)), "")
    return Listed(name, unit, ", ".join(part for part in parts if part != unit)) if is_name(name) else None


def _is_unit(text: str) -> bool:
    parts = re.split(r"[/* ·]", text)
    return all(re.sub(r"\^?-?\d$|[²³]$", "", part) in _UNITS or part == "1" for part in parts)
