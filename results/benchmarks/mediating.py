"""Make mediating.md: the output of `policygen mediate` beside figures of the published code.

python results/benchmarks/mediating.py ARGUMENT... -o FILE; the arguments are those of `policygen mediate`.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from policygen.extensions.seats.mediate import HEADER, LEARNED
from policygen.files import write_atomically


class Figures(NamedTuple):
    """Share of opened doors, and means of return, steps and questions."""

    success: float
    returned: float
    steps: float
    questions: float


# Measured with the published code on its seeds 0 to 99, with a script in place of its language model (Vicuna-7B).
# `learned` is not a learned mediator there, but a rule: ask when a thing is new or the plan is over.
MEASURED = {
    ("SimpleDoorKey", "hard-coded"): Figures(0.59, 0.375, 64.90, 1.58),
    ("SimpleDoorKey", "always"): Figures(1.00, 0.768, 25.78, 25.78),
    ("SimpleDoorKey", "random"): Figures(1.00, 0.762, 26.46, 13.92),
    ("SimpleDoorKey", LEARNED): Figures(1.00, 0.768, 25.82, 2.75),
    ("KeyInBox", "hard-coded"): Figures(0.59, 0.373, 65.17, 2.27),
    ("KeyInBox", "always"): Figures(1.00, 0.759, 26.78, 26.78),
    ("KeyInBox", "random"): Figures(1.00, 0.754, 27.35, 15.27),
    ("KeyInBox", LEARNED): Figures(1.00, 0.759, 26.82, 4.21),
    ("RandomBoxKey", "hard-coded"): Figures(0.56, 0.352, 67.16, 2.15),
    ("RandomBoxKey", "always"): Figures(0.94, 0.722, 30.26, 30.26),
    ("RandomBoxKey", "random"): Figures(0.94, 0.715, 31.04, 16.91),
    ("RandomBoxKey", LEARNED): Figures(0.94, 0.721, 30.30, 3.91),
    ("ColoredDoorKey", "hard-coded"): Figures(0.33, 0.204, 80.98, 1.87),
    ("ColoredDoorKey", "always"): Figures(0.46, 0.358, 65.34, 65.34),
    ("ColoredDoorKey", "random"): Figures(0.89, 0.610, 42.09, 22.59),
    ("ColoredDoorKey", LEARNED): Figures(0.90, 0.642, 38.64, 5.16),
}

COLUMN = " published code: the same four |"
NOTE = (
    "The last column was measured with the published code on its own seeds 0 to 99, with a script in place of its "
    "language model; there, `learned` is a rule that asks when a thing is new or the plan is over. We did not have "
    "the paper's own results. `random` tosses a coin in every step, and always asks when a plan is over; `never` "
    "asks once. Options behave as published: exploring pushes against keys and boxes forever, and `always` keeps "
    "interrupting the exchange of two keys (ColoredDoorKey). One thing differs: a plan may name a thing that the "
    "robot has not seen yet, and the robot then explores until it sees it."
)


def beside_published(page: str, arguments: list[str]) -> str:
    """The page of `policygen mediate`, with the published code's figures, a note about them, and the command."""
    before, after = page.split(HEADER + "\n")
    rows, _, rest = after.partition("\n\n")
    title, line = HEADER.splitlines()
    lines = [title + COLUMN, line + " --- |"]
    for row in rows.splitlines():
        room, mediator = (cell.strip() for cell in row.split("|")[1:3])
        lines.append(f"{row} {published(room, mediator)} |")
    command = shlex.join(["python", "results/benchmarks/mediating.py", *arguments])
    return before + "\n".join([*lines, "", *wrap(NOTE, 120), "", rest, f"```sh\n{command}\n```\n"])


def published(room: str, mediator: str) -> str:
    """A cell of the column; empty where the published code has no such mediator."""
    figures = MEASURED.get((room, mediator))
    if figures is None:
        return ""
    text = f"{figures.success:.2f}, {figures.returned:.3f}, {figures.steps:.1f}, {figures.questions:.2f}"
    return text + (" (a rule)" if mediator == LEARNED else "")


def main(arguments: list[str]) -> None:
    """Run the command, and add to the page that it wrote."""
    if "-o" not in arguments[:-1]:
        raise SystemExit("Say where the page goes, for example: -o results/benchmarks/mediating.md")
    if code := subprocess.run([sys.executable, "-m", "policygen", "mediate", *arguments]).returncode:
        raise SystemExit(code)
    page = Path(arguments[arguments.index("-o") + 1])
    write_atomically(page, beside_published(page.read_text(encoding="utf-8"), arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
