"""Fixtures of attacks: tallies of tries and successes, and the table that `make attack` makes of all tallies.

A test begins a tally with `held = tally("a damaged file ends in a sentence")` and wraps each try in `held.one()`.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import LONG, SETTINGS, Tallies, Tally
from support import in_a_process, outcome, the_run

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks" / "attack.md"
_MARK = "attack"  # what a test reports its tallies under; reports also come from other processes


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of a run of cartpole with `SETTINGS` that nothing disturbs, which takes `seconds`."""
    begun, cwd = time.monotonic(), tmp_path_factory.mktemp("undisturbed")
    done = in_a_process("run", "cartpole", *SETTINGS, "--out", "whole", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return {"outcome": outcome(the_run(cwd / "whole")), "seconds": time.monotonic() - begun}


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tallies]:
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
    if not totals or not LONG:
        return
    rows = ["| attack | tried | held | worst time |", "|---|---:|---:|---:|"]
    rows += [f"| {t.name} | {t.tried:,} | {t.held:,} | {t.worst:.2f} s |" for _, t in sorted(totals.items())]
    table = "\n".join(rows)
    terminalreporter.write_line(table)
    text = RESULTS.read_text(encoding="utf-8").partition(rows[0])[0]
    RESULTS.write_text(f"{text}{table}\n\nMade with `make attack` on {_machine()}.\n", encoding="utf-8")


def _machine() -> str:
    cores, load = os.cpu_count(), os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    system = f"{platform.system()} on {platform.machine()}"
    return f"Python {platform.python_version()}, {system}, {cores} cores, load average {load:.1f}"
