"""Identifiers and comments that are safe in other languages, whatever a task names its quantities.

A task may be untrusted. Its words only appear in identifiers of letters, digits and underscores behind a prefix, or in
one-line comments that they cannot close.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MOST_CHARACTERS = 50  # of an identifier without prefix; C99 distinguishes 63
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


class Identifiers:
    """Creates unique identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, prefix: str, name: str) -> str:
        """Return `PREFIX_NAME` with forbidden characters replaced by underscores, and with a number if it is taken."""
        wanted = f"{prefix}_{re.sub('[^A-Za-z0-9_]', '_', name)[:MOST_CHARACTERS]}"
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found)
        return found


def plain_ascii(text: str) -> str:
    """Convert `text` to one line of printable ASCII: `m/s²` becomes `m/s2`, other characters `_`."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    spelled = "".join(c for c in spelled if not unicodedata.combining(c))
    return re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", spelled))


def remark(text: str) -> str:
    """Make `text` safe inside a comment of C or Python: it can neither close nor continue it."""
    quiet = plain_ascii(text).replace("\\", "_")
    # Characters that could close a comment are separated, and trigraphs removed.
    quiet = re.sub(r"\?+", "?", quiet)
    return re.sub(r"\*(?=/)|/(?=\*)", lambda found: found[0] + " ", quiet)


def in_columns(rows: Iterable[Iterable[str]]) -> list[str]:
    """Align rows of words in columns."""
    listed = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in listed]
