"""The command `new`, for an environment of your own."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from policygen.cli.options import PATH, assignment, say
from policygen.errors import UsageError


@click.command()
@click.argument("gym_id", metavar="[MODULE:]ENV")
@click.option("-o", "--output", type=PATH, help="File (default: envs/NAME.toml).")
@click.option(
    "--kwarg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the environment; may be repeated.",
)
@assignment("A setting of every run, written to the file's [run]; may be repeated.")
def new(gym_id: str, output: Path | None, arguments: tuple[str, ...], assignments: tuple[str, ...]) -> None:
    """Write a task file for an environment of your own, ready to edit, with findings and assumptions.

    ENV is an id that MODULE registers, or a class or function in it that makes the environment. MODULE is a file in the
    working directory (`room` for `room.py`) or an installed package:

    \b
      policygen new room:RoomEnv --kwarg outside=5.0
      policygen run envs/room.toml --trust

    `policygen run room:RoomEnv` works without a file. In the file you may edit names, units and prose of observations
    and actions, bins, features, hints. With --trust, the file may name a module to import.
    """
    from policygen.files import check_name, write_atomically
    from policygen.runs.config import effective_config, step_timeout_of
    from policygen.tasks.discovery import task_from_gym
    from policygen.tasks.draft import file_to_edit

    limit = step_timeout_of(None, assignments, {})
    task = task_from_gym(check_name(gym_id), limit, kwargs=dict(map(_argument, arguments)))
    effective_config(task, gym_id, assignments=assignments)
    settings = dict(_argument(text, "--set") for text in assignments)
    task = replace(task, run=tuple({**dict(task.run), **settings}.items()))
    path = output or Path("envs") / f"{task.name}.toml"
    if path.suffix != ".toml":
        raise UsageError(f"a task file ends in .toml: -o {path.with_suffix('.toml')}")
    if path.exists():
        raise UsageError(f"{path} is there already; move it, or name another file with -o")
    text = file_to_edit(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    say(f"observed: {', '.join((*task.observation_names, *task.text_names))}")
    say(f"decided: {', '.join(actuator.name for actuator in task.actuators)}")
    for sentence in task.assumed:
        say(f"  assumed: {sentence}")
    words = shlex.join([str(path), *["--trust"] * (":" in gym_id)])
    say(f"{path}\nedit it, then: policygen tasks {words}; policygen run {words}")


def _argument(text: str, option: str = "--kwarg") -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{option} {text}: write {option} NAME=VALUE")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return name, value
