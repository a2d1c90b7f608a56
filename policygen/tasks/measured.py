"""A cache of measurements of environments, kept for a day, so that the next command need not play again."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import platform
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.errors import LogbookError
from policygen.files import write_atomically
from policygen.tasks.warmup import WarmUp

OFF = "POLICYGEN_NO_CACHE"  # an environment variable that switches the cache off
SECONDS_KEPT = 86_400.0
_MOST_SOURCES = 2_000  # files of a package that are checked for changes
_PACKAGES = ("policygen", "gymnasium", "numpy")


@dataclass(frozen=True)
class Measurements:
    """Measurements of an environment.

    Attributes:
        limit: the step limit of episodes, stated by the environment or found by playing; None if there is none.
        played: the number of episodes played to find `limit`; 0 if the environment states it.
        warm: observations under random actions.
        unseeded: whether episodes with the same seed differ.
    """

    limit: int | None
    played: int
    warm: WarmUp
    unseeded: bool


def cache_file(env: gym.Env[Any, Any], gym_id: str, kwargs: Mapping[str, Any]) -> Path | None:
    """Return the cache file of an environment; None if `OFF` is set, or the user has no cache folder.

    Its name is a hash of the id, arguments, spaces and wrappers, the versions of packages, and sizes and times of the
    sources beside the environment's class, so that a change in any of them leads to new measurements.
    """
    if os.environ.get(OFF):
        return None
    from platformdirs import user_cache_path  # start-up time

    package = type(env.unwrapped).__module__.partition(".")[0]
    owners = metadata.packages_distributions().get(package, [])[:1]
    versions = [(name, metadata.version(name)) for name in (*_PACKAGES, *owners)]
    told = [gym_id, repr(dict(kwargs)), repr(env), repr(env.observation_space), repr(env.action_space)]
    words = json.dumps([told, versions, platform.python_version(), _sources(package)])
    try:
        folder = user_cache_path("policygen")
    except (OSError, RuntimeError):  # no home
        return None
    return folder / "measured" / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.npz"


def _sources(package: str) -> list[tuple[str, int, int]]:
    """Return path, size in bytes and modification time in ns of a package's sources, or of those beside a module."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent
    found = folder.rglob("*.py") if spec.submodule_search_locations else folder.glob("*.py")
    files = sorted(path for path, _ in zip(found, range(_MOST_SOURCES), strict=False))
    return [(str(path), (state := path.stat()).st_size, state.st_mtime_ns) for path in files]


def read_measurements(path: Path | None, width: int) -> Measurements | None:
    """Return the measurements in a file; None if it is missing, old or damaged, or has another number of columns."""
    if path is None:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError):
        if not 0 <= time.time() - path.stat().st_mtime < SECONDS_KEPT:
            return None
        with np.load(path, allow_pickle=False) as held:
            rows, episodes, ended = held["rows"], held["episodes"], held["ended"].reshape(-1, 2)
            limit, played, unseeded = held["numbers"].tolist()
        if rows.shape != (len(episodes), width) or not len(rows) or not np.isfinite(rows).all():
            return None
        lengths = tuple((int(length), float(total)) for length, total in ended)
        return Measurements(limit or None, played, WarmUp(rows, episodes, lengths), bool(unseeded))
    return None


def write_measurements(path: Path | None, measured: Measurements) -> None:
    """Write measurements to a file and delete files older than a day; do nothing if the folder cannot be written."""
    if path is None:
        return
    content = io.BytesIO()
    warm = measured.warm
    numbers = np.array([measured.limit or 0, measured.played, measured.unseeded])
    np.savez_compressed(
        content, rows=warm.rows, episodes=warm.episodes, ended=np.array(warm.ended, np.float64), numbers=numbers
    )
    with suppress(OSError, LogbookError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.glob("*.npz"):
            if time.time() - other.stat().st_mtime > SECONDS_KEPT:
                other.unlink(missing_ok=True)
        write_atomically(path, content.getvalue())
