"""The page of a run: a template with escaped values, pictures and one style sheet, rendered into one HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from policygen import __version__
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PathError, PolicygenError, UsageError
from policygen.extensions.page.content import RunContent, read_run
from policygen.extensions.plots.actions import action_figure
from policygen.extensions.plots.curves import runs_figure
from policygen.extensions.plots.groups import proposals_label
from policygen.extensions.plots.style import rendered
from policygen.extensions.plots.traces import traces_figure
from policygen.files import check_name, write_named
from policygen.outgoing import shown
from policygen.runs.attempt import Attempt
from policygen.runs.facts import note_facts, score_fact
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.tasks.task import KIND_WORDS, environment_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT = "report.html"
RELOADS = 5  # seconds between reloads of the page of an unfinished run
SHARE_OF_TIME = 0.05  # of a run, for writing its page
LARGEST_SVG = 250_000  # bytes; a larger figure becomes a PNG
MOST_EPISODES = 12  # of the best policy, for its pictures


def write_page(run: Path, output: Path, *, reloads: int | None = None) -> Path:
    """Write the page of a run; return its path.

    Args:
        reloads: seconds after which the page reloads itself; None: never.

    Raises:
        UsageError: the name does not end in .html.
        PathError: the folder is not a run.
        LogbookError: the run is damaged, or the page cannot be written.
    """
    check_name(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {output.name}: end the name in .html (a browser can print it to PDF)")
    if not (run / "config.toml").is_file():
        several = any(run.glob("*/config.toml"))
        hint = f"name one of {run}/*" if several else "`policygen plot` and `compare` take sweeps"
        raise PathError(f"{run} is not a run (it has no config.toml); {hint}")
    content = read_run(run)
    css = _environment().get_template("page.css").render()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    text = (
        _environment()
        .get_template("run.html.j2")
        .render(
            content=content,
            pictures=_pictures(content),
            reloads=reloads,
            css=Markup(css),
            style_source=f"'sha256-{digest}'",
            version=__version__,
        )
    )
    write_named(output, text)
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
            write_page(self._folder, self._folder / REPORT, reloads=RELOADS)
            self._writing += time.monotonic() - before

    def ended(self) -> None:
        """Write the last page, which does not reload itself."""
        write_page(self._folder, self._folder / REPORT)


# --- pictures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, embedded as a `data:` URL."""

    url: str
    alt: str


def curve_picture(folder: Path) -> Picture | None:
    """Draw the learning curve of a run; None before its first attempt."""

    return _picture("Learning curve", runs_figure, [folder])


def _pictures(run: RunContent) -> dict[str, Picture | None]:
    """Return the learning curve, and the action map and the worst kept episode of the best policy, by name."""
    best = run.run.best
    policy = best.policy if best is not None else None
    found = {"curve": curve_picture(run.run.folder), "map": None, "worst": None}
    if best is None or policy is None:
        return found
    episodes = own_episodes(run.run.folder, best)
    found["map"] = _picture("Actions of the policy", action_figure, policy, episodes)
    if episodes:
        worst = {f"worst of {len(episodes)}": min(episodes, key=lambda episode: episode.episode_return)}
        found["worst"] = _picture("Observations and actions of the worst episode", traces_figure, policy.task, worst)
    return found


def own_episodes(folder: Path, best: Attempt) -> list[Trajectory]:
    """Return the first episodes of the best policy that the run has kept; empty if its buffer cannot be read."""
    logbook = Logbook(folder)
    try:
        buffer = logbook.buffer()
    except PolicygenError:  # the page is complete without them
        return []
    return [episode.trajectory for episode in buffer.of_attempt(best.number, len(best.played))][:MOST_EPISODES]


def _picture(alt: str, draw: Callable[..., Figure], *shown_things: Any) -> Picture | None:
    """Draw a figure; None if there is nothing to draw."""
    try:
        return Picture(_data_url(draw(*shown_things)), alt)
    except PolicygenError:
        return None


def _data_url(figure: Figure) -> str:
    content, kind = rendered(figure, "svg", facecolor="none"), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = rendered(figure, "png", facecolor="none", dpi=110), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


# --- template --------------------------------------------------------------------------------------------------------


@functools.cache
def _environment() -> jinja2.Environment:
    """Return the Jinja environment of the page, which escapes values and hides secrets and control characters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )
    environment.filters |= {"score": functools.partial(score_fact, "attempt", "score")}
    environment.filters |= {"notes": note_facts, "proposals": proposals_label}
    environment.globals |= {"environment_words": environment_words, "kind_words": KIND_WORDS}
    return environment


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shown(value).encode(errors="replace").decode()  # a folder name may hold bytes that are not text
