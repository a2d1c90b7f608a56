"""The text of a policy as its author wrote it: the order of lines, comments, blank lines and parentheses.

The author's lines are stored beside the policy and do not affect actions. Order and comments are the author's; an
expression is written in the author's way if it has the same meaning as the policy's, apart from the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policygen.outgoing import plain
from policygen.policies.cells import is_separator_line, looks_like_bins, split_comment, with_comment
from policygen.quantities.text import with_new_numbers
from policygen.tasks.spaces import Actuator

MOST_COMMENT = 200  # characters of one comment
MOST_COMMENTS = 10_000  # characters of all comments of a policy
TABLE = "|"
Actuators = Sequence[Actuator]
_LINE = re.compile(r"(?:(let|bins)\s+)?(\w+)\s*[:=]\s*(.*)")


class Line(NamedTuple):
    """One line of a policy in its author's form."""

    expression: str  # the right-hand side as written
    above: list[str]  # the comments and blank lines above the line
    comment: str  # the comment at its end


# The lines in the author's order, by key: `let NAME`, `bins NAME`, the name of an output, `TABLE` for the header, and
# the bins and labels of a row, such as `| 0 | left`.
Form = dict[str, Line]


def _form_of(lines: Iterable[str], actuators: Actuators) -> tuple[Form, list[str]]:
    """Return the form of a policy's lines, and the comments and blank lines below them; the lines have no markup.

    Of two lines with one key the last counts.
    """
    form, waiting, left = Form(), list[str](), MOST_COMMENTS
    for line in lines:
        text, comment = split_comment(line)
        comment = plain(" ".join(comment.split()))
        comment = comment if len(comment) <= MOST_COMMENT else f"{comment[: MOST_COMMENT - 3].rstrip()}..."
        left -= len(comment)
        comment = comment if left >= 0 else ""
        if key := _key(text, actuators):
            if not key.startswith(TABLE):
                form.pop(key, None)
            form[key], waiting = Line(text.partition("=")[2].strip(), waiting, comment), []
        elif comment or not (text or line.strip()):
            waiting.append(f"# {comment}" if comment else "")
    return form, waiting


def _order(form: Form) -> list[str]:
    """Return the keys in order, with `TABLE` once for all rows: the order of rows is the policy's own."""
    return list(dict.fromkeys(TABLE if key.startswith(TABLE) else key for key in form))


def _key(text: str, actuators: Actuators) -> str:
    """Return the key of a policy line, which does not depend on numbers that are tuned; empty for any other text."""
    if text.startswith("|"):
        if is_separator_line(text):
            return ""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        bins = cells[: -len(actuators)]
        labels = [c for c, a in zip(cells[-len(actuators) :], actuators, strict=False) if a.is_choice]
        return "| " + " | ".join([*bins, *labels]) if any(map(looks_like_bins, bins)) else TABLE
    found = _LINE.match(text)
    return " ".join(filter(None, found.groups()[:2])) if found else ""


def _with_others(order: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return `order` with the items that only `others` has; each comes directly after its predecessor in `others`."""
    result, others = list(order), list(others)
    at = next((result.index(key) for key in others if key in result), len(result))
    for key in others:
        if key not in result:
            result.insert(at, key)
        at = result.index(key) + 1
    return result


def arranged(standard: Sequence[str], written: Iterable[str], old: Sequence[str], actuators: Actuators) -> list[str]:
    """Return the lines of a policy as its author wrote them.

    Args:
        standard: the lines as `to_text(plain=True)` writes them.
        written: the author's lines, without markup.
        old: the lines of the policy that the author revised, if any. If `written` leaves out some of the policy's
            lines, the order is that of `old`; a line that only `written` has comes after its predecessor in `written`.
    """
    form, end = _form_of(written, actuators)
    order = _order(form)
    if old and not {key for line in standard if (key := _key(line, actuators))} <= form.keys():
        before, old_end = _form_of(old, actuators)
        order, end = _with_others(_order(before), order), old_end or end
        for key, line in before.items():
            new = form.get(key, line)  # an old comment stays if the new line has none
            above = new.above if any(new.above) else line.above
            form[key] = Line(new.expression, above, new.comment or line.comment)
    blocks: dict[str, list[str]] = {}
    for text in standard:
        blocks.setdefault(TABLE if text.startswith("|") else _key(text, actuators), []).append(text)
    lines: list[str] = []
    kept: list[str] = []  # comments above a removed line, if a blank line is between them and it
    for key in _with_others(order, blocks):
        above = form[key].above if key in form else []
        if key not in blocks:
            kept += above[: max((i + 1 for i, line in enumerate(above) if not line), default=0)]
            continue
        lines += kept
        kept = []
        for i, text in enumerate(blocks[key]):
            own = form.get(key if i == 0 else _key(text, actuators), Line("", [], ""))
            name, equals, now = text.partition(" = ")
            if own.expression and equals and key != TABLE:
                text = name + equals + with_new_numbers(own.expression, now)
            lines += [*own.above, with_comment(text, own.comment)]
    lines += [*kept, *end]
    # One blank line is enough, and none at either end.
    lines = [line for before, line in zip(["", *lines], lines, strict=False) if line or before]
    return lines[:-1] if lines and not lines[-1] else lines
