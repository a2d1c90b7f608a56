"""Suites: `envs/suites/*.toml`, several tasks with one protocol and published scores."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from policygen.errors import UsageError, explain
from policygen.files import find_resource, list_resources, read_toml
from policygen.runs.config import RunConfig
from policygen.tasks.task import PolicyKind

FOLDER = "envs/suites"

# Settings of a run that a suite may state: kind of policy, length of the search, episodes. The user chooses the
# model and the server.
PROTOCOL = (
    "policy",
    *("iterations", "candidates", "episodes", "warmup_episodes", "final_episodes"),
    *("max_episodes", "max_calls", "patience", "repairs", "stop_at", "refine"),
)


@dataclass(frozen=True, slots=True)
class Published:
    """The published scores of a method: a column of a table.

    Attributes:
        source: the publication, and what its figures average.
        runs: number of runs per mean; None if the source does not say.
        scores: by task the mean and the standard deviation over runs; the deviation is None if unknown.
    """

    name: str
    source: str
    runs: int | None
    scores: Mapping[str, tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Suite:
    """Tasks that are run and reported together.

    Attributes:
        tasks: names of tasks, or Gymnasium ids.
        run: settings of every run; they override task files, and the user overrides them.
        max_steps: published step limits by task; they override task files.
        policy: published kinds of policy by task; they override task files.
        published: columns to show beside ours.
    """

    name: str
    about: str
    tasks: tuple[str, ...]
    run: Mapping[str, Any] = field(default_factory=dict)
    max_steps: Mapping[str, int] = field(default_factory=dict)
    policy: Mapping[str, PolicyKind] = field(default_factory=dict)
    published: tuple[Published, ...] = ()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Score(_Strict):
    mean: float = Field(allow_inf_nan=False)
    std: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _of_numbers(cls, value: Any) -> Any:
        numbers = [value] if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(numbers, list) or not 1 <= len(numbers) <= 2:
            raise ValueError("write a mean, or [mean, standard deviation]")
        return dict(zip(("mean", "std"), numbers, strict=False))


class _PublishedEntry(_Strict):
    name: str = Field(min_length=1)
    source: str = Field(min_length=1)
    runs: int | None = Field(default=None, ge=1)
    scores: dict[str, _Score] = Field(min_length=1)


class _SuiteFile(_Strict):
    """The keys of `envs/suites/*.toml`."""

    name: str
    about: str = ""
    tasks: list[str] = Field(min_length=1)
    run: dict[str, Any] = {}
    max_steps: dict[str, int] = {}
    policy: dict[str, PolicyKind] = {}
    published: list[_PublishedEntry] = []


def list_suites() -> dict[str, Path]:
    """Find all suites, by name."""
    return list_resources(FOLDER, ".toml")


def find_suite(name: str) -> Path | None:
    """Return the file of a suite, given as a bare name or a path into a folder `suites`; None if it does not exist."""
    path = find_resource(FOLDER, name, ".toml")
    return path if path is not None and path.absolute().parent.name == "suites" else None


def load_suite(name: str) -> Suite:
    """Load a suite.

    Raises:
        UsageError: it does not exist or its file is malformed; the message gives the remedy.
    """
    path = find_suite(name)
    if path is None:
        known = sorted(list_suites())
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"there is no suite `{name}`; {meant}")
    return suite_from_file(path)


def published_columns() -> dict[str, tuple[Published, ...]]:
    """Return the published columns of every suite that has some; malformed suites are skipped."""
    found = {}
    for name, path in sorted(list_suites().items()):
        with suppress(UsageError):
            found[name] = suite_from_file(path).published
    return {name: columns for name, columns in found.items() if columns}


def suite_from_file(path: Path) -> Suite:
    """Read a suite file; its tasks are looked up later.

    Raises:
        UsageError: it is malformed; the message says where.
    """
    try:
        stated = _SuiteFile.model_validate(read_toml(path))
    except UsageError as error:
        raise UsageError(f"suite {error}") from None
    except ValidationError as error:
        raise UsageError(f"suite {path.name}: {explain(error, _SuiteFile.model_fields)}") from None
    _check(stated, path)
    published = tuple(
        Published(e.name, e.source, e.runs, {task: (score.mean, score.std) for task, score in e.scores.items()})
        for e in stated.published
    )
    return Suite(
        stated.name, stated.about.strip(), tuple(stated.tasks), stated.run, stated.max_steps, stated.policy, published
    )


def _check(stated: _SuiteFile, path: Path) -> None:
    where = f"suite {path.name}"
    if stated.name != path.stem or not re.fullmatch(r"[\w.-]+", stated.name):
        raise UsageError(f"{where}: `name` is `{stated.name}`; it must be the name of the file, `{path.stem}`")
    twice = [task for i, task in enumerate(stated.tasks) if task in stated.tasks[:i]]
    if twice:
        raise UsageError(f"{where}: `tasks` names {twice[0]} twice")
    for key in stated.run:
        if key not in PROTOCOL:
            raise UsageError(f"{where}: `run.{key}`: a suite may state only {', '.join(PROTOCOL)}")
    try:
        RunConfig(task=stated.name, **stated.run)
    except ValidationError as error:
        raise UsageError(f"{where}: `run`: {explain(error)}") from None
    except UsageError as error:
        raise UsageError(f"{where}: `run`: {error}") from None
    for task, steps in stated.max_steps.items():
        if steps < 1:
            raise UsageError(f"{where}: `max_steps.{task}` is {steps}; it must be at least 1")
    named = [(f"published.{entry.name}.scores", task) for entry in stated.published for task in entry.scores]
    for place, task in (
        *(("max_steps", task) for task in stated.max_steps),
        *(("policy", task) for task in stated.policy),
        *named,
    ):
        if task not in stated.tasks:
            raise UsageError(
                f"{where}: `{place}` names {task}, which is not one of its tasks: {', '.join(stated.tasks)}"
            )
    names = [entry.name for entry in stated.published]
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: two published columns are called {max(names, key=names.count)}")


def suite_line(name: str) -> str:
    """Describe a suite on one line: its tasks, and the published methods."""
    try:
        suite = load_suite(name)
        published = f"; published: {', '.join(column.name for column in suite.published)}" if suite.published else ""
        return f"{name}: {', '.join(suite.tasks)}{published}"
    except UsageError as error:
        return f"{name}: {error}"


def describe_suite(name: str) -> str:
    """Describe a suite in full, in plain text."""
    suite = load_suite(name)
    lines = [f"{suite.name}: a suite of {len(suite.tasks)} tasks", "", suite.about, ""]
    lines.append(f"tasks: {', '.join(suite.tasks)}")
    lines += [f"{key} = {value}" for key, value in suite.run.items()]
    lines += [f"at most {steps} steps an episode: {task}" for task, steps in suite.max_steps.items()]
    for column in suite.published:
        scores = [f"{task} {m:g}{f' ± {std:g}' if std is not None else ''}" for task, (m, std) in column.scores.items()]
        lines.append(f"published, {column.name} ({column.source}): {', '.join(scores)}")
    return "\n".join(lines)
