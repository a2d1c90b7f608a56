"""The measurements of a benchmark: rows of a CSV file beside its page, each made once."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Measurements:
    """The rows of NAME.csv, and the table of NAME.md.

    Args:
        name: name of the two files.
        columns: of the CSV file; the first three (two texts and a seed) say what was measured.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.file, self.page = HERE / f"{name}.csv", HERE / f"{name}.md"
        self.columns = columns

    def rows(self, *key: str) -> list[dict[str, Any]]:
        """Return all rows so far that begin with `key`, by seed; an empty number is 0."""
        if not self.file.exists():
            return []
        with self.file.open(newline="") as file:
            found = [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]
        return sorted((row for row in found if self._key(row)[: len(key)] == key), key=lambda row: row["seed"])

    def once(self, key: tuple[str, str, int], measure: Callable[[], Iterable[dict[str, Any]]]) -> None:
        """Measure and append the rows, unless this was measured before."""
        if any(self._key(row) == key for row in self.rows()):
            return
        rows = [{**dict(zip(self.columns, key, strict=False)), **row} for row in measure()]
        is_new = not self.file.exists()
        with self.file.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerows(rows)
        for row in rows:
            print(row, flush=True)

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.columns[:3])

    def write_table(self, lines: Iterable[str]) -> None:
        """Replace the page's table whose first column has the same name."""
        table = "\n".join(lines) + "\n"
        text, first = self.page.read_text(), re.escape(table[: table.index("|", 1)])
        self.page.write_text(re.sub(rf"(?ms)^{first}\|.*?(?=^\s*$|\Z)", lambda _: table, text, count=1))

    def asked(self, parser: argparse.ArgumentParser, tasks: Iterable[str], *what: str) -> argparse.Namespace:
        """Read the command line: parts of the benchmark, tasks, and whether to forget all measurements."""
        parser.add_argument("what", nargs="*", choices=[*what, []], metavar="|".join(what), help="all by default")
        parser.add_argument("--tasks", nargs="+", choices=list(tasks), default=list(tasks))
        parser.add_argument("--anew", action="store_true", help="forget all measurements made so far")
        found = parser.parse_args()
        found.what = found.what or what
        if found.anew:
            self.file.unlink(missing_ok=True)
        return found


def parser_of(page: str | None, seeds: Sequence[int] | None = None) -> argparse.ArgumentParser:
    """Return a parser with `--seeds`, and the module's docstring as its help."""
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds, help="by default those of the page")
    return parser


def _value(column: str, text: str) -> Any:
    if column == "seed":
        return int(text)
    try:
        return float(text or 0)
    except ValueError:
        return text
