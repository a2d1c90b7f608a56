"""Runs of other programs: monitor files of Stable-Baselines3, logs of ProPS, and CSV files of returns.

Their scores are not final scores on fresh episodes; `ForeignRun.words` says what each score is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policygen.errors import UsageError
from policygen.extensions.plots.style import Numbers
from policygen.files import read_named

LAST = 100  # training episodes averaged in a monitor file's score and curve
LARGEST = 1e100  # sums and squares of larger numbers overflow
_RETURNS = ("return", "mean return", "reward", "total reward", "true reward", "score", "episode_reward")
_EPISODES = ("episodes", "total episodes", "episode")
_CALLS = ("calls", "llm calls", "requests")


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """The result of a run of another program.

    Attributes:
        score: its meaning is in `words`.
        env_id: id of the environment, if the file names it.
        episodes, calls, level: the curve, shape (points,): amounts spent and the score at each. `episodes` or `calls`
            is empty if the file does not count it.
    """

    score: float
    words: str
    env_id: str
    episodes: Numbers
    calls: Numbers
    level: Numbers


def read_foreign(path: Path) -> ForeignRun:
    """Read the run in a file, or in a folder of `*.monitor.csv` files of one training.

    Raises:
        UsageError: it cannot be read, or its format is unknown.
    """
    files = sorted(path.glob("*monitor.csv")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} is not a run, a sweep or a folder with a monitor.csv")
    texts = [read_named(file) for file in files]
    if texts[0].startswith("#{"):
        return _monitored(texts, files)
    return _table(texts[0], files[0])


def _monitored(texts: Sequence[str], files: Sequence[Path]) -> ForeignRun:
    """Read monitor files: a line of JSON, then `r,l,t` per episode; parallel environments are merged by time."""
    rows: list[tuple[float, float]] = []
    env_id = ""
    for text, file in zip(texts, files, strict=True):
        first, _, rest = text.partition("\n")
        try:
            said = json.loads(first[1:])
            env_id = env_id or str(said.get("env_id") or "")
            (start,) = _numbers([str(said.get("t_start", 0.0))], file, "t_start")
        except (ValueError, AttributeError, RecursionError):
            raise UsageError(f"{file} is not a monitor file: its first line is not `#{{...}}` with JSON") from None
        columns = _columns(rest, file)
        if "r" not in columns:
            raise UsageError(f"{file} has no column `r`, the returns of a monitor file")
        returns = _numbers(columns["r"], file, "r")
        times = _numbers(columns["t"], file, "t") if "t" in columns else np.arange(len(returns), dtype=np.float64)
        rows += zip((start + times).tolist(), returns.tolist(), strict=True)
    if not rows:
        raise UsageError(f"{files[0]} has no episodes yet")
    returns = np.array([value for _, value in sorted(rows, key=lambda row: row[0])])
    totals = np.concatenate([[0.0], np.cumsum(returns)])
    ends = np.arange(1, len(returns) + 1)
    starts = np.maximum(0, ends - LAST)
    level = (totals[ends] - totals[starts]) / (ends - starts)
    words = f"mean of the last {min(LAST, len(returns))} training episodes"
    return ForeignRun(float(level[-1]), words, env_id, ends.astype(np.float64), np.array([]), level)


def _table(text: str, file: Path) -> ForeignRun:
    """Read a CSV file with a column of returns and one of episodes or calls; an `overall_log` of ProPS is one."""
    columns = _columns(text, file)
    returns = next((name for name in _RETURNS if name in columns), None)
    episodes = next((name for name in _EPISODES if name in columns), None)
    calls = next((name for name in _CALLS if name in columns), None)
    if returns is None or (episodes is None and calls is None):
        raise UsageError(
            f"{file} has an unknown format: a CSV file needs a column `return`, and a column `episodes` or `calls`"
        )
    level = _numbers(columns[returns], file, returns)
    if not len(level):
        raise UsageError(f"{file} has no rows yet")
    spent = {name: _numbers(columns[name], file, name) for name in (episodes, calls) if name}
    counted = spent.get(episodes or "", np.array([]))
    asked = spent.get(calls or "", np.array([]))
    if "api time" in columns and "iteration" in columns:
        words = "highest 20-episode mean of the run, as ProPS reports it; selection biases it upwards"
        asked = _numbers(columns["iteration"], file, "iteration")
        level = np.maximum.accumulate(level)
        return ForeignRun(float(level[-1]), words, "", counted, asked, level)
    return ForeignRun(float(level[-1]), "last return in its file", "", counted, asked, level)


def _columns(text: str, file: Path) -> dict[str, list[str]]:
    """Return the columns by lower-case name; cells beyond the header (parameters with commas) are dropped."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    except csv.Error as error:
        raise UsageError(f"{file} is not a CSV file: {error}") from None
    if not rows:
        return {}
    header = [name.strip().lower() for name in rows[0]]
    whole = [row for row in rows[1:] if len(row) >= min(len(header), 3)]
    return {name: [row[i] if i < len(row) else "" for row in whole] for i, name in enumerate(header)}


def _numbers(cells: Sequence[str], file: Path, name: str) -> Numbers:
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        wrong = next(cell for cell in cells if not _is_number(cell))
        raise UsageError(f"{file}: column `{name}` has {wrong[:40]!r}, which is not a number") from None
    if not np.all(np.abs(numbers) <= LARGEST):
        raise UsageError(f"{file}: column `{name}` has a value that is not finite, or is beyond {LARGEST:g}")
    return numbers


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
