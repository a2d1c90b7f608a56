"""Rendering of report pages: escaped templates and one style sheet make one HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from policygen import __version__
from policygen.errors import PlaceError, UsageError
from policygen.extensions.page.content import RunContent, read_run
from policygen.extensions.page.pictures import curve_picture, decision_map, own_episodes, playing, portrait
from policygen.extensions.page.sweep import read_sweep
from policygen.extensions.plots.played import unplayed
from policygen.extensions.sweeps.plan import is_sweep
from policygen.files import check_name, write_named
from policygen.outgoing import shown
from policygen.tasks.trust import trusted

HERE = Path(__file__).parent


def write_page(folder: Path, output: Path, *, film: bool = True, trust: bool = False) -> Path:
    """Write the page of a run or a sweep; return its path.

    Args:
        film: add a film of an episode.
        trust: for film and traces, the task may name modules to import and paths to read.

    Raises:
        UsageError: the name does not end in .html.
        LogbookError: the folder is not a run or a sweep, is damaged, or the page cannot be written.
    """
    check_name(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {output.name}: end the name in .html (a browser can print it to PDF)")
    run = _run_in(folder)
    write_named(output, _page(folder, run, film=film, trust=trust))
    policy = run.policy if run is not None and not trust else None
    if policy is not None and (lack := unplayed(policy, output.name, page=True, film=film)):
        warnings.warn(lack, stacklevel=2)
    return output


def page_of(folder: Path, *, film: bool = False, trust: bool = False) -> str:
    """Render the page of a run or a sweep.

    Raises:
        LogbookError: the folder is neither, or is damaged.
    """
    return _page(folder, _run_in(folder), film=film, trust=trust)


def _run_in(folder: Path) -> RunContent | None:
    """Read the run in a folder; None if it is a sweep."""
    if is_sweep(folder):
        return None
    if not (folder / "config.toml").is_file():
        raise PlaceError(f"{folder} is not a run or a sweep (it has no config.toml and no sweep.toml)")
    return read_run(folder)


def _page(folder: Path, run: RunContent | None, *, film: bool, trust: bool) -> str:
    if run is None:
        return render("sweep.html.j2", read_sweep(folder))
    shown = playing(run.policy, trust=trust) if film and run.policy is not None else None
    return render("run.html.j2", run, playing=shown, **pictures_of(run, trust=trust))


def pictures_of(run: RunContent, *, trust: bool = False) -> dict[str, Any]:
    """Draw the pictures of a run's page, by template variable."""
    policy, best = run.policy, run.best
    if trust and policy is not None:
        policy = replace(policy, task=trusted(policy.task))
    drawn = policy is not None and best is not None
    return {
        "curve": curve_picture([run.folder]),
        "portrait": portrait(policy) if policy is not None else None,
        "decisions": decision_map(policy, own_episodes(run.folder, best)) if drawn and policy and best else None,
        "text": policy.to_text(whole=True) if policy is not None else "",
    }


def render(name: str, content: object, **more: Any) -> str:
    """Render a template of this folder with the common style."""
    css = environment().get_template("page.css").render()
    values = {"content": content, "css": Markup(css), "policy": _rules(css), "version": __version__, **more}
    return environment().get_template(name).render(values)


def _rules(css: str) -> str:
    """Return the content security policy: this style, embedded pictures, no script, nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@functools.cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment of the pages; it escapes values and hides secrets and invisible characters."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finished,
    )


def _finished(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shown(value).encode(errors="replace").decode()  # a folder name may hold bytes that are not text
