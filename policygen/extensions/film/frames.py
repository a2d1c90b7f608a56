"""The frames of a film: what the environment draws; below it step, return, action, and what decided on it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.scenes import Scene, Stage
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.film.decisions import Decision, Explainer
from policygen.extensions.plots.style import OKABE_ITO
from policygen.policies.policy import Policy
from policygen.prompts.account import reached_its_goal
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

RATE = 25.0  # frames a second, at most
LONGEST_PAUSE = 1.0  # seconds a step, where an episode is short
SHORTEST_FILM = 4.0  # seconds that an episode takes, if its steps are not paused on longer than that
LAST_FRAME = 2.5  # seconds: it says why the episode ended
SLOW_PACE = 10.0  # steps a second up to which each is a move to think about, not a motion
SHORTEST_MOTION, SLOWEST = 2.5, 0.1  # seconds, and of the environment's own pace
SMALLEST_TEXT = 13  # pixels, of letters of normal size, that are read on a telephone
_INK, _GREY, _PAPER, _LINE = "#1a1a1a", "#666666", "#ffffff", "#dddddd"


@dataclass(frozen=True, slots=True)
class Look:
    """How large and how long a film may be.

    Attributes:
        width: of a frame, in pixels; the environment's picture is made to fit.
        most: frames at most, of all episodes together; None for as many as there are.
        seconds: that an episode may take; a longer one is shown faster.
        colours: of a GIF, 256 at most.
    """

    width: int = 440
    most: int | None = 300
    seconds: float = 20.0
    colours: int = 64


SMALL = Look(width=400, most=80, seconds=8.0, colours=32)  # for a page: some 200 KB


@dataclass(frozen=True, slots=True)
class Take:
    """An episode to be shown, and what it is called: `episode 3 of 20, the worst`."""

    episode: Trajectory
    title: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One frame and how long it is seen.

    Attributes:
        image: RGB, all frames of a film of one size.
        seconds: how long.
        step: steps taken before it; `earned`: the sum of the rewards so far.
        last: whether the episode is over.
    """

    image: Image
    seconds: float
    step: int
    earned: float
    last: bool


@dataclass(frozen=True, slots=True)
class _Timing:
    """Which steps of an episode are shown, and for how long."""

    every: int
    seconds: float
    faster: float  # than the environment's own pace


def _timing(length: int, pace: float, look: Look, most: float) -> _Timing:
    faster = max(1.0, length / pace / look.seconds)
    if pace > SLOW_PACE:  # a fall of half a second is to be seen
        faster = min(faster, max(SLOWEST, length / pace / SHORTEST_MOTION))
    every = max(1, math.ceil(pace * faster / RATE), math.ceil(length / max(1.0, most - 1)))
    seconds = every / (pace * faster)
    shown = max(1, length / every)
    if seconds * shown < SHORTEST_FILM:  # an episode of few steps is to be read as well
        seconds = max(seconds, min(LONGEST_PAUSE, SHORTEST_FILM / shown)) if pace <= SLOW_PACE else seconds
    return _Timing(every, seconds, faster)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an episode ended, `terminated: goal reached`, and whether its return counts as solved, if the task says."""

    why: str
    solved: str = ""


def ending_of(episode: Trajectory, task: Task) -> Ending:
    """Why an episode ended; what the environment does not say of success is told from its rewards, as prompts do."""
    limit = f"the limit of {task.max_steps:,} steps"
    if episode.unstable:
        why = "the simulation broke down"
    elif not episode.terminated:
        why = f"truncated at {limit}" if episode.length >= task.max_steps else "truncated by the environment"
    elif reached_its_goal(episode, task.solved):
        why = "terminated: goal reached"
    else:
        why = "terminated: failed" if episode.length < task.max_steps else f"terminated at {limit}"
    if task.solved is None:
        return Ending(why)
    solved = "solved" if episode.episode_return >= task.solved else "not solved"
    return Ending(why, f"{solved} (that takes {task.solved:g})")


def frames(policy: Policy, takes: list[Take], look: Look = Look()) -> Iterator[Frame]:
    """The frames of some episodes of a policy, one after the other, made as they are asked for.

    An episode is the one that was scored: it is played once more, action by action, in an environment that draws. The
    frame of a step shows what the policy sees there, and what it does next.

    Raises:
        TaskError: the environment draws no pictures, or what it needs for them is missing.
        EnvironmentFault: the environment fails.
    """
    most = math.inf if look.most is None else look.most / max(1, len(takes))
    explainers = [Explainer(policy, take.episode) for take in takes]
    panel = _Panel(policy, look.width, max((explainer.most for explainer in explainers), default=0))
    with Stage(policy.task) as stage:
        for take, explainer in zip(takes, explainers, strict=True):
            timing = _timing(take.episode.length, stage.pace, look, most)
            yield from _of_one(panel, take, explainer, stage, timing)


def _of_one(panel: _Panel, take: Take, explainer: Explainer, stage: Stage, timing: _Timing) -> Iterator[Frame]:
    episode = take.episode
    wanted = {*range(0, episode.length, timing.every), episode.length}
    for scene in stage.play(episode, wanted):
        shown = scene.picture is not None
        last = scene.step == episode.length or (shown and scene.step not in wanted)
        decision = None
        if not last:
            decision = explainer.step(scene.observation, episode.actions[scene.step], wanted=shown)
        if shown:
            image = panel.frame(scene, take, decision, timing.faster)
            yield Frame(image, LAST_FRAME if last else timing.seconds, scene.step, scene.earned, last)


class _Panel:
    """Draws frames of one size: a picture above, words and bars below."""

    def __init__(self, policy: Policy, width: int, reasons: int) -> None:
        self._policy, self._width = policy, width // 2 * 2  # films want even numbers of pixels
        self._size = max(SMALLEST_TEXT, width // 34)
        self._line = round(1.5 * self._size)
        self._height = self._line * (3 + (1 + reasons if reasons else 1)) + self._size
        self._above: int | None = None

    def frame(self, scene: Scene, take: Take, decision: Decision | None, faster: float) -> Image:
        """The whole frame; without a decision the episode is over."""
        from PIL import Image, ImageDraw

        assert scene.picture is not None
        picture = _fitted(scene.picture, self._width)
        if self._above is None:
            self._above = picture.height
        height = (self._above + self._height + 1) // 2 * 2
        image = Image.new("RGB", (self._width, height), _PAPER)
        image.paste(picture, ((self._width - picture.width) // 2, 0))
        draw = ImageDraw.Draw(image)
        draw.line((0, self._above, self._width, self._above), fill=_LINE)
        self._write(draw, self._above + self._size // 2, scene, take, (decision, faster))
        return image

    def _write(self, draw: ImageDraw, y: int, scene: Scene, take: Take, what: tuple[Decision | None, float]) -> None:
        (decision, faster), episode, left, right = what, take.episode, self._size // 2, self._width - self._size // 2
        plain, bold, small = _font(self._size), _font(self._size, bold=True), _font(self._size - 1)
        above = f"{self._policy.task.name}{', ' + take.title if take.title else ''}"
        pace = f"{faster:.2g} times as fast" if faster >= 1.05 else f"slowed {1 / faster:.2g} times" * (faster <= 0.95)
        room = right - left - small.getlength(pace) - self._size
        above = above if small.getlength(above) <= room or not take.title else take.title
        draw.text((left, y), _cut(above, small, room), _GREY, small)
        draw.text((right, y), pace, _GREY, small, anchor="ra")
        y += self._line
        draw.text((left, y), f"step {scene.step} of {episode.length}", _INK, plain)
        draw.text((right, y), f"return {_number(scene.earned)}", _INK, bold, anchor="ra")
        y += self._line
        if decision is None:
            ending = ending_of(episode, self._policy.task)
            draw.text((left, y), _cut(ending.why, bold, right - left), _INK, bold)
            draw.text((left, y + self._line), _cut(ending.solved, small, right - left), _INK, small)
            return
        if decision.action:
            draw.text((left, y), _cut(decision.action, bold, right - left), _INK, bold)
            y += self._line
        draw.text((left, y), _cut(decision.because, small, right - left), _GREY, small)
        for reason in decision.reasons:
            y += self._line
            self._reason(draw, y, reason)

    def _reason(self, draw: ImageDraw, y: int, reason: Any) -> None:
        """A line: what it is, its amount, and where there is one a bar of it to either side of a middle line."""
        font, gap = _font(self._size - 1), self._size // 2
        right = self._width - gap
        if reason.share is None:
            draw.text((right, y), reason.value, _INK, font, anchor="ra")
            draw.text((gap, y), _cut(reason.text, font, right - 3 * gap - font.getlength(reason.value)), _INK, font)
            return
        reach = round(0.13 * self._width)
        middle = right - reach
        amount = middle - reach - gap
        draw.line((middle, y, middle, y + self._line - 3), fill=_GREY)
        end = middle + round(reason.share * reach)
        colour = OKABE_ITO[0] if reason.share >= 0 else OKABE_ITO[1]
        if end != middle:
            draw.rectangle((min(middle, end), y + 2, max(middle, end), y + self._line - 5), fill=colour)
        draw.text((amount, y), reason.value, _INK, font, anchor="ra")
        draw.text((gap, y), _cut(reason.text, font, amount - font.getlength(reason.value) - 2 * gap), _INK, font)


def _fitted(picture: npt.NDArray[np.uint8], width: int) -> Image:
    """The picture as wide as a frame, but no higher than that."""
    from PIL import Image

    image = Image.fromarray(picture)
    scale = min(width / image.width, width / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def _cut(text: str, font: FreeTypeFont, room: float) -> str:
    """A text no longer than there is room for."""
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(f"{text}...") > room:
        text = text[:-1]
    return f"{text}..."


@functools.cache
def _font(size: int, *, bold: bool = False) -> FreeTypeFont:
    """A font that matplotlib brings along: the same on every machine."""
    import matplotlib
    from PIL import ImageFont

    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
