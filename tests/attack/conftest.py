"""What attacks share: a tally of what was tried and what held, and the table that `make attack` makes of all tallies.

A test asks for `tally`, names what it attacks, and wraps each try:

    def test_damage(tally):
        held = tally("a damaged file ends in a sentence")
        for damage in ...:
            with held.one():
                ...  # whatever fails here is counted as not held, and fails the test

`attacks.amount(usual, long)` says how many to try. With POLICYGEN_ATTACK=long the tallies of all tests, added up by
name, are written to `results/benchmarks/attack.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import LONG, Tally

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks" / "attack.md"
_MARK = "attack"  # what a test reports its tallies under; reports also come from other processes


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Tally]]:
    """Begin the tally of a name."""
    begun: list[Tally] = []

    def begin(name: str) -> Tally:
        begun.append(Tally(name))
        return begun[-1]

    yield begin
    for one in begun:
        request.node.user_properties.append((_MARK, [one.name, one.tried, one.held, one.worst]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, and write it where the long attacks ran."""
    totals: dict[str, Tally] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "teardown":
                continue
            for mark, value in report.user_properties:
                if mark == _MARK:
                    name, tried, held, worst = value
                    total = totals.setdefault(name, Tally(name))
                    total.tried, total.held = total.tried + tried, total.held + held
                    total.worst = max(total.worst, worst)
    if not totals:
        return
    rows = [f"| {t.name} | {t.tried:,} | {t.held:,} | {t.worst:.2f} s |" for _, t in sorted(totals.items())]
    table = "\n".join(["| attack | tried | held | worst time |", "|---|---:|---:|---:|", *rows])
    if not LONG:
        return
    terminalreporter.write_line(table)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(
        "# Attacks\n\nEach row is an attack of `tests/attack`: what must hold, how often it was tried, and the longest "
        "time that\none try took. Made with `make attack`.\n\n" + table + "\n"
    )
