"""The text of a policy as its author wrote it: the order of lines, comments, blank lines and parentheses.

The author's lines are stored beside the policy and do not affect actions. Order and comments are the author's; an
expression is written in the author's way if it has the same meaning as the policy's, apart from the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policygen.outgoing import plain
from policygen.policies.cells import is_rule_line, looks_like_bins, split_comment, with_comment
from policygen.quantities.text import with_new_numbers
from policygen.tasks.spaces import Actuator

MOST_COMMENT = 200  # characters of one comment
MOST_COMMENTS = 10_000  # characters of all comments of a policy
TABLE = "|"  # the key of all rows and their header: the order of rows is the policy's own
Actuators = Sequence[Actuator]
_LINE = re.compile(r"(?:(let|bins)\s+)?(\w+)\s*[:=]\s*(.*)")


@dataclass
class Form:
    """The author's form of a text: line order, expressions as written, comments.

    Attributes:
        order: the keys of the lines: `let NAME`, `bins NAME`, the name of an output, and `TABLE` once for all rows.
        expressions: the expressions as written, by key.
        above: comments and blank lines above a line, by key. The key of a row is its bins and labels: `| 0 | left`.
        comments: the comment at the end of a line, by key.
        end: comments and blank lines below the last line.
    """

    order: list[str] = field(default_factory=list)
    expressions: dict[str, str] = field(default_factory=dict)
    above: dict[str, list[str]] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    end: list[str] = field(default_factory=list)


def _form_of(lines: Iterable[str], actuators: Actuators) -> Form:
    """Return the form of the lines of a policy, which have no markup; of two lines with one key the last counts."""
    form, waiting, left = Form(), list[str](), MOST_COMMENTS
    for line in lines:
        text, comment = split_comment(line)
        comment = plain(" ".join(comment.split()))
        comment = comment if len(comment) <= MOST_COMMENT else f"{comment[: MOST_COMMENT - 3].rstrip()}..."
        left -= len(comment)
        comment = comment if left >= 0 else ""
        key = _key(text, actuators)
        if not key:
            if comment or not (text or line.strip()):
                waiting.append(f"# {comment}" if comment else "")
            continue
        order = TABLE if key.startswith(TABLE) else key
        if order != TABLE and order in form.order:
            form.order.remove(order)
        if order not in form.order:
            form.order.append(order)
        form.expressions[key] = text.partition("=")[2].strip()
        form.above[key], form.comments[key], waiting = waiting, comment, []
    form.end = waiting
    return form


def _key(text: str, actuators: Actuators) -> str:
    """Return the key of a policy line, which does not depend on numbers that are tuned; empty for any other text."""
    if text.startswith("|"):
        if is_rule_line(text):
            return ""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        bins = cells[: -len(actuators)]
        labels = [c for c, a in zip(cells[-len(actuators) :], actuators, strict=False) if a.is_choice]
        return "| " + " | ".join([*bins, *labels]) if any(map(looks_like_bins, bins)) else TABLE
    found = _LINE.match(text)
    return " ".join(filter(None, found.groups()[:2])) if found else ""


def _merged(old: Form, new: Form) -> Form:
    """Return the old form updated by the new one; an old comment stays if the new line has none."""
    above, comments = ({**getattr(old, part)} for part in ("above", "comments"))
    above |= {key: lines for key, lines in new.above.items() if any(lines) or key not in above}
    comments |= {key: comment for key, comment in new.comments.items() if comment or key not in comments}
    return Form(
        _with_others(old.order, new.order), {**old.expressions, **new.expressions}, above, comments, old.end or new.end
    )


def _with_others(order: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return `order` with the items that only `others` has, each inserted after the item before it there."""
    result, others = list(order), list(others)
    at = next((result.index(key) for key in others if key in result), len(result))
    for key in others:
        if key not in result:
            result.insert(at, key)
        at = result.index(key) + 1
    return result


def arranged(standard: Sequence[str], written: Iterable[str], old: Sequence[str], actuators: Actuators) -> list[str]:
    """Return the lines of a policy as its author wrote them.

    If `written` leaves out some of the policy's lines, the order is that of `old`, and each line that only `written`
    has comes after the line before it there.

    Args:
        standard: the lines as `to_text(plain=True)` writes them.
        written: the author's lines, without markup.
        old: the lines of the policy that the author revised; empty if there is none.
    """
    form = _form_of(written, actuators)
    if old and not {key for line in standard if (key := _key(line, actuators))} <= form.above.keys():
        form = _merged(_form_of(old, actuators), form)
    blocks: dict[str, list[str]] = {}
    for line in standard:
        key = TABLE if line.startswith("|") else _key(line, actuators)
        blocks.setdefault(key, []).append(line)
    lines: list[str] = []
    kept: list[str] = []  # comments above a removed line that a blank line separates from it
    for key in _with_others(form.order, blocks):
        above = form.above.get(key, [])
        if key not in blocks:
            kept += above[: max((i + 1 for i, line in enumerate(above) if not line), default=0)]
            continue
        lines += [*kept, *above]
        kept = []
        for i, line in enumerate(blocks[key]):
            own = key if key != TABLE or i == 0 else _key(line, actuators)
            lines += form.above.get(own, []) if i else []
            lines.append(_line(line, form.expressions.get(own, ""), form.comments.get(own, "")))
    lines += [*kept, *form.end]
    # One blank line is enough, and none at either end.
    lines = [line for before, line in zip(["", *lines], lines, strict=False) if line or before]
    return lines[:-1] if lines and not lines[-1] else lines


def _line(standard: str, expression: str, comment: str) -> str:
    name, equals, now = standard.partition(" = ")
    if expression and equals and not standard.startswith("|"):
        standard = name + equals + with_new_numbers(expression, now)
    return with_comment(standard, comment)
