"""Names and remarks that are safe in another language, whatever a task calls its quantities.

A task may be a stranger's: what it says ends up in identifiers of letters, digits and underscores behind a prefix, or
in comments that it cannot close and that are one line long.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 tells 63 apart
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


class Identifiers:
    """Hands out identifiers, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, prefix: str, name: str) -> str:
        """`PREFIX_NAME`, with underscores for what no identifier may have, and a number if that is taken."""
        wanted = f"{prefix}_{re.sub('[^A-Za-z0-9_]', '_', name)[:MOST_CHARACTERS]}"
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found)
        return found


def plain_ascii(text: str) -> str:
    """`text` on one line of printable ASCII: `m/s²` is `m/s2`, what has no spelling is `_`."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    spelled = "".join(c for c in spelled if not unicodedata.combining(c))
    return re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", spelled))


def remark(text: str) -> str:
    """`text` as a part of a comment in C or Python, which it can neither end nor continue on another line."""
    quiet = plain_ascii(text).replace("\\", "_")
    # The pieces of a comment's ends are set apart, and no trigraph is left.
    quiet = re.sub(r"\?+", "?", quiet)
    return re.sub(r"\*(?=/)|/(?=\*)", lambda found: found[0] + " ", quiet)


def wrapped(text: str, indent: str, further: str = "    ", width: int = 110) -> Iterator[str]:
    """A statement on lines of about `width` characters, broken at spaces, the later ones indented further."""
    line = indent
    for word in text.split(" "):
        if len(line) + len(word) > width and line.strip():
            yield line.rstrip()
            line = indent + further
        line += word + " "
    yield line.rstrip()


def in_columns(rows: Iterable[Iterable[str]]) -> list[str]:
    """Rows of words, set one below the other."""
    listed = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in listed]
