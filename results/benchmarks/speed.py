"""Measure the figures of speed.md: policygen beside other ways to do the same, in one process.

python results/benchmarks/speed.py [--quick] [--json] [--out FOLDER]; a full run writes speed.csv, speed.md and
speed.png, and ends with exit status 1 and a line for each bar that it misses. To measure also what is not installed
here: `pip install "policygen[bench,envpool]"`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows as they come, then the table; write the files of a full run. 1 where a bar is missed, else 0."""
    parser = argparse.ArgumentParser(description="Measure the speed of lookup, scores, prompts and memory.")
    parser.add_argument("--quick", action="store_true", help="smaller work, fewer repeats, nothing judged or written")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, and no table")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the files (default: beside)")
    options = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # before numpy loads: lookups are compared on one thread
    from speed_parts import rows as ratios
    from speed_parts import sections

    rows = []
    for row in sections.run_all(quick=options.quick):
        rows.append(row)
        print(ratios.line_of(row), file=sys.stderr, flush=True)
    print(ratios.as_json(rows) if options.json else "\n" + ratios.as_markdown(rows))
    if not options.quick:
        ratios.write_results(rows, options.out)
    missed = [row for row in rows if isinstance(row, ratios.Row) and row.met is False]
    for row in missed:
        print(f"missed: {ratios.line_of(row)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
