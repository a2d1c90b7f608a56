"""Reports: tables of texts with notes, as Markdown, LaTeX and HTML, and records as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from policygen.extensions.compare.names import whole_names

# Characters in a row of a LaTeX table: a wider one spans both columns of a page; a still wider one has smaller type.
WIDEST_COLUMN, WIDEST_PAGE = 55, 110
_LATEX_PACKAGES = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}\n"
_NUMBER = re.compile(r"[-+<≥≤$ ]*[\d.,]+")
_ADDRESS = re.compile(r"https?://[^\s,;]+")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: f"\\{c}" for c in "{}$&#_%"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        label: its name in LaTeX references, which write `tab:` before it.
        title: its heading; if empty, it has none.
        bold: (row, column) of each bold cell.
        caption: the caption in LaTeX; by default the title.
    """

    label: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Tables, notes, and sentences that sum them up."""

    sections: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    sentence: str = ""


def _cells(table: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """Return the header and the rows, escaped for a language; `bold` is the format of a bold cell."""
    rows = [
        [bold.format(escape(cell)) if (i, j) in table.bold and cell else escape(cell) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    return [[escape(name) for name in table.header], *rows]


def markdown_table(table: Table) -> str:
    """Return the rows of a table as Markdown."""
    header, *rows = _cells(table, _markdown, "**{}**")
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


def as_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    parts = [f"{table.title}\n\n" * bool(table.title) + markdown_table(table) for table in report.sections]
    parts += ["".join(f"- {_markdown(note)}\n" for note in report.notes)] if report.notes else []
    parts += [f"{_markdown(report.sentence)}\n"] if report.sentence else []
    return "\n".join(parts)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


def as_latex(report: Report, short: Mapping[str, str]) -> str:
    """Return a report as LaTeX; the caption of its first table explains the short names in its tables.

    Args:
        short: these names, by whole name.
    """
    whole = "; ".join(f"{own}: {name}" for own, name in whole_names(short).items())
    parts = [_LATEX_PACKAGES]
    for table in report.sections:
        first = table is report.sections[0]
        words = (table.caption or table.title, whole if first else "")
        caption = ". ".join(_latex(_ADDRESS.sub("ADDRESS", one.removesuffix("."))) for one in words if one)
        caption += "" if first or not whole else rf". Names as in Table~\ref{{tab:{report.sections[0].label}}}"
        header, *lines = [f"{' & '.join(row)} \\\\" for row in _cells(table, _latex, r"\bfseries {}")]
        body = "\n".join(["\\toprule", header, "\\midrule", *lines, "\\bottomrule"])
        columns = [[bool(_NUMBER.match(cell)) for cell in column if cell] for column in zip(*table.rows, strict=True)]
        aligned = "".join("r" if 2 * sum(numbers) > len(numbers) else "l" for numbers in columns)
        wide = sum(max(map(len, column)) + 1 for column in zip(table.header, *table.rows, strict=True))
        place = "table*" if wide > WIDEST_COLUMN else "table"
        size = "scriptsize" if wide > WIDEST_PAGE else "footnotesize"
        parts.append(
            f"\\begin{{{place}}}\n\\centering\\{size}\\setlength{{\\tabcolsep}}{{3pt}}\n\\caption{{{caption}.}}\n"
            f"\\label{{tab:{table.label}}}\n"
            f"\\begin{{tabular}}{{{aligned}}}\n{body}\n\\end{{tabular}}\n\\end{{{place}}}\n"
        )
    notes = [_ADDRESS.sub("ADDRESS", " ".join(note.split())) for note in (*report.notes, report.sentence) if note]
    return "\n".join([*parts, *(f"% {note}" for note in notes), ""])


def _latex(text: str) -> str:
    plain = re.sub(r"[\\^~<>{}$&#_%]", lambda found: _SPECIAL[found[0]], " ".join(text.split()))
    plain = plain.replace("±", "$\\pm$").replace("≤", "$\\leq$").replace("≥", "$\\geq$")
    plain = re.sub(r"(?<![\w.-])-(?=\d)", "$-$", plain)  # a minus sign, no hyphen
    # At the start of a row, LaTeX would read `[` or `*` as an argument of the `\\` before.
    return f"{{}}{plain}" if plain.startswith(("[", "*")) else plain


def as_html(report: Report) -> str:
    """Return a report as an HTML page."""
    parts = []
    for table in report.sections:
        header, *rows = _cells(table, escape, "<b>{}</b>")
        lines = [f"<th>{'</th><th>'.join(header)}</th>", *(f"<td>{'</td><td>'.join(row)}</td>" for row in rows)]
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        parts.append(f"<h2>{escape(table.title)}</h2>\n" * bool(table.title) + f"<table>\n{body}</table>")
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in report.notes)
    parts += [f"<ul>\n{notes}</ul>"] if notes else []
    parts += [f"<p>{escape(report.sentence)}</p>"] if report.sentence else []
    head = '<head><meta charset="utf-8"><title>Comparison</title></head>'
    return "\n".join(["<!DOCTYPE html>", "<html>", head, "<body>", *parts, "</body>", "</html>", ""])


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV; an apostrophe begins texts that a spreadsheet would take for formulas."""
    import pandas as pd  # slow to import

    risky = ("=", "+", "-", "@", "\t", "\r")
    safe = (
        pd.DataFrame(rows)
        .convert_dtypes()
        .map(lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(risky) else cell)
    )
    return str(safe.to_csv(index=False))
