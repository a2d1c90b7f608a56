"""The results of policygen's runs, and of runs of other programs: read from monitor files, ProPS logs and CSV files.

The scores of other programs are not final scores on fresh episodes; `Result.meaning` says how each was obtained.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from policygen.episodes.requirements import Violations
from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.groups import Member
from policygen.extensions.plots.style import Numbers
from policygen.files import read_named

LAST = 100  # the score and curve of a monitor file are means of this many training episodes
LARGEST = 1e100  # sums and squares of larger numbers would overflow
_RETURNS = ("return", "mean return", "reward", "total reward", "true reward", "score", "episode_reward")
# The quantities of a curve's x axis, and the names of their columns in files of other programs.
_SPENT = {
    "episodes": ("episodes", "total episodes", "episode"),
    "env_steps": ("env_steps", "total steps", "steps"),
    "calls": ("calls", "llm calls", "requests"),
    "seconds": ("seconds",),
    "usd": ("usd",),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The values of a run that comparisons need.

    Attributes:
        task: name of the task; as read from another program's file, the name of its environment.
        score: final score; None if the run found no policy.
        seed: None for runs of other programs, which are never paired.
        spent: the amounts spent at each point of the learning curve, each of shape (points,), by name: `episodes`,
            `env_steps`, `calls`, `seconds`, `usd`. An amount that is unknown or not counted is left out.
        curve: the score at each point, shape (points,).
        random: score of random actions.
        target: best known score of the task, or the score that counts as solved.
        violations: violations of the task's requirements in the episodes of the final score.
        meaning: how the score was obtained, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float | None
    seed: int | None = None
    spent: Mapping[str, Numbers] = field(default_factory=dict)
    curve: Numbers = field(default_factory=lambda: np.array([]))
    random: float | None = None
    target: float | None = None
    llm_calls: float | None = None
    tokens: float | None = None
    usd: float | None = None
    seconds: float | None = None
    exact: bool = False
    meaning: str = ""
    violations: tuple[Violations, ...] = ()

    def total(self, name: str) -> float | None:
        """Return the last amount of `spent[name]`; None if it is not counted."""
        amounts = self.spent.get(name)
        return float(amounts[-1]) if amounts is not None and len(amounts) else None


def result_of(member: Member, contender: str) -> Result:
    """Return the result of a finished run; raise LogbookError if it is damaged, or its score too large to compare."""
    summary = member.summary
    assert summary is not None
    final = summary.final
    if final is None:
        return Result(member.task.name, contender, None, member.config.seed)
    frame = member.curve
    random = float(frame["score"][0])
    frame = frame[~np.isnan(frame["level"])]
    if not (np.abs([*frame["level"], final.mean]) <= LARGEST).all():
        raise LogbookError(f"{member.folder} has a score beyond {LARGEST:g}, which cannot be compared; leave it out")
    spent = {name: frame[name] for name in _SPENT}
    spent["episodes"][-1:] = summary.episodes  # runs of earlier versions left out episodes that confirmed a best score
    if np.isnan(spent["usd"]).any():
        del spent["usd"]
    optimum = member.task.optimum
    return Result(
        member.task.name,
        contender,
        final.mean,
        member.config.seed,
        spent,
        frame["level"],
        random if math.isfinite(random) else None,
        optimum.value if optimum is not None else member.task.solved,
        float(summary.llm_calls),
        float(summary.tokens_in + summary.tokens_out),
        summary.usd if summary.is_language_model else 0.0,
        summary.wall_seconds,
        final.exact,
        violations=final.violations,
    )


# --- other programs --------------------------------------------------------------------------------------------------


def read_other_program(path: Path, contender: str = "") -> Result:
    """Return the result of the run in a file, or in a folder with the `*.monitor.csv` files of one training.

    Raises UsageError if a file cannot be read, or its format is unknown.
    """
    files = sorted(path.glob("*monitor.csv")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} is not a run, a sweep or a folder with a monitor.csv")
    texts = [read_named(file) for file in files]
    if texts[0].startswith("#{"):
        return _read_monitor_files(texts, files, contender)
    return _read_csv(texts[0], files[0], contender)


def _read_monitor_files(texts: Sequence[str], files: Sequence[Path], contender: str) -> Result:
    """Read monitor files: a line of JSON, then `r,l,t` per episode. Files of parallel training are merged by time."""
    env_id, began = "", math.inf
    parts: list[dict[str, Numbers]] = []
    for text, file in zip(texts, files, strict=True):
        first, _, rest = text.partition("\n")
        try:
            metadata = json.loads(first[1:])
            env_id = env_id or str(metadata.get("env_id") or "")
            (start,) = _numbers([str(metadata.get("t_start", 0.0))], file, "t_start")
        except (ValueError, AttributeError, RecursionError):
            raise UsageError(f"{file} is not a monitor file: its first line is not `#{{...}}` with JSON") from None
        columns = _columns(rest, file)
        if "r" not in columns:
            raise UsageError(f"{file} has no column `r`, the returns of a monitor file")
        part = {name: _numbers(cells, file, name) for name, cells in columns.items() if name in ("r", "l", "t")}
        parts.append(part | {"time": start + part.get("t", np.arange(len(part["r"])))})
        began = min(began, start)
    times = np.concatenate([part["time"] for part in parts])
    if not len(times):
        raise UsageError(f"{files[0]} has no episodes yet; leave it out")
    order = np.argsort(times, kind="stable")
    returns = np.concatenate([part["r"] for part in parts])[order]
    totals = np.concatenate([[0.0], np.cumsum(returns)])
    ends = np.arange(1, len(returns) + 1)
    starts = np.maximum(0, ends - LAST)
    curve = (totals[ends] - totals[starts]) / (ends - starts)
    meaning = f"mean of the last {min(LAST, len(returns))} training episodes"
    spent = {"episodes": ends.astype(np.float64)}
    if all("t" in part for part in parts):
        spent["seconds"] = times[order] - began
    if all("l" in part for part in parts):
        spent["env_steps"] = np.cumsum(np.concatenate([part["l"] for part in parts])[order])
    return Result(env_id, contender, float(curve[-1]), None, spent, curve, meaning=meaning)


def _read_csv(text: str, file: Path, contender: str) -> Result:
    """Read a CSV file with a column of returns and one of `_SPENT`, such as ProPS's `overall_log`."""
    columns = _columns(text, file)
    known = {"return": _RETURNS, **_SPENT}
    found = {name: own for name, names in known.items() if (own := next((n for n in names if n in columns), None))}
    if "return" not in found or len(found) < 2:
        raise UsageError(
            f"{file} has an unknown format: a CSV file needs a column `return`, and one of {', '.join(_SPENT)}"
        )
    is_props = "api time" in columns and "iteration" in columns
    if is_props:
        found["calls"] = "iteration"
    spent = {name: _numbers(columns[own], file, own) for name, own in found.items()}
    curve, meaning = spent.pop("return"), "last return in its file"
    if not len(curve):
        raise UsageError(f"{file} has no rows yet; leave it out")
    if is_props:
        curve = np.maximum.accumulate(curve)
        meaning = "highest mean of 20 episodes in the run, as ProPS reports it; selection biases it upwards"
    result = Result("", contender, float(curve[-1]), None, spent, curve, meaning=meaning)
    return replace(result, llm_calls=result.total("calls"))


def _columns(text: str, file: Path) -> dict[str, list[str]]:
    """Return the columns by lower-case name, without cells beyond the header (ProPS's parameters contain commas)."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    except csv.Error as error:
        raise UsageError(f"{file} is not a CSV file: {error}") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    complete_rows = [row for row in rows[1:] if len(row) >= min(len(header), 3)]
    return {name: [row[i] if i < len(row) else "" for row in complete_rows] for i, name in enumerate(header)}


def _numbers(cells: Sequence[str], file: Path, name: str) -> Numbers:
    """Return the cells of the column `name` as numbers, shape (rows,)."""
    numbers = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            numbers[i] = float(cell)
        except ValueError:
            raise UsageError(f"{file}: column `{name}` has {cell[:40]!r}, which is not a number") from None
    if not np.all(np.abs(numbers) <= LARGEST):
        raise UsageError(f"{file}: column `{name}` has a value that is not finite, or is beyond {LARGEST:g}")
    return numbers
