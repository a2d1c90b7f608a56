"""Find the last policy in a text and split it into statements; collect problems.

Text around a policy (prose, code fences, headings) and markup in its lines are ignored. Within the policy's block every
line is a statement, the continuation of one, or a problem. `parts` combines the statements and checks their names.
`STATEMENTS` holds the kinds of lines that extensions add to the language.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from policygen.errors import ExpressionError
from policygen.policies.cells import is_separator_line, split_comment, with_comment
from policygen.quantities.tree import Node
from policygen.registry import Registry
from policygen.tasks.task import Task

MAX_CHARACTERS = 400_000
MAX_LINE = 16_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a text: its line (None: the whole text), what was found, and what was expected."""

    line: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.found}; {self.expected}"


class Problems(list[Problem]):
    """The problems in one text, in the order in which they are found."""

    def add(self, line: int | None, found: str, expected: str) -> None:
        """Add a problem."""
        self.append(Problem(line, found, expected))

    def refuse(self, line: int, error: ExpressionError | str) -> None:
        """Add a problem from an error message of the form `FOUND; EXPECTED`."""
        found, _, expected = str(error).partition("; ")
        self.add(line, found, expected or "correct the expression")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a policy's text, classified."""

    number: int  # its number in the text, counted from 1
    comment: str  # the comment at its end
    # The kind of line: `let`; `bins`; `|` for a table's row or header; the first word of a statement; `=` for any other
    # `NAME = EXPRESSION`; `long` if it is too long to read; `?` if it is in the policy's block but no statement; `cut`
    # for the end of a block that is not closed; empty if it is blank or only a comment.
    word: str = ""
    name: str = ""  # the left-hand side
    text: str = ""  # the right-hand side; the whole line of a row and a `long` line
    cells: tuple[str, ...] = ()  # the cells of a row, or the edges of `bins`


@dataclass(frozen=True, slots=True)
class Statement:
    """A kind of statement: its lines change a policy's equations, or make a note of the attempt, or both.

    Attributes:
        words: the words that begin lines `WORD NAME = EXPRESSION`.
        declares: the words that begin lines `WORD NAME`.
        names: the left-hand sides of lines `NAME = EXPRESSION`, unless the task or the text defines that name.
        rewrite: returns the new equation of output NAME, given its equation and the expression of a line `WORD NAME =
            EXPRESSION`, which may read what equations may read. The policy keeps the new equation, not the line. To
            refuse the line, raise ExpressionError("FOUND; EXPECTED").
        read: returns the note, given the `Parts` of the text, and the lines by (WORD, NAME), or by (NAME, "") for
            `names`. If there are problems, it adds them to the parts and returns None.
        private: returns more names that a `let` may read, given the task and the lines. Only statements may read such
            a feature; it is kept in `Parts.private`.
    """

    words: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    rewrite: Callable[[Node, Node], Node] | None = None
    read: Callable[[Any, dict[tuple[str, str], Line]], Any] | None = None
    private: Callable[[Task, Sequence[Line]], Sequence[str]] | None = None


STATEMENTS: Registry[Statement] = Registry("statement")
"""The kinds of statements, by the name of the note that they make."""

# The only line of the last block, or of a reply without blocks, if the model cannot improve the policy.
_RESIGNATION = re.compile(r"no improvement[.!]?", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(```+|~~~+)")
# Prose may begin with `Let`, so capitals are accepted only in `Let NAME =`.
_LET = re.compile(r"(?:let|(?i:let)(?=\s+\w+\s*(?::?=|<-|←)))\s+(.*)")
_BINS = re.compile(r"bins\s+(\S+?)\s*[:=]\s*(.*)", re.IGNORECASE)
_LEFT = r"([A-Za-z_]\w*(?:\s*[\[(]\s*\w+\s*[\])])?)"
_ASSIGN = re.compile(rf"{_LEFT}\s*(?::?=(?![=>])|<-(?!-)|←|≔)\s*(.+)")
# Other signs between an output and its equation: a colon is understood, the others are problems.
_OTHER_ASSIGN = re.compile(rf"[\"'`(]*{_LEFT}[\"'`)]*\s*(:|==?>?|-+>|→|⇒|≡|≈|~)\s*(.+)")
_WORDED = re.compile(r"([a-z]\w*)(?:\s+|\s*\(\s*)(\w+)(?:\s*\))?\s*(?::?=(?!=)\s*(.*))?")


def statements(text: str, task: Task, *, policy_only: bool = False) -> tuple[list[Line], bool]:
    """Return the statements of the last policy in `text`, and whether they are in a block.

    A block is fenced; a text without a fence is a block if it is `policy_only`, without prose. In a block, a line that
    is no statement gets the word `?`; elsewhere it is prose and is left out. A block that is not closed ends in a line
    with the word `cut`.
    """
    blocks, everything, is_open = _blocks(text)
    outputs = frozenset(name.lower() for name in task.output_names)
    # The last fenced block that has a line of a policy; without one, the whole text.
    block = next((block for block in reversed(blocks) if any(_is_policy(line, outputs) for _, line in block)), None)
    if block is None and policy_only and not blocks:
        block = everything
    lines = []
    for number, raw in _joined(everything if block is None else block):
        statement = _statement(number, raw, outputs)
        if statement is None and block is not None and not raw.lstrip().startswith("##"):
            statement = Line(number, "", "?", text=raw)
        if statement is not None:
            lines.append(statement)
    if all(line.word in ("?", "") for line in lines):
        return [], block is not None  # not a block of a policy
    if is_open and blocks and block is blocks[-1]:
        lines.append(Line(everything[-1][0] if everything else 1, "", "cut"))
    return lines, block is not None


def _is_policy(line: str, outputs: frozenset[str]) -> bool:
    line = line[:MAX_LINE]
    return "|" in line or "=" in line or _statement(0, line, outputs) not in (None, _BLANK)


def resigns(text: str) -> bool:
    """Whether the last block, or a text without blocks, consists of the line `no improvement`."""
    blocks, everything, _ = _blocks(text[-MAX_CHARACTERS:])
    last = blocks[-1] if blocks else everything
    lines = [cleaned for _, line in last if (cleaned := _cleaned(line[:MAX_LINE])[0])]
    return len(lines) == 1 and _RESIGNATION.fullmatch(lines[0]) is not None


_BLANK = Line(0, "")


def _statement(number: int, raw: str, outputs: frozenset[str]) -> Line | None:
    """Return the statement on a line; None if it is prose. `outputs` are the task's, in lower case."""
    if len(raw) > MAX_LINE:
        start = raw[:MAX_LINE]
        reads_as_one = "|" in raw or "=" in raw or _BINS.match(_cleaned(start)[0])
        return Line(number, "", "long", text=raw) if reads_as_one else None
    line, comment = _cleaned(raw)
    if not line:
        # A line that begins with `##` is a heading in the text around the policy.
        return None if raw.lstrip().startswith("##") else Line(number, comment)
    if match := _LET.match(line):
        left, expression = [*re.split(r"\s*(?::?=|<-|←)\s*", match[1], maxsplit=1), ""][:2]
        return Line(number, comment, "let", left.strip(), expression.strip())
    worded = _WORDED.fullmatch(line)
    if worded:
        for one in STATEMENTS.values():
            if worded[1] in one.declares or (worded[3] and worded[1] in one.words):
                return Line(number, comment, worded[1], worded[2], worded[3] or "")
    if match := _BINS.match(line):
        edges = (edge.strip() for edge in match[2].strip("[] ").split(","))
        return Line(number, comment, "bins", match[1], cells=tuple(edge for edge in edges if edge))
    assignment = _ASSIGN.match(line)
    if line.startswith("|") or ("|" in line and not assignment):
        cells = (_without_emphasis(cell) for cell in line.strip().strip("|").split("|"))
        if is_separator_line(line):
            return Line(number, comment)
        return Line(number, comment, "|", text=line, cells=tuple(cells))
    if assignment:
        return Line(number, comment, "=", assignment[1], assignment[2])
    other = _OTHER_ASSIGN.match(line)
    # `NAME`, `WORD[NAME]` or `WORD(NAME)`
    name = re.split(r"[\[(]", other[1].rstrip(")] "))[-1].strip().lower() if other else ""
    if other and name in outputs and reads_as_arithmetic(other[3]):
        word = "=" if other[2] == ":" else "?"
        return Line(number, comment, word, other[1], other[3] if word == "=" else line)
    # Either prose or a statement of an extension that is not loaded.
    return Line(number, comment, worded[1], worded[2], worded[3]) if worded and worded[3] else None


# --- continued lines -------------------------------------------------------------------------------------------------

_WORDS_OF_ARITHMETIC = frozenset(("and", "or", "not", "if", "else"))
_TRAILING = re.compile(r"(?:[-+*/^<>=&|,(\[{×·÷−–≤≥]|<-|←|(?<!\w)(?:and|or|not|if|else))\s*\Z")
_LEADING = re.compile(r"(?:[-+*/^<>)\]},×·÷−–≤≥]|==|!=|(?:and|or|if|else)\b)")
_ARITHMETIC = re.compile(r"[\w\s.+\-*/^<>=!&|,()\[\]{}\"'%²³×·÷−–≤≥π]*")


def reads_as_arithmetic(text: str) -> bool:
    """Whether a text consists of names, numbers and operators, without words side by side."""
    if not text.strip() or not _ARITHMETIC.fullmatch(text):
        return False
    words = re.split(r"\s+", re.sub(r"[^\w\s.]", lambda sign: f" {sign[0]} ", text.strip()))
    return not any(
        a[:1].isalpha() and b[:1].isalpha() and not {a, b} & _WORDS_OF_ARITHMETIC for a, b in itertools.pairwise(words)
    ) and not re.search(r"[a-z]{2}\.(\s|\Z)", text)


def _joined(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join lines that continue each other; yield each result with the number of its first line."""
    waiting: list[str] = []  # the lines of one statement so far
    between: list[tuple[int, str]] = []  # comments after these, which may be inside the statement
    first = 0
    for number, raw in lines:
        line = plain_signs(raw)
        if waiting and line.strip() and not split_comment(line)[0] and not line.lstrip().startswith("##"):
            between.append((number, line))
        elif waiting and _continues(waiting, line):
            waiting += [one for _, one in between]
            waiting.append(line)
            between = []
        else:
            if waiting:
                yield first, _join(waiting)
            yield from between
            waiting, between, first = [line], [], number
    if waiting:
        yield first, _join(waiting)
    yield from between


def _join(lines: Sequence[str]) -> str:
    """Join the lines of a statement to one, with their comments at its end."""
    if len(lines) == 1:
        return lines[0]
    parts = [split_comment(line) for line in lines]
    code = " ".join(_LINE_END.sub("", code.strip()) for code, _ in parts)
    return with_comment(code, " ".join(filter(None, (comment for _, comment in parts))))


_LINE_END = re.compile(r"(?:\\|\.\.\.)\s*\Z")  # how other languages continue a line
_MOST_JOINED = 60  # most lines in one statement


def _continues(before: Sequence[str], raw: str) -> bool:
    """Whether a line continues the statement of the lines before it."""
    code = " ".join(split_comment(line)[0] for line in before)
    if len(before) >= _MOST_JOINED or len(code) > MAX_LINE or "|" in before[0].lstrip("`* ")[:1]:
        return False
    if not re.search(r"=|<-|←|:", code):
        return False
    line = split_comment(raw)[0].strip()
    if not line or _begins_statement(line):
        return False
    brackets = sum((c in "([{") - (c in ")]}") for c in code)
    open_end = brackets > 0 or _TRAILING.search(code) or _LINE_END.search(code)
    indented = len(raw) - len(raw.lstrip()) > len(before[0]) - len(before[0].lstrip())
    return bool((open_end or indented or _LEADING.match(line)) and reads_as_arithmetic(_LINE_END.sub("", line)))


def _begins_statement(line: str) -> bool:
    cleaned = _cleaned(line)[0]
    if cleaned.startswith("|") or _LET.match(cleaned) or _BINS.match(cleaned):
        return True
    return bool(_ASSIGN.match(cleaned) or re.match(rf"{_LEFT}\s*(?::?=(?!=)|:|<-|←)", cleaned))


# Full-width ASCII, characters that draw tables, and the spaces of typesetting, some of which have no width.
_SIGNS = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | dict.fromkeys("│┃¦", "|")
    | dict.fromkeys(map(chr, (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)), " ")
    | dict.fromkeys(map(chr, (0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF)), "")
)
_TEXT_MACRO = re.compile(r"\\(?:text|textit|texttt|mathrm|mathit|mathtt|mathbf|operatorname)\s*\{([^{}]*)\}")
_MACROS = (
    (re.compile(r"\\(?:left|right|displaystyle|quad|qquad)(?![a-z])|\\[,;:! ]|[$]|\\[()\[\]]"), " "),
    (re.compile(r"\\(?:cdot|times|ast)(?![a-z])"), "*"),
    (re.compile(r"\\leq?(?![a-z])"), "<="),
    (re.compile(r"\\geq?(?![a-z])"), ">="),
    (re.compile(r"\\(sin|cos|tan|tanh|exp|log|min|max|pi)(?![a-z])"), r"\1"),
    (re.compile(r"\\_"), "_"),
    (re.compile(r"&\s*=|=\s*&"), "="),
    (re.compile(r"\\\\\s*\Z"), ""),
)


def plain_signs(line: str) -> str:
    """Convert full-width characters to ASCII and LaTeX markup to arithmetic; leave comments as they are."""
    code, comment = split_comment(line)
    if not comment and line.isascii() and "\\" not in line and "$" not in line:
        return line
    plain = code.translate(_SIGNS)
    if "\\" in plain or "$" in plain:
        plain = _TEXT_MACRO.sub(r"\1", plain)
        for macro, sign in _MACROS:
            plain = macro.sub(sign, plain)
    if plain == code:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return indent + with_comment(plain.strip(), comment)


def _without_emphasis(cell: str) -> str:
    """Remove emphasis (`**right**`, `*right*`) and code quotes from a cell."""
    match = re.fullmatch(r"(\*{1,3}|`+)([^*`]+)\1", cell.strip())
    return match[2].strip() if match else cell.strip()


# --- finding the policy in the text ----------------------------------------------------------------------------------


def _blocks(text: str) -> tuple[list[list[tuple[int, str]]], list[tuple[int, str]], bool]:
    """Return the numbered lines of each fenced block and of the whole text, without fences.

    The third value is whether the last block was left open.
    """
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
    return blocks, everything, is_inside


@functools.lru_cache(maxsize=1_000)  # a rambling reply repeats itself
def _cleaned(line: str) -> tuple[str, str]:
    """Return a line without its comment, bullets, emphasis and code quotes, and the comment."""
    line, comment = split_comment(line)
    line = re.sub(r"^(?:(?:[-•+]\s+|\d+[.)]\s+)(?=\D)|\*\s+(?=[^\d|]))", "", line)
    line = re.sub(r"^(\*\*|`)([\w() \[\]]+)\1", r"\2", line)  # **left** = ...
    line = line.strip("`").strip()
    if line.startswith("**") and line.endswith("**"):
        line = line[2:-2].strip()
    return line.rstrip(";").rstrip(), comment
