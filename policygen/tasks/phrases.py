"""Features of observed texts for tasks without a task file: words that distinguish situations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policygen.quantities.grid import Dimension
from policygen.quantities.words import contains_batch, decoded
from policygen.tasks.spaces import ObservedText, slug

MOST_PHRASES = 8  # with two bins each: 256 cells
_MOST_ROWS = 1_000
_WORD = re.compile(r"[a-z]{3,20}")
_RARE = 0.02  # share of rows; a word that fewer have, or lack, is ignored
_ALIKE = 0.9  # correlation above which two words count as equivalent


@dataclass(frozen=True, slots=True)
class Phrases:
    """Features over texts in the form of a task, and table bins over them."""

    features: tuple[tuple[str, str], ...] = ()
    dimensions: tuple[Dimension, ...] = ()


def choose_phrases(
    texts: Sequence[ObservedText], rows: npt.NDArray[np.float64], taken: Sequence[str], most: int
) -> Phrases:
    """Choose words that about half of the texts contain, each little correlated with those chosen before.

    Args:
        rows: text columns of recorded observations, shape (n, columns of all texts).
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
