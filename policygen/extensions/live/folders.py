"""The runs that are served: those in one folder, listed anew for every request; links are ignored."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from policygen.errors import LogbookError
from policygen.extensions.compare.words import number
from policygen.extensions.page.content import proposals_words
from policygen.runs.attempt import Attempt
from policygen.runs.logbook import Logbook
from policygen.runs.steering import FILE, Steering

DEPTH = 2  # runs are looked for this many levels below the served folder: those of sweeps are at the second
MOST_RUNS = 500  # rows of the list; it shows the runs that changed last
_WATCHED = ("attempts.jsonl", "transcript.jsonl", "summary.json", "config.toml", "best.json", FILE)
_WIDTH, _HEIGHT = 120, 28  # pixels of a small curve
_POINTS = 120  # of the curve of a longer run, at least; at most twice as many

Version = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A row of the list of runs."""

    key: str  # the end of its address, after `/run/`
    task: str
    proposals: str
    state: str
    attempts: int  # without attempt 0, the random actions
    planned: int
    score: str
    points: str  # the best score after each attempt, as points of an SVG polyline; empty for fewer than two
    changed: str  # time of the last change of its files


def run_folders(root: Path) -> dict[str, Path]:
    """Return every run folder at or below `root` by its key; the key of `root` itself is empty.

    In a key, bytes that are not UTF-8 are replaced, because addresses and pages cannot hold them.
    """
    return dict(_folders_below(root, "", DEPTH))


def _folders_below(folder: Path, key: str, depth: int) -> Iterator[tuple[str, Path]]:
    if (folder / "config.toml").is_file() and not (folder / "config.toml").is_symlink():
        yield key, folder
        return
    if depth == 0:
        return
    try:
        inner = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in inner:
        shown_name = os.fsencode(name).decode(errors="replace")
        yield from _folders_below(folder / name, f"{key}/{shown_name}" if key else shown_name, depth - 1)


def version_of(folder: Path) -> Version:
    """Return a value that changes whenever the run's files change."""
    found = []
    for name in _WATCHED:
        with suppress(OSError):  # it does not exist
            status = (folder / name).lstat()
            found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def newest(folders: dict[str, Path]) -> dict[str, Version]:
    """Return the versions of the runs that changed last, by key, newest first; at most MOST_RUNS."""
    versions = {key: version_of(folder) for key, folder in folders.items()}
    return dict(sorted(versions.items(), key=lambda item: (-_changed(item[1]), item[0]))[:MOST_RUNS])


def _changed(version: Version) -> int:
    """Return the time of the last change of a run's files, in nanoseconds since the epoch."""
    return max((at for _, _, at in version), default=0)


@functools.lru_cache(maxsize=2 * MOST_RUNS)
def listed_run(key: str, folder: Path, version: Version) -> ListedRun:
    """Return the row of a run; that of a damaged run says so."""
    clock = time.strftime("%H:%M:%S", time.localtime(_changed(version) / 1e9))
    logbook = Logbook(folder)
    try:
        config, task, summary, attempts = logbook.config(), logbook.task(), logbook.summary(), logbook.attempts()
        paused = Steering(folder).read().paused
    except LogbookError as error:
        return ListedRun(key, "?", "", f"damaged: {error}"[:200], 0, 0, "", "", clock)
    score = summary.final.value if summary is not None and summary.final is not None else None
    if score is None and attempts:
        score = attempts[-1].standing.reported_best
    return ListedRun(
        key,
        task.name,
        proposals_words(config.llm),
        "finished" if summary is not None else "paused" if paused else "unfinished",
        max(0, len(attempts) - 1),
        config.iterations * config.candidates,
        f"{config.score.prefix}{number(score)}" if score is not None and math.isfinite(score) else "",
        _points(attempts),
        clock,
    )


def _points(attempts: list[Attempt]) -> str:
    """Return the curve of the best score as `ListedRun.points`."""
    start = attempts[0].score.value if attempts and attempts[0].score is not None else None
    values = [start if (best := a.standing.reported_best) is None else best for a in attempts]
    levels = [value for value in values if value is not None and math.isfinite(value)]
    if len(levels) < 2:
        return ""
    levels = levels[:: max(1, len(levels) // _POINTS)]
    low, high = min(levels), max(levels)
    across, up = _WIDTH / max(1, len(levels) - 1), (_HEIGHT - 4) / ((high - low) or 1.0)
    return " ".join(f"{i * across:.1f},{_HEIGHT - 2 - (value - low) * up:.1f}" for i, value in enumerate(levels))
