"""Templates, shipped and the user's own, rendered in a sandbox.

Every error is a TemplateError that names the template and, if known, the line.
"""

from __future__ import annotations

import difflib
import functools
import re
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from policygen.errors import TemplateError
from policygen.files import find_resource, list_resources, read, resource_folders
from policygen.prompts.filters import FILTERS
from policygen.prompts.sections import PLACES, place_source
from policygen.runs.config import RunConfig

MOST_CHARACTERS = 200_000  # of a template
_MOST_NAMES = 100  # that an error lists
_LONGEST = 80  # characters of a template's description in lists
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# The variables of the current rendering, which errors name.
_variables_given: ContextVar[Mapping[str, Any]] = ContextVar("variables of the rendering")


class _Unknown(jinja2.StrictUndefined):
    """A missing variable or attribute; the error message names the nearest one and lists the others."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        message, record = super()._undefined_message, self._undefined_obj
        known: list[str] = []
        if record is jinja2.utils.missing:
            known = sorted(_variables_given.get({}))
        elif isinstance(record, Mapping):
            known = [str(key) for key in record if str(key).isprintable()][:_MOST_NAMES]
        elif type(record).__module__.startswith("policygen."):
            known = [one for one in dir(record) if one[0] != "_" and not callable(getattr(type(record), one, None))]
        if self._undefined_hint or not known:
            return message
        if not (close := difflib.get_close_matches(str(self._undefined_name)[:100], known, n=1)):
            return f"{message}: there are {', '.join(known)}"
        others = ", ".join(name for name in known if name != close[0])
        return f"{message}: nearest is `{close[0]}`{f', the others are {others}' if others else ''}"


def source_of(path: Path) -> str:
    """Return the text of a template's file; raise TemplateError if it is unreadable, too long, or a link elsewhere."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise TemplateError(f"the template {path} is a link into another folder; put a copy in its place")
    text = read(path, str, named=TemplateError)
    if len(text) > MOST_CHARACTERS:
        raise TemplateError(f"the template {path} has more than {MOST_CHARACTERS:,} characters; make it shorter")
    return text


class _Loader(jinja2.BaseLoader):
    """A loader for template files, of which a local one overrides a shipped one, and for the `PLACES` of sections."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str | None, Any]:
        path = find_resource("templates", template, ".j2")
        if path is None and (place := _stem(template)) in PLACES:
            source = place_source(place)
            return source, None, lambda: source == place_source(place)
        if path is None:
            raise jinja2.TemplateNotFound(template)

        source, written = source_of(path), path.stat().st_mtime_ns

        def unchanged() -> bool:
            found = find_resource("templates", template, ".j2")
            return found == path and found.stat().st_mtime_ns == written

        return source, str(path), unchanged


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which templates can include, import and extend only files in folders of templates."""

    def __init__(self) -> None:
        super().__init__(loader=_Loader(), undefined=_Unknown, trim_blocks=True, lstrip_blocks=True)
        self.filters |= FILTERS
        del self.filters["random"], self.globals["lipsum"]  # a resumed run has to render the same prompt

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether an attribute is data, or a method of a string, a collection or an object of Jinja."""
        own = isinstance(obj, str | dict | list | tuple) or type(obj).__module__.startswith("jinja2.")
        return super().is_safe_attribute(obj, attr, value) and (own or not callable(value))

    def join_path(self, template: str, parent: str) -> str:
        """Return the name of an included template unchanged; refuse a file outside the folders of templates."""
        return _inside(template)


def _inside(name: str) -> str:
    path, folders = find_resource("templates", name, ".j2"), list(resource_folders("templates"))
    if path is None or path.parent in folders:  # the usual case; resolving links is slow
        return name
    if not any((path.parent.resolve() / path.name).is_relative_to(folder.resolve()) for folder in folders):
        raise jinja2.TemplateRuntimeError(
            f"`{name}` lies outside templates/, and a template includes only what is there; put a copy there"
        )
    return name


@functools.cache
def _environment() -> _Environment:
    return _Environment()


def render_template(name: str, variables: Mapping[str, Any]) -> str:
    """Render a template; raise TemplateError if it does not exist or cannot be rendered."""
    token = _variables_given.set(variables)
    try:
        return _explained(name, lambda: _environment().get_template(name).render(variables).strip() + "\n")
    finally:
        _variables_given.reset(token)


def load_template(name: str) -> None:
    """Read and compile a template without rendering it."""
    _explained(name, lambda: _environment().get_template(name).name or name)


def used_templates(names: Sequence[str]) -> dict[str, str]:
    """Return the texts of these templates and of all that they include, import or extend, by name, in order of use.

    Names that are computed during rendering are not found. A missing included template is left out, because rendering
    reports it.

    Raises TemplateError if one of `names` is missing, or a template cannot be read or is malformed.
    """
    texts: dict[str, str] = {}
    waiting = list(reversed(names))
    while waiting:
        name = waiting.pop()
        known = name in names or _stem(name) in PLACES or find_resource("templates", name, ".j2") is not None
        if _stem(name) in texts or not known:
            continue
        load_template(name)
        texts[_stem(name)] = text = _Loader().get_source(_environment(), name)[0]
        found: list[str] = []
        for node in _environment().parse(text).find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            named: nodes.Expr = node.template  # type: ignore[attr-defined]
            texts_in = [str(one.value) for one in (named, *named.find_all(nodes.Const)) if isinstance(one, nodes.Const)]
            included = [one for one in texts_in if one.endswith(".j2") or isinstance(named, nodes.Const)]
            found += [_explained(name, functools.partial(_inside, one)) for one in included]
        waiting += reversed(found)
    return {name: text for name, text in texts.items() if name not in PLACES}


def variables_of(texts: Iterable[str]) -> set[str]:
    """Return the variables that these templates read; the texts must compile."""
    parse = _environment().parse
    return set().union(*(meta.find_undeclared_variables(parse(text)) for text in texts))


def _stem(name: str) -> str:
    return name.removesuffix(".j2")


def _explained(name: str, work: Callable[[], str]) -> str:
    """Return the result of `work`; raise TemplateError with file and line for an error in template `name`."""
    try:
        return work()
    except jinja2.TemplateNotFound as error:
        hint = _nearest(_stem(str(error.name)), list_resources("templates", ".j2"))
        where = f"{place}: " if (place := _place(error)) else ""
        raise TemplateError(f"{where}there is no template `{error.name}`; {hint}") from None
    except jinja2.TemplateSyntaxError as error:
        file = error.filename or find_resource("templates", error.name or name, ".j2") or name
        raise TemplateError(f"{_short(str(file))}, line {error.lineno}: {error.message}") from None
    except RecursionError as error:
        raise TemplateError(f"{_place(error) or name}: a template includes or calls itself without end") from None
    except (SyntaxError, MemoryError) as error:
        raise TemplateError(f"{_place(error) or name}: the template is nested too deeply, or makes too much") from None
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateError(f"{_place(error) or name}: {error}") from None


def _place(error: BaseException) -> str:
    """Return file and line of the innermost template in the traceback; empty outside templates."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    return f"{_short(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""


def _short(filename: str) -> str:
    path = Path(filename)
    return str(Path("templates") / path.name) if path.parent in resource_folders("templates") else filename


# --- shipped templates and copies ------------------------------------------------------------------------------------


def improve_template(config: RunConfig) -> str:
    """Return the name of the template that asks for the next policy."""
    return config.template or "improve"


def texts_used(config: RunConfig) -> dict[str, str]:
    """Return the texts of all templates that a run with these settings uses, by name."""
    return used_templates(("system", improve_template(config), "repair"))


def own_templates(config: RunConfig) -> list[str]:
    """Return the template files of a run that differ from the shipped ones."""
    own = []
    for name in texts_used(config):
        path, original = find_resource("templates", name, ".j2"), _shipped(name)
        if path is not None and (original is None or source_of(original) != source_of(path)):
            own.append(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
    return own


def catalogue() -> list[tuple[str, str, str]]:
    """Return name, origin and description of all templates that can be used here by name."""
    found = []
    for name, path in sorted(list_resources("templates", ".j2").items()):
        original, text = _shipped(name), source_of(path)
        origin = "yours, instead of the shipped one" if original is not None else "yours"
        origin = "shipped" if original is not None and path.samefile(original) else origin
        first = text.strip().partition("\n")[0].removeprefix("{#").partition("#}")[0].strip("-# ")
        found.append((name, origin, textwrap.shorten(first, _LONGEST, placeholder=" ...")))
    return found


def text_of(name: str) -> str:
    """Return the text of the template of this name that prompts use."""
    path = find_resource("templates", name, ".j2")
    if path is None:
        hint = _nearest(name, list_resources("templates", ".j2"))
        raise TemplateError(f"there is no template `{name}`; {hint}")
    return source_of(path)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest name, else all names (of parts, if it begins with `_`)."""
    names = sorted(one for one in known if one.startswith("_") == name.startswith("_"))
    meant = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{meant[0]}`?" if meant else f"there are {', '.join(names)}"


def copy_template(name: str, to: str = "") -> Path:
    """Copy a template into `templates/` in the working directory, and return the path.

    The copy is named `to`; by default it has the name of the template and overrides it. Raises TemplateError also if
    the file exists already or cannot be written.
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
        how = f"policygen templates copy {name} --as my_{name.lstrip('_')}"
        raise TemplateError(f"{target} exists already; edit it, or give the copy another name: {how}") from None
    except OSError as error:
        raise TemplateError(f"cannot write {target}: {error.strerror}; work in a folder with write access") from None
    return target


def _shipped(name: str) -> Path | None:
    """Return the shipped file of a template, or None."""
    stem = _stem(name)
    files = (folder / f"{stem}.j2" for folder in list(resource_folders("templates"))[1:])
    return next((file for file in files if _NAME.fullmatch(stem) and file.is_file()), None)
