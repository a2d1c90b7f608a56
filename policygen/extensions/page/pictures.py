"""Pictures for pages, embedded as data in one or two widths: figures, the plant, and the film."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.extensions.compare.words import number
from policygen.extensions.film import gif, takes
from policygen.extensions.plots.actions import action_figure
from policygen.extensions.plots.curves import runs_figure
from policygen.extensions.plots.style import rendered
from policygen.extensions.plots.traces import traces_figure
from policygen.plants.record import PlantRecord, lines_with_units
from policygen.policies.policy import Policy
from policygen.runs.attempt import Attempt
from policygen.runs.logbook import Logbook
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 250_000  # bytes; a larger figure becomes a PNG
MOST_FRAMES = 80  # of the film, which is then about 150 KB
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


def policy_picture(policy: Policy, episodes: Sequence[Trajectory]) -> Picture | None:
    """Draw the action map of a policy; None if it has none."""
    try:
        return both("Actions of the policy", action_figure, policy, episodes)
    except PolicygenError:
        return None


def both(alt: str, draw: Callable[..., Figure], *shown: Any) -> Picture:
    """Draw a figure and its version for narrow screens."""
    return Picture(_data_url(draw(*shown)), alt, _data_url(draw(*shown, narrow=True)))


def traces_picture(task: Task, shown: Mapping[str, Trajectory]) -> Picture | None:
    """Draw episodes, with their titles, over time; None without episodes."""
    return both("Observations and actions over time", traces_figure, task, shown) if shown else None


@dataclass(frozen=True, slots=True)
class PlantContent:
    """The plant that the best policy was tuned in, for the page."""

    record: PlantRecord
    text: str  # its lines, with units


def plant_content(best: Attempt, task: Task) -> PlantContent | None:
    """Return the plant of the best attempt; None without one."""
    plant = best.tuned.fitted_plant
    if plant is None:
        return None
    return PlantContent(plant, "\n".join(lines_with_units(plant.text, task)))


def film_of(policy: Policy) -> tuple[Picture | None, str]:
    """Film the episode with the median return of `EPISODES` that the search never saw.

    Returns:
        The film and its caption, or None and the reason why there is no film.
    """
    try:
        shown = takes(policy, episodes=EPISODES, which="median")
        content = gif(policy, shown, most=MOST_FRAMES)
    except PolicygenError as error:
        return None, f"No film: {error}"
    (episode,) = shown.values()
    words = f"The median of {EPISODES} episodes by return, {number(episode.episode_return)}"
    words += f", in {episode.length:,} steps. Seed {episode.seed}."
    return Picture(data_url(content, "image/gif"), "An episode"), words


def own_episodes(folder: Path, best: Attempt) -> list[Trajectory]:
    """Return the first episodes of the best policy that the run has kept; empty if its buffer cannot be read."""
    logbook = Logbook(folder)
    try:
        buffer = logbook.buffer(logbook.config().buffer_steps)
    except PolicygenError:  # the page is complete without them
        return []
    return [episode.trajectory for episode in buffer.of_attempt(best.number, len(best.played))][:12]
