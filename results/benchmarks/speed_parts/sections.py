"""The speed benchmark: what is compared, side by side in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from speed_parts.acting import linear, lookup, one_at_a_time
from speed_parts.playing import (
    buffer,
    cartpole,
    frozenlake,
    hopper,
    refinement,
)
from speed_parts.rows import Missing, Row
from speed_parts.running import help_text, overhead, prompt

REPEATS = 7
QUICK_REPEATS = 3

Section = Callable[[int, bool], Iterator[Row | Missing]]
SECTIONS: tuple[Section, ...] = (
    lookup,
    one_at_a_time,
    linear,
    cartpole,
    frozenlake,
    hopper,
    refinement,
    buffer,
    prompt,
    overhead,
    help_text,
)


def run_all(*, quick: bool = False, sections: Sequence[Section] = SECTIONS) -> Iterator[Row | Missing]:
    """Every comparison, one after the other; `quick` takes fewer repeats of smaller work and judges nothing."""
    repeats = QUICK_REPEATS if quick else REPEATS
    for section in sections:
        for row in section(repeats, quick):
            yield replace(row, judged=False) if quick and isinstance(row, Row) else row
