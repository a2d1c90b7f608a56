"""Short names of contenders, for tables and figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath

from policygen.llm import read_spec


def short_names(names: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return a short name for each name, all different from each other and from those `taken`.

    A name consists of a proposer and settings, joined by commas. The fewest parts that tell the names apart are kept,
    the first ones if several would do. Models lose their provider: `openai:gpt-5-mini, refine cma:500` becomes
    `gpt-5-mini`. If no parts tell the names apart, they stay as they are.
    """
    for words in (_model, str):
        for found in _selections(names, words):
            if len({*found}) == len(names) and not {"", *taken} & {*found}:
                return dict(zip(names, found, strict=True))
    return {name: name for name in names}


def short_paths(names: Sequence[str]) -> dict[str, str]:
    """Return for each path the shortest end that tells it apart; names with a colon, as `MODULE:NAME`, stay whole."""
    depths = range(1, 1 + max(len(PurePath(name).parts) for name in names))
    for depth in depths:
        found = {name: name if ":" in name else "/".join(PurePath(name).parts[-depth:]) for name in names}
        if len({*found.values()}) == len(names):
            return found
    return {name: name for name in names}


def whole_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return a dictionary from short names to whole names, for a caption.

    For a short name that keeps all parts, it has the parts that were shortened, each with its whole part.
    """
    found: dict[str, str] = {}
    for whole, short in names.items():
        parts, own = whole.split(", "), short.split(", ")
        found |= dict(zip(own, parts, strict=True)) if len(own) == len(parts) else {short: whole}
    return {short: whole for short, whole in found.items() if short != whole}


def _selections(names: Sequence[str], words: Callable[[str], str]) -> Iterator[list[str]]:
    """Yield the names with one of their parts, then with two, and so on; a name of one part always keeps it."""
    parts = [[words(part) for part in name.split(", ")] for name in names]
    most = max(map(len, parts), default=0)
    for size in range(1, most + 1):
        for places in itertools.combinations(range(most), size):
            yield [", ".join(own[i] for i in (places if len(own) > 1 else (0,)) if i < len(own)) for own in parts]


def _model(part: str) -> str:
    """Return the model of a proposer without provider and address; any other part of a name as it is."""
    spec = read_spec(part.removesuffix(" (no language model)"))
    return part if spec.entry is None else spec.argument or spec.name
