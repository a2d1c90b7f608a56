"""Films of a policy at work, as GIF, MP4 or PNG: the very episodes that a score consists of."""

from __future__ import annotations

import base64
import html
import io
import itertools
import math
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from policygen.episodes.envpool import pool_for
from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.extensions.film.frames import Frame, Look, Take, frames
from policygen.extensions.plots.style import OKABE_ITO, check_suffix
from policygen.files import write_named
from policygen.policies.policy import Policy

if TYPE_CHECKING:
    from PIL.Image import Image

Which = Literal["best", "worst", "median"]
FORMATS = ("gif", "mp4")
TO_CHOOSE_FROM = 20  # episodes
_BAND = 12  # pixels of each colour that a palette must have


def takes(policy: Policy, *, episodes: int | None = None, seed: int = 0, which: Which | None = None) -> list[Take]:
    """Episodes to film: the first that `policygen eval` with that seed plays, or one chosen among them.

    Args:
        episodes: how many are played; 1, or 20 to choose from.
        seed: chooses the episodes, as for `policygen.score`.
        which: film only the one with the highest, lowest or middle return (of equals the first).

    Raises:
        UsageError: a number out of range.
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    count = episodes if episodes is not None else TO_CHOOSE_FROM if which else 1
    if count < 1 or seed < 0:
        raise UsageError(f"a film shows at least 1 episode, of a seed from 0 on, not {count} of seed {seed}")
    if pool_for(policy.task, 1) is not None:
        warnings.warn(
            "scores of this task are played by EnvPool, which begins episodes otherwise; the film shows episodes of"
            " Gymnasium",
            stacklevel=2,
        )
    with Players(policy.task, use_pool=False) as players:
        played = players.play(policy, episode_seeds(seed, "evaluation", count))
    if which is None:
        return [Take(episode, _title(i, count)) for i, episode in enumerate(played, start=1)]
    chosen = _chosen(played, which)
    return [Take(played[chosen], f"{_title(chosen + 1, count)}, the {which}")]


def _title(number: int, count: int) -> str:
    return f"episode {number} of {count}" if count > 1 else ""


def _chosen(played: Sequence[Trajectory], which: Which) -> int:
    returns = [episode.episode_return for episode in played]
    order = sorted(range(len(returns)), key=lambda i: (returns[i], i))
    return {"worst": order[0], "median": order[(len(order) - 1) // 2], "best": returns.index(max(returns))}[which]


@dataclass(frozen=True)
class Film:
    """A film of a policy; a notebook shows it where it is the last line of a cell.

    Attributes:
        gif: the film as a GIF.
        returns: undiscounted, of each of its episodes.
        seeds: that its episodes began with.
        steps: that its episodes took.
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
        """Write it as a .gif file; returns the path.

        Raises:
            UsageError: the name ends otherwise.
            LogbookError: it cannot be written.
        """
        check_suffix(Path(path), ("gif",))
        write_named(Path(path), self.gif)
        return Path(path)


def animate(
    policy: Policy,
    *,
    episodes: int | None = None,
    seed: int = 0,
    which: Which | None = None,
    look: Look | None = None,
) -> Film:
    """A film of a policy at work, shown inline by a notebook; what it takes and raises is said at `takes`, `frames`."""
    shown = takes(policy, episodes=episodes, seed=seed, which=which)
    played = [take.episode for take in shown]
    return Film(
        gif(policy, shown, look or Look()),
        tuple(episode.episode_return for episode in played),
        tuple(episode.seed for episode in played),
        tuple(episode.length for episode in played),
    )


def gif(policy: Policy, shown: Sequence[Take], look: Look = Look()) -> bytes:  # noqa: B008 - frozen
    """Some episodes of a policy as a GIF that goes round for ever; with `frames.SMALL` it is fit for a page."""
    made = checked(frames(policy, list(shown), look), shown)
    palette = _palette([frame.image for frame in made], look.colours - 1)
    from PIL import Image

    images, before = [], None
    for frame in made:
        indices = np.asarray(frame.image.quantize(palette=palette, dither=Image.Dither.NONE))
        # What stays as it was is left out: long runs of nothing take little room.
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
        duration=[max(20, 10 * round(100 * frame.seconds)) for frame in made],  # a GIF counts in hundredths
        loop=0,
        optimize=False,
        disposal=1,
        transparency=look.colours - 1,
    )
    return content.getvalue()


def _palette(images: Sequence[Image], colours: int) -> Image:
    """The colours that some of the frames, as different as they come, share."""
    from PIL import Image

    some = [images[i] for i in np.unique(np.linspace(0, len(images) - 1, 8).round().astype(int))]
    width, height = some[0].size
    sheet = Image.new("RGB", (width, (height + 2 * _BAND) * len(some)))
    for i, image in enumerate(some):
        sheet.paste(image, (0, i * (height + 2 * _BAND)))
        for k, colour in enumerate(OKABE_ITO[:2]):  # of bars, which are small
            low = (i + 1) * (height + 2 * _BAND) - k * _BAND
            sheet.paste(colour, (0, low - _BAND, width, low))
    return sheet.quantize(colors=colours, method=Image.Quantize.MEDIANCUT)


def png(policy: Policy, take: Take, count: int = 6, across: int = 3, look: Look = Look(width=320)) -> bytes:  # noqa: B008
    """Moments of an episode, evenly spaced, the first and the last among them, side by side: a film to print."""
    from PIL import Image

    made = checked(frames(policy, [take], look), [take])
    some = [made[i].image for i in np.unique(np.linspace(0, len(made) - 1, count).round().astype(int))]
    width, height = some[0].size
    gap = 8
    columns, lines = min(across, len(some)), math.ceil(len(some) / across)
    sheet = Image.new("RGB", (columns * (width + gap) - gap, lines * (height + gap) - gap), "white")
    for i, image in enumerate(some):
        sheet.paste(image, (i % across * (width + gap), i // across * (height + gap)))
    content = io.BytesIO()
    sheet.quantize(colors=128).save(content, "PNG", optimize=True)
    return content.getvalue()


def film(policy: Policy, shown: Sequence[Take], path: str | Path, look: Look | None = None) -> Path:
    """Write a film of some episodes as .gif or .mp4; returns the path.

    An MP4 has every frame, however many; a GIF at most 300.

    Raises:
        UsageError: the name says neither, or the package that makes an MP4 is missing.
        TaskError: the environment draws no pictures, or what it needs for them is missing.
        LogbookError: the file cannot be written.
    """
    path = Path(path)
    check_suffix(path, FORMATS)
    if path.suffix.lower() == ".gif":
        write_named(path, gif(policy, shown, look or Look()))
    else:
        write_named(path, _mp4(policy, shown, look or Look(width=640, most=None)))
    return path


def _mp4(policy: Policy, shown: Sequence[Take], look: Look) -> bytes:
    made = iter(_each_checked(frames(policy, list(shown), look), shown))
    first = next(made)  # an environment that draws nothing says so before a package is asked for
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UsageError(
            'an MP4 needs imageio-ffmpeg; run: pip install "policygen[render]", or make a .gif, which needs it not'
        ) from None
    rate = 25
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        writer: Any = None
        due = sent = 0.0
        for frame in itertools.chain([first], made):
            if writer is None:
                writer = imageio_ffmpeg.write_frames(
                    str(file), frame.image.size, fps=rate, macro_block_size=2, quality=7, ffmpeg_log_level="error"
                )
                writer.send(None)
            due += frame.seconds * rate
            while sent < due - 0.5:
                writer.send(frame.image.tobytes())
                sent += 1
        writer.close()
        try:
            return file.read_bytes()
        except OSError as error:
            raise LogbookError(f"ffmpeg made no film: {error.strerror}") from None


def checked(made: Iterable[Frame], shown: Sequence[Take]) -> list[Frame]:
    """All frames; with a warning where an episode went otherwise than when it was scored."""
    return list(_each_checked(made, shown))


def _each_checked(made: Iterable[Frame], shown: Sequence[Take]) -> Iterable[Frame]:
    waiting = iter(shown)
    for frame in made:
        if frame.last:
            episode = next(waiting).episode
            if frame.step != episode.length or not math.isclose(
                frame.earned, episode.episode_return, rel_tol=1e-4, abs_tol=1e-6
            ):
                warnings.warn(
                    f"the environment did not repeat the episode of seed {episode.seed}: its return was"
                    f" {episode.episode_return:.4g} after {episode.length} steps, in the film it is {frame.earned:.4g}"
                    f" after {frame.step}",
                    stacklevel=3,
                )
        yield frame
