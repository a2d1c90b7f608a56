"""What a task that comes from elsewhere may name: no module that Python would import for it, no path to read.

An id `module:Id` imports the module, and an environment reads what paths its kwargs name. A user who writes the id, or
vouches for the file, wants that; a file alone may not ask for it. Tasks that come with the package need no vouching.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from policygen.errors import TaskError
from policygen.files import PACKAGE
from policygen.tasks.task import Task

_REMEDY = "if you know the file, add --trust (in Python: trust=True)"


def is_shipped(path: Path) -> bool:
    """Whether a task file is one of the package's own."""
    return path.resolve().parent in {(PACKAGE / "envs").resolve(), (PACKAGE.parent / "envs").resolve()}


def vouched(task: Task) -> Task:
    """The task, which the user knows."""
    return replace(task, stranger="")


def refuse_strangers(task: Task) -> None:
    """Refuse to make an environment that only a file nobody vouched for asks for.

    Raises:
        TaskError: it would import a module or read a path that the file names.
    """
    if task.stranger:
        check_names(task.gym_id, dict(task.kwargs), task.stranger)


def why_refused(task: Task) -> str:
    """Why the environment is not made, as a sentence that says what to do; empty where it is."""
    try:
        refuse_strangers(task)
    except TaskError as error:
        return str(error)
    return ""


def check_names(gym_id: str, kwargs: Mapping[str, Any], where: str, folder: Path | None = None) -> None:
    """Refuse what would run code or read files elsewhere.

    Args:
        where: the file that names them.
        folder: paths inside it are allowed.

    Raises:
        TaskError: the id names a module that is not imported yet, or an argument names one or a path.
    """
    module, colon, _ = gym_id.partition(":")
    if colon and module not in sys.modules:
        raise TaskError(
            f"{where} names the module `{module}`, which would run its code; {_REMEDY}, or name {gym_id} yourself"
        )
    for text in _texts(kwargs):
        if _names_code(text):
            raise TaskError(f"{where}: the argument `{text[:80]}` names a module, which would run its code; {_REMEDY}")
        if _names_path(text) and not _inside(text, folder):
            raise TaskError(f"{where}: the argument `{text[:80]}` names a file elsewhere; {_REMEDY}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _names_code(text: str) -> bool:
    return re.match(r"\s*[A-Za-z_]\w*(\.\w+)*:(?![/\\])", text) is not None


def _names_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.startswith("~") or text in (".", "..") or "\0" in text


def _inside(text: str, folder: Path | None) -> bool:
    """Whether a relative path, from where we are, leads into the folder."""
    if folder is None or "://" in text or "\\" in text or "\0" in text or text.startswith("~"):
        return False
    path = Path(text)
    # Environments resolve a path that does not begin with a dot in their own way.
    return text.startswith("./") and ".." not in path.parts and path.resolve().is_relative_to(folder.resolve())
