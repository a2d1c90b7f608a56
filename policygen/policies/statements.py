"""The registry of statements: lines that extensions add to the language of policies, beside tables and equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from policygen.quantities.tree import Node
from policygen.registry import Registry
from policygen.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a policy text."""

    line: int  # its number in the text, counted from 1
    comment: str  # the comment at its end
    # Its kind: `let`, `bins`, `params`; `|` for a row of a table or its header; a word of a statement; `=` for another
    # `NAME = EXPRESSION`; `long` for a line that is too long to read; `?` for a line of the policy's block that is no
    # statement, `cut` for the end of a block that is not closed; empty for a line that is blank or only a comment.
    word: str = ""
    name: str = ""  # the left-hand side
    text: str = ""  # the right-hand side; the whole line of `params`, a row and a `long` line
    cells: tuple[str, ...] = ()  # the cells of a row, or the edges of `bins`


@dataclass(frozen=True, slots=True)
class Statement:
    """Lines that belong together: they change the equations of a policy, or make a note of the attempt, or both.

    Attributes:
        words: the words that begin lines `WORD NAME = EXPRESSION`.
        declares: the words that begin lines `WORD NAME`.
        names: the left-hand sides of lines `NAME = EXPRESSION`, where neither the task nor the text has that name.
        rewrite: returns the equation of output NAME, given the equation and the expression of a line `WORD NAME =
            EXPRESSION`. The expression reads what equations may read. The policy holds the result, not the line. An
            ExpressionError `FOUND; EXPECTED` refuses the line.
        read: returns the note, given the `Parts` of the text and the lines by (WORD, NAME), or (NAME, "") of `names`.
            It adds problems to the parts, and returns None if there are any.
        private: returns further names that a `let` may read, given the task and the lines. Such a feature is for these
            lines only and stands in `Parts.private`.
        reads: what those further names stand for, for messages.
    """

    words: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    rewrite: Callable[[Node, Node], Node] | None = None
    read: Callable[[Any, dict[tuple[str, str], Line]], Any] | None = None
    private: Callable[[Task, Sequence[Line]], Sequence[str]] | None = None
    reads: str = ""


STATEMENTS: Registry[Statement] = Registry("statement")
"""The statements by the name of their note."""


def has_word(word: str, *, alone: bool) -> bool:
    """Whether a statement has lines `WORD NAME = EXPRESSION`, or if `alone` lines `WORD NAME`."""
    return any(word in one.declares or (word in one.words and not alone) for one in STATEMENTS.values())
