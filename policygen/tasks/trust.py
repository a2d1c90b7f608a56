"""Checks of untrusted tasks, which may name only ids of known environments, with plain arguments.

An id `module:Id` imports the module and calls `Id`, and an environment may read files that its kwargs name. This is
allowed only if the user types the id or trusts the file. Shipped task files are trusted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from policygen.errors import TaskError, UntrustedError
from policygen.files import PACKAGE
from policygen.tasks.task import Task

_REMEDY = "if you know the file, add --trust (in Python: trust=True)"
# An untrusted file may name only environments of these packages.
_TRUSTED_PACKAGES = ("gymnasium.envs.", "minigrid.envs.", "policygen.extensions.worlds.")


def is_shipped(path: Path) -> bool:
    """Whether a task file is shipped with the package."""
    folders = [(root / "envs").resolve() for root in (PACKAGE, PACKAGE.parent)]
    return path.resolve().parent in {*folders, *(folder / "gymnasium" for folder in folders)}


def check_task(task: Task) -> None:
    """Refuse an untrusted task as `check_names` does; a trusted one is not checked."""
    if task.untrusted:
        check_names(task.gym_id, dict(task.kwargs), task.untrusted)


def why_refused(task: Task) -> str:
    """Return the reason for which `check_task` refuses a task, with a remedy; empty if it does not."""
    try:
        check_task(task)
    except TaskError as error:
        return str(error)
    return ""


# A slash, the beginning of a relative path or home folder, or the ending of a file name.
_PATH = re.compile(r".*[/\\\0]|\s*[~.]|.*\.[A-Za-z]\w{0,7}\s*\Z", re.DOTALL)


def check_names(gym_id: str, kwargs: Mapping[str, Any], where: str) -> None:
    """Refuse an id or arguments that would run code or read files.

    A model file, such as MuJoCo's, may include any other file, open a pipe, or ask for any amount of memory, so an
    untrusted task names none.

    Args:
        where: the file with these names, for the message.

    Raises:
        TaskError: see `check_id`; or an argument names a module, file, folder or address, or is not a plain value.
    """
    check_id(gym_id, where)
    for text in (leaf for leaf in _keys_and_values(kwargs) if isinstance(leaf, str)):
        if re.match(r"\s*[A-Za-z_]\w*(\.\w+)*:(?![/\\])", text):
            found = f"the argument `{text[:80]}` names a module, which would run its code"
            raise UntrustedError(f"{where}: {found}; {_REMEDY}")
        if _PATH.match(text):
            found = f"the argument `{text[:80]}` names a file, which may hold anything"
            raise UntrustedError(f"{where}: {found}; {_REMEDY}")
    for name, value in kwargs.items():
        if not all(leaf is None or isinstance(leaf, str | int | float) for leaf in _keys_and_values(value)):
            raise TaskError(f"{where}: the argument `{name[:80]}` is not a number, a text, or a list or table of these")


def check_id(gym_id: str, where: str) -> None:
    """Raise TaskError for an id that would run other code: it names a module, or another package registered it."""
    module, colon, _ = gym_id.partition(":")
    if colon and is_standard_library(module):
        raise TaskError(f"{where} names `{gym_id[:80]}`, part of Python's standard library; do not use this file")
    if colon:
        raise UntrustedError(
            f"{where} names the module `{module}`, which would run its code; {_REMEDY}, or type {gym_id} as the task"
        )
    for spec in gym.registry.values():
        if spec.id != gym_id and not spec.id.startswith(f"{gym_id}-v"):  # an id without a version is the newest one
            continue
        # The code of the environment, its vectorised form and its wrappers.
        for entry in (spec.entry_point, spec.vector_entry_point, *(w.entry_point for w in spec.additional_wrappers)):
            maker = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None)
            if entry is not None and not f"{maker}.".startswith(_TRUSTED_PACKAGES):
                raise UntrustedError(
                    f"{where} names {gym_id}, which the module `{maker}` makes: an untrusted file may only name "
                    f"environments of Gymnasium, MiniGrid and policygen; {_REMEDY}"
                )


def is_standard_library(module: str) -> bool:
    """Whether a module is in Python's standard library, which has no environments."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _keys_and_values(value: Any) -> Iterator[Any]:
    """Yield the values in nested mappings and lists, and the keys of the mappings."""
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _keys_and_values(inner)
    else:
        yield value
