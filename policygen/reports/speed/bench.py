"""The speed benchmark: what is compared, side by side in one process."""

from __future__ import annotations

from collections.abc import Iterator

from policygen.reports.speed.acting import linear, lookup, one_at_a_time
from policygen.reports.speed.playing import buffer, cartpole, frozenlake, hopper
from policygen.reports.speed.rows import Missing, Row
from policygen.reports.speed.running import help_text, overhead, prompt

REPEATS = 7
QUICK_REPEATS = 3


def run_all(*, quick: bool = False) -> Iterator[Row | Missing]:
    """Every comparison, one after the other; `quick` takes fewer and smaller repeats."""
    repeats = QUICK_REPEATS if quick else REPEATS
    for section in (
        lookup,
        one_at_a_time,
        linear,
        cartpole,
        frozenlake,
        hopper,
        buffer,
        prompt,
        overhead,
        help_text,
    ):
        yield from section(repeats, quick)
