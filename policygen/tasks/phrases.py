"""Features of observed texts for a task that nobody described: words that tell one situation from another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policygen.quantities.grid import Dimension
from policygen.quantities.words import contains_batch, decoded
from policygen.tasks.spaces import ObservedText, slug

MOST_PHRASES = 8  # a bin each for yes and no: 256 cells
_MOST_ROWS = 1_000
_WORD = re.compile(r"[a-z]{3,20}")
_RARE = 0.02  # of the rows; what fewer have, or lack, tells little
_ALIKE = 0.9  # correlation beyond which two words say the same


@dataclass(frozen=True, slots=True)
class Phrases:
    """Features over texts as a task states them, and the bins of a table over them."""

    features: tuple[tuple[str, str], ...] = ()
    dimensions: tuple[Dimension, ...] = ()


def telling_phrases(
    texts: Sequence[ObservedText], rows: npt.NDArray[np.float64], taken: Sequence[str], most: int = MOST_PHRASES
) -> Phrases:
    """The words that about half of the texts have, one after the other, each unlike those before it.

    Args:
        rows: the columns of the texts in observations that were made, shape (n, columns of all texts).
        taken: names that features cannot have.
    """
    rows = rows[:: max(1, len(rows) // _MOST_ROWS)]
    found: list[tuple[float, str, str, npt.NDArray[np.float64]]] = []
    first = 0
    for text in texts:
        columns = rows[:, first : first + text.columns]
        first += text.columns
        words = {word for row in np.unique(columns, axis=0) for word in _WORD.findall(decoded(row).lower())}
        for word in sorted(words):
            has = contains_batch(list(columns.T), word)
            share = float(has.mean())
            if _RARE <= share <= 1 - _RARE:
                found.append((share * (1 - share), text.name, word, has))
    kept: list[tuple[str, str, npt.NDArray[np.float64]]] = []
    names = set(taken)
    for _, text_name, word, has in sorted(found, key=lambda one: -one[0]):
        name = slug(f"{text_name}_{word}")
        if len(kept) < most and name not in names and all(_unlike(has, other) for _, _, other in kept):
            kept.append((name, f'contains({text_name}, "{word}")', has))
            names.add(name)
    return Phrases(
        tuple((name, expression) for name, expression, _ in kept),
        tuple(Dimension(name, (0.5,)) for name, _, _ in kept),
    )


def _unlike(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> bool:
    return abs(float(np.corrcoef(one, other)[0, 1])) < _ALIKE
