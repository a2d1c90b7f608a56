"""Measure what policygen promises of its speed: python results/benchmarks/speed.py [--quick] [--out FOLDER].

Both forms print a row for each promise and end with exit status 1 and a line for each promise that is not kept. A full
run also writes speed.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from speed_parts.measure import HEADER, Missing, line_of, measured, missing_line
from speed_parts.promises import ABOUT, PROMISES, machine

from policygen.files import write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; write it after a full run. Return 1 if a promise is not kept, else 0."""
    parser = argparse.ArgumentParser(description="Measure what policygen promises of its speed.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats; nothing is written")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of speed.md (default: beside)")
    options = parser.parse_args(arguments)
    print(HEADER, end="", flush=True)
    lines, missed = [], []
    for promise in PROMISES:
        try:
            result = measured(promise, quick=options.quick)
        except Missing as why:
            lines.append(missing_line(promise, why))
        else:
            lines.append(line_of(result))
            missed += [lines[-1]] * (not result.kept)
        print(lines[-1], flush=True)
    if not options.quick:
        table = "\n".join([*lines, ""])
        write_atomically(options.out / "speed.md", f"# Speed\n\n{machine()}\n\n{HEADER}{table}\n{ABOUT}")
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
