"""Film frames: the rendered environment, and below it step, return, action and the reason for it."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.film.decisions import Decision, Reason, explain
from policygen.extensions.film.scenes import Scene, Stage
from policygen.extensions.plots.style import OKABE_ITO
from policygen.policies.policy import Policy
from policygen.prompts.account import reached_its_goal
from policygen.tasks.task import Task

RATE = 25.0  # most frames per second
LONGEST_PAUSE = 1.0  # seconds; longest duration to which a frame is stretched in an episode of few steps
SHORTEST_FILM = 4.0  # seconds per episode of few steps; if it would be shorter, its frames are stretched
LAST_FRAME = 2.5  # seconds; it says why the episode ended
SLOW_PACE = 10.0  # steps per second; an environment of at most this pace shows moves rather than motion
SHORTEST_MOTION = 2.5  # seconds per episode of a faster environment, which is slowed down if needed
SLOWEST = 0.1  # smallest share of its own pace to which an environment is slowed down
SMALLEST_TEXT = 13  # pixels; letters of this height are readable on a telephone
_INK, _GREY, _PAPER, _LINE = "#1a1a1a", "#666666", "#ffffff", "#dddddd"


@dataclass(frozen=True, slots=True)
class Look:
    """The size and length limits of a film.

    Attributes:
        width: width of a frame in pixels; the environment's picture is scaled to fit.
        most: upper limit of the frames of all episodes together; None: no limit.
        seconds: upper limit of the seconds per episode; longer episodes play faster.
        colours: number of colours of a GIF, at most 256.
    """

    width: int = 440
    most: int | None = 300
    seconds: float = 20.0
    colours: int = 64


SMALL = Look(width=400, most=80, seconds=8.0, colours=32)  # about 200 KB, for a page


@dataclass(frozen=True, slots=True)
class Take:
    """An episode to film, and its title: `episode 3 of 20, the worst`."""

    episode: Trajectory
    title: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame of a film."""

    image: Image.Image  # RGB; all frames of a film have the same size
    seconds: float  # duration


@dataclass(frozen=True, slots=True)
class _Timing:
    """The steps of an episode that are shown, and for how long."""

    every: int  # number of steps between two frames
    seconds: float  # duration of a frame
    faster: float  # speed relative to the environment's own pace


def _timing(length: int, pace: float, look: Look, max_frames: float) -> _Timing:
    faster = max(1.0, length / pace / look.seconds)
    if pace > SLOW_PACE:  # short motions, such as a fall of half a second, must stay visible
        faster = min(faster, max(SLOWEST, length / pace / SHORTEST_MOTION))
    every = max(1, math.ceil(pace * faster / RATE), math.ceil(length / max(1.0, max_frames - 1)))
    seconds = every / (pace * faster)
    shown = max(1, length / every)
    if pace <= SLOW_PACE and seconds * shown < SHORTEST_FILM:  # episodes of few steps must be readable
        seconds = max(seconds, min(LONGEST_PAUSE, SHORTEST_FILM / shown))
    return _Timing(every, seconds, faster)


def ending_of(episode: Trajectory, task: Task) -> list[str]:
    """Return a sentence about why an episode ended and, if the task has a threshold, one about whether it is solved.

    The first is, for example, `terminated: goal reached`; success is inferred from the rewards, see `reached_its_goal`.
    """
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
        return [why]
    return [why, f"{'solved' if episode.episode_return >= task.solved else 'not solved'} (threshold {task.solved:g})"]


def frames(policy: Policy, takes: Sequence[Take], look: Look = Look()) -> Iterator[Frame]:
    """Yield the frames of some episodes of a policy, each drawn when it is asked for.

    Each scored episode is replayed action by action in a rendering environment. The frame of a step shows the observed
    state and the next action.

    Warns:
        UserWarning: a replayed episode differs from the scored one.

    Raises:
        TaskError: the environment cannot render, or a package that it needs is missing.
        EnvironmentFault: the environment fails.
    """
    max_frames = math.inf if look.most is None else look.most / max(1, len(takes))
    with Stage(policy.task) as stage:
        plans = []
        for take in takes:
            timing = _timing(take.episode.length, stage.pace, look, max_frames)
            steps = range(0, take.episode.length, timing.every)
            plans.append((take, timing, dict(zip(steps, explain(policy, take.episode, steps), strict=True))))
        most_reasons = max(len(decision.reasons) for *_, decisions in plans for decision in decisions.values())
        panel = _Panel(policy, look.width, most_reasons)
        for take, timing, decisions in plans:
            episode = take.episode
            for scene in stage.play(episode, decisions):
                decision = None if scene.is_last else decisions[scene.step]
                image = panel.frame(scene, take, decision, timing.faster)
                yield Frame(image, LAST_FRAME if scene.is_last else timing.seconds)
            same_return = math.isclose(scene.earned, episode.episode_return, rel_tol=1e-4, abs_tol=1e-6)
            if scene.step != episode.length or not same_return:
                warnings.warn(
                    f"the environment did not repeat the episode of seed {episode.seed}: the scored return was"
                    f" {episode.episode_return:.4g} after {episode.length} steps, the film's is {scene.earned:.4g}"
                    f" after {scene.step}",
                    stacklevel=2,
                )


class _Panel:
    """Draws frames of one size: a picture above, words and bars below."""

    def __init__(self, policy: Policy, width: int, reasons: int) -> None:
        self._policy, self._width = policy, width // 2 * 2  # video codecs need even sizes
        self._size = max(SMALLEST_TEXT, width // 34)
        self._line = round(1.5 * self._size)
        self._height = self._line * (4 + reasons) + self._size
        self._picture_height: int | None = None

    def frame(self, scene: Scene, take: Take, decision: Decision | None, faster: float) -> Image.Image:
        """Draw a whole frame; without a decision the episode is over."""
        task = self._policy.task
        picture = _fitted(scene.picture, self._width)
        if self._picture_height is None:
            self._picture_height = picture.height
        height = (self._picture_height + self._height + 1) // 2 * 2
        image = Image.new("RGB", (self._width, height), _PAPER)
        image.paste(picture, ((self._width - picture.width) // 2, 0))
        draw = ImageDraw.Draw(image)
        draw.line((0, self._picture_height, self._width, self._picture_height), fill=_LINE)
        y, left, right = self._picture_height + self._size // 2, self._size // 2, self._width - self._size // 2
        plain, bold, small = _font(self._size), _font(self._size, bold=True), _font(self._size - 1)
        heading = f"{task.name}{', ' + take.title if take.title else ''}"
        pace = f"{faster:.2g} times as fast" if faster >= 1.05 else f"slowed {1 / faster:.2g} times" * (faster <= 0.95)
        room = right - left - small.getlength(pace) - self._size
        heading = heading if small.getlength(heading) <= room or not take.title else take.title
        draw.text((left, y), _cut(heading, small, room), _GREY, small)
        draw.text((right, y), pace, _GREY, small, anchor="ra")
        y += self._line
        draw.text((left, y), f"step {scene.step} of {take.episode.length}", _INK, plain)
        draw.text((right, y), f"return {_number(scene.earned)}", _INK, bold, anchor="ra")
        y += self._line
        if decision is None:
            lines = zip(ending_of(take.episode, task), (bold, small), strict=False)
            words = [(line, _INK, font) for line, font in lines]
        else:
            words = [(decision.action, _INK, bold)] if decision.action else []
            words.append((decision.summary, _GREY, small))
        for line, colour, font in words:
            draw.text((left, y), _cut(line, font, right - left), colour, font)
            y += self._line
        for reason in decision.reasons if decision is not None else ():
            self._draw_reason(draw, y, reason)
            y += self._line
        return image

    def _draw_reason(self, draw: ImageDraw.ImageDraw, y: int, reason: Reason) -> None:
        """Draw a line with a reason, its value, and a bar to the left or right of a zero line."""
        font, gap = _font(self._size - 1), self._size // 2
        right = self._width - gap
        if reason.share is not None:
            reach = round(0.13 * self._width)
            middle = right - reach
            right = middle - reach - gap
            draw.line((middle, y, middle, y + self._line - 3), fill=_GREY)
            end = middle + round(reason.share * reach)
            if end != middle:
                colour = OKABE_ITO[0] if reason.share >= 0 else OKABE_ITO[1]
                draw.rectangle((min(middle, end), y + 2, max(middle, end), y + self._line - 5), fill=colour)
        draw.text((right, y), reason.value, _INK, font, anchor="ra")
        draw.text((gap, y), _cut(reason.text, font, right - font.getlength(reason.value) - 2 * gap), _INK, font)


def _fitted(picture: npt.NDArray[np.uint8], width: int) -> Image.Image:
    """Scale a picture to fit into a square of the frame's width."""
    image = Image.fromarray(picture)
    scale = min(width / image.width, width / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def _cut(text: str, font: ImageFont.FreeTypeFont, room: float) -> str:
    """Shorten a text to a width of `room` pixels."""
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(f"{text}...") > room:
        text = text[:-1]
    return f"{text}..."


@functools.cache
def _font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Load a font that matplotlib contains, so that frames are the same on every machine."""
    import matplotlib  # start-up time: a page without a film does not need it

    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
