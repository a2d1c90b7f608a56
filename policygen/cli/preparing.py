"""Commands that prepare runs: `new`, `tasks`, `prompt`, `doctor` and `templates`."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.errors import TaskError, UsageError
from policygen.files import check_name, list_resources, make_folder, write_atomically
from policygen.outgoing import in_columns

if TYPE_CHECKING:
    from policygen.runs.config import RunConfig
    from policygen.tasks.task import Task


@click.command(cls=opt.WithSettings, only=(*opt.REQUESTS, "max_calls", "max_tokens"))
@click.argument("gym_id", metavar="[MODULE:]ENV")
@click.option("-o", "--output", type=opt.PATH, help="File (default: envs/NAME.toml).")
@click.option(
    "--kwarg", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument of the environment; may be repeated."
)
@click.option("--llm", metavar="SPEC", help="Model that names the quantities and describes the task; see `doctor`.")
@opt.assignment("Setting of every run, written to the [run] table of the file; may be repeated.")
def new(
    gym_id: str,
    output: Path | None,
    arguments: tuple[str, ...],
    llm: str | None,
    assignments: tuple[str, ...],
    **options: Any,
) -> None:
    """Write a task file for an environment of your own, ready to edit.

    The command prints what it found and what it assumed.

    ENV is an id that MODULE registers, or a class or function in it that makes the environment. MODULE is a file in the
    working directory (`room` for `room.py`) or an installed package:

    \b
      policygen new room:RoomEnv --kwarg outside=5.0
      policygen run envs/room.toml --trust

    `policygen run room:RoomEnv` works without a file. In the file you can edit the names, units and descriptions of
    observations and actions, bins, features and hints. With --trust, it may name a module to import, and files to read.
    With --llm, requests and replies are kept beside the file, in NAME.transcript.jsonl; the settings below are for
    them.
    """
    from policygen.runs.config import effective_config, load_limits, read_assignment
    from policygen.tasks.load import harvested_file, load_task, task_from_gym
    from policygen.tasks.taskfile import file_to_edit
    from policygen.tasks.trust import why_refused

    if wrong := [text for text in arguments if "=" not in text or not text.partition("=")[0].isidentifier()]:
        raise UsageError(f"--kwarg {wrong[0]}: write --kwarg NAME=VALUE")
    limit = load_limits(None, assignments, {})["step_timeout"]
    if not arguments and harvested_file(check_name(gym_id)) is not None:
        task = load_task(gym_id, step_timeout=limit)
    else:
        task = task_from_gym(check_name(gym_id), limit, kwargs=dict(map(read_assignment, arguments)))
    effective_config(task, gym_id, assignments=assignments)
    task = replace(task, run=tuple({**dict(task.run), **dict(map(read_assignment, assignments))}.items()))
    path = output or Path("envs") / f"{task.name}.toml"
    if path.suffix != ".toml":
        raise UsageError(f"a task file ends in .toml: -o {path.with_suffix('.toml')}")
    if path.exists():
        raise UsageError(f"{path} exists already; move it, or name another file with -o")
    if llm is not None:
        make_folder(path.parent, "choose another -o")
        config = effective_config(task, gym_id, assignments=assignments, options={**opt.settings(options), "llm": llm})
        task = _described(task, config, path.with_suffix(".transcript.jsonl"), limit)
    text = file_to_edit(task)
    make_folder(path.parent, "choose another -o")
    write_atomically(path, text)
    say(f"observations: {', '.join((*task.observation_names, *task.text_names))}")
    say(f"actions: {', '.join(actuator.name for actuator in task.actuators)}")
    for sentence in task.assumed:
        say(f"  assumed: {sentence}")
    words = shlex.join([str(path), *["--trust"] * bool(why_refused(replace(task, untrusted=str(path))))])
    say(f"wrote {path}\nedit it, check it with: policygen tasks {words}; then: policygen run {words}")


def _described(task: Task, config: RunConfig, file: Path, step_timeout: float) -> Task:
    """Return the task as a model describes it; if no reply can be used, print why and return the task as it is.

    Args:
        file: where requests and replies are recorded.
    """
    from policygen.llm import connect
    from policygen.llm.store import Transcript
    from policygen.proposers.drafter import described_by
    from policygen.runs.budget import Ledger
    from policygen.runs.request_log import RequestLog

    provider = connect(config.llm, config)
    if not provider.is_language_model:
        raise UsageError(f"--llm {config.llm} is no language model; leave --llm out to name the quantities yourself")
    transcript = Transcript(file)
    log = RequestLog(Ledger(config), on_exchange=transcript.record, on_sent=transcript.record_sent)
    draft = described_by(provider, task, log, step_timeout)
    count = len(draft.replies)
    if draft.problems:
        say(f"{provider.spec}: none of {count} replies could be read; problems of the last one:", err=True)
        for problem in draft.problems:
            say(f"  {problem}", err=True)
    else:
        say(f"described by {provider.spec} in {count} repl{'y' if count == 1 else 'ies'}: check the names")
    return draft.task


@click.command()
@click.argument("name", required=False)
@opt.TRUST
def tasks(name: str | None, trust: bool) -> None:
    """List tasks and suites, or describe a task: NAME, a task file, or a Gymnasium id."""
    say(describe_task(name, trust=trust) if name else list_tasks())


def list_tasks() -> str:
    """Return one line per task file and per suite."""
    from policygen.tasks.load import load_task
    from policygen.tasks.task import KIND_WORDS

    rows: list[tuple[str, ...]] = [("task", "environment", "policy", "cells", "solved at")]
    for name in sorted(list_resources("envs", ".toml")):
        try:
            task = load_task(name)
        except TaskError as error:
            rows.append((name, str(error)))
            continue
        cells = str(task.grid.size) if task.grid is not None else "-"
        solved = f"{task.solved:g}" if task.solved is not None else "-"
        rows.append((name, task.gym_id, KIND_WORDS[task.default_policy], cells, solved))
    lines = in_columns(rows)
    lines += ["", "Any Gymnasium id works too: policygen run Blackjack-v1"]
    if opt.installed("sweeps"):
        from policygen.extensions.sweeps.plan import list_suites, suite_line

        lines += ["", "Suites for policygen sweep:", *map(suite_line, sorted(list_suites()))]
    return "\n".join(lines)


def describe_task(name: str, *, trust: bool = False) -> str:
    """Return the description of a task in plain text."""
    from policygen.runs.config import effective_config
    from policygen.runs.facts import task_facts
    from policygen.search.prepare import with_optimum
    from policygen.tasks.load import load_task

    task = with_optimum(load_task(name, trust=trust))
    effective_config(task, name)  # raises for invalid settings in its [run]
    lines = [f"{task.name}: {task.environment_words}", "", *([task.about, ""] if task.about else [])]
    lines += [f"{one.name}: {'; '.join(filter(None, (one.short, one.basis)))}" for one in task_facts(task)]
    if task.grid is not None:
        units = {one.name: f" [{one.unit}]" for one in task.observations if one.unit}
        for d in task.grid.dimensions:
            bins = "; ".join(f"{i} = {d.label(i)}" for i in range(d.bins))
            lines.append(f"bins of {d.name}{units.get(d.name, '')}: {bins}")
    lines.append(f"outputs of equations: {', '.join(task.output_names)}")
    length = f" of {task.step_seconds:g} s" if task.step_seconds is not None else ""
    lines += [f"episode: at most {task.max_steps} steps{length}", f"discount: {task.discount:g} (used only by builtin)"]
    if task.solved is not None:
        lines.append(f"counts as solved at a mean return of {task.solved:g} or more")
    if task.optimum is not None:
        lines.append(f"best known: {task.optimum.value:g} ({task.optimum.source})")
    for one in task.requirements:
        limit = f"at most {100 * one.allowed:g}% of episodes may violate it" if one.hard else "soft"
        lines.append(f"requirement {one.name}: {one} ({limit})")
    lines += [f"perturbed: {one.described}" for one in task.perturb]
    lines += [f"fact: {fact}" for fact in task.facts]
    lines += [f"hint: {hint}" for hint in task.hints]
    lines += [f"assumed: {sentence}" for sentence in task.assumed]
    return "\n".join(lines)


@click.command(cls=opt.WithSettings, without=("start",))
@click.argument("task", metavar="TASK|RUN")
@opt.CONFIG
@opt.TRUST
def prompt(task: str, config_file: Path | None, assignments: tuple[str, ...], trust: bool, **options: Any) -> None:
    """Print the prompt that a model would get: the first one of TASK, or the next one of RUN."""
    from policygen.search.resume import preview

    shown, remark = preview(task, config_file, assignments, opt.settings(options), trust=trust)
    for message in shown.messages:
        say(f"--- {message.role} ---\n{message.content}")
    say(remark, err=True)


@click.command(cls=opt.WithSettings, only=("base_url",))
@click.option("--llm", help="Provider and model to check; without it, all providers are listed.")
def doctor(llm: str | None, base_url: str | None) -> None:
    """Check the key, the server and the limits of a model."""
    from policygen.llm import PROVIDERS, LLMOptions, connect

    if llm is None:
        for line in in_columns([(name, entry.help) for name, entry in PROVIDERS.items()]):
            say(line)
        say("\nTry one with: policygen doctor --llm openai:gpt-5-mini")
        return
    provider = connect(llm, LLMOptions(base_url=base_url))
    opt.say_key(provider, indent="")
    diagnosis = provider.diagnose()
    for line in diagnosis.lines:
        say(line)
    if not diagnosis.ok:
        raise SystemExit(1)


# --- templates -------------------------------------------------------------------------------------------------------


@click.group(invoke_without_command=True)
@click.pass_context
def templates(context: click.Context) -> None:
    """List the templates that prompts are rendered from; show or copy one.

    A copy in ./templates replaces the shipped template of its name; `policygen prompt TASK` shows the result.
    """
    from policygen.prompts.templates import catalogue

    if context.invoked_subcommand is not None:
        return
    for line in in_columns(catalogue()):
        say(line)
    change = "policygen templates copy improve --as mine; edit templates/mine.j2; add --template mine to a run"
    say(f"\nTo change one: {change}")


@templates.command("show")
@click.argument("name")
@click.option("--variables", is_flag=True, help="Print its variables instead, each with its type and an example.")
def show_template(name: str, variables: bool) -> None:
    """Print template NAME as runs here use it."""
    from policygen.prompts.templates import text_of, used_templates

    if variables:
        read, others = _variables(name)
        for line in in_columns(read):
            say(line)
        if others:
            say(f"(also available, but not used here: {', '.join(others)})", err=True)
        return
    say(text_of(name).rstrip("\n"))
    if parts := list(used_templates([name]))[1:]:
        say(f"(it uses {', '.join(parts)})", err=True)


def _variables(name: str) -> tuple[list[list[str]], list[str]]:
    """Return path, type and example of each variable that a template and its parts read, and the names of the others.

    A template of the user's own gets those of `improve`.
    """
    from policygen.prompts.templates import used_templates, variables_of

    texts = list(used_templates([name]).values())
    rows: dict[str, list[list[str]]] = {}
    names: list[str] = []
    # `tests/given.py` writes this file.
    for line in Path(__file__).with_name("variables.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            names = line.strip("[]").split()
        elif line:
            for one in names:
                rows.setdefault(one, []).append(line.split("\t"))
    given = rows.get(name.removesuffix(".j2"), rows["improve"])
    variables = {path: re.split(r"[.\[]", path)[0] for path, _, _ in given}
    read = variables_of(texts)
    others = [variable for variable in dict.fromkeys(variables.values()) if variable not in read]
    return [row for row in given if variables[row[0]] in read], others


@templates.command("copy")
@click.argument("name")
@click.option("--as", "other", default="", metavar="OTHER", help="Name of the copy; use it with --template OTHER.")
def copy(name: str, other: str) -> None:
    """Copy template NAME to ./templates, where you can edit it."""
    from policygen.prompts.templates import copy_template

    path = copy_template(name, other)
    use = "every run in this folder now uses it"
    if path.stem != name.removesuffix(".j2"):
        part = path.stem.startswith("_")
        use = f'put {{% include "{path.name}" %}} into a template' if part else f"use it with --template {path.stem}"
    say(f"{path}: edit it; {use}")
