"""The input of a comparison: runs, each with the name of its contender."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from policygen.errors import LogbookError, PlaceError, UsageError
from policygen.extensions.compare.foreign import LARGEST, read_foreign
from policygen.extensions.plots.groups import Member, each_once, proposals_label, read_member, without_extensions
from policygen.extensions.plots.style import Numbers
from policygen.extensions.sweeps.plan import cell_folders, cells_of, is_sweep, read_plan
from policygen.extensions.sweeps.suites import Published, load_suite, published_columns
from policygen.files import check_name, damaged, find_resource, read_plain
from policygen.llm import reads_prompts
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import curve_csv
from policygen.tasks.load import load_task

BY = (
    "llm",
    "template",
    "task",
    "policy",
    "refine",
    "ablate",
    "grid",
    "conversation",
    "normalise",
    "shape",
    "example",
    "demonstrations",
    "memory",
)
_NAMED = re.compile(r"(?P<label>[^=:]+)(?::(?P<task>[^=]+))?=(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Result:
    """A run, reduced to the values that comparisons need.

    Attributes:
        score: final score; None if the run found no policy.
        seed: None for runs of other programs, which are never paired.
        episodes, calls, level: the learning curve (see `foreign.ForeignRun`).
        random: score of random actions.
        target: best known score of the task, or the score that counts as solved.
        words: meaning of the score, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float | None
    seed: int | None = None
    episodes: Numbers = field(default_factory=lambda: np.array([]))
    calls: Numbers = field(default_factory=lambda: np.array([]))
    level: Numbers = field(default_factory=lambda: np.array([]))
    random: float | None = None
    target: float | None = None
    llm_calls: float | None = None
    tokens: float | None = None
    usd: float | None = None
    seconds: float | None = None
    exact: bool = False
    words: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """The runs and published scores of a comparison.

    Attributes:
        published: published columns of the runs' suites, for the compared tasks.
        notes: what was left out, and the settings that all runs share.
    """

    results: tuple[Result, ...]
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order given."""
        return list(dict.fromkeys(result.task for result in self.results))

    @property
    def contenders(self) -> list[str]:
        """The contenders, in the order given."""
        return list(dict.fromkeys(result.contender for result in self.results))

    def of(self, task: str, contender: str) -> list[Result]:
        """Return the runs of a contender on a task that have a score, by seed."""
        found = [r for r in self.results if (r.task, r.contender) == (task, contender) and r.score is not None]
        return sorted(found, key=lambda result: -1 if result.seed is None else result.seed)

    def scores(self, task: str, contender: str) -> Numbers:
        """Return the scores of these runs, shape (runs,)."""
        return np.array([result.score for result in self.of(task, contender)], dtype=np.float64)


def read_field(sources: Sequence[str], *, by: str | None = None, suite: str | None = None) -> Field:
    """Read all sources: run folders, sweep folders, and `LABEL:TASK=PATH` for runs of other programs.

    Args:
        by: the setting that separates contenders, one of `BY`; by default all settings in which runs of a task differ.
        suite: the suite of the published columns; by default the suites of the sweeps.

    Raises:
        UsageError: a source or name is unknown.
        LogbookError: a run is damaged, or no run is finished.
    """
    if by is not None and by not in BY:
        raise UsageError(f"--by {by}: compare by one of {', '.join(BY)}")
    folders: list[Path] = []
    foreign: list[tuple[str, str, Path]] = []
    suites = [suite] if suite else []
    for source in sources:
        path = Path(check_name(source))
        named = _NAMED.fullmatch(source) if not path.exists() else None
        if named is not None:
            foreign.append((named["label"].strip(), (named["task"] or "").strip(), Path(named["path"])))
        elif is_sweep(path):
            folders += cell_folders(path)
            suites += [] if suite else [cell.entry.suite for cell in cells_of(read_plan(path)) if cell.entry.suite]
        elif (path / "config.toml").is_file():
            folders.append(path)
        elif path.is_dir() and any((one / "config.toml").is_file() or is_sweep(one) for one in path.iterdir()):
            raise UsageError(f"{path} is a folder of runs, not a run: write {path}/*")
        else:
            raise UsageError(f"{source} is not a run or a sweep; name runs of other programs as LABEL:TASK=PATH")
    members = [read_member(folder) for folder in each_once(folders)]
    notes = _left_out(members)
    finished = [member for member in members if member.finished]
    as_asked, longer = without_extensions(finished)
    results = [_result(member, name) for member, name in zip(finished, _names(as_asked, by), strict=True)]
    results += [_foreign_result(*one, results) for one in foreign]
    if not results:
        raise PlaceError("no run is finished, so there is nothing to compare; finish runs with policygen resume")
    notes += longer + _in_common(finished, as_asked, by) + _unread(finished)
    notes += [f"{words}: {label}" for words, label in dict.fromkeys((r.words, r.contender) for r in results if r.words)]
    tasks = {result.task for result in results}
    names = {result.contender for result in results}
    columns = [column for name in dict.fromkeys(suites) for column in load_suite(name).published]
    published = tuple(
        replace(
            column,
            name=f"{column.name} (published)" if column.name in names else column.name,
            scores={task: score for task, score in column.scores.items() if task in tasks},
        )
        for column in columns
        if tasks & set(column.scores)
    )
    if suites and not published:
        notes.append(_unpublished(list(dict.fromkeys(suites)), tasks))
    return Field(tuple(results), published, tuple(notes))


def _unpublished(named: Sequence[str], tasks: set[str]) -> str:
    """Say that the suites publish no scores for the compared tasks, and which other suites do."""
    own = f"suite{'s' * (len(named) > 1)} {' and '.join(named)} {'have' if len(named) > 1 else 'has'}"
    others = [
        name
        for name, columns in published_columns().items()
        if name not in named and any(tasks & set(column.scores) for column in columns)
    ]
    hint = f"; --suite {' or '.join(others)} {'have' if len(others) > 1 else 'has'} some for these tasks"
    return f"{own} no published columns{hint if others else ' for these tasks'}"


def _left_out(members: Sequence[Member]) -> list[str]:
    unfinished = sum(not member.finished for member in members)
    empty = sum(member.finished and member.final is None for member in members)
    notes = [f"{unfinished} unfinished runs are left out"] if unfinished else []
    return notes + ([f"{empty} runs found no policy and have no score"] if empty else [])


def _differing(members: Sequence[Member]) -> list[str]:
    """Return the settings that may change a score and in which runs of one task differ."""
    silent = {"task", "seed", "jobs", "base_url", "timeout_seconds", "step_timeout", "final_episodes", "buffer_steps"}
    names = []
    for name in RunConfig.model_fields:
        if name in silent or name.startswith(("max_", "price_")):
            continue
        values: dict[str, set[str]] = {}
        for member in members:
            values.setdefault(member.task.name, set()).add(str(getattr(member.config, name)))
        if any(len(found) > 1 for found in values.values()):
            names.append(name)
    return names


def _names(members: Sequence[Member], by: str | None) -> list[str]:
    """Return the contender of each run."""
    if by == "task":
        return ["all runs"] * len(members)
    differing = _differing(members)
    texts: dict[str, set[str]] = {}  # templates that were edited between runs
    for member in members:
        if member.templates:
            texts.setdefault(member.task.name, set()).add(member.templates)
    edited = "template" not in differing and any(len(found) > 1 for found in texts.values())
    names = []
    for member in members:
        if by is not None:
            names.append(_word(member.config, by, alone=True))
            continue
        # The proposer is left out if all runs share it and differ in another setting.
        telling = [name for name in differing if name != "llm"]
        parts = [] if telling and "llm" not in differing else [proposals_label(member.config.llm)]
        parts += [_word(member.config, name) for name in telling]
        parts += [f"templates {member.templates}"] if edited and member.templates else []
        names.append(", ".join(filter(None, parts)))
    return names


def _word(config: RunConfig, name: str, *, alone: bool = False) -> str:
    value = getattr(config, name)
    if name == "llm":
        return proposals_label(value)
    if name == "policy":
        return f"{value} policy"
    if value is None or value is False:
        return f"default {name}" if value is None else f"without {name}"
    return name if value is True else f"{value}" if alone and name == "template" else f"{name} {value}"


def _in_common(members: Sequence[Member], as_asked: Sequence[Member], by: str | None) -> list[str]:
    """Describe the settings that all runs share and that are not defaults, and differences that are averaged."""
    notes = []
    common = []
    for name, info in RunConfig.model_fields.items():
        first = getattr(members[0].config, name) if members else info.default
        if name in ("task", "llm", "seed", "policy", "jobs") or first == info.default:
            continue
        if all(getattr(member.config, name) == first for member in members):
            common.append(f"{name} {first}")
    llms = {member.config.llm for member in members}
    if len(llms) == 1:
        common.insert(0, proposals_label(llms.pop()))
    if common:
        notes.append(f"all runs: {', '.join(common)}")
    if by is not None:
        pooled = [name for name in _differing(as_asked) if name != by]
        if pooled:
            notes.append(f"runs that differ in {', '.join(pooled)} are averaged, as --by {by} asks")
    return notes


def _unread(members: Sequence[Member]) -> list[str]:
    """Describe compared templates that make no difference, because the provider reads no prompt."""
    templates: dict[tuple[str, str], set[str | None]] = {}
    for member in members:
        if not reads_prompts(member.config.llm):
            name = member.config.llm.partition(":")[0]
            templates.setdefault((name, member.task.name), set()).add(member.config.template)
    names = sorted({name for (name, _), found in templates.items() if len(found) > 1})
    return [f"{name} reads no prompt: templates make no difference to its runs" for name in names]


def _result(member: Member, contender: str) -> Result:
    summary = member.summary
    assert summary is not None
    if summary.final is not None and not abs(summary.final.mean) <= LARGEST:
        raise LogbookError(
            f"{member.folder} has a final score beyond {LARGEST:g}, which cannot be compared; leave it out"
        )
    curve = _curve(member)
    known = ~np.isnan(curve["level"])
    episodes = curve["episodes"].copy()
    episodes[-1:] = summary.episodes  # earlier versions left out the episodes that confirmed a cap
    optimum = member.task.optimum
    return Result(
        member.task.name,
        contender,
        summary.final.mean if summary.final is not None else None,
        member.config.seed,
        episodes[known],
        curve["calls"][known] * summary.is_language_model,  # ... and counted requests to `builtin` as calls
        curve["level"][known],
        curve["random"][0] if len(curve["random"]) and np.isfinite(curve["random"][0]) else None,
        optimum.value if optimum is not None else member.task.solved,
        float(summary.llm_calls),
        float(summary.tokens_in + summary.tokens_out),
        summary.usd if summary.is_language_model else 0.0,
        summary.wall_seconds,
        summary.final is not None and summary.final.exact,
    )


def _curve(member: Member) -> Mapping[str, Numbers]:
    """Read episodes, calls, score and best score so far after each attempt."""
    import pandas as pd

    path = member.folder / "learning_curve.csv"
    try:
        text = read_plain(path).decode()
    except FileNotFoundError:
        text = curve_csv(Logbook(member.folder).attempts())
    except UnicodeDecodeError as error:
        raise _damaged(path, error) from None
    try:
        frame = pd.read_csv(io.StringIO(text))
        score = frame["score"].to_numpy(np.float64)
        level = frame["best"].astype(float).fillna(score[0] if len(score) else np.nan).to_numpy(np.float64)
        columns = {name: frame[name].to_numpy(np.float64) for name in ("episodes", "calls")}
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(path, error) from None
    if any((np.abs(values[~np.isnan(values)]) > LARGEST).any() for values in (score, level, *columns.values())):
        raise _damaged(path, f"a number is beyond {LARGEST:g}")
    return {**columns, "level": level, "random": score[:1]}


def _damaged(path: Path, fault: object) -> LogbookError:
    return damaged(path, fault, "delete it, and `policygen resume` makes it again")


def _foreign_result(label: str, task: str, path: Path, ours: Sequence[Result]) -> Result:
    run = read_foreign(path)
    if not task and not run.env_id:
        raise UsageError(f"{path} does not name its task: write {label}:TASK={path}")
    name = task or run.env_id
    known = {result.task for result in ours}
    if name not in known:  # a Gymnasium id stands for the compared task with this environment
        by_id = {load_task(one).gym_id: one for one in known if not task and find_resource("envs", one, ".toml")}
        name = by_id.get(name, name)
    where = f"{label}:{task}={path}" if task else f"{label}={path}"
    if known and name not in known:
        of = ", ".join(sorted(known))
        raise UsageError(f"{where}: no run has the task {name!r}; write {label}:TASK={path}, with TASK one of {of}")
    if label in {result.contender for result in ours}:
        raise UsageError(f"{where}: {label!r} already names a contender; write another label")
    return Result(name, label, run.score, None, run.episodes, run.calls, run.level, words=run.words)
