"""Films of a policy's scored episodes, as GIF or MP4: the environment's pictures, and below them the signals so far."""

# Imports inside functions: the packages of the extra `render`, and Matplotlib, which is slow to import.

from __future__ import annotations

import functools
import importlib
import io
import itertools
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from policygen.episodes.simulator import RunningEpisode
from policygen.episodes.trajectory import Trajectory
from policygen.errors import EnvironmentFault, LogbookError, TaskError, UsageError
from policygen.extensions.plots.actions import quantities_behind
from policygen.extensions.plots.style import OKABE_ITO, check_suffix, imported_matplotlib, new_figure, style, with_unit
from policygen.extensions.plots.traces import EPISODES, draw_panel, panels_of, scored_episodes
from policygen.files import write_named
from policygen.policies.policy import Policy
from policygen.prompts.account import reached_its_goal
from policygen.tasks.actions import builder
from policygen.tasks.environments import make_env
from policygen.tasks.faults import OwnDirectory, close, fault
from policygen.tasks.task import Task

Which = Literal["best", "worst", "median"]
FORMATS = ("gif", "mp4")
WIDTH = 440  # pixels
MOST_FRAMES = 300  # of a GIF
COLOURS = 64  # of a GIF
RATE = 25.0  # most frames per second
PACE = 10.0  # steps per second, if the environment states none; at most this pace shows moves rather than motion
LONGEST, SHORTEST = 20.0, 2.5  # seconds per episode: longer ones play faster, shorter ones slower
MOST_PANELS = 2  # of observations, and of actions
SLOWEST = 0.1  # smallest share of its own pace to which an environment is slowed down
LAST_FRAME = 2.5  # seconds; it says why the episode ended
RGB_ARRAY = "rgb_array"  # Gymnasium's render mode for arrays
_TEXT, _MARGIN = 13, 6  # pixels
_BAND = 60  # pixels: height of a band of one colour in the image that the palette is made from


def takes(
    policy: Policy, *, episodes: int | None = None, seed: int = 0, which: Which | None = None
) -> dict[str, Trajectory]:
    """Play the first episodes that `policygen eval` plays with the same seed; return those to film, by title.

    Args:
        episodes: number of episodes played; by default 1, or 20 to choose from.
        which: only the episode with the highest, lowest or median return (on a tie, the first).

    Raises:
        UsageError: a number is out of range.
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    played = scored_episodes(policy, episodes if episodes is not None else EPISODES if which else 1, seed)
    numbered = {f"episode {i} of {len(played)}": one for i, one in enumerate(played, start=1)}
    if which is None:
        return numbered
    order = sorted(numbered, key=lambda title: numbered[title].episode_return)
    best = max(numbered, key=lambda title: numbered[title].episode_return)
    title = {"worst": order[0], "median": order[(len(order) - 1) // 2], "best": best}[which]
    return {f"{title}, the {which}": numbered[title]}


def film(policy: Policy, shown: Mapping[str, Trajectory], path: str | Path) -> Path:
    """Write a film of some episodes, by title, as .gif or .mp4; return the path.

    A GIF has about 300 frames at most; an MP4 has no limit.

    Raises:
        UsageError: the suffix is unknown, or the package that MP4 needs is missing.
        TaskError: the environment cannot render, or a package that it needs is missing.
        LogbookError: the file cannot be written.
    """
    path = Path(path)
    check_suffix(path, FORMATS)
    write_named(path, gif(policy, shown) if path.suffix.lower() == ".gif" else _mp4(policy, shown))
    return path


def gif(policy: Policy, shown: Mapping[str, Trajectory]) -> bytes:
    """Return a film as a GIF; see `film` for errors."""
    drawn = list(frames(policy, shown, MOST_FRAMES))
    sample = [drawn[i][0] for i in np.unique(np.linspace(0, len(drawn) - 1, 8).round().astype(int))]
    sheet = Image.new("RGB", (WIDTH, sample[0].height * len(sample) + _BAND * len(OKABE_ITO)), "white")
    for i, image in enumerate(sample):
        sheet.paste(image, (0, i * image.height))
    for i, colour in enumerate(OKABE_ITO, start=1):  # lines are thin, so their colours are added
        sheet.paste(colour, (0, sheet.height - i * _BAND, WIDTH, sheet.height - (i - 1) * _BAND))
    palette = sheet.quantize(colors=COLOURS - 1, method=Image.Quantize.MEDIANCUT)
    images: list[Image.Image] = []
    before = None
    for image, _ in drawn:
        indices = np.asarray(image.quantize(palette=palette, dither=Image.Dither.NONE))
        # Unchanged pixels become transparent, which compresses well.
        changed = indices if before is None else np.where(indices == before, COLOURS - 1, indices).astype(np.uint8)
        images.append(Image.fromarray(changed, "P"))
        images[-1].putpalette(palette.getpalette() or ())
        before = indices
    content = io.BytesIO()
    images[0].save(
        content,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=[max(20, 10 * round(100 * seconds)) for _, seconds in drawn],  # GIF times are in hundredths
        loop=0,
        optimize=False,
        disposal=1,
        transparency=COLOURS - 1,
    )
    return content.getvalue()


def _mp4(policy: Policy, shown: Mapping[str, Trajectory]) -> bytes:
    drawn = frames(policy, shown, math.inf)
    first = next(drawn)  # an environment that cannot render fails before the package is checked
    try:
        import imageio_ffmpeg  # the extra `render`
    except ImportError:
        raise UsageError(
            'an MP4 needs imageio-ffmpeg; run: pip install "policygen[render]", or write a .gif instead'
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        writer = imageio_ffmpeg.write_frames(
            str(file), first[0].size, fps=RATE, macro_block_size=2, quality=7, ffmpeg_log_level="error"
        )
        writer.send(None)
        due = sent = 0.0
        for image, seconds in itertools.chain([first], drawn):
            due += seconds * RATE
            while sent < due - 0.5:
                writer.send(image.tobytes())
                sent += 1
        writer.close()
        try:
            return file.read_bytes()
        except OSError as error:
            raise LogbookError(f"ffmpeg made no film: {error.strerror}") from None


# --- frames ----------------------------------------------------------------------------------------------------------


def ending_of(episode: Trajectory, task: Task) -> str:
    """Return words on why an episode ended, and whether it is solved if the task has a threshold.

    Success is inferred from the rewards, see `reached_its_goal`.
    """
    whole = episode.length >= task.max_steps
    if episode.unstable:
        why = "the simulation broke down"
    elif not episode.terminated:
        why = f"truncated {f'at {task.max_steps:,} steps' if whole else 'by the environment'}"
    elif reached_its_goal(episode, task.solved):
        why = "terminated: goal reached"
    else:
        why = f"terminated at {task.max_steps:,} steps" if whole else "terminated: failed"
    if task.solved is not None:
        why += ", solved" if episode.episode_return >= task.solved else ", not solved"
    return why


def frames(policy: Policy, shown: Mapping[str, Trajectory], most: float) -> Iterator[tuple[Image.Image, float]]:
    """Yield at most about `most` frames of some episodes, by title, with their durations in seconds; all have one size.

    Each scored episode is replayed action by action in a rendering environment.

    Warns:
        UserWarning: a replayed episode differs from the scored one.

    Raises:
        TaskError: the environment cannot render, or a package that it needs is missing.
        EnvironmentFault: the environment fails.
    """
    task, height = policy.task, 0
    with Stage(task) as stage:
        for title, episode in shown.items():
            every, seconds, faster = _timing(episode.length, stage.pace, most / len(shown))
            pace = f"{faster:.2g} times as fast" if faster >= 1.05 else f"slowed {1 / faster:.2g} times"
            signals_until = _signals(policy, episode)
            for scene in stage.play(episode, range(0, episode.length, every)):
                picture = _fitted(scene.picture)
                height = height or picture.height
                signals = signals_until(scene.step)
                now = ending_of(episode, task) if scene.is_last else f"step {scene.step} of {episode.length}"
                top = height + 4 * _MARGIN + 2 * _TEXT
                image = Image.new("RGB", (WIDTH, (top + signals.height + 1) // 2 * 2), "white")  # even, for codecs
                image.paste(picture, ((WIDTH - picture.width) // 2, 0))
                image.paste(signals, (0, top))
                draw, right, first = ImageDraw.Draw(image), WIDTH - _MARGIN, height + _MARGIN
                draw.line((0, height, WIDTH, height), fill="#dddddd")
                draw.text((_MARGIN, first), f"{task.name}, {title}", "#666666", _font())
                if not 0.95 < faster < 1.05:
                    draw.text((right, first), pace, "#666666", _font(), anchor="ra")
                second = first + _TEXT + _MARGIN
                draw.text((_MARGIN, second), now, "#1a1a1a", _font())
                draw.text((right, second), f"return {scene.earned:,.6g}", "#1a1a1a", _font(bold=True), anchor="ra")
                yield image, LAST_FRAME if scene.is_last else seconds
            if scene.step != episode.length or not math.isclose(
                scene.earned, episode.episode_return, rel_tol=1e-4, abs_tol=1e-6
            ):
                warnings.warn(
                    f"the environment did not repeat the episode of seed {episode.seed}: the scored return was"
                    f" {episode.episode_return:.4g} after {episode.length} steps, the film's is {scene.earned:.4g}"
                    f" after {scene.step}",
                    stacklevel=2,
                )


def _timing(length: int, pace: float, most: float) -> tuple[int, float, float]:
    """Return the steps from one frame to the next, their duration in seconds, and the speed relative to `pace`."""
    own = length / pace  # seconds
    faster = max(1.0, own / LONGEST) if own > SHORTEST else max(SLOWEST, own / SHORTEST)
    every = max(1, math.ceil(pace * faster / RATE), math.ceil(length / max(1.0, most - 1)))
    return every, every / (pace * faster), faster


def _signals(policy: Policy, episode: Trajectory) -> Callable[[int], Image.Image]:
    """Return a function from a step to the picture of the signals until then.

    They are the first observations that decide the actions, and the first actions.
    """
    imported_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    task, panels = policy.task, panels_of(policy.task, episode)
    acted, read = {one.name for one in task.actuators}, quantities_behind(policy)
    chosen = [panel for panel in panels if any(signal.name in read for signal in panel)][:MOST_PANELS]
    chosen += [panel for panel in panels if panel[0].name in acted][:MOST_PANELS]
    with style({"font.size": 8, "figure.dpi": 100}):
        figure = new_figure(WIDTH / 100, 0.65 * len(chosen) + 0.35)
        canvas: Any = FigureCanvasAgg(figure)
        places = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(places, chosen, strict=True):
            draw_panel(axes, panel, task.step_seconds)
            if not panel[0].labels:
                axes.locator_params(axis="y", nbins=3)
            if len(panel) == 1:
                axes.set_title(with_unit(panel[0].name, panel[0].unit), loc="left", fontsize=8, pad=2)
            else:
                axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.9), ncols=len(panel), fontsize=7)
                axes.set_ylabel(panel[0].unit)
        places[-1].set_xlabel("time [s]" if task.step_seconds else "step")
        canvas.draw()
        figure.set_layout_engine("none")
        drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        for line in itertools.chain(*(axes.lines for axes in places)):
            line.set_visible(False)
        canvas.draw()
        blank = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        times = (task.step_seconds or 1) * np.arange(episode.length + 1)
        reach = places[0].transData.transform(np.column_stack([times, times]))[:, 0].round().astype(int) + 1

    def until(step: int) -> Image.Image:
        image = blank.copy()
        image.paste(drawn.crop((0, 0, int(reach[step]), drawn.height)), (0, 0))
        return image

    return until


def _fitted(picture: npt.NDArray[np.uint8]) -> Image.Image:
    """Scale a picture to fit into a square of the frame's width."""
    image = Image.fromarray(picture)
    scale = min(WIDTH / image.width, WIDTH / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)


@functools.cache
def _font(*, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Load a font that Matplotlib contains, so that frames are the same on every machine."""
    fonts = Path(imported_matplotlib().get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(fonts / f"DejaVuSans{'-Bold' if bold else ''}.ttf"), _TEXT)


# --- replayed episodes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """An episode after some of its steps."""

    step: int  # number of steps taken
    is_last: bool  # whether the episode is over
    earned: float  # undiscounted sum of the rewards so far
    picture: npt.NDArray[np.uint8]  # shape (height, width, 3)


class Stage:
    """An environment of the task that renders pictures; use it in a `with`, which closes it.

    Attributes:
        pace: steps per second at which the environment is meant to be shown.

    Raises:
        TaskError: it cannot render, or a package that it needs is missing.
    """

    def __init__(self, task: Task) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        if _is_headless():
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws in memory
        self._directory = OwnDirectory()
        with self._directory:
            self.task = task
            self._env = _rendering_env(task) if task.given is None else task.given.rendering(task.max_steps, RGB_ARRAY)
        self.pace = float(self._env.metadata.get("render_fps") or PACE)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exception: object) -> None:
        close(self._env)

    def play(self, episode: Trajectory, wanted: Container[int]) -> Iterator[Scene]:
        """Replay the actions of an episode; yield a scene before each of the `wanted` steps, and one at the end.

        If the environment does not repeat itself with the same seed, the replay may end earlier or have another return,
        as the last scene states.

        Raises:
            EnvironmentFault: the environment fails.
            TaskError: a package that rendering needs is missing.
        """
        build = builder(self.task.action_layout)
        if build is None and isinstance(self._env.action_space, gym.spaces.Discrete):
            build = int
        with self._directory:
            replayed = RunningEpisode.start(self._env, self.task, 0, episode.seed)
        ended = False
        for step in range(episode.length + 1):
            ended = ended or step == episode.length
            if ended or step in wanted:
                yield Scene(step, ended, float(np.sum(replayed.rewards)), self._picture())
            if ended:
                return
            action = episode.actions[step]
            with self._directory:
                ended = replayed.step(action, action if build is None else build(action)) is not None

    def _picture(self) -> npt.NDArray[np.uint8]:
        env, name = self._env, self.task.gym_id
        try:
            if hasattr(env.unwrapped, "mujoco_renderer"):
                _choose_renderer()
            picture: Any = env.render()
        except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
            text = " ".join(str(error).split())
            why = f"a package that is not installed: {text}"
            if "pygame" in text:
                why = 'pygame; run: pip install "policygen[render]"'
            raise TaskError(f"pictures of {name} need {why}") from None
        except TaskError:
            raise
        except BaseException as error:
            raise fault(error, env, name, "render") from error
        drawn = np.asarray(picture)
        if drawn.ndim != 3 or drawn.shape[2] != 3 or drawn.dtype != np.uint8:
            raise EnvironmentFault(
                f"{name}: `render` returned {drawn.dtype} of shape {drawn.shape}, which is no picture; it must return"
                " uint8 of shape (height, width, 3)"
            )
        return drawn


def _rendering_env(task: Task) -> gym.Env[Any, Any]:
    plain = make_env(task)
    modes = plain.metadata.get("render_modes") or ()
    close(plain)
    if RGB_ARRAY not in modes:
        raise TaskError(
            f"{task.gym_id} draws no pictures (it has no render mode `{RGB_ARRAY}`), so there is no film of it; "
            "`policygen show RUN -o picture.png` and `policygen report RUN` draw the policy without them"
        )
    kwargs = {**dict(task.kwargs), "render_mode": RGB_ARRAY}
    return make_env(replace(task, kwargs=tuple(kwargs.items())))


def _is_headless() -> bool:
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@functools.cache
def _choose_renderer() -> None:
    """Let MuJoCo render without a screen, by EGL or OSMesa, unless the user has chosen a renderer."""
    if not _is_headless() or "MUJOCO_GL" in os.environ:
        return
    before = os.environ.pop("PYOPENGL_PLATFORM", None)
    for name in ("egl", "osmesa"):
        try:
            importlib.import_module(f"mujoco.{name}").GLContext(8, 8).free()
        except Exception:  # a library, a driver or a device is missing
            os.environ.pop("PYOPENGL_PLATFORM", None)  # MuJoCo has set it
            continue
        os.environ["MUJOCO_GL"] = name
        return
    if before is not None:
        os.environ["PYOPENGL_PLATFORM"] = before
    raise TaskError(
        "MuJoCo cannot draw here: there is no screen, and neither EGL nor OSMesa works; install one of them (on"
        " Debian: apt install libegl1 libosmesa6), or make the film on a machine with a screen"
    )
