"""The available templates: shipped ones and the user's copies.

All functions raise TemplateError if a template is missing or cannot be read.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from policygen.errors import TemplateError
from policygen.files import find_resource, list_resources, resource_folders
from policygen.prompts.render import texts_used
from policygen.prompts.templates import source_of
from policygen.runs.config import RunConfig

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT = re.compile(r"\A\s*\{#-?\s*(.*?)\s*-?#\}", re.DOTALL)
_HEADING = re.compile(r"^#+ ([^{\n]+)", re.MULTILINE)
_FIRST = re.compile(r"\s*[^{\n]*")  # the plain text at the start of the first line
_LONGEST = 80  # characters of a template's description
IN_CHECKOUT = "in a checkout templates/ is the shipped folder: compare with version control, e.g. `git diff templates/`"


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A template as the list shows it."""

    name: str
    own: bool  # whether it is in the working directory, not the shipped one
    replaces: bool  # whether there is a shipped one of that name
    about: str  # the first line of its first comment, or else its first heading


def catalogue() -> list[TemplateEntry]:
    """Return all templates that can be used here, by name."""
    found = []
    for name, path in sorted(list_resources("templates", ".j2").items()):
        namesake = shipped(name)
        own = namesake is None or not path.samefile(namesake)
        found.append(TemplateEntry(name, own, namesake is not None, _about(source_of(path))))
    return found


def in_checkout() -> bool:
    """Whether ./templates is the shipped folder itself, so that shipped and own templates are the same files."""
    own, *others = resource_folders("templates")
    return own.is_dir() and any(other.is_dir() and own.samefile(other) for other in others)


def shipped(name: str) -> Path | None:
    """Return the shipped file of a template; None if it is not shipped."""
    stem = name.removesuffix(".j2")
    files = (folder / f"{stem}.j2" for folder in list(resource_folders("templates"))[1:])
    return next((file for file in files if _NAME.fullmatch(stem) and file.is_file()), None)


def text_of(name: str, *, as_shipped: bool = False) -> str:
    """Return the text of the template in use, or of the shipped one of that name."""
    return source_of(_file(name, as_shipped=as_shipped))


def copy_template(name: str, to: str = "") -> Path:
    """Copy a template to `templates/` in the working directory, where it is found first.

    Args:
        to: name of the copy; by default that of the template, which it then overrides.

    Raises TemplateError also if there is a file of that name already, or it cannot be written.
    """
    text, to = text_of(name), (to or name).removesuffix(".j2")
    if not _NAME.fullmatch(to):
        raise TemplateError(f"a template cannot be called `{to}`: use letters, digits, `-` and `_`")
    target = Path("templates") / f"{to}.j2"
    try:
        target.parent.mkdir(exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:  # follows no link and replaces nothing
            file.write(text)
    except FileExistsError:
        there = f"in a checkout {target} is the shipped template itself: give the copy a name of its own,"
        if not in_checkout():
            there = f"{target} is there already; edit it, or give the copy a name:"
        raise TemplateError(f"{there} policygen templates copy {name} --as my_{name}") from None
    except OSError as error:
        raise TemplateError(f"cannot write {target}: {error.strerror}; work in a folder that you may write") from None
    return target


def _file(name: str, *, as_shipped: bool = False) -> Path:
    path = shipped(name) if as_shipped else find_resource("templates", name, ".j2")
    if path is None:
        known = [one for one in sorted(list_resources("templates", ".j2")) if not as_shipped or shipped(one)]
        kind = "shipped template" if as_shipped else "template"
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean `{close[0]}`?" if close else f"; there are {', '.join(known)}"
        raise TemplateError(f"there is no {kind} `{name}`{meant}")
    return path


def _about(text: str) -> str:
    comment, heading = _COMMENT.search(text), _HEADING.search(text)
    first = comment.group(1).partition("\n")[0] if comment else heading.group(1) if heading else _FIRST.findall(text)[0]
    return textwrap.shorten(first, _LONGEST, placeholder=" ...")


def own_templates(config: RunConfig) -> list[str]:
    """Return the files of the templates in use that differ from the shipped ones.

    Raises TemplateError if one is missing or malformed.
    """
    own = []
    for name in texts_used(config):
        path, original = find_resource("templates", name, ".j2"), shipped(name)
        if path is not None and (original is None or source_of(original) != source_of(path)):
            own.append(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
    return own
