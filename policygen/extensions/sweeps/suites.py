"""Suites: tasks that are run with the same settings, and their published scores; the files are `envs/suites/*.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass

from policygen.errors import UsageError, explain
from policygen.files import find_resource, list_resources, read, toml_of
from policygen.runs.config import RunConfig
from policygen.tasks.task import PolicyKind

FOLDER = "envs/suites"

# Settings that a suite may state: kind of policy, length of the search, episodes. Only the user chooses the model and
# the server.
PROTOCOL = (
    "policy",
    *("iterations", "episodes", "warmup_episodes", "final_episodes"),
    *("max_episodes", "max_calls", "patience", "repairs", "stop_at", "refine"),
)


class _PublishedScore(NamedTuple):
    mean: Annotated[float, Field(allow_inf_nan=False)]
    std: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None


def _by_name(value: Any) -> Any:
    """Convert a mean, or `[mean, standard deviation]`, to a dictionary, so that errors name the wrong number."""
    numbers = [value] if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(numbers, list | tuple) or not 1 <= len(numbers) <= 2:
        raise ValueError("write a mean, or [mean, standard deviation]")
    return dict(zip(("mean", "std"), numbers, strict=False))


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class PublishedColumn:
    """The published scores of a method: a column of a table.

    Attributes:
        source: the publication, and the runs or episodes over which its figures are means.
        runs: number of runs per mean; None if the source does not say.
        scores: for each task, the mean and the standard deviation over runs; None for an unknown deviation.
    """

    name: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    runs: Annotated[int, Field(ge=1)] | None = None
    scores: dict[str, Annotated[_PublishedScore, BeforeValidator(_by_name)]] = Field(
        default_factory=dict, min_length=1, validate_default=True
    )


class Suite(BaseModel):
    """Tasks that are run and reported together: the keys of `envs/suites/*.toml`.

    Attributes:
        tasks: names of tasks, or Gymnasium ids.
        run: settings of every run. They replace those of task files, and the user's replace them.
        policy: the published kind of policy of a task, instead of that in its file.
        published: the columns shown beside the runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    """Return the file of a suite, given as a bare name or a path into a folder `suites`; None if it does not exist."""
    path = find_resource(FOLDER, name, ".toml")
    return path if path is not None and path.absolute().parent.name == "suites" else None


def load_suite(name: str) -> Suite:
    """Load a suite, given as for `find_suite`; raise UsageError if it does not exist or its file is malformed."""
    path = find_suite(name)
    if path is None:
        raise UsageError(f"there is no suite `{name}`; choose one of {', '.join(sorted(list_suites()))}")
    return suite_from_file(path)


def suite_from_file(path: Path) -> Suite:
    """Read a suite file; raise UsageError if it is malformed. Whether the tasks exist is not checked."""
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
    """Return the fault of a suite whose file has this name; empty if there is none."""
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
    named: dict[str, Mapping[str, Any]] = {"policy": suite.policy}
    named |= {f"published.{column.name}.scores": column.scores for column in suite.published}
    for place, tasks in named.items():
        if others := tasks.keys() - set(suite.tasks):
            return f"`{place}` names {min(others)}, which is not one of its tasks: {', '.join(suite.tasks)}"
    columns = [column.name for column in suite.published]
    if len(set(columns)) < len(columns):
        return f"two published columns are called {max(columns, key=columns.count)}"
    return ""


def suite_line(name: str) -> str:
    """Return a line about a suite: its tasks and the published methods, or the fault of its file."""
    try:
        suite = load_suite(name)
        published = f"; published: {', '.join(column.name for column in suite.published)}" if suite.published else ""
        return f"{name}: {', '.join(suite.tasks)}{published}"
    except UsageError as error:
        return f"{name}: {error}"
