"""Sweep plans: a run for each combination of task, model, template, settings and seed, and the file that lists them.

A suite (`envs/suites/*.toml`) is a list of tasks with common settings and published scores.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomli_w
from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, StringConstraints, ValidationError

from policygen.errors import LogbookError, PathError, UsageError, explain
from policygen.files import (
    check_name,
    damaged,
    find_resource,
    list_resources,
    mark,
    read,
    toml_of,
    write_atomically,
)
from policygen.outgoing import redacted
from policygen.runs.config import RunConfig
from policygen.tasks.task import PolicyKind

FOLDER = "envs/suites"
MANIFEST = "sweep.toml"
# Settings that a suite may contain: kind of policy, length of the search, episodes. Only the user chooses the model and
# the server.
PROTOCOL = (
    "policy",
    *("iterations", "episodes", "warmup_episodes", "final_episodes"),
    *("max_episodes", "max_calls", "patience", "repairs", "stop_at", "refine"),
)
# Settings that a grid may not vary: a sweep has options for them, or only the user may choose them.
NOT_VARIED = ("task", "llm", "template", "seed", "base_url", "extra_body")
_REMEDY = "restore it from a copy, or delete it and repeat the command of the sweep: finished runs are kept"
_MOST_BYTES = 64 * 2**20  # of a manifest
_MOST_SEEDS = 100_000


# --- suites ----------------------------------------------------------------------------------------------------------


class PublishedScore(NamedTuple):
    """A published mean with its standard deviation over runs; in files, a number or a list of both."""

    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(ge=0)] | None = None


class PublishedColumn(BaseModel, extra="forbid", frozen=True):
    """The published scores of a method.

    Attributes:
        source: the publication, and the runs or episodes over which it averages.
        runs: number of runs averaged; None if the source does not say.
        scores: the score on each task.
    """

    name: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    runs: Annotated[int, Field(ge=1)] | None = None
    scores: Annotated[
        dict[
            str, Annotated[PublishedScore, BeforeValidator(lambda one: one if isinstance(one, list | tuple) else [one])]
        ],
        Field(min_length=1),
    ]


class Suite(BaseModel, extra="forbid", frozen=True):
    """Tasks that are run and reported together; its fields are the keys of `envs/suites/*.toml`.

    Attributes:
        tasks: names of tasks, or Gymnasium ids.
        run: settings of every run; they override task files, and the user's override them.
        policy: the published kind of policy by task, instead of that in the task file.
        published: the published scores to show beside the runs.
    """

    name: str
    about: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    run: dict[str, Any] = {}
    policy: dict[str, PolicyKind] = {}
    published: tuple[PublishedColumn, ...] = ()


def list_suites() -> dict[str, Path]:
    """Return the files of all suites, by name."""
    return list_resources(FOLDER, ".toml")


def find_suite(name: str) -> Path | None:
    """Return the file of a suite, given its name or a path in a folder `suites`; None if it does not exist."""
    path = find_resource(FOLDER, name, ".toml")
    return path if path is not None and path.absolute().parent.name == "suites" else None


def load_suite(name: str) -> Suite:
    """Load a suite, given as in `find_suite`, without checking that its tasks exist.

    Raises UsageError if it does not exist or its file is malformed.
    """
    path = find_suite(name)
    if path is None:
        raise UsageError(f"there is no suite `{name}`; choose one of {', '.join(sorted(list_suites()))}")
    try:
        suite = Suite.model_validate(read(path, toml_of, named=UsageError))
    except UsageError as error:
        raise UsageError(f"suite {error}") from None
    except ValidationError as error:
        raise UsageError(f"suite {path.name}: {explain(error, Suite.model_fields)}") from None
    if fault := _fault(suite, path.stem):
        raise UsageError(f"suite {path.name}: {fault}")
    return suite


def _fault(suite: Suite, name: str) -> str:
    """Return what is wrong with a suite whose file has this name; empty if nothing is."""
    if suite.name != name or not re.fullmatch(r"[\w.-]+", name):
        return f"`name` is `{suite.name}`; it must be the name of the file, `{name}`"
    if twice := [task for i, task in enumerate(suite.tasks) if task in suite.tasks[:i]]:
        return f"`tasks` names {twice[0]} twice"
    if others := suite.run.keys() - set(PROTOCOL):
        return f"`run.{min(others)}`: a suite may state only {', '.join(PROTOCOL)}"
    try:
        RunConfig(task=name, **suite.run)
    except (ValidationError, UsageError) as error:
        return f"`run`: {explain(error) if isinstance(error, ValidationError) else error}"
    named = {"policy": set(suite.policy)}
    named |= {f"published.{column.name}.scores": set(column.scores) for column in suite.published}
    for place, tasks in named.items():
        if others := tasks - set(suite.tasks):
            return f"`{place}` names {min(others)}, which is not one of its tasks: {', '.join(suite.tasks)}"
    return ""


def suite_line(name: str) -> str:
    """Return a line about a suite: its tasks and published methods, or what is wrong with its file."""
    try:
        suite = load_suite(name)
        published = f"; published: {', '.join(column.name for column in suite.published)}" if suite.published else ""
        return f"{name}: {', '.join(suite.tasks)}{published}"
    except UsageError as error:
        return f"{name}: {error}"


# --- plans -----------------------------------------------------------------------------------------------------------


class Cell(BaseModel, extra="forbid", frozen=True):
    """A run of a sweep.

    Attributes:
        settings: the values from the grid, `NAME=VALUE`.
        suite: name of the suite that the task comes from, if any.
        protocol: settings of that suite.
    """

    task: str
    llm: str
    template: str = ""
    seed: int
    settings: tuple[str, ...] = ()
    suite: str = ""
    protocol: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The name of the run's folder: readable, unique within the sweep, and without passwords."""
        parts = [self.task, redacted(self.llm).replace(":", "-", 1), *filter(None, (self.template, *self.settings))]
        plain = [re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("._-")[:60] for part in parts]
        if plain != parts:  # some characters were replaced, so a digest makes the name unique
            plain.append(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:6])
        return "-".join([*filter(None, plain), f"s{self.seed}"])

    @property
    def configuration(self) -> str:
        """Everything but the seed: task, model, template and settings, joined by commas."""
        return ", ".join(filter(None, (self.task, self.llm, self.template, *self.settings)))


class SweepPlan(BaseModel, extra="forbid", frozen=True):
    """The runs of a sweep, and the settings that they share, `NAME=VALUE`."""

    cells: tuple[Cell, ...] = Field(min_length=1)
    settings: tuple[str, ...] = ()


def make_plan(
    names: Sequence[str],
    llms: Sequence[str] = (),
    templates: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    *,
    grid: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> SweepPlan:
    """Return a plan with a run for every combination of task, model, template, settings from the grid, and seed.

    Args:
        names: tasks, suites, and tasks of suites (`SUITE:TASK`); a task that is named twice counts once.
        templates: names of templates; by default the usual one.
        grid: settings with several values, `NAME=VALUE,VALUE`.
        settings: settings of all runs, `NAME=VALUE`.

    Raises:
        UsageError: a suite is malformed or lacks the task, or a grid is malformed; also see `check_name`.
    """
    for text in (*names, *llms, *templates):
        check_name(text)
    tasks: dict[str, dict[str, Any]] = {}
    for entry in itertools.chain.from_iterable(map(_tasks_of, names)):
        tasks.setdefault(entry["task"], entry)
    axes = (dict.fromkeys(seeds), dict.fromkeys(llms) or ("builtin",), dict.fromkeys(templates) or ("",))
    cells = (
        Cell(seed=seed, llm=llm, template=template, settings=varied, **entry)
        for seed, llm, template, varied, entry in itertools.product(*axes, _combinations(grid), tasks.values())
    )
    return SweepPlan(cells=tuple(cells), settings=tuple(settings))


def _tasks_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of `Cell` for each task of a suite, for the one in `SUITE:TASK`, or for the task `name`."""
    first, _, task = name.partition(":")
    if find_suite(name) is not None:
        first, task = name, ""
    elif not task or find_suite(first) is None:
        yield {"task": name}
        return
    suite = load_suite(first)
    if task and task not in suite.tasks:
        raise UsageError(f"{name}: suite {suite.name} has no task `{task}`; it has {', '.join(suite.tasks)}")
    for one in (task,) if task else suite.tasks:
        protocol = {**suite.run, "policy": suite.policy[one]} if one in suite.policy else suite.run
        yield {"task": one, "suite": suite.name, "protocol": protocol}


def _combinations(grid: Sequence[str]) -> list[tuple[str, ...]]:
    axes = []
    for text in grid:
        name, _, values = text.partition("=")
        found = [value.strip() for value in values.split(",")]
        if name.strip() in NOT_VARIED:
            raise UsageError(
                f"--grid {text}: a grid cannot vary {name.strip()}; for models, templates and seeds there are options"
            )
        if not all(found) or not name.strip().isidentifier():
            raise UsageError(f"--grid {text}: write NAME=VALUE,VALUE, as in --grid refine=none,cma:200")
        axes.append([f"{name.strip()}={value}" for value in dict.fromkeys(found)])
    return list(itertools.product(*axes))


def read_seeds(text: str) -> tuple[int, ...]:
    """Read seeds; raise UsageError for other forms than these.

    `10` means 0 to 9, `100..109` includes both ends, and `1,5,7` is a list, which may contain ranges.
    """
    wrong = UsageError(f"--seeds {text}: write a number, as in 10, a range, as in 100..109, or a list, as in 1,5,7")
    seeds: list[int] = []
    for part in [f"0..{int(text) - 1}"] if text.isdecimal() else filter(None, text.split(",")):
        found = re.fullmatch(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found is not None else (0, -1)
        if not first <= last < first + _MOST_SEEDS:
            raise wrong
        seeds += range(first, last + 1)
    if not seeds:
        raise wrong
    return tuple(dict.fromkeys(seeds))


# --- the manifest ----------------------------------------------------------------------------------------------------


def is_sweep(folder: Path) -> bool:
    """Return whether a folder has a manifest."""
    return (folder / MANIFEST).is_file()


def read_plan(folder: Path) -> SweepPlan:
    """Read the manifest of a sweep; raise PathError if it is missing, LogbookError if it is damaged."""
    path = folder / MANIFEST
    try:
        record = read(path, toml_of, _REMEDY, kind="sweep", most=_MOST_BYTES)
    except FileNotFoundError:
        raise PathError(f"{folder} is not a sweep folder (it has no {MANIFEST})") from None
    try:
        return SweepPlan.model_validate({key: value for key, value in record.items() if key != "format"})
    except ValidationError as error:
        raise damaged(path, explain(error), _REMEDY) from None


def add_to_manifest(folder: Path, plan: SweepPlan) -> None:
    """Add the runs of a plan to the manifest of a sweep.

    Raises:
        UsageError: the sweep has other settings, or the same run with another protocol.
        LogbookError: the manifest is damaged, or cannot be written.
    """
    # No password is written into a file.
    hidden = {cell.key: cell.model_copy(update={"llm": redacted(cell.llm)}) for cell in plan.cells}
    known = read_plan(folder) if is_sweep(folder) else plan.model_copy(update={"cells": ()})
    cells = {cell.key: cell for cell in known.cells}
    if known.settings != plan.settings or any(cells.get(key, cell) != cell for key, cell in hidden.items()):
        settings = ", ".join(known.settings) or "none"
        raise UsageError(f"{folder} is a sweep with other settings ({settings}); choose another --out")
    written = SweepPlan(cells=tuple((cells | hidden).values()), settings=plan.settings)
    record = mark("sweep") | written.model_dump(mode="json", exclude_defaults=True)
    write_atomically(folder / MANIFEST, tomli_w.dumps(record))


def cell_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs that have started, in the order of the manifest; see `read_plan`."""
    folders = (folder / cell.key for cell in read_plan(folder).cells)
    return [run for run in folders if (run / "config.toml").is_file()]


def intact(folders: Sequence[Path]) -> list[Path]:
    """Leave out sweeps whose manifest is damaged, with a warning for each; a single folder is returned unchecked."""
    found = []
    for folder in folders:
        try:
            if len(folders) > 1 and is_sweep(folder):
                read_plan(folder)
            found.append(folder)
        except LogbookError as error:
            warnings.warn(f"{folder} is left out: {error}", stacklevel=3)
    return found
