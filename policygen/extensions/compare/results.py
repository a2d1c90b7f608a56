"""The results of policygen's runs and of other programs' runs: monitor files, ProPS logs and CSV files.

The scores of other programs are not final scores on fresh episodes; `Result.meaning` says how each was obtained.
"""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policygen.episodes.requirements import Violations
from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.groups import Member
from policygen.extensions.plots.style import Numbers
from policygen.files import read_named
from policygen.runs.facts import NOTES, run_facts

if TYPE_CHECKING:
    import pandas as pd

LAST = 100  # the score and curve of a monitor file are means of this many training episodes
LARGEST = 1e100  # sums and squares of larger numbers would overflow
# The names of the facts behind each cost.
COSTS = {
    **{"episodes": "episodes", "env_steps": "environment steps", "calls": "requests"},
    **{"usd": "USD", "seconds": "time"},
}
# The names of columns in files of other programs.
_KNOWN = {
    "level": ("return", "mean return", "reward", "total reward", "true reward", "score", "episode_reward"),
    "episodes": ("episodes", "total episodes", "episode"),
    "env_steps": ("env_steps", "total steps", "steps"),
    "calls": ("calls", "llm calls", "requests"),
    "usd": ("usd",),
    "seconds": ("seconds",),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The values of a run that comparisons need.

    Attributes:
        task: name of the task; as read from another program's file, the name of its environment.
        score: final score.
        seed: None for runs of other programs, which are never paired.
        curve: `level`, the best score so far, and the amounts spent (`COSTS`), each of shape (points,); an amount that
            is unknown is left out.
        costs: the amounts spent in all; an amount that is unknown is left out.
        violations: violations of the task's requirements in the episodes of the final score.
        notes: the numbers of the best policy's notes by heading, see `policygen.runs.notes`.
        meaning: how the score was obtained, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float
    seed: int | None = None
    exact: bool = False
    curve: Mapping[str, Numbers] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    violations: tuple[Violations, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""


def result_of(member: Member, contender: str) -> Result:
    """Return the result of a finished run with a policy; raise LogbookError if its score is too large to compare."""
    final, rows = member.final, member.curve
    assert final is not None
    rows = rows[~np.isnan(rows["level"])]
    if not (np.abs([*rows["level"], final.mean]) <= LARGEST).all():
        raise LogbookError(f"{member.folder} has a score beyond {LARGEST:g}, which cannot be compared; leave it out")
    curve = {name: rows[name] for name in ("level", *COSTS) if not np.isnan(rows[name]).any()}
    figures = run_facts(member)
    amounts = {one.name: one.amount for one in figures}
    notes = {one.name: one.amount for one in figures if one.section == NOTES and one.amount is not None}
    costs = {cost: amount for cost, name in COSTS.items() if (amount := amounts[name]) is not None}
    seed, violations = member.config.seed, final.violations
    return Result(member.task.name, contender, final.mean, seed, final.exact, curve, costs, violations, notes)


def read_other_program(path: Path, contender: str = "") -> Result:
    """Return the result of the run in a file, or in a folder with the `*.monitor.csv` files of one training.

    Raises UsageError if a file cannot be read, or its format is unknown.
    """
    files = sorted(path.glob("*monitor.csv")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} is not a run, a sweep or a folder with a monitor.csv")
    texts = [read_named(file) for file in files]
    is_monitor = texts[0].startswith("#{")
    task, curve, meaning = _monitors(texts, files) if is_monitor else _table(texts[0], files[0])
    costs = {name: float(amounts[-1]) for name, amounts in curve.items() if name != "level"}
    return Result(task, contender, float(curve["level"][-1]), curve=curve, costs=costs, meaning=meaning)


def _monitors(texts: Sequence[str], files: Sequence[Path]) -> tuple[str, dict[str, Numbers], str]:
    """Read monitor files: a line of JSON, then `r,l,t` per episode. Files of parallel training are merged by time."""
    import pandas as pd

    names, frames = [], []
    for text, file in zip(texts, files, strict=True):
        first, _, rest = text.partition("\n")
        try:
            metadata = json.loads(first[1:])
            names.append(str(metadata.get("env_id") or ""))
            start = float(metadata.get("t_start", 0.0))
            if not abs(start) <= LARGEST:
                raise ValueError
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise UsageError(f"{file} is not a monitor file: its first line is not `#{{...}}` with JSON") from None
        frame = _frame(rest, file)
        if "r" not in frame:
            raise UsageError(f"{file} has no column `r`, the returns of a monitor file")
        own = {name: _numbers(frame[name], file) for name in ("r", "l", "t") if name in frame}
        frames.append(pd.DataFrame({**own, "start": start}))
    known = [name for name in ("l", "t") if all(name in frame for frame in frames)]
    rows = pd.concat(frames, ignore_index=True)
    if not len(rows):
        raise UsageError(f"{files[0]} has no episodes yet; leave it out")
    if "t" in known:
        rows["t"] = rows["start"] + rows["t"] - rows["start"].min()
        rows = rows.sort_values("t", kind="stable")
    curve = {"level": rows["r"].rolling(LAST, min_periods=1).mean().to_numpy()}
    curve["episodes"] = np.arange(1.0, 1 + len(rows))
    curve |= {"seconds": rows["t"].to_numpy()} if "t" in known else {}
    curve |= {"env_steps": rows["l"].cumsum().to_numpy()} if "l" in known else {}
    return next(filter(None, names), ""), curve, f"mean of the last {min(LAST, len(rows))} training episodes"


def _table(text: str, file: Path) -> tuple[str, dict[str, Numbers], str]:
    """Read a CSV file with a column of returns and one of `COSTS`, such as ProPS's `overall_log`."""
    frame = _frame(text, file)
    known = {name: own for name, names in _KNOWN.items() if (own := next((n for n in names if n in frame), None))}
    if "level" not in known or len(known) < 2:
        raise UsageError(
            f"{file} has an unknown format: a CSV file needs a column `return`, and one of {', '.join(COSTS)}"
        )
    is_props = {"api time", "iteration"} <= {*frame}
    known |= {"calls": "iteration"} if is_props else {}
    curve = {name: _numbers(frame[own], file) for name, own in known.items()}
    if not len(frame):
        raise UsageError(f"{file} has no rows yet; leave it out")
    if not is_props:
        return "", curve, "last return in its file"
    curve["level"] = np.maximum.accumulate(curve["level"])
    return "", curve, "highest mean of 20 episodes in the run, as ProPS reports it; selection biases it upwards"


def _frame(text: str, file: Path) -> pd.DataFrame:
    """Read a CSV file as texts, with names in lower case; cells beyond the header are dropped (ProPS's parameters)."""
    import pandas as pd

    try:
        rows = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    except csv.Error as error:
        raise UsageError(f"{file} is not a CSV file: {error}") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    # The last row may be incomplete, because a program is writing it.
    whole = [row[: len(header)] for row in rows[1:] if len(row) >= len(header)]
    return pd.DataFrame(whole, columns=header, dtype=str)


def _numbers(cells: pd.Series[str], file: Path) -> Numbers:
    """Return a column as finite numbers, shape (rows,)."""
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        raise UsageError(f"{file}: column `{cells.name}` has a cell that is not a number") from None
    if not np.all(np.abs(numbers) <= LARGEST):
        raise UsageError(f"{file}: column `{cells.name}` has a value that is not finite, or is beyond {LARGEST:g}")
    return numbers
