"""The settings of a run: an immutable record, merged from the task file, config file, `--set` and options."""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)

from policygen.errors import UsageError, explain
from policygen.files import read, toml_of
from policygen.llm import LLMOptions, reads_prompts
from policygen.llm.base import MOST_SECONDS, SENSITIVE
from policygen.outgoing import redacted
from policygen.runs.methods import METHODS, Refinement, read_refinement
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.task import PolicyKind, Task

# Larger numbers, from an untrusted file or a typing error, would exhaust memory or processes.
MOST_EPISODES = 1_000_000
_MOST_PROCESSES = 1_024
LARGEST_SEED = 2**63 - 1


class _Settings(BaseModel):
    """Settings with descriptions; `title` is the placeholder for a value, as in `--refine METHOD[:EPISODES]`.

    Lists of settings add the default to a description, unless it ends in a bracket.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class SearchSettings(_Settings):
    """The settings of the search: task, model, kind of policy, and length."""

    task: str = Field(description="task name, task file or Gymnasium id")
    llm: str = Field(
        "builtin",
        title="SPEC",
        description="PROVIDER:MODEL[@URL]; `policygen doctor` lists providers (builtin)",
    )
    policy: Annotated[PolicyKind, BeforeValidator(lambda kind: "linear" if kind == "equations" else kind)] = Field(
        "table", title="[table|equations]", description="kind of policy (the task's default)"
    )
    iterations: int = Field(20, ge=1, description="number of attempts, each with a new proposal")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of every random draw")
    stop_at: float | None = Field(
        None, ge=-math.inf, description="mean return at which the run stops (the known optimum)"
    )
    patience: int | None = Field(None, ge=1, description="stop after this many attempts without a new best")
    refine: Annotated[Refinement, PlainValidator(read_refinement), PlainSerializer(str)] = Field(
        Refinement(),
        title="METHOD[:EPISODES]",
        description="tuning of proposals: auto, cma, model; tables: coordinate, q, ...",
    )
    memory: bool = Field(False, description="let builtin's equations use a clock and integrals")


class EpisodeSettings(_Settings):
    """The settings of playing, counting and keeping episodes."""

    episodes: int = Field(
        20, ge=2, le=MOST_EPISODES, description="episodes per score while searching (20; up to 400 if short)"
    )
    warmup_episodes: int = Field(
        20, ge=0, le=MOST_EPISODES, description="episodes of random actions before the first prompt"
    )
    final_episodes: int | None = Field(
        None, ge=2, le=MOST_EPISODES, description="fresh episodes for the final score (100; up to 2,000 if short)"
    )
    jobs: int | None = Field(None, ge=1, le=_MOST_PROCESSES, description="processes that play episodes (all cores)")
    fragility: bool = Field(True, description="the best policy's score under delay and sensor noise")
    step_timeout: float = Field(
        STEP_TIMEOUT, ge=0.001, le=MOST_SECONDS, description="seconds that one step of the environment may take"
    )


class PromptSettings(_Settings):
    """The settings of prompts and replies."""

    conversation: Literal["fresh", "continued"] = Field("fresh", description="whether a prompt carries earlier turns")
    episodes_shown: bool = Field(True, description="episodes, and statistics of their steps, from prompts")
    repairs: int = Field(2, ge=0, le=10, description="maximum repair requests per malformed reply")
    template: str | None = Field(None, title="NAME|PATH", description="prompt template (improve)")
    start: str | None = Field(
        None,
        title="RUN|POLICY_FILE",
        max_length=400_000,
        description="policy to start from; a config file holds its text",
    )
    shape: bool = Field(False, description="ask the model for the objective that tuning maximises; report its terms")
    ablate: Literal["nothing", "knowledge"] = Field("nothing", description="knowledge: withhold hints, names and units")
    grid: Literal["free", "fixed"] = Field("free", description="whether a reply may choose its own bins")
    prompt_tokens: int = Field(6_000, ge=500, description="maximum tokens of a prompt, estimated")


class Budgets(_Settings):
    """The limits of a run; None is no limit."""

    max_calls: int | None = Field(None, ge=0, description="limit on requests, including failures and repairs")
    max_tokens: int | None = Field(None, ge=1, description="limit on tokens, in and out")
    max_usd: float | None = Field(None, ge=0, description="limit on US dollars, if the price is known")
    max_episodes: int | None = Field(None, ge=1, description="limit on episodes before the final score")
    max_steps: int | None = Field(
        None,
        ge=1,
        description="limit on environment steps before the final score, loading included",
    )


class RunConfig(Budgets, LLMOptions, PromptSettings, EpisodeSettings, SearchSettings):
    """The settings of one run. Every field can be given by `--set NAME=VALUE`, a config file or the task's `[run]`."""

    @property
    def keeps_every_episode(self) -> bool:
        """Whether episodes are saved with each attempt, because tuning reads them or replaying them costs steps."""
        return self.max_steps is not None or self.refine.most_episodes is not None


def effective_config(
    task: Task,
    name: str,
    *,
    base: RunConfig | None = None,
    suite: Mapping[str, Any] | None = None,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the settings of a run, by descending priority from: options, `--set`, config file, suite, task.

    Args:
        base: settings of an earlier run, used instead of the task's.
        suite: the settings of the suite that the task belongs to.

    Raises UsageError for an unknown key, a value out of range, or settings that contradict each other; the message
    names the source.
    """
    merged: dict[str, Any] = {"task": name, "policy": task.default_policy}
    origins: dict[str, str] = {}

    def take(settings: Mapping[str, Any], source: str, origin: str = "") -> None:
        _merge(merged, settings, source)
        origins.update(dict.fromkeys((one for one in SENSITIVE if one in settings), origin))

    if base is not None:
        merged = base.model_dump(exclude_none=True)
        origins = {one: base.origin(one) for one in SENSITIVE}
    else:
        where = f"{name}: " if name.endswith(".toml") else ""
        take(dict(task.run), f"{where}task {task.name}, [run]", f"the [run] table of {name}")
    take(suite or {}, "the suite", "the [run] table of the suite")
    if file is not None:
        take(read(file, toml_of, named=UsageError), file.name, str(file))
    take(dict(map(read_assignment, assignments)), "--set")
    take({key: value for key, value in (options or {}).items() if value is not None}, "the options")
    config = RunConfig(**merged)
    for setting, origin in origins.items():
        config = config.chosen_by(origin, setting)
    if config.memory and (config.policy != "linear" or reads_prompts(config.llm)):
        raise UsageError(
            "--memory is for the equations of builtin; a language model writes `prev(...)` where it needs memory"
        )
    if config.shape and config.refine.method is None:
        raise UsageError(
            "--shape asks for objectives to tune for: add --refine cma:1000, or --refine q:1000 for tables"
        )
    if config.refine.for_tables and config.policy == "linear":
        others = ", ".join(name for name, method in METHODS.items() if not method.for_tables)
        raise UsageError(f"--refine {config.refine} is for tables; equations are tuned by {others} or auto")
    return config


class LoadLimits(TypedDict):
    """The settings that limit the loading of a task; see `load_task`."""

    step_timeout: float
    max_steps: int | None


def load_limits(file: Path | None, assignments: Sequence[str], options: Mapping[str, Any]) -> LoadLimits:
    """Return these settings before the task is known; a wrong value, which is reported later, counts as the default.

    Raises UsageError if the file cannot be read.
    """
    found = read(file, toml_of, named=UsageError) if file is not None else {}
    stated = {**found, **dict(map(read_assignment, assignments)), **options}
    given = {name: stated[name] for name in LoadLimits.__annotations__ if name in stated}
    try:
        config = RunConfig(**({"task": ""} | given))
    except ValidationError:
        config = RunConfig(task="")
    return LoadLimits(step_timeout=config.step_timeout, max_steps=config.max_steps)


# Settings that a resumed run may change, because no score depends on them.
CHANGEABLE = ("prompt_tokens", "jobs", "base_url", "timeout_seconds", "step_timeout")
# Settings that a resumed run may state again but not change; this confirms a value from an untrusted file.
_REPEATABLE = ("llm", "extra_body")
# Settings that a resumed run may increase.
BUDGETS = ("iterations", "patience", "max_calls", "max_tokens", "max_usd", "max_episodes", "max_steps")


def changed_config(task: Task, config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a resumed run.

    Raises UsageError for a change of a setting that is not `CHANGEABLE`, a value out of range, or a smaller budget.
    """
    fixed = sorted(changes.keys() - {*CHANGEABLE, *BUDGETS, *_REPEATABLE})
    if fixed:
        raise UsageError(
            f"--set {fixed[0]}: a resumed run can only change {', '.join(CHANGEABLE)}, or increase {', '.join(BUDGETS)}"
        )
    if redacted(str(changes.get("llm", config.llm))) != redacted(config.llm):
        raise UsageError(f"--llm {changes['llm']}: the run uses {config.llm}, which cannot change")
    if changes.get("extra_body", config.extra_body) != config.extra_body:
        raise UsageError("--set extra_body: the run uses other request fields, which cannot change")
    changed = effective_config(task, config.task, base=config, options=changes)
    for name in BUDGETS:
        before, now = getattr(config, name), getattr(changed, name)
        if now is not None and (before is None or now < before):
            state = (
                "has no such limit, and cannot get one" if before is None else f"has {before:.10g} and cannot get less"
            )
            raise UsageError(f"--set {name}={now:.10g}: the run {state}")
    return changed


def _merge(merged: dict[str, Any], new: Mapping[str, Any], source: str) -> None:
    for key in new:
        if key not in RunConfig.model_fields:
            near = difflib.get_close_matches(key, RunConfig.model_fields, n=1)
            meant = (
                f"; did you mean `{near[0]}`?" if near else f"; the settings are {', '.join(RunConfig.model_fields)}"
            )
            raise UsageError(f"{source}: there is no setting `{key}`{meant}")
    if new.get("task", merged["task"]) != merged["task"]:
        raise UsageError(f"{source}: these settings are for task `{new['task']}`, but the task is `{merged['task']}`")
    merged.update(new)
    try:
        RunConfig(**merged)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors() if problem["loc"]} & new.keys()
        stated = ", ".join(f"`{key} = {new[key]!r:.60}`" for key in new if key in wrong and source.endswith("[run]"))
        raise UsageError(f"{source}: {f'{stated}: ' * bool(stated)}{explain(error)}") from None


def read_assignment(text: str) -> tuple[str, Any]:
    """Read the `NAME=VALUE` of a `--set` option: the value is TOML, a JSON object, or else a text.

    Raises UsageError if there is no `=`.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: write --set NAME=VALUE")
    with suppress(ValueError, RecursionError):
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    with suppress(ValueError, RecursionError):
        if value.lstrip().startswith("{"):
            return key.strip(), json.loads(value)
    return key.strip(), value.strip()
