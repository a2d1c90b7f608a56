"""The results of policygen's runs, and of a training by Stable-Baselines3."""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policygen.episodes.requirements import Violations
from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.groups import Member
from policygen.extensions.plots.style import Numbers
from policygen.files import read
from policygen.runs.facts import NOTES, run_facts

if TYPE_CHECKING:
    import pandas as pd

LAST = 100  # the score and curve of a training are means of this many of its episodes
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?")
LARGEST = 1e100  # sums and squares of larger numbers would overflow
# The names of the facts behind each cost.
COSTS = {
    **{"episodes": "episodes", "env_steps": "environment steps", "calls": "requests"},
    **{"usd": "USD", "seconds": "time"},
}


@dataclass(frozen=True, slots=True)
class Result:
    """The values of a run that comparisons need.

    Attributes:
        score: final score, or as `meaning` says.
        seed: None for a training of another program, which is never paired.
        curve: the episodes played, and the best score after each of them; shapes (points,).
        costs: the amounts spent in all; an amount that is unknown is left out.
        violations: violations of the task's requirements in the episodes of the final score.
        notes: the numbers of the best policy's notes by heading, see `policygen.runs.notes`.
        meaning: how the score was obtained, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float
    seed: int | None
    curve: tuple[Numbers, Numbers]
    costs: Mapping[str, float]
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
    figures = run_facts(member)
    amounts = {one.name: one.amount for one in figures}
    notes = {one.name: one.amount for one in figures if one.section == NOTES and one.amount is not None}
    costs = {cost: amount for cost, name in COSTS.items() if (amount := amounts[name]) is not None}
    curve, seed = (rows["episodes"], rows["level"]), member.config.seed
    return Result(member.task.name, contender, final.mean, seed, curve, costs, final.violations, notes)


def read_training(path: Path, task: str, contender: str) -> Result:
    """Return the result of a training by Stable-Baselines3: a monitor file, or a folder of them, merged by time.

    Raises UsageError if there is no monitor file, or one cannot be read.
    """
    import pandas as pd

    files = sorted(path.glob("*monitor.csv")) if path.is_dir() else [path]
    parts = [part for file in files if len(part := _monitor(file))]
    if not parts:
        raise UsageError(f"{path} has no episodes of Stable-Baselines3: name a monitor.csv, or a folder of them")
    rows = pd.concat(parts).sort_values("t", kind="stable")
    level = rows["r"].rolling(LAST, min_periods=1).mean().to_numpy()
    episodes, meaning = np.arange(1.0, 1 + len(rows)), f"mean of the last {min(LAST, len(rows))} training episodes"
    costs = {"episodes": float(len(rows)), "env_steps": float(rows["l"].sum())}
    costs["seconds"] = float(rows["t"].max() - rows["start"].min())
    return Result(task, contender, float(level[-1]), None, (episodes, level), costs, meaning=meaning)


def _monitor(file: Path) -> pd.DataFrame:
    """Read a monitor file: a line of JSON, then `r,l,t` per episode; `t` becomes a time of the clock, in seconds.

    A crash may leave a row that is cut, or joined with the next one or with the next header: it is left out.
    """
    import pandas as pd

    first, _, rest = read(file, str, named=UsageError).partition("\n")
    try:
        start = float(json.loads(first.removeprefix("#"))["t_start"])
        header, *lines = csv.reader(rest.splitlines())
        whole = [line for line in lines if len(line) == len(header) and not any(map(_is_joined, line))]
        table = pd.DataFrame([line for line in whole if line != header], columns=header)
        rows = table[["r", "l", "t"]].astype(float).assign(start=start)
        if not (rows.abs() <= LARGEST).to_numpy().all():
            raise ValueError("it has a value that is not finite, or is beyond 1e+100")
    except (KeyError, TypeError, ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"{file} is not a monitor file of Stable-Baselines3: {' '.join(str(error).split())}") from None
    return rows.assign(t=rows["t"] + start)


def _is_joined(cell: str) -> bool:
    """Whether a cell begins with a number, but is none."""
    return _NUMBER.match(cell) is not None and _NUMBER.fullmatch(cell) is None
