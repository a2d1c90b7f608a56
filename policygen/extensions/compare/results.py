"""Results of policygen's runs and of other programs, read from monitor files, ProPS logs and CSV files of returns.

The scores of other programs are not final scores on fresh episodes; `Result.meaning` says how each was obtained.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from policygen.episodes.aggregate import MEAN, Aggregate
from policygen.episodes.requirements import Violations
from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.groups import Member
from policygen.extensions.plots.style import Numbers
from policygen.files import damaged, read_named, read_plain
from policygen.runs.logbook import Logbook
from policygen.runs.records import curve_csv

LAST = 100  # training episodes averaged in a monitor file's score and curve
LARGEST = 1e100  # sums and squares of larger numbers overflow
_RETURNS = ("return", "mean return", "reward", "total reward", "true reward", "score", "episode_reward")
_EPISODES = ("episodes", "total episodes", "episode")
_CALLS = ("calls", "llm calls", "requests")


@dataclass(frozen=True, slots=True)
class Result:
    """A run, reduced to the values that comparisons need.

    Attributes:
        task: name of the task. For another program's run: the environment named in its file, until a comparison finds
            the task.
        score: final score; None if the run found no policy.
        seed: None for runs of other programs, which are never paired.
        episodes, env_steps, calls: the amounts spent at each point of the learning curve, shape (points,); empty if
            the file of another program does not count them.
        curve: the score at each point, shape (points,).
        random: score of random actions.
        target: best known score of the task, or the score that counts as solved.
        violations: those of the task's requirements in the episodes of the final score.
        aggregate: what the score is of the episodes' returns; not recorded by other programs, whose scores are means.
        meaning: how the score was obtained, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float | None
    seed: int | None = None
    episodes: Numbers = field(default_factory=lambda: np.array([]))
    calls: Numbers = field(default_factory=lambda: np.array([]))
    curve: Numbers = field(default_factory=lambda: np.array([]))
    random: float | None = None
    target: float | None = None
    llm_calls: float | None = None
    tokens: float | None = None
    usd: float | None = None
    seconds: float | None = None
    exact: bool = False
    meaning: str = ""
    env_steps: Numbers = field(default_factory=lambda: np.array([]))
    violations: tuple[Violations, ...] = ()
    aggregate: Aggregate = MEAN


def result_of(member: Member, contender: str) -> Result:
    """Return the result of a finished run.

    Raises:
        LogbookError: its learning curve is damaged, or a number is too large to compare.
    """
    summary = member.summary
    assert summary is not None
    if summary.final is not None and not abs(summary.final.value) <= LARGEST:
        raise LogbookError(
            f"{member.folder} has a final score beyond {LARGEST:g}, which cannot be compared; leave it out"
        )
    curve = _curve(member.folder)
    known = ~np.isnan(curve["best"])
    episodes = curve["episodes"].copy()
    episodes[-1:] = summary.episodes  # earlier versions left out the episodes that confirmed a best score
    optimum = member.task.optimum
    return Result(
        member.task.name,
        contender,
        summary.final.value if summary.final is not None else None,
        member.config.seed,
        episodes[known],
        curve["calls"][known] * summary.is_language_model,  # earlier versions counted requests to `builtin` as calls
        curve["best"][known],
        next(filter(math.isfinite, curve["score"][:1].tolist()), None),
        optimum.value if optimum is not None else member.task.solved,
        float(summary.llm_calls),
        float(summary.tokens_in + summary.tokens_out),
        summary.usd if summary.is_language_model else 0.0,
        summary.wall_seconds,
        summary.final is not None and summary.final.exact,
        env_steps=curve["env_steps"][known],
        violations=summary.final.violations if summary.final is not None else (),
        aggregate=member.config.score,
    )


def _curve(folder: Path) -> Mapping[str, Numbers]:
    """Read episodes, steps, calls, score and best score so far after each attempt."""
    import pandas as pd  # slow to import

    path = folder / "learning_curve.csv"
    remedy = "delete it, and `policygen resume` makes it again"
    try:
        text = read_plain(path).decode()
    except FileNotFoundError:
        text = curve_csv(Logbook(folder).attempts())
    except UnicodeDecodeError as error:
        raise damaged(path, error, remedy) from None
    try:
        frame = pd.read_csv(io.StringIO(text))
        columns = {
            name: frame[name].to_numpy(np.float64) for name in ("episodes", "env_steps", "calls", "score", "best")
        }
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, error, remedy) from None
    if any((np.abs(values) > LARGEST).any() for values in columns.values()):
        raise damaged(path, f"a number is beyond {LARGEST:g}", remedy)
    columns["best"] = np.where(np.isnan(columns["best"]), columns["score"][:1], columns["best"])
    return columns


# --- other programs --------------------------------------------------------------------------------------------------


def read_other_program(path: Path, contender: str = "") -> Result:
    """Read the run in a file, or in a folder of `*.monitor.csv` files of one training.

    Raises:
        UsageError: it cannot be read, or its format is unknown.
    """
    files = sorted(path.glob("*monitor.csv")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} is not a run, a sweep or a folder with a monitor.csv")
    texts = [read_named(file) for file in files]
    if texts[0].startswith("#{"):
        return _read_monitor_files(texts, files, contender)
    return _read_csv(texts[0], files[0], contender)


def _read_monitor_files(texts: Sequence[str], files: Sequence[Path], contender: str) -> Result:
    """Read monitor files: a line of JSON, then `r,l,t` per episode; parallel environments are merged by time."""
    rows: list[tuple[float, float]] = []
    env_id = ""
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
        returns = _numbers(columns["r"], file, "r")
        times = _numbers(columns["t"], file, "t") if "t" in columns else np.arange(len(returns), dtype=np.float64)
        rows += zip((start + times).tolist(), returns.tolist(), strict=True)
    if not rows:
        raise UsageError(f"{files[0]} has no episodes yet")
    returns = np.array([value for _, value in sorted(rows, key=lambda row: row[0])])
    totals = np.concatenate([[0.0], np.cumsum(returns)])
    ends = np.arange(1, len(returns) + 1)
    starts = np.maximum(0, ends - LAST)
    curve = (totals[ends] - totals[starts]) / (ends - starts)
    meaning = f"mean of the last {min(LAST, len(returns))} training episodes"
    return Result(env_id, contender, float(curve[-1]), None, ends.astype(np.float64), curve=curve, meaning=meaning)


def _read_csv(text: str, file: Path, contender: str) -> Result:
    """Read a CSV file with a column of returns and one of episodes or calls, such as ProPS's `overall_log`."""
    columns = _columns(text, file)

    def column(name: str | None) -> Numbers:
        return _numbers(columns[name], file, name) if name else np.array([])

    returns, episodes, calls = (
        next((name for name in names if name in columns), None) for names in (_RETURNS, _EPISODES, _CALLS)
    )
    if returns is None or (episodes is None and calls is None):
        raise UsageError(
            f"{file} has an unknown format: a CSV file needs a column `return`, and a column `episodes` or `calls`"
        )
    curve, meaning = column(returns), "last return in its file"
    if not len(curve):
        raise UsageError(f"{file} has no rows yet")
    if "api time" in columns and "iteration" in columns:
        meaning = "highest 20-episode mean of the run, as ProPS reports it; selection biases it upwards"
        curve, calls = np.maximum.accumulate(curve), "iteration"
    return Result("", contender, float(curve[-1]), None, column(episodes), column(calls), curve, meaning=meaning)


def _columns(text: str, file: Path) -> dict[str, list[str]]:
    """Return the columns by lower-case name; cells beyond the header (parameters with commas) are dropped."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    except csv.Error as error:
        raise UsageError(f"{file} is not a CSV file: {error}") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    complete_rows = [row for row in rows[1:] if len(row) >= min(len(header), 3)]
    return {name: [row[i] if i < len(row) else "" for row in complete_rows] for i, name in enumerate(header)}


def _numbers(cells: Sequence[str], file: Path, name: str) -> Numbers:
    numbers = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            numbers[i] = float(cell)
        except ValueError:
            raise UsageError(f"{file}: column `{name}` has {cell[:40]!r}, which is not a number") from None
    if not np.all(np.abs(numbers) <= LARGEST):
        raise UsageError(f"{file}: column `{name}` has a value that is not finite, or is beyond {LARGEST:g}")
    return numbers
