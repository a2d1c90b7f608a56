"""Films of a policy's scored episodes, as GIF or MP4."""

from __future__ import annotations

import base64
import html
import io
import itertools
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from policygen.episodes.envpool import pool_for
from policygen.episodes.players import Players
from policygen.episodes.requirements import Requirements
from policygen.episodes.score import episode_seeds
from policygen.errors import LogbookError, UsageError
from policygen.extensions.film.frames import Look, Take, frames
from policygen.extensions.plots.style import OKABE_ITO, check_suffix
from policygen.files import write_named
from policygen.policies.policy import Policy

Which = Literal["best", "worst", "median"]
FORMATS = ("gif", "mp4")
TO_CHOOSE_FROM = 20  # episodes played if one of them is to be chosen
_BAND = 12  # pixels: height of a band in the colour of a bar, in the image that the palette is made from


def takes(
    policy: Policy,
    *,
    episodes: int | None = None,
    seed: int = 0,
    which: Which | None = None,
    requirement: str | None = None,
) -> list[Take]:
    """Play episodes, and return those to film: all, or one chosen among them.

    They are the first episodes that `policygen eval` plays with the same seed.

    Args:
        episodes: number of episodes played; by default 1, or 20 to choose from.
        seed: determines the episodes, as for `policygen.score`.
        which: film only the episode with the highest, lowest or middle return (on a tie, the first).
        requirement: film only the episode that is furthest from meeting this requirement of the task.

    Raises:
        UsageError: a number is out of range, or the task has no such requirement.
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    count = episodes if episodes is not None else TO_CHOOSE_FROM if which or requirement else 1
    names = [one.name for one in policy.task.requirements]
    if requirement is not None and requirement not in names:
        known = f"it has {', '.join(names)}" if names else "its file states none"
        raise UsageError(f"task {policy.task.name} has no requirement `{requirement}`; {known}")
    if count < 1 or seed < 0:
        raise UsageError(f"a film needs at least 1 episode and a seed of at least 0, not {count} and {seed}")
    if pool_for(policy.task, 1) is not None:
        warnings.warn(
            "EnvPool scores this task and starts episodes differently; the film shows episodes of Gymnasium",
            stacklevel=2,
        )
    with Players(policy.task, use_pool=False) as players:
        played = players.play(policy, episode_seeds(seed, "evaluation", count))
    if requirement is not None:
        violations = Requirements(policy.task).by_episode(played)[names.index(requirement)]
        far = violations.shares if np.isnan(violations.distance).all() else violations.distance
        place, what = int(np.nanargmax(far)), f"the furthest from `{requirement}`"
    elif which is not None:
        returns = [episode.episode_return for episode in played]
        order = sorted(range(count), key=returns.__getitem__)
        middle = order[(count - 1) // 2]
        place = {"worst": order[0], "median": middle, "best": returns.index(max(returns))}[which]
        what = f"the {which}"
    else:
        return [Take(one, f"episode {i} of {count}" if count > 1 else "") for i, one in enumerate(played, start=1)]
    return [Take(played[place], f"episode {place + 1} of {count}, {what}")]


@dataclass(frozen=True)
class Film:
    """A film of a policy; a notebook shows it if it is the last line of a cell.

    Attributes:
        gif: the content of the film as a GIF file.
        returns: undiscounted return of each episode.
        seeds: seed of each episode.
        steps: number of steps of each episode.
    """

    gif: bytes
    returns: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: tuple[int, ...]

    def __repr__(self) -> str:
        returns = ", ".join(f"{value:.4g}" for value in self.returns)
        return f"Film(returns=({returns}), {len(self.gif) / 1000:.0f} KB)"

    def _repr_html_(self) -> str:
        about = html.escape(repr(self), quote=True)
        return f'<img alt="{about}" src="data:image/gif;base64,{base64.b64encode(self.gif).decode()}">'

    def save(self, path: str | Path) -> Path:
        """Write the film into a .gif file; return the path.

        Raises:
            UsageError: the name does not end in .gif.
            LogbookError: the file cannot be written.
        """
        check_suffix(Path(path), ("gif",))
        write_named(Path(path), self.gif)
        return Path(path)


def animate(
    policy: Policy, *, episodes: int | None = None, seed: int = 0, which: Which | None = None, look: Look | None = None
) -> Film:
    """Make a film of a policy, which a notebook shows inline.

    Args:
        episodes: number of episodes played; by default 1, or 20 to choose from.
        seed: determines the episodes.
        which: show only the episode with the highest, lowest or middle return; None: show all.
        look: size, length limits and number of colours.

    Raises:
        UsageError: a number is out of range.
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    shown = takes(policy, episodes=episodes, seed=seed, which=which)
    played = [take.episode for take in shown]
    return Film(
        gif(policy, shown, look or Look()),
        tuple(episode.episode_return for episode in played),
        tuple(episode.seed for episode in played),
        tuple(episode.length for episode in played),
    )


def gif(policy: Policy, shown: Sequence[Take], look: Look = Look()) -> bytes:  # noqa: B008 - frozen
    """Return the content of a GIF file with some episodes, which repeats for ever; `frames.SMALL` suits a page."""
    drawn = list(frames(policy, shown, look))
    palette = _palette([frame.image for frame in drawn], look.colours - 1)
    images: list[Image.Image] = []
    before = None
    for frame in drawn:
        indices = np.asarray(frame.image.quantize(palette=palette, dither=Image.Dither.NONE))
        # Unchanged pixels become transparent, which compresses well.
        changed = indices if before is None else np.where(indices == before, look.colours - 1, indices).astype(np.uint8)
        images.append(Image.fromarray(changed, "P"))
        images[-1].putpalette(palette.getpalette() or ())
        before = indices
    content = io.BytesIO()
    images[0].save(
        content,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=[max(20, 10 * round(100 * frame.seconds)) for frame in drawn],  # GIF times are in hundredths
        loop=0,
        optimize=False,
        disposal=1,
        transparency=look.colours - 1,
    )
    return content.getvalue()


def _palette(images: Sequence[Image.Image], colours: int) -> Image.Image:
    """Return an image with a palette of at most `colours`, made from eight frames spread over the film."""
    sample = [images[i] for i in np.unique(np.linspace(0, len(images) - 1, 8).round().astype(int))]
    width, height = sample[0].size
    sheet = Image.new("RGB", (width, (height + 2 * _BAND) * len(sample)))
    for i, image in enumerate(sample):
        sheet.paste(image, (0, i * (height + 2 * _BAND)))
        for k, colour in enumerate(OKABE_ITO[:2]):  # bars are small, so their colours are added
            low = (i + 1) * (height + 2 * _BAND) - k * _BAND
            sheet.paste(colour, (0, low - _BAND, width, low))
    return sheet.quantize(colors=colours, method=Image.Quantize.MEDIANCUT)


def film(policy: Policy, shown: Sequence[Take], path: str | Path) -> Path:
    """Write a film of some episodes as .gif or .mp4; return the path.

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


def _mp4(policy: Policy, shown: Sequence[Take]) -> bytes:
    drawn = frames(policy, shown, Look(width=640, most=None))
    first = next(drawn)  # an environment that cannot render fails before the package is checked
    try:
        import imageio_ffmpeg  # the extra `render`
    except ImportError:
        raise UsageError(
            'an MP4 needs imageio-ffmpeg; run: pip install "policygen[render]", or write a .gif instead'
        ) from None
    rate = 25
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        writer = imageio_ffmpeg.write_frames(
            str(file), first.image.size, fps=rate, macro_block_size=2, quality=7, ffmpeg_log_level="error"
        )
        writer.send(None)
        due = sent = 0.0
        for frame in itertools.chain([first], drawn):
            due += frame.seconds * rate
            while sent < due - 0.5:
                writer.send(frame.image.tobytes())
                sent += 1
        writer.close()
        try:
            return file.read_bytes()
        except OSError as error:
            raise LogbookError(f"ffmpeg made no film: {error.strerror}") from None
