"""Plans of sweeps: products of tasks, models, templates and seeds, their cells, and the manifest file."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from policygen.errors import PathError, UsageError, explain
from policygen.extensions.sweeps.suites import PROTOCOL, find_suite, load_suite
from policygen.files import check_mark, check_name, damaged, find_resource, mark, read_plain, toml_of, write_atomically
from policygen.llm import prompt_folders, reads_prompts
from policygen.tasks.trust import check_id

MANIFEST = "sweep.toml"
# Settings that a grid may not vary: sweeps have options for them, or a file may not choose them.
NOT_VARIED = ("task", "llm", "template", "seed", "base_url", "extra_body")
_REMEDY = "restore it from a copy, or start the sweep again with the same --out: finished runs are kept"
_MOST_BYTES = 16 * 2**20  # of a manifest
_MOST_SEEDS = 100_000


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SweepEntry(_Frozen):
    """A task of a sweep, with the settings and the step limit that its suite states."""

    task: str
    suite: str = ""
    run: dict[str, Any] = {}
    max_steps: int | None = Field(default=None, ge=1)

    @field_validator("run")
    @classmethod
    def _check_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        # A folder may be untrusted, so it must not choose a server that gets a key.
        if other := [name for name in value if name not in PROTOCOL]:
            raise ValueError(f"a suite may not state {other[0]}")
        return value


class Product(_Frozen):
    """The cells that a command requested: every task with every model, template, combination of settings and seed.

    Attributes:
        templates: names of templates; an empty one stands for the default of the kind of policy.
        grid: combinations of settings, each `NAME=VALUE`.
    """

    tasks: tuple[SweepEntry, ...] = Field(min_length=1)
    llms: tuple[str, ...] = Field(min_length=1)
    templates: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    grid: tuple[tuple[str, ...], ...] = Field(default=((),), min_length=1)


class SweepLimits(_Frozen):
    """Spending limits on language models for all runs of a sweep together; None: no limit."""

    max_calls: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_usd: float | None = Field(default=None, ge=0)

    def replaced_by(self, other: SweepLimits) -> SweepLimits:
        """Return these limits, where those that `other` states replace them."""
        return SweepLimits(**{**self.model_dump(), **other.model_dump(exclude_none=True)})


class SweepPlan(_Frozen):
    """A sweep: its products, the settings (`NAME=VALUE`) of all its runs, and its limits."""

    products: tuple[Product, ...] = Field(min_length=1)
    settings: tuple[str, ...] = ()
    limits: SweepLimits = SweepLimits()


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of a sweep; `key` is the name of its folder."""

    key: str
    entry: SweepEntry
    llm: str
    template: str
    seed: int
    settings: tuple[str, ...] = ()

    @property
    def configuration(self) -> str:
        """The task, model, template and settings, joined by commas: everything but the seed."""
        return ", ".join(filter(None, (self.entry.task, self.llm, self.template, *self.settings)))


def product_of(
    names: Sequence[str], llms: Sequence[str], templates: Sequence[str], seeds: Sequence[int], grid: Sequence[str] = ()
) -> Product:
    """Return the product of a command.

    Args:
        names: tasks, suites, and tasks of suites (`SUITE:TASK`); a task that several of them name counts once.
        grid: settings with several values, `NAME=VALUE,VALUE`; the product has all their combinations.

    Raises:
        UsageError: a suite is malformed or lacks the task, or a grid is malformed; also see `check_name`.
    """
    for text in (*names, *llms, *templates):
        check_name(text)
    entries: dict[str, SweepEntry] = {}
    for name in names:
        for entry in _entries(name):
            entries.setdefault(entry.task, entry)
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
    return Product(
        tasks=tuple(entries.values()),
        llms=tuple(dict.fromkeys(llms)) or ("builtin",),
        templates=tuple(dict.fromkeys(templates)) or ("",),
        seeds=tuple(dict.fromkeys(seeds)),
        grid=tuple(itertools.product(*axes)),
    )


def protocols(plan: SweepPlan) -> list[str]:
    """Return a line per suite with the settings that it states and the plan does not: `suite quick: episodes 10`.

    Settings that differ between tasks are only named, with the command that shows them.
    """
    stated = _names(plan.settings)
    suites: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in (entry for product in plan.products for entry in product.tasks if entry.suite):
        brought = {name: value for name, value in entry.run.items() if name not in stated}
        limit = {"max_steps": entry.max_steps} if entry.max_steps is not None else {}
        suites.setdefault(entry.suite, {})[entry.task] = {**brought, **limit}
    lines = []
    for suite, tasks in suites.items():
        common = [pair for pair in next(iter(tasks.values())).items() if all(pair in t.items() for t in tasks.values())]
        words = [", ".join(f"{name} {value}" for name, value in common)] if common else []
        own = dict.fromkeys(name for brought in tasks.values() for name in brought if name not in dict(common))
        words += [f"{' and '.join(own)} task by task (policygen tasks {suite})"] if own else []
        lines += [f"suite {suite}: {'; '.join(words)}"] if words else []
    return lines


def _names(settings: Iterable[str]) -> set[str]:
    """Return the names of settings that are given as `NAME=VALUE`."""
    return {text.partition("=")[0].strip() for text in settings}


def idle_templates(plan: SweepPlan) -> bool:
    """Return whether the plan compares several templates, but no provider reads prompts."""
    return any(len(one.templates) > 1 and not any(map(reads_prompts, one.llms)) for one in plan.products)


def _entries(name: str) -> Iterator[SweepEntry]:
    """Yield the tasks of a suite or of `SUITE:TASK`, or else the task of that name."""
    first, _, task = name.partition(":")
    if find_suite(name) is not None:
        first, task = name, ""
    elif not task or find_suite(first) is None:
        yield SweepEntry(task=name)
        return
    suite = load_suite(first)
    if task and task not in suite.tasks:
        raise UsageError(f"{name}: suite {suite.name} has no task `{task}`; it has {', '.join(suite.tasks)}")
    for one in (task,) if task else suite.tasks:
        run = {**suite.run, "policy": suite.policy[one]} if one in suite.policy else suite.run
        yield SweepEntry(task=one, suite=suite.name, run=run, max_steps=suite.max_steps.get(one))


def read_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of a text; raise UsageError if it has none of these forms.

    `10` means 0 to 9, `100..109` includes both ends, `1,5,7` is a list, also of ranges.
    """
    wrong = UsageError(f"--seeds {text}: write a number, as in 10, a range, as in 100..109, or a list, as in 1,5,7")
    if text.isdecimal():
        if not 1 <= int(text) <= _MOST_SEEDS:
            raise UsageError(f"--seeds {text}: give at least one and at most {_MOST_SEEDS:,} seeds")
        return tuple(range(int(text)))
    seeds: list[int] = []
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?", part)
        if found is None:
            raise wrong
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MOST_SEEDS:
            raise wrong
        seeds += range(first, last + 1)
    if not seeds:
        raise wrong
    return tuple(dict.fromkeys(seeds))


def cells_of(plan: SweepPlan) -> list[Cell]:
    """Return all cells, each once, in the order of the products and, in a product, of the seeds.

    Raises UsageError if two products have the same cell with different protocols.
    """
    found: dict[str, Cell] = {}
    for product in plan.products:
        axes = (product.seeds, product.llms, product.templates, product.grid, product.tasks)
        for seed, llm, template, settings, entry in itertools.product(*axes):
            cell = Cell(_key((entry.task, llm, template, *settings), seed), entry, llm, template, seed, settings)
            earlier = found.setdefault(cell.key, cell).entry
            if (earlier.run, earlier.max_steps) != (entry.run, entry.max_steps):
                has, wanted = (
                    f"the settings of suite {one.suite}" if one.suite else "its own settings"
                    for one in (earlier, entry)
                )
                raise UsageError(
                    f"the sweep has {entry.task} with {has} already, not with {wanted}; choose another --out"
                )
    return list(found.values())


def by_configuration(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each configuration, which differ only in their seeds."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.configuration, []).append(cell)
    return rows


def _key(words: Sequence[str], seed: int) -> str:
    """Return a readable and unique folder name for a cell; `words` are its task, model, template and settings."""
    task, llm, *others = words
    parts = [task, llm.replace(":", "-", 1), *filter(None, others)]
    plain = [re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("._-")[:60] for part in parts]
    if plain != parts:  # some characters were replaced, so a digest makes the name unique
        plain.append(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:6])
    return "-".join([*filter(None, plain), f"s{seed}"])


def check_trusted(plan: SweepPlan, typed: SweepPlan | None, folder: Path) -> None:
    """Raise UsageError for modules to import, and folders to write prompts into, that the user has not typed.

    A suite file or the manifest in `folder` may name them, but may come from someone else. `typed` is the plan of the
    command line, if there is one.
    """
    products = typed.products if typed is not None else ()
    tasks = {entry.task for product in products for entry in product.tasks if not entry.suite}
    llms = {llm for product in products for llm in product.llms}
    for product in plan.products:
        for entry in product.tasks:
            if entry.task not in tasks and find_resource("envs", entry.task, ".toml") is None:
                check_id(entry.task, f"suite {entry.suite}" if entry.suite else str(folder / MANIFEST))
        for llm in product.llms:
            if llm not in llms and (into := prompt_folders(llm)):
                # Any other spelling, such as `MANUAL: DIR`, disguises the provider: do not suggest to trust it.
                remedy = "if you trust it, add --trust" if llm == f"manual:{into[0]}" else "do not use this manifest"
                raise UsageError(
                    f"{folder / MANIFEST} would write prompts into {into[0]}: a file may not choose where; {remedy}"
                )


# --- the manifest ----------------------------------------------------------------------------------------------------


def is_sweep(folder: Path) -> bool:
    """Return whether a folder has a manifest."""
    return (folder / MANIFEST).is_file()


def read_plan(folder: Path) -> SweepPlan:
    """Read the manifest of a sweep; raise PathError if it is missing, LogbookError if it is damaged."""
    path = folder / MANIFEST
    try:
        record = toml_of(read_plain(path, _MOST_BYTES))
    except FileNotFoundError:
        raise PathError(f"{folder} is not a sweep folder (it has no {MANIFEST})") from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, error, _REMEDY) from None
    check_mark(record, path, "sweep", _REMEDY)
    try:
        plan = SweepPlan.model_validate({key: value for key, value in record.items() if key != "format"})
    except ValidationError as error:
        raise damaged(path, explain(error), _REMEDY) from None
    # Runs treat settings as typed by the user. A sweep never writes the names below, so the file was changed.
    varied = _names(text for product in plan.products for one in product.grid for text in one)
    if wrong := _names(plan.settings) & {"base_url", "llm", "task"} | varied & {*NOT_VARIED}:
        raise damaged(path, f"its settings state {min(wrong)}, which no sweep writes there", _REMEDY)
    return plan


def write_plan(folder: Path, plan: SweepPlan) -> None:
    """Write the manifest; raise LogbookError if it cannot be written."""
    record = mark("sweep") | plan.model_dump(mode="json", exclude_none=True)
    write_atomically(folder / MANIFEST, tomli_w.dumps(record))


def extend(plan: SweepPlan, requested: SweepPlan, folder: Path) -> SweepPlan:
    """Return `plan` with the products of `requested` added, and with the limits that `requested` states.

    Raises UsageError if the two plans have different settings.
    """
    if set(plan.settings) != set(requested.settings):
        raise UsageError(
            f"{folder} is a sweep with other settings ({', '.join(plan.settings) or 'none'}); choose another --out"
        )
    new = () if requested.products[0] in plan.products else requested.products
    limits = plan.limits.replaced_by(requested.limits)
    return SweepPlan(products=(*plan.products, *new), settings=plan.settings, limits=limits)


def cell_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs that have started, in the order of the sweep's cells; see `read_plan`."""
    keys = [cell.key for cell in cells_of(read_plan(folder))]
    return [folder / key for key in keys if (folder / key / "config.toml").is_file()]
