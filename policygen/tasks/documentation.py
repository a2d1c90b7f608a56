"""Read a Gymnasium environment's docstring: its sections, tables, lists, and the prose that helps a designer."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from policygen.quantities.text import is_name

# First words of the titles of useful sections, most important first: a long text is cut at its end.
_WANTED = ("description", "reward", "episode", "terminat", "truncat", "transition", "starting", "observation", "action")
_LONGEST_PROSE = 4_000  # characters
_LONGEST_NOTES = 700  # characters of the section on observations, if the task holds its table


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its text and tables; each row maps lower-case column heads to cells."""

    title: str
    text: str
    tables: tuple[tuple[Mapping[str, str], ...], ...]


def sections_of(documentation: str) -> list[Section]:
    """Return the sections under the highest level of headings; text before the first heading has an empty title."""
    fenced = r"^[ \t]*```.*?(?:^[ \t]*```[^\n]*\n?|\Z)"  # figures, shell commands or references
    lines = re.sub(fenced, "", documentation, flags=re.DOTALL | re.MULTILINE).splitlines()
    headings = [re.match(r" {0,3}(#+)\s*\S", line) for line in lines]
    highest = min((len(heading[1]) for heading in headings if heading), default=1)
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line, heading in zip(lines, headings, strict=True):
        if heading and len(heading[1]) == highest:
            sections.append((line.strip("#: "), []))
        else:
            sections[-1][1].append(f"{line.strip('#: ')}:" if heading else line.rstrip())
    return [_section(title, body) for title, body in sections]


def section_of(sections: Sequence[Section], start: str) -> Section | None:
    """Return the first section whose title begins with `start`, in any case; None if there is none."""
    return next((section for section in sections if section.title.lower().startswith(start)), None)


def _section(title: str, lines: Sequence[str]) -> Section:
    text: list[str] = []
    tables: list[tuple[Mapping[str, str], ...]] = []
    rest = list(lines)
    while rest:
        # A table has a line of dashes below its head; without one, bars and spaces are a map, kept as they are.
        if len(rest) > 1 and rest[0].lstrip().startswith("|") and re.fullmatch(r"\s*\|[\s|:-]*-[\s|:-]*", rest[1]):
            head = [cell.lower() for cell in _cells(rest[0])]
            count = next((i for i, line in enumerate(rest) if not line.lstrip().startswith("|")), len(rest))
            rows = [_cells(line) for line in rest[2:count]]
            tables.append(tuple(dict(zip(head, row, strict=False)) for row in rows))
            rest = rest[count:]
        else:
            text.append(rest.pop(0))
    return Section(title, re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip("\n"), tuple(tables))


def _cells(line: str) -> list[str]:
    return [" ".join(cell.split()) for cell in line.strip().strip("|").split("|")]


def numbered(section: Section, count: int) -> list[Mapping[str, str]]:
    """Return the table rows numbered 0, 1, ... in order, at most `count`, from one or more tables of a section.

    A table that starts again from 0 is ignored: it describes something else.
    """
    rows: list[Mapping[str, str]] = []
    for row in itertools.chain.from_iterable(section.tables):
        if len(rows) < count and row.get("num") == str(len(rows)):
            rows.append(row)
    return rows


def choices(section: Section, count: int) -> list[str] | None:
    """Return the meanings of `count` choices, from a list `- 0: Move left` or a table; None if one is missing."""
    rows = [row.get("action", "") for row in numbered(section, count)]
    meanings = dict(reversed(re.findall(r"^\s*[-*]\s*(\d+):\s*(.+?)\s*$", section.text, flags=re.MULTILINE)))
    found = rows if len(rows) == count else [meanings.get(str(i), "") for i in range(count)]
    return [without_markup(text) for text in found] if all(found) else None


def prose(sections: Sequence[Section], arguments: Mapping[str, Any], in_tables: Sequence[str]) -> str:
    """Return the text of the sections that help to design a controller, without markup.

    Args:
        arguments: arguments of the environment; lines about other values of these are left out.
        in_tables: first words of the titles of sections whose tables the task holds: "observation" keeps only its
            notes, "action" nothing.
    """
    opening = next((section.text for section in sections if not section.title), "")
    kept = [text] if (text := _readable(opening, arguments)) else []
    for wanted in _WANTED:
        for section in (one for one in sections if one.title.lower().startswith(wanted)):
            text = _readable(section.text, arguments)
            if wanted in in_tables:
                notes = [part for part in text.split("\n\n") if not _ON_THE_SPACE.search(part)]
                # The text about actions says nothing that their names do not say.
                text = "\n\n".join(notes)[:_LONGEST_NOTES].rstrip() if wanted == "observation" else ""
            if text:
                kept.append(f"{section.title}: {text}" if "\n" not in text else f"{section.title}:\n{text}")
    return "\n\n".join(kept)[:_LONGEST_PROSE].strip()


# Paragraphs on the type and the parts of a space, which the task holds.
_ON_THE_SPACE = re.compile(
    r"Box\(|ndarray|elements|shape|action space|during construction|^\s*[-*]? ?\d+:|-dimensional vector"
    r"|State consists of|discrete states|body parts are|^Note:$"
)
# Lines that do not help to design a controller: rendering, history, versions, defaults.
_IRRELEVANT = re.compile(
    r"gymnasium\.farama|Adapted from|inspiration from|mujoco-py|during construction|rgb|render|Pixel art"
    r"|heuristic|multivariate|`info` contains|`info` also|exclude_current_positions_from_observation`? is set"
    r"|number of independent state|on `v[234]`|described in Example|by Sutton and Barto|This MDP first appeared"
    r"|is based on the (?:work|one)|corresponds to the .* described in|^\s*From \"|^\s*by Tom|Pontryagin|^\s*> "
    r"|engine at full throttle or turn|environment has discrete actions|two environment versions|action_mask"
    r"|this reward would be positive|A reward for moving forward|A negative reward to penalize|frame_skip|frametime"
    r"|so that the .* stand up|is called \"Ant\"|^\s*See `|The number of possible observations is dependent"
    r"|By default, |The observation space consists|total reward returned is|quaternions|read more about|returned as|!\["
)


def _readable(text: str, arguments: Mapping[str, Any]) -> str:
    """Remove links, markup, irrelevant lines and lines about other arguments; keep paragraphs and maps."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", _without_links(text)):
        lines = [line for line in paragraph.split("\n") if not _IRRELEVANT.search(line)]
        lines = [without_markup(_in_force(one, arguments)) for one in lines if not _about_another_value(one, arguments)]
        if any(map(str.strip, lines)):
            paragraphs.append("\n".join(lines).strip("\n"))
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent("\n\n".join(paragraphs))).strip("\n")


def _about_another_value(line: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a line is about a value that a boolean argument does not have: `if continuous is True`."""
    stated = re.findall(r"\bif\b[^.]*?`?(\w+)`?\s*(?:=+|is)\s*`?(True|False)\b", line, flags=re.IGNORECASE)
    return any(isinstance(arguments.get(name), bool) and str(arguments[name]) != value for name, value in stated)


def _in_force(line: str, arguments: Mapping[str, Any]) -> str:
    """Replace default values in a line by the arguments in force."""

    def value(match: re.Match[str]) -> str:
        argument = arguments.get(match[1])
        text = value_text(argument) if isinstance(argument, int | float | tuple | list) else ""
        return f"{match[1]} = {text}" if text else match[0]

    line = re.sub(r"`(\w+)`(?: argument)? \(defaults? (?:is|to) [^()]*\)", value, line)
    return re.sub(r"If `?(\w+) is True`? \((?:which is )?the default\), the", "The", line)


def value_text(value: Any) -> str:
    """Write a number, boolean or string, or a list of at most six of them; empty for anything else."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return str(value)
        share = Fraction(value).limit_denominator(12)
        exact = float(share) == float(value) and share.denominator in (3, 6, 7, 9, 11, 12)
        return str(share) if exact else f"{value:.6g}"
    if isinstance(value, list | tuple) and 0 < len(value) <= 6:
        parts = [value_text(item) for item in value]
        return f"({', '.join(parts)})" if all(parts) else ""
    return ""


def _without_links(text: str) -> str:
    text = re.sub(r"\[<a[^>]*>.*?</a>\]", "", text, flags=re.DOTALL)
    text = re.sub(r"<a[^>]*>(.*?)</a>", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?:https?:|/)[^)]*\)", r"\1", text)
    return re.sub(r"\(?https?://\S+", "", text)


# LaTeX and markup, with plain replacements.
_MARKUP: tuple[tuple[str, str], ...] = (
    (r"\s*\(see [^()]*\)", ""),
    (r"\s*\(`?observation\[[^()]*\)|\s*\(if +`exclude[^()]*\)", ""),
    (r"\\mathcal\{U\}_\{\[-?([^,]+?)(?:\s*(?:\\times|imes)\s*[I1]_\{?\d+\}?)?,[^\]]*\]\}", r"uniform noise up to \1"),
    (r"\\mathcal\{U\}_\{\[\[([^][]+)\], \[([^][]+)\]\]\}", r"uniform between (\1) and (\2)"),
    (r"\$0_\{?(\d+)\}?\$", r"0 in all \1 parts"),
    (r"\\mathcal\{N\}\(0_\{\d+\},\s*([^\s^]+)\^2[^)]*\)", r"normal noise of standard deviation \1"),
    (r"\\mathcal\{S\}\(([^)]*)\)", r"a random place within \1"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2"),
    (r"\\\|(.*?)\\\|_2(\^2)?", r"|\1|\2"),
    (r"\\times", "x"),
    (r"\\leq?\b", "<="),
    (r"\\geq?\b", ">="),
    (r"\\infty", "inf"),
    (r"\\_", "_"),
    (r"\\([a-zA-Z]+)", r"\1"),
    (r"([_^])\{([^{}]*)\}", r"\1\2"),
    (r"<sup>(.*?)</sup>", r"^\1"),
    (r"<sub>(.*?)</sub>", r"_\1"),
    (r"\$", ""),
    (r"\*{2,}", ""),
    (r"(?<![\w*])\*(?=\S)((?:[^*\n]| \* )+?)(?<=\S)\*(?!\w)", r"\1"),
)


def without_markup(text: str) -> str:
    """Remove LaTeX, HTML tags and emphasis from a line."""
    for pattern, replacement in _MARKUP:
        text = re.sub(pattern, replacement, text)
    return text.rstrip()


# --- names of numbers from plain lists: `Observation: level (m, measured), setpoint (m).` ---

LONGEST, LONGEST_LIST = 20_000, 1_500  # characters that are read of the documentation, and of a list
MOST_BEGINS = 20  # places where a list may begin
MOST_WORDS = 4  # of a name
_SUBJECTS = {
    "observation": r"observations?|observation space|observed|observes|state",
    "action": r"actions?|action space|inputs?|controls?",
}
# After the subject: up to a colon, or a verb that begins a list; or the list itself (`Observes level, setpoint`).
_INTRODUCTION = r"(?:[^:=.,;\n]{0,40}?(?::|=|\b(?:is|are|of|holds?|contains?|has)\b))?\s*"
_OTHER_SUBJECT = r"^\s*(?:[-*#]+\s*)?(?:observ|action|reward|episode|start|terminat|truncat|argument|state)"
_END = r"\.(?:\s|$)|\n\s*\n|[.,;]\s*(?=(?:actions?|controls?|inputs?|rewards?)\b\s*(?::|=|\bis\b|\bare\b))"
_UNIT = re.compile(
    r"1|(?:m|cm|mm|km|s|ms|min|h|Hz|rpm|rad|deg|°|kg|g|t|N|kN|Nm|K|C|°C|degC|F|Pa|kPa|bar|V|mV|A|mA|W|kW|J|kJ|L|l|mol|%)"
    r"(?:\^?-?\d|[²³])?"
)
# A phrase with one of these words is not the name of a number; it describes a space, for example.
_NO_NAMES = re.compile(
    r"\b(?:ndarray|array|box|vector|float\d*|tuple|dict|shape|space|values?|numbers?|following|elements?|none|with|where"
    r"|which|that|this|of|is|are|see|one|to|by|for|as)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"(?:(?:the|an?|and)\s+)*([A-Za-z][\w /-]*?)\s*(?:[(\[](.*)[)\]])?\s*(?:(?::|\bin\b| - )\s*(.*))?", re.DOTALL
)


class Listed(NamedTuple):
    """A number in a list of the documentation; `unit` and `about` are empty if the list does not give them."""

    name: str
    unit: str
    about: str


def listed(documentation: str, subject: str, count: int) -> list[Listed]:
    """Return the numbers that a list in the documentation names; empty if no list has `count` names.

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
    """Yield the items of a list at the start of a text, once for each place where the list may end."""
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
    """Return the items of a bulleted or numbered list, one per line, at the start of a text."""
    block = re.split(_OTHER_SUBJECT, text.partition("\n")[2], maxsplit=1, flags=re.IGNORECASE | re.MULTILINE)[0]
    items = re.findall(r"^\s*(?:[-*]\s+|(?:[-*]\s+)?\w*\[?\d+\]?\s*[:=.)]\s*)(.+)$", block, re.MULTILINE)
    return [str(item) for item in items]


def _item(text: str) -> Listed | None:
    """Read `level (m, measured)`, `speed in m/s` or `level: the measured height`; None for anything else."""
    found = _ITEM.fullmatch(" ".join(without_markup(text).replace("`", "").split()).strip(" ."))
    if found is None or _NO_NAMES.search(found[1]) or len(re.findall(r"[^\W_]+", found[1])) > MOST_WORDS:
        return None
    name = re.sub(r"\W+", "_", found[1]).strip("_")
    name = name if name.isupper() else name.lower()
    inside = [part.strip() for part in (found[2] or "").split(",")]
    parts = [part for part in (*inside, found[3]) if part]
    unit = next((part for part in parts if all(map(_UNIT.fullmatch, re.split(r"[/* ·]", part)))), "")
    return Listed(name, unit, ", ".join(part for part in parts if part != unit)) if is_name(name) else None
