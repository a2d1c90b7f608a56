"""Pictures for pages, embedded as data in one or two widths: figures, the plant, and the film."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.extensions.compare.words import number
from policygen.extensions.film.film import gif, takes
from policygen.extensions.film.frames import SMALL
from policygen.extensions.plots.curves import runs_figure
from policygen.extensions.plots.played import MOST_PATHS
from policygen.extensions.plots.policy_figures import policy_figure
from policygen.extensions.plots.signals import plant_figure, signals_figure
from policygen.extensions.plots.style import rendered
from policygen.plants.record import PlantRecord, equations_of, lines_with_units
from policygen.policies.policy import Policy
from policygen.runs.attempt import Attempt
from policygen.runs.logbook import Logbook
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 250_000  # bytes; a larger figure becomes a PNG
EPISODES = 5  # played for the film, which shows the one with the median return
_DPI = 110
_MAX_READABLE = 5.6  # inches; a figure of at most this width can be read on a telephone
_NARROW = (4.4, 4.8)  # inches: a curve that a telephone shows without scaling


@dataclass(frozen=True, slots=True)
class Picture:
    """An embedded picture."""

    wide: str  # its `data:` URL
    alt: str
    narrow: str = ""  # the `data:` URL of a version for narrow screens
    scrolls: bool = False  # whether it keeps its size on a narrow screen and can be scrolled


def embedded(figure: Figure, alt: str, narrow: Figure | None = None) -> Picture:
    """Embed a figure and, if given, its version for narrow screens, as SVG or, if that is too large, as PNG."""
    small = _data_url(narrow) if narrow is not None else ""
    return Picture(_data_url(figure), alt, small, scrolls=bool(not small and figure.get_figwidth() > _MAX_READABLE))


def _data_url(figure: Figure) -> str:
    content, kind = rendered(figure, "svg", facecolor="none"), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = rendered(figure, "png", facecolor="none", dpi=_DPI), "png"
    return data_url(content, f"image/{kind}")


def data_url(content: bytes, kind: str) -> str:
    """Return a `data:` URL with the content."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def curve_picture(folder: Path) -> Picture | None:
    """Draw the learning curve of a run; None before its first attempt."""
    try:
        wide, narrow = runs_figure([folder]), runs_figure([folder])
    except PolicygenError:  # no attempt yet
        return None
    for axes in narrow.axes:
        axes.set_title("")  # it would be wider than the drawing, and the page has a heading
        if axes.get_legend() is not None:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1, frameon=False, fontsize=9)
    narrow.set_size_inches(*_NARROW)
    return Picture(_data_url(wide), "Learning curve", _data_url(narrow))


def policy_picture(policy: Policy) -> Picture | None:
    """Draw a policy; None if there is no picture of its kind."""
    try:
        return embedded(policy_figure(policy, alone=False), "Picture of the policy")
    except PolicygenError:
        return None


def both(alt: str, draw: Callable[..., Figure | None], *shown: Any) -> Picture | None:
    """Draw a figure and its version for narrow screens; None if there is nothing to draw."""
    wide, narrow = draw(*shown), draw(*shown, narrow=True)
    return Picture(_data_url(wide), alt, _data_url(narrow)) if wide and narrow else None


def signals_picture(task: Task, shown: Sequence[tuple[str, Trajectory]]) -> Picture | None:
    """Draw episodes, with their titles, over their steps; None without episodes."""
    return both("Observations and actions over the steps", signals_figure, task, shown) if shown else None


@dataclass(frozen=True, slots=True)
class PlantContent:
    """The plant that the best policy was tuned in, for the page."""

    record: PlantRecord
    text: str  # its lines, with units
    drawn: Picture | None  # an episode that it was not fitted to, real and predicted; None without one


def plant_content(folder: Path, best: Attempt, task: Task) -> PlantContent | None:
    """Return the plant of the best attempt; None without one."""
    plant = best.tuned.fitted_plant
    if plant is None:
        return None
    drawn = None
    with contextlib.suppress(PolicygenError):  # the text of a damaged plant is still shown
        equations = equations_of(plant, task)
        # If tuning was not kept, its plant may have been fitted to the episodes of the score.
        seeds = best.score.seeds if best.score is not None and best.tuned.kept else ()
        unseen = next((episode for episode in own_episodes(folder, best) if episode.seed in seeds), None)
        if unseen is not None:
            drawn = both("Real and predicted episode", plant_figure, equations, unseen)
    return PlantContent(plant, "\n".join(lines_with_units(plant.text, task)), drawn)


def film_of(policy: Policy) -> tuple[Picture | None, str]:
    """Film the episode with the median return of `EPISODES` that the search never saw.

    Returns:
        The film and its caption, or None and the reason why there is no film.
    """
    try:
        shown = takes(policy, episodes=EPISODES, which="median")
        content = gif(policy, shown, SMALL)
    except PolicygenError as error:
        return None, f"No film: {error}"
    episode = shown[0].episode
    words = f"The median of {EPISODES} episodes by return, {number(episode.episode_return)}"
    words += f", in {episode.length:,} steps, with the reason for each action below. Seed {episode.seed}."
    return Picture(data_url(content, "image/gif"), "An episode"), words


def own_episodes(folder: Path, best: Attempt) -> list[Trajectory]:
    """Return the first episodes of the best policy that the run has kept; empty if its buffer cannot be read."""
    logbook = Logbook(folder)
    try:
        buffer = logbook.buffer(logbook.config().buffer_steps)
    except PolicygenError:  # the page is complete without them
        return []
    return [episode.trajectory for episode in buffer.of_attempt(best.number, len(best.played))][: 4 * MOST_PATHS]
