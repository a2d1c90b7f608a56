"""The comments of a policy's text: each belongs to a line, and stays with it when numbers are tuned.

They are stored beside the policy and do not affect actions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from policygen.outgoing import plain
from policygen.policies.cells import is_separator_line, looks_like_bins, split_comment, with_comment
from policygen.tasks.spaces import Actuator

MOST_COMMENT = 200  # characters of one comment
MOST_COMMENTS = 10_000  # characters of all comments of a policy
# By the key of a line, see `_key`, the comments above it and the one at its end, or empty. The key "" stands for the
# end of the text, with the comments below the last line.
Comments = Mapping[str, tuple[tuple[str, ...], str]]
Actuators = Sequence[Actuator]
_LINE = re.compile(r"(?:(let|bins)\s+)?(\w+)\s*[:=]")


def comments_of(lines: Iterable[str], actuators: Actuators) -> Comments:
    """Return the comments of a policy's lines, which have no markup; every line has an entry.

    Of two lines with one key the last counts.
    """
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    above, left = list[str](), MOST_COMMENTS
    for line in lines:
        text, comment = split_comment(line)
        comment = plain(" ".join(comment.split()))
        comment = comment if len(comment) <= MOST_COMMENT else f"{comment[: MOST_COMMENT - 3].rstrip()}..."
        left -= len(comment)
        comment = comment if left >= 0 else ""
        if key := _key(text, actuators):
            found[key], above = (tuple(above), comment), []
        elif comment:
            above.append(f"# {comment}")
    return {**found, **({"": (tuple(above), "")} if above else {})}


def commented(standard: Iterable[str], comments: Comments, actuators: Actuators) -> list[str]:
    """Return the lines of a policy, as `to_text(plain=True)` writes them, with the comments that belong to them."""
    lines: list[str] = []
    for text in standard:
        above, beside = comments.get(_key(text, actuators) or text, ((), ""))
        lines += [*above, with_comment(text, beside)]
    return [*lines, *comments.get("", ((), ""))[0]]


def _key(text: str, actuators: Actuators) -> str:
    """Return the key of a policy line, which does not depend on numbers that are tuned; empty for any other text.

    It is `let NAME`, `bins NAME` or the name of an output, `|` for the header of a table, and for a row its bins and
    labels, such as `| 0 | left`.
    """
    if text.startswith("|"):
        if is_separator_line(text):
            return ""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        bins = cells[: -len(actuators)]
        labels = [c for c, a in zip(cells[-len(actuators) :], actuators, strict=False) if a.is_choice]
        return "| " + " | ".join([*bins, *labels]) if any(map(looks_like_bins, bins)) else "|"
    found = _LINE.match(text)
    return " ".join(filter(None, found.groups())) if found else ""
