"""Report pages: templates with escaped values and one style sheet, rendered into one HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from policygen import __version__
from policygen.episodes.players import evaluate
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PathError, UsageError
from policygen.extensions.compare.words import number
from policygen.extensions.page import pictures
from policygen.extensions.page.attempts import score_words
from policygen.extensions.page.content import PolicyContent, RunContent, command_of, proposals_words, read_run, spending
from policygen.extensions.page.sweep import read_sweep
from policygen.extensions.plots.actions import played
from policygen.extensions.plots.traces import best_median_worst
from policygen.extensions.sweeps.plan import is_sweep
from policygen.files import check_name, write_named
from policygen.outgoing import shown
from policygen.plants.fit import AHEAD
from policygen.plants.record import SHARE, errors_in_words, uncertain_in_words, worst_in_words
from policygen.policies.policy import Policy
from policygen.progress import share_lines
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Listener, RunView
from policygen.runs.reading import read_policy
from policygen.tasks.task import KIND_WORDS, environment_words
from policygen.tasks.trial import refuse_unseeded, seeds_checked
from policygen.tasks.trust import trusted, why_refused

REPORT = "report.html"
RELOADS = 5  # seconds between reloads of the page of an unfinished run
SHARE_OF_TIME = 0.05  # of a run, for writing its page
_EPISODES = 100  # for the score of a policy


def write_page(
    source: Path,
    output: Path,
    *,
    task_name: str | None = None,
    film: bool = True,
    trust: bool = False,
    reloads: int | None = None,
) -> Path:
    """Write the page of a run, a sweep, or a policy; return its path.

    A policy (a text or saved file) is scored on 100 episodes.

    Args:
        task_name: the task of a policy that is a text file.
        film: add a film of an episode.
        reloads: seconds after which the page reloads itself; None: never.
        trust: let the task name modules to import and paths to read, which the film and the traces of memory may need.

    Raises:
        UsageError: the name does not end in .html, or a text file is without a task.
        LogbookError: the folder is not a run or a sweep, is damaged, or the page cannot be written.
        PolicyError: there is no policy in the file.
    """
    check_name(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {output.name}: end the name in .html (a browser can print it to PDF)")
    if is_sweep(source):
        write_named(output, render("sweep.html.j2", read_sweep(source), reloads=None))
        return output
    content: RunContent | PolicyContent
    if (source / "config.toml").is_file() and task_name is None:
        template, content = "run.html.j2", read_run(source)
        policy = content.policy
        drawn = pictures_of(content, policy)
        if policy is not None and trust:
            policy = replace(policy, task=trusted(policy.task))
    elif source.is_dir() and task_name is None:
        raise PathError(f"{source} is not a run or a sweep (it has no config.toml and no sweep.toml)")
    else:
        template, policy = "policy.html.j2", read_policy(source, task_name, trust=trust)
        task = seeds_checked(policy.task)
        refuse_unseeded(task, accepted=policy.task.unseeded or dict(task.run).get("unseeded") is True)
        seeds = episode_seeds(0, "evaluation", _EPISODES)
        content = PolicyContent(task, policy.kind, evaluate(policy, seeds, task=task))
        drawn = {"plant": None, **_drawn(policy, played(policy)[0])}
    playing = pictures.film_of(policy) if film and policy is not None else None
    write_named(output, render(template, content, playing=playing, reloads=reloads, **drawn))
    if policy is not None and film and (reason := why_refused(policy.task)):
        warnings.warn(f"{output.name} lacks the film of an episode: {reason}", stacklevel=2)
    return output


class RunPage(Listener):
    """Writes `report.html` in the run's folder after each attempt; the page reloads itself until the run has ended.

    Writing takes at most a twentieth of the time of the run, and once more at the end: after quick attempts the page
    waits for a later one.
    """

    option = ("--report",)

    def started(self, run: RunView) -> None:
        """Begin to measure the time of the run."""
        self._folder, self._started, self._writing = run.folder, time.monotonic(), 0.0

    def attempted(self, attempt: Attempt) -> None:
        """Write the page, which reloads itself, if the time suffices."""
        before = time.monotonic()
        if self._writing <= SHARE_OF_TIME * (before - self._started):
            write_page(self._folder, self._folder / REPORT, film=False, reloads=RELOADS)
            self._writing += time.monotonic() - before

    def ended(self) -> None:
        """Write the last page, which does not reload itself."""
        write_page(self._folder, self._folder / REPORT, film=False)


def pictures_of(run: RunContent, policy: Policy | None) -> dict[str, Any]:
    """Return the pictures and texts of a run's page, also those of its best policy, by template variable."""
    curve = pictures.curve_picture(run.folder)
    if policy is None or run.best is None:
        return {"plant": None, "text": "", "curve": curve}
    drawn = _drawn(policy, pictures.own_episodes(run.folder, run.best))
    return {"plant": pictures.plant_content(run.best, run.task), "curve": curve, **drawn}


def _drawn(policy: Policy, episodes: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        "policy_picture": pictures.policy_picture(policy, episodes),
        "signals": pictures.traces_picture(policy.task, best_median_worst(episodes)),
        "text": policy.to_text(whole=True),
    }


def render(name: str, content: object, **more: Any) -> str:
    """Render a template of this folder with the common style."""
    css = jinja_environment().get_template("page.css").render()
    common = {"css": Markup(css), "security_policy": _security_policy(css), "version": __version__}
    return jinja_environment().get_template(name).render(content=content, **common, **more)


def _security_policy(css: str) -> str:
    """Return the content security policy: this style sheet and embedded pictures, no scripts, no other sources."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@functools.cache
def jinja_environment() -> jinja2.Environment:
    """Return the Jinja environment of the pages, which escapes values and hides secrets and control characters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )
    environment.filters |= {"number": number, "proposals": proposals_words, "score": score_words}
    environment.globals |= {
        "command_of": command_of,
        "environment_words": environment_words,
        "kind_words": KIND_WORDS,
        "share_lines": share_lines,
        "ahead": AHEAD,
        "share_of_errors": SHARE,
        "errors_in_words": errors_in_words,
        "uncertain_in_words": uncertain_in_words,
        "worst_in_words": worst_in_words,
        "spending": spending,
    }
    return environment


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shown(value).encode(errors="replace").decode()  # a folder name may hold bytes that are not text
