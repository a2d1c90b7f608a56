"""Read and write the smallest parts of a policy's text: bins, actions, rows of a table, and comments.

Written values read back unchanged. Reading also accepts other forms that models use (`<= 2`, `0..3`, `right (1)`). For
a cell that cannot be read, the functions return a message.

Each comment belongs to a line and stays with it when numbers are tuned. Comments are stored beside the policy and do
not affect its actions.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from policygen.outgoing import plain
from policygen.quantities.grid import Dimension
from policygen.quantities.text import NUMBER, format_number
from policygen.tasks.spaces import Actuator

MOST_CELL_CHARACTERS = 80  # of an action cell that are compared with known actions
_COMMENT = re.compile(r"\s#+(.*)")
_SEPARATOR_LINE = re.compile(r"[\s|:+=-]*")
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    **{">=": operator.ge, "≥": operator.ge, "<=": operator.le, "≤": operator.le},
    **{">": operator.gt, "<": operator.lt, "!=": operator.ne, "==": operator.eq, "=": operator.eq},
}
MOST_COMMENT = 200  # characters in one comment
MOST_COMMENTS = 10_000  # characters in all comments of a policy
# For the key of a line (see `_key`), the comments above it and the one at its end, which may be empty. The key "" holds
# the comments below the last line.
Comments = Mapping[str, tuple[tuple[str, ...], str]]
Actuators = Sequence[Actuator]
_LINE = re.compile(r"(?:(let|bins)\s+)?(\w+)\s*[:=]")


def ascii_signs(number: str) -> str:
    """Replace the minus signs and dashes in a number by `-`."""
    return number.replace("−", "-").replace("–", "-")


def bins_text(bins: Sequence[int], size: int) -> str:
    """Write bins as a table cell: `*` for all `size` bins, else ranges and single bins such as `0-2,4`."""
    if len(bins) == size:
        return "*"
    runs: list[list[int]] = []
    for index in bins:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a},{b}" for a, b in runs)


@functools.lru_cache(maxsize=4_096)  # most cells of a table repeat
def read_bins(cell: str, size: int) -> tuple[int, ...] | str:
    """Return the bins that a cell names; if it cannot be read, a predicate such as `is out of range`."""
    text = ascii_signs(cell.lower()).replace("—", "-").strip("{}[] ")
    if text in ("*", "any", "all"):
        return tuple(range(size))
    if match := re.fullmatch(rf"({'|'.join(_COMPARISONS)})\s*(\d{{1,7}})", text):
        test, bound = _COMPARISONS[match[1]], int(match[2])
        if bound >= size:
            return "is out of range"
        return tuple(index for index in range(size) if test(index, bound)) or "names no bin"
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:\s*(?:-|\.\.|to)\s*(\d{1,7}))?\s*", part)
        if match is None:
            return "is not a bin"
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= size:
            return "is out of range"
        if last < first:
            return "runs backwards"
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def action_text(actuator: Actuator, value: float) -> str:
    """Write an action for one actuator: a label, a named level, or a number."""
    if actuator.is_choice:
        return actuator.labels[round(value)]
    named = next((name for name, level in actuator.levels if level == value), None)
    return named or format_number(value)


def action_words(actuators: Sequence[Actuator], values: Sequence[float]) -> str:
    """Write an action, given as one number per actuator."""
    return ", ".join(action_text(actuator, value) for actuator, value in zip(actuators, values, strict=True))


@functools.lru_cache(maxsize=256)
def read_action(cell: str, actuator: Actuator) -> float | str:
    """Return the number that an action cell means; if unreadable, a text such as `expected one of left, right`."""
    text = cell.strip("*`\"' ")
    value = _single_action(text, actuator)
    # `right (1)` and `1 (right)`: both parts must agree.
    match = re.fullmatch(r"(\S+?)\s*[(\[:=]\s*(\S+?)\s*[)\]]?", text[:MOST_CELL_CHARACTERS])
    if isinstance(value, str) and match is not None:
        one, other = _single_action(match[1], actuator), _single_action(match[2], actuator)
        if isinstance(one, float) and one == other:
            return one
    return value


def _single_action(text: str, actuator: Actuator) -> float | str:
    named = {label: i for i, label in enumerate(actuator.labels)} if actuator.is_choice else dict(actuator.levels)
    by_name = {name.lower(): float(value) for name, value in named.items()}
    for name in (text.lower(), "_".join(text.lower().split())):  # `take lamp` for `take_lamp`
        if name in by_name:
            return by_name[name]
    names, number = list(named), ascii_signs(text)
    expected = f"expected one of {', '.join(names)}" if names else ""
    if actuator.is_choice:
        if number.isdigit() and number.isascii() and len(number) < 9 and int(number) < len(names):
            return float(number)
        near = get_close_matches(text[:MOST_CELL_CHARACTERS], names, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{expected}, or its number 0 to {len(names) - 1}{hint}"
    if NUMBER.fullmatch(number):
        value = float(number)
        if actuator.low <= value <= actuator.high:
            return value
    bounds = f"a number from {actuator.low:g} to {actuator.high:g}"
    return f"{expected} or {bounds}" if expected else f"expected {bounds}"


def split_comment(line: str) -> tuple[str, str]:
    """Split a line into its text and its comment, both stripped."""
    # A `#` before a `|` is part of a cell, such as the header `#`. `//` begins a comment only at the start of a line,
    # because elsewhere it divides.
    if (stripped := line.strip()).startswith(("#", "//")):
        return "", stripped.lstrip(stripped[0]).strip()
    found = _COMMENT.search(line)
    if found is not None and "|" in line[: found.start()]:
        found = _COMMENT.search(line, line.rindex("|"))
    return (stripped, "") if found is None else (line[: found.start()].strip(), found[1].strip())


def row_line(cells: Sequence[str]) -> str:
    """Write a line of a table with these cells."""
    return f"| {' | '.join(cells)} |"


def bins_line(dimension: Dimension) -> str:
    """Write the line that states the bins of a quantity."""
    return f"bins {dimension.name}: {', '.join(map(format_number, dimension.edges))}"


def with_comment(line: str, comment: str) -> str:
    """Add a comment to a line, unless the comment is empty."""
    return f"{line}  # {comment}" if comment else line


def is_separator_line(line: str) -> bool:
    """Whether a line is only a rule, as between the header of a table and its rows."""
    return _SEPARATOR_LINE.fullmatch(line) is not None


def looks_like_bins(cell: str) -> bool:
    """Whether a table's cell holds bins rather than a name."""
    return cell == "*" or bool(re.match(r"[<>=!]*\s*\d", cell))


def comments_of(lines: Iterable[str], actuators: Actuators) -> Comments:
    """Return the comments on a policy's lines, which have no markup; every line has an entry.

    If two lines have the same key, the last one counts.
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
    """Add comments to the lines of a policy that `to_text(plain=True)` has written."""
    lines: list[str] = []
    for text in standard:
        above, beside = comments.get(_key(text, actuators) or text, ((), ""))
        lines += [*above, with_comment(text, beside)]
    return [*lines, *comments.get("", ((), ""))[0]]


def _key(text: str, actuators: Actuators) -> str:
    """Return the key of a policy line, which does not depend on numbers that tuning changes; empty for other texts.

    The key is `let NAME`, `bins NAME` or the name of an output; for the header of a table `|`, and for a row its bins
    and labels, such as `| 0 | left`.
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
