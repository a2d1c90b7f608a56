"""The input of a comparison: the results of runs and trainings, with the names of the contenders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from policygen.errors import PathError, UsageError
from policygen.extensions.compare.results import Result, read_training, result_of
from policygen.extensions.plots import groups
from policygen.extensions.sweeps.plan import cell_folders, intact, is_sweep, read_plan
from policygen.extensions.sweeps.suites import PublishedColumn, load_suite
from policygen.files import check_name
from policygen.runs.config import RunConfig

_TRAINING = re.compile(r"(?P<label>[^=:]+):(?P<task>[^=]+)=(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Compared:
    """The results and published scores of a comparison.

    Attributes:
        published: published columns of the runs' suites.
        notes: remarks for the reader, such as omissions and the settings that all runs share.
    """

    results: tuple[Result, ...]
    published: tuple[PublishedColumn, ...] = ()
    notes: tuple[str, ...] = ()


def read_scores(sources: Sequence[str], *, by: str | None = None, suite: str | None = None) -> Compared:
    """Read all sources: run folders, sweep folders, and `LABEL:TASK=PATH` for monitor files of Stable-Baselines3.

    Args:
        by: the setting that separates contenders, or `task`; by default all settings in which runs of a task differ.
        suite: the suite of the published columns; by default the suites of the sweeps.

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
    suites = [suite] if suite else []
    kept = intact([Path(check_name(source)) for source in sources])
    for source in sources:
        path = Path(source)
        if path not in kept:
            continue
        if not path.exists() and (named := _TRAINING.fullmatch(source)):
            trainings.append(read_training(Path(named["path"]), named["task"].strip(), named["label"].strip()))
        elif is_sweep(path):
            folders += cell_folders(path)
            suites += [] if suite else [cell.suite for cell in read_plan(path).cells if cell.suite]
        elif (path / "config.toml").is_file():
            folders.append(path)
        elif path.is_dir() and any((one / "config.toml").is_file() or is_sweep(one) for one in path.iterdir()):
            raise UsageError(f"{path} is a folder of runs, not a run: write {path}/*")
        else:
            raise UsageError(f"{source} is not a run or a sweep; name a monitor.csv as LABEL:TASK=PATH")
    members = [groups.read_member(folder) for folder in groups.unique_runs(folders)]
    finished = [member for member in members if member.finished]
    named_members = zip(finished, groups.names_of(finished, by), strict=True)
    results = [result_of(member, name) for member, name in named_members if member.final is not None]
    left_out = {"unfinished runs are left out": len(members) - len(finished)}
    left_out["runs found no policy and have no score"] = len(finished) - len(results)
    notes = [f"{count} {why}" for why, count in left_out.items() if count]
    for one in trainings:
        if finished and one.task not in {member.task.name for member in finished}:
            raise UsageError(f"no run has the task {one.task!r} of {one.contender}: write the name of a task above")
        if any((one.task, one.contender) == (other.task, other.contender) for other in results):
            raise UsageError(f"another contender is called {one.contender!r}; write another label")
        results.append(one)
    if not results:
        raise PathError("no run is finished, so there is nothing to compare; finish runs with policygen resume")
    notes += _in_common(finished, by)
    unseeded = dict.fromkeys(member.task.name for member in finished if member.task.unseeded)
    notes += [f"scores of {', '.join(unseeded)} are over unseeded episodes"] if unseeded else []
    notes += dict.fromkeys(f"{one.contender}: {one.meaning}" for one in trainings)
    taken = {result.contender for result in results}
    columns = [column for name in dict.fromkeys(suites) for column in load_suite(name).published]
    named_columns = (replace(one, name=f"{one.name} (published)" if one.name in taken else one.name) for one in columns)
    return Compared(tuple(results), tuple(named_columns), tuple(notes))


def _in_common(members: Sequence[groups.Member], by: str | None) -> list[str]:
    """Return notes on settings that all runs share and that are not defaults, and on settings that are averaged."""
    common = []
    for name, info in RunConfig.model_fields.items():
        values = {str(getattr(member.config, name)) for member in members}
        own = name not in {"task", "seed", "policy"} | groups.WITHOUT_EFFECT
        if own and len(values) == 1 and values != {str(info.default)}:
            common.append(f"{name} {values.pop()}")
    pooled = [name for name in groups.differing(members) if name != by] if by is not None else []
    notes = [f"all runs: {', '.join(common)}"] if common else []
    return notes + ([f"runs that differ in {', '.join(pooled)} are averaged, as --by {by} asks"] if pooled else [])
