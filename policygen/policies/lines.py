"""Find the last policy in a text and split it into statements; collect the text's problems.

Reading tolerates text around a policy (prose, code fences, headings) and markup of its lines. `parts` combines the
statements and checks their names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from policygen.errors import ExpressionError
from policygen.policies.cells import is_separator_line, split_comment
from policygen.policies.statements import Line, has_word
from policygen.tasks.task import Task, output_names

MAX_CHARACTERS = 400_000
MAX_LINE = 16_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a text: the line (None: the whole text), what was found, what was expected."""

    line: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.found}; {self.expected}"


class Problems(list[Problem]):
    """The problems of one text, in the order in which they are found."""

    def add(self, line: int | None, found: str, expected: str) -> None:
        """Add a problem."""
        self.append(Problem(line, found, expected))

    def refuse(self, line: int, error: ExpressionError | str) -> None:
        """Add a problem from an error message of the form `FOUND; EXPECTED`."""
        found, _, expected = str(error).partition("; ")
        self.add(line, found, expected or "correct the expression")


# The reply of a model that cannot improve the policy: nothing else in the last block, or in a reply without blocks.
_RESIGNATION = re.compile(r"no improvement[.!]?", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(```+|~~~+)")
# Prose may start with `Let`: only `let NAME =` and a lower-case `let` are taken for a feature.
_LET = re.compile(r"(?:let|(?i:let)(?=\s+\w+\s*:?=))\s+(.*)")
_BINS = re.compile(r"bins\s+(\S+?)\s*[:=]\s*(.*)", re.IGNORECASE)
_ASSIGN = re.compile(r"([A-Za-z_]\w*(?:\s*[\[(]\s*\w+\s*[\])])?)\s*:?=(?!=)\s*(.+)")
_WORDED = re.compile(r"([a-z]\w*)(?:\s+|\s*\(\s*)(\w+)(?:\s*\))?\s*(?::?=(?!=)\s*(.*))?")
PARAM = re.compile(r"params?\s*\[\s*(\d{1,9})\s*\]\s*[:=]\s*([-+−–]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_ALIAS = re.compile(r"\b(obs|action)(\d{1,4}|(?<=action))\b")


def statements(text: str, task: Task) -> Iterator[Line]:
    """Yield the statements of the last policy in `text`, a reply or a hand-written file, one per line."""
    blocks, everything = _blocks(_with_names(text, task))
    # The last fenced block with a policy's line; without such a block, the whole text.
    with_policy = (
        block
        for block in reversed(blocks)
        if any("|" in line or "=" in line or PARAM.search(line[:MAX_LINE]) for _, line in block)
    )
    for number, raw in next(with_policy, everything):
        if (statement := _statement(number, raw)) is not None:
            yield statement


def resigns(text: str) -> bool:
    """Whether the last block of the text, or a text without blocks, is just the line `no improvement`."""
    blocks, everything = _blocks(text[-MAX_CHARACTERS:])
    last = blocks[-1] if blocks else everything
    lines = [cleaned for _, line in last if (cleaned := _cleaned(line[:MAX_LINE])[0])]
    return len(lines) == 1 and _RESIGNATION.fullmatch(lines[0]) is not None


def _statement(number: int, raw: str) -> Line | None:
    """Return the statement on a line; None for prose."""
    if len(raw) > MAX_LINE:
        start = raw[:MAX_LINE]
        reads_as_one = "|" in raw or "=" in raw or _BINS.match(_cleaned(start)[0]) or PARAM.search(start)
        return Line(number, "", "long", text=raw) if reads_as_one else None
    line, comment = _cleaned(raw)
    if not line:
        # A line that begins with `##` is a heading of the text around the policy.
        return None if raw.lstrip().startswith("##") else Line(number, comment)
    if match := _LET.match(line):
        name, _, expression = match[1].partition("=")
        return Line(number, comment, "let", name.strip().rstrip(": "), expression.strip())
    worded = _WORDED.fullmatch(line)
    if worded and has_word(worded[1], alone=not worded[3]):
        return Line(number, comment, worded[1], worded[2], worded[3] or "")
    if not line.startswith("|") and PARAM.search(line):
        return Line(number, comment, "params", text=line)
    if match := _BINS.match(line):
        edges = (edge.strip() for edge in match[2].strip("[] ").split(","))
        return Line(number, comment, "bins", match[1], cells=tuple(edge for edge in edges if edge))
    assignment = _ASSIGN.match(line)
    if line.startswith("|") or ("|" in line and not assignment):
        cells = (_plain(cell) for cell in line.strip().strip("|").split("|"))
        return None if is_separator_line(line) else Line(number, comment, "|", text=line, cells=tuple(cells))
    if assignment:
        return Line(number, comment, "=", assignment[1], assignment[2])
    # A statement of an extension that is not there, or prose.
    return Line(number, comment, worded[1], worded[2], worded[3]) if worded and worded[3] else None


def _plain(cell: str) -> str:
    """Return a cell without emphasis (`**right**`, `*right*`) and code quotes."""
    match = re.fullmatch(r"(\*{1,3}|`+)([^*`]+)\1", cell.strip())
    return match[2].strip() if match else cell.strip()


# --- finding the policy in the text ----------------------------------------------------------------------------------


def _blocks(text: str) -> tuple[list[list[tuple[int, str]]], list[tuple[int, str]]]:
    """Return the numbered lines of each fenced block, and of the whole text without the fences."""
    blocks: list[list[tuple[int, str]]] = []
    everything: list[tuple[int, str]] = []
    is_inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            is_inside = not is_inside
            if is_inside:
                blocks.append([])
            continue
        everything.append((number, line))
        if is_inside:
            blocks[-1].append((number, line))
    return blocks, everything


@functools.lru_cache(maxsize=1_000)  # a rambling reply repeats itself
def _cleaned(line: str) -> tuple[str, str]:
    """Return a line without its comment, bullets, emphasis and code quotes; and the comment."""
    line, comment = split_comment(line)
    line = re.sub(r"^(?:(?:[-•+]\s+|\d+[.)]\s+)(?=\D)|\*\s+(?=[^\d|]))", "", line)
    line = re.sub(r"^(\*\*|`)([\w() \[\]]+)\1", r"\2", line)  # **left** = ...
    line = line.strip("`").strip()
    if line.startswith("**") and line.endswith("**"):
        line = line[2:-2].strip()
    return line.rstrip(";").rstrip(), comment


def _with_names(text: str, task: Task) -> str:
    """Replace `obs3` by the name of observation 3, and `action3` by that of number 3 of an action, counted from 0.

    `action` stands for the only number of an action. A name stays if the task has it or the text defines it. The parts
    of a Dict or Tuple action have no such aliases.
    """
    numbered = len(task.actuators) == 1 or task.action_layout is None or task.action_layout.kind == "array"
    numbers = [actuator.name for actuator in task.actuators if not actuator.is_choice and numbered]
    actuators = (actuator.name for actuator in task.actuators)
    known = {*task.quantity_names, *task.text_names, *actuators, *output_names(task)}
    # Computed once, because every word of a reply may be an alias; `let let x` defines `x`, too.
    defined = set(re.findall(r"\blet\s+(?=(\w+))", text))

    def named(match: re.Match[str]) -> str:
        names = task.observation_names if match[1] == "obs" else numbers
        index = int(match[2]) if match[2] else 0 if len(names) == 1 else len(names)
        stays = match[0] in known or index >= len(names) or match[0] in defined
        return match[0] if stays else names[index]

    return _ALIAS.sub(named, text)
