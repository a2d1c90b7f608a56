"""GIF films of a policy's scored episodes: the environment's pictures, with the signals so far below them."""

# Imports inside functions: Matplotlib is slow to import.

from __future__ import annotations

import functools
import importlib
import io
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, ImageOps

from policygen.episodes.copies import SingleCopies
from policygen.episodes.trajectory import Trajectory
from policygen.errors import EnvironmentFault, TaskError
from policygen.extensions.plots.actions import quantities_behind
from policygen.extensions.plots.style import OKABE_ITO, check_suffix, imported_matplotlib, new_figure, style
from policygen.extensions.plots.traces import EPISODES, best_median_worst, draw_panel, panels_of, scored_episodes
from policygen.files import write_named
from policygen.policies.policy import Policy
from policygen.tasks.environments import make_env
from policygen.tasks.faults import OwnDirectory, close, fault
from policygen.tasks.task import Task

Which = Literal["best", "worst", "median"]
FORMATS = ("gif",)
WIDTH = 440  # pixels
MOST_FRAMES = 300
COLOURS = 64
RATE = 25.0  # most frames per second
PACE = 10.0  # steps per second, if the environment states none
LONGEST, SHORTEST = 20.0, 2.5  # seconds per episode; longer ones are played faster, shorter ones slower
MOST_PANELS = 2  # of observations, and of actions
LAST_FRAME = 2.5  # seconds; this frame says why the episode ended
RGB_ARRAY = "rgb_array"  # Gymnasium's render mode for arrays
_TEXT, _MARGIN = 13, 6  # pixels
_BAND = 60  # pixels: height of each colour's band in the image from which the palette is computed


def takes(
    policy: Policy, *, episodes: int | None = None, seed: int = 0, which: Which | None = None
) -> dict[str, Trajectory]:
    """Play the first episodes that `policygen eval` plays with this seed; return those to film, by title.

    Args:
        episodes: number of episodes to play; by default 1, or 20 with `which`.
        which: only the episode with the highest, lowest or median return.

    Raises:
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    played = scored_episodes(policy, episodes if episodes is not None else EPISODES if which else 1, seed)
    if which is None:
        return {f"episode {i} of {len(played)}": one for i, one in enumerate(played, start=1)}
    title, chosen = f"{which} of {len(played)}", best_median_worst(played)
    return {title: chosen.get(title, next(reversed(chosen.values())))}  # of one or two, some titles are missing


def film(policy: Policy, shown: Mapping[str, Trajectory], path: str | Path) -> Path:
    """Write a film of episodes, by title, as a .gif of at most about 300 frames; return the path.

    Raises:
        UsageError: the suffix is unknown.
        TaskError: the environment cannot render, or a package that it needs is missing.
        LogbookError: the file cannot be written.
    """
    path = Path(path)
    check_suffix(path, FORMATS)
    with OwnDirectory():
        content = gif(policy, shown)
    write_named(path, content)
    return path


def gif(policy: Policy, shown: Mapping[str, Trajectory]) -> bytes:
    """Return a film as a GIF; see `film` for errors."""
    pictures, seconds = zip(*frames(policy, shown, MOST_FRAMES), strict=True)
    # A few frames, and the colours of the lines, which cover few pixels, determine the palette.
    sheet = Image.new("RGB", (WIDTH, 4 * pictures[0].height + _BAND * len(OKABE_ITO)), "white")
    for i, place in enumerate(np.linspace(0, len(pictures) - 1, 4).round().astype(int)):
        sheet.paste(pictures[place], (0, i * pictures[0].height))
    for i, colour in enumerate(OKABE_ITO, start=1):
        sheet.paste(colour, (0, sheet.height - i * _BAND, WIDTH, sheet.height - (i - 1) * _BAND))
    palette = sheet.quantize(colors=COLOURS, method=Image.Quantize.MEDIANCUT)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in pictures]
    durations = [max(20, 10 * round(100 * duration)) for duration in seconds]  # GIF times are in hundredths
    content = io.BytesIO()
    images[0].save(content, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
    return content.getvalue()


def ending_of(episode: Trajectory, task: Task) -> str:
    """Return how an episode ended, in words, and whether it is solved if the task has a threshold."""
    how = "the simulation broke down" if episode.unstable else "terminated" if episode.terminated else "truncated"
    if task.solved is not None:
        how += ", solved" if episode.episode_return >= task.solved else ", not solved"
    return how


# --- frames ----------------------------------------------------------------------------------------------------------


def frames(policy: Policy, shown: Mapping[str, Trajectory], most: float) -> Iterator[tuple[Image.Image, float]]:
    """Yield at most about `most` frames of episodes, by title, each with its duration in seconds; all have one size.

    Each scored episode is replayed action by action in a rendering environment.

    Warns:
        UserWarning: a replayed episode differs from the scored one.

    Raises:
        TaskError: the environment cannot render, or a package that it needs is missing.
        EnvironmentFault: the environment fails.
    """
    task, height, env = policy.task, 0, rendering_env(policy.task)
    try:
        pace = float(env.metadata.get("render_fps") or PACE)
        for title, episode in shown.items():
            own = episode.length / pace
            faster = own / min(max(own, SHORTEST), LONGEST)
            every = max(1, math.ceil(pace * faster / RATE), math.ceil(episode.length * len(shown) / most))
            signals_until = _signals(policy, episode)
            for step, is_last, earned, picture in replayed(env, task, episode, range(0, episode.length, every)):
                how = Image.Resampling.LANCZOS if max(picture.shape) > WIDTH else Image.Resampling.NEAREST
                drawn = ImageOps.contain(Image.fromarray(picture), (WIDTH, WIDTH), how)
                strip = signals_until(step)
                height = height or drawn.height
                image = Image.new("RGB", (WIDTH, height + 4 * _MARGIN + 2 * _TEXT + strip.height), "white")
                image.paste(drawn, ((WIDTH - drawn.width) // 2, 0))
                image.paste(strip, (0, image.height - strip.height))
                draw, right, first = ImageDraw.Draw(image), WIDTH - _MARGIN, height + _MARGIN
                draw.text((_MARGIN, first), f"{task.name}, {title}", "#666666", _font())
                if not 0.95 < faster < 1.05:
                    draw.text((right, first), f"speed x{faster:.2g}", "#666666", _font(), anchor="ra")
                second = first + _TEXT + _MARGIN
                now = ending_of(episode, task) if is_last else f"step {step} of {episode.length}"
                draw.text((_MARGIN, second), now, "#1a1a1a", _font())
                draw.text((right, second), f"return {earned:,.6g}", "#1a1a1a", _font(bold=True), anchor="ra")
                yield image, LAST_FRAME if is_last else every / (pace * faster)
            if step != episode.length or not math.isclose(earned, episode.episode_return, rel_tol=1e-4, abs_tol=1e-6):
                what = f"a return of {earned:.4g} after {step} steps, not {episode.episode_return:.4g}"
                warnings.warn(
                    f"the environment did not repeat the episode of seed {episode.seed}: {what}", stacklevel=2
                )
    finally:
        close(env)


def _signals(policy: Policy, episode: Trajectory) -> Callable[[int], Image.Image]:
    """Return a function from a step to a picture of the signals until then.

    The signals are the first observations that decide the actions, and the first actions.
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


@functools.cache
def _font(*, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Load a font that comes with Matplotlib, so that frames are the same on every machine."""
    fonts = Path(imported_matplotlib().get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(fonts / f"DejaVuSans{'-Bold' if bold else ''}.ttf"), _TEXT)


# --- replayed episodes -----------------------------------------------------------------------------------------------


def replayed(
    env: gym.Env[Any, Any], task: Task, episode: Trajectory, wanted: Container[int]
) -> Iterator[tuple[int, bool, float, npt.NDArray[np.uint8]]]:
    """Replay an episode in a rendering environment; yield before each of the `wanted` steps, and at the end.

    Yields the number of steps taken, whether the episode is over, the return so far, and a picture. If the environment
    behaves differently with the same seed, the replay may end earlier or have another return.

    Raises:
        EnvironmentFault: the environment fails.
        TaskError: a package that rendering needs is missing.
    """
    copies, rewards, ended = SingleCopies(task, env), list[float](), False
    copies.begin([episode.seed])
    for step in range(episode.length + 1):
        ended = ended or step == episode.length
        if ended or step in wanted:
            yield step, ended, float(np.sum(rewards)), _picture(env, task.gym_id)
        if ended:
            return
        _, paid, terminated, truncated = copies.step([episode.actions[step]])
        rewards.append(paid[0])
        ended = bool(terminated[0]) or truncated is not False


def rendering_env(task: Task) -> gym.Env[Any, Any]:
    """Return an environment of the task that renders arrays; the caller closes it.

    Raises:
        TaskError: it draws no pictures.
    """
    headless = sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if headless:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws in memory
    if task.given is not None:
        return task.given.rendering(task.max_steps, RGB_ARRAY)  # type: ignore[no-any-return]
    plain = make_env(task)
    modes = plain.metadata.get("render_modes") or ()
    is_mujoco = hasattr(plain.unwrapped, "mujoco_renderer")
    close(plain)
    if RGB_ARRAY not in modes:
        raise TaskError(
            f"{task.gym_id} draws no pictures (it has no render mode `{RGB_ARRAY}`), so there is no film of it; "
            "`policygen show RUN -o picture.png` and `policygen report RUN` draw the policy without them"
        )
    if headless and is_mujoco and "MUJOCO_GL" not in os.environ:
        try:
            importlib.import_module("mujoco.egl").GLContext(8, 8).free()
        except Exception:  # a library, a driver or a device is missing
            why = "there is no screen, and EGL does not work; run: apt install libegl1, or set MUJOCO_GL=osmesa"
            raise TaskError(f"MuJoCo cannot draw here: {why}") from None
        os.environ["MUJOCO_GL"] = "egl"
    kwargs = {**dict(task.kwargs), "render_mode": RGB_ARRAY}
    return make_env(replace(task, kwargs=tuple(kwargs.items())))


def _picture(env: gym.Env[Any, Any], name: str) -> npt.NDArray[np.uint8]:
    try:
        drawn = np.asarray(env.render())
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        why = " ".join(str(error).split())
        raise TaskError(f'{name} cannot draw here ({why}); run: pip install "policygen[render]"') from None
    except BaseException as error:
        raise fault(error, env, name, "render") from error
    if drawn.ndim != 3 or drawn.shape[2] != 3 or drawn.dtype != np.uint8:
        raise EnvironmentFault(f"{name}: `render` returned no picture, that is uint8 of shape (height, width, 3)")
    return drawn
