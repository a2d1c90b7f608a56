"""Read what is compared, runs and trainings by Stable-Baselines3, and name the contenders."""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policygen.errors import LogbookError, PathError, UsageError
from policygen.extensions.compare.comparison import COSTS, Comparison, Result
from policygen.extensions.plots import groups
from policygen.extensions.sweeps.plan import intact, is_sweep, load_suite, read_plan
from policygen.files import find_run, read
from policygen.runs.config import RunConfig
from policygen.runs.facts import NOTES, run_facts

if TYPE_CHECKING:
    import pandas as pd

LAST = 100  # number of episodes over which the score and the curve of a training are averaged
LARGEST = 1e100  # sums and squares of larger numbers would overflow
_TRAINING = re.compile(r"(?P<label>[^=:]+):(?P<task>[^=]+)=(?P<path>.+)")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?")


def result_of(member: groups.Member, contender: str) -> Result:
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


def read_scores(sources: Sequence[str], *, by: str | None = None, suite: str | None = None) -> Comparison:
    """Compare all sources: run folders, sweep folders, and `LABEL:TASK=PATH` for monitor files of Stable-Baselines3.

    Args:
        by: the setting that tells contenders apart, or `task` for one contender; by default all settings in which the
            runs of a task differ.
        suite: the suite whose published scores are shown; by default the suites of the sweeps.

    Raises:
        UsageError: a source or name is unknown, or the scores cannot be compared.
        PathError: no run is finished.
        LogbookError: a run is damaged.
    """
    if by is not None and by not in RunConfig.model_fields:
        raise UsageError(
            f"--by {by}: there is no such setting; compare by llm, template, policy, refine or another one"
        )
    folders: list[Path] = []
    trainings: list[Result] = []
    for path in intact([find_run(source) for source in sources]):
        if not path.exists() and (named := _TRAINING.fullmatch(str(path))):
            trainings.append(read_training(Path(named["path"]), named["task"].strip(), named["label"].strip()))
        elif is_sweep(path) or (path / "config.toml").is_file():
            folders.append(path)
        elif path.is_dir() and any((one / "config.toml").is_file() or is_sweep(one) for one in path.iterdir()):
            raise UsageError(f"{path} is a folder of runs, not a run: write {path}/*")
        else:
            raise UsageError(f"{path} is not a run or a sweep; name a monitor.csv as LABEL:TASK=PATH")
    sweeps = [read_plan(folder) for folder in folders if is_sweep(folder)]
    suites = [suite] if suite else [cell.suite for plan in sweeps for cell in plan.cells if cell.suite]
    members = [groups.read_member(folder) for folder in groups.unique_runs(folders)]
    finished = [member for member in members if member.summary is not None]
    named_members = zip(finished, groups.names_of(finished, by), strict=True)
    results = [result_of(member, name) for member, name in named_members if member.final is not None]
    left_out = {"left out, because unfinished": len(members) - len(finished)}
    left_out["left out, because no policy was found"] = len(finished) - len(results)
    notes = [f"{count} run{'s' * (count > 1)} {why}" for why, count in left_out.items() if count]
    for one in trainings:
        if finished and one.task not in {member.task.name for member in finished}:
            raise UsageError(f"no run has the task {one.task!r} of {one.contender}: write the name of a task above")
        if any((one.task, one.contender) == (other.task, other.contender) for other in results):
            raise UsageError(f"another contender is called {one.contender!r}; write another label")
        results.append(one)
    if not results:
        if finished:
            raise PathError("no run has found a policy, so there is nothing to compare; policygen show RUN says why")
        raise PathError("no run is finished, so there is nothing to compare; finish runs with policygen resume")
    notes += _in_common(finished, by)
    unseeded = dict.fromkeys(member.task.name for member in finished if member.task.unseeded)
    notes += [f"{', '.join(unseeded)}: the episodes are unseeded"] if unseeded else []
    notes += dict.fromkeys(f"{one.contender}: {one.meaning}" for one in trainings)
    taken = {result.contender for result in results}
    columns = [column for name in dict.fromkeys(suites) for column in load_suite(name).published]
    named_columns = [
        one.model_copy(update={"name": f"{one.name} (published)"}) if one.name in taken else one for one in columns
    ]
    return Comparison(results, named_columns, notes)


def _in_common(members: Sequence[groups.Member], by: str | None) -> list[str]:
    """Return notes on the settings that all runs share and that are not defaults, and on those averaged over."""
    common = []
    for name, info in RunConfig.model_fields.items():
        values = {str(getattr(member.config, name)) for member in members}
        own = name not in {"task", "seed", "policy"} | groups.WITHOUT_EFFECT
        if own and len(values) == 1 and values != {str(info.default)}:
            common.append(f"{name}={values.pop()}")
    pooled = [name for name in groups.differing(members) if name != by] if by is not None else []
    notes = [f"settings shared by all runs: {', '.join(common)}"] if common else []
    return notes + ([f"averaged over runs that differ in {', '.join(pooled)}, because of --by {by}"] if pooled else [])


# --- trainings -------------------------------------------------------------------------------------------------------


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
        # A joined cell begins with a number, but is none.
        joined = [line for line in lines if any(_NUMBER.match(one) and not _NUMBER.fullmatch(one) for one in line)]
        whole = [line for line in lines if len(line) == len(header) and line not in joined]
        table = pd.DataFrame([line for line in whole if line != header], columns=header)
        rows = table[["r", "l", "t"]].astype(float).assign(start=start)
        if not (rows.abs() <= LARGEST).to_numpy().all():
            raise ValueError("it has a value that is not finite, or is beyond 1e+100")
    except (KeyError, TypeError, ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"{file} is not a monitor file of Stable-Baselines3: {' '.join(str(error).split())}") from None
    return rows.assign(t=rows["t"] + start)
