"""Read and write episodes in Minari's format.

A dataset may be untrusted, and Minari may import a module that the dataset names. Therefore only h5py reads the file,
and nothing that the file names is made, imported or opened.
"""

# Imports inside functions: h5py and minari are the extra `minari`.

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.spaces import Layout, TextPart
from policygen.tasks.task import Task

MOST_NUMBERS = 50_000_000  # numbers that a dataset may hold, besides 16 per byte of its file
_MOST_IN_A_BYTE = 16  # a compressed file may hold several numbers per byte
MOST_EPISODES = 100_000
_ID = re.compile(r"[A-Za-z0-9_][-\w]*(/[A-Za-z0-9_][-\w]*)*-v\d+", re.ASCII)
_INSTALL = 'reading and writing Minari datasets needs h5py and minari; pip install "policygen[minari]"'


def dataset_folder(name: str) -> Path:
    """Return a dataset's folder: the path itself, or a folder below `MINARI_DATASETS_PATH`."""
    if (Path(name) / "data").is_dir():
        return Path(name)
    root = os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets"
    return Path(root) / name


def read_minari(name: str, task: Task) -> list[Trajectory]:
    """Read the episodes of an HDF5 dataset of the task's environment; runs no code from the file.

    Raises:
        UsageError: there is no such dataset, it has another form or environment, or h5py is missing.
    """
    folder = dataset_folder(name) / "data"
    file = folder / "main_data.hdf5"
    if not file.is_file():
        known = "there is none; check the name, or fetch it with: minari download ID"
        with suppress(OSError, ValueError, AttributeError):
            metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8")[: 2**20])
            if form := str(metadata.get("data_format"))[:40]:
                known = f"it is in the form `{form}`; save it again with data_format='hdf5'"
        raise UsageError(f"cannot read the Minari dataset {name} ({dataset_folder(name)}): {known}")
    try:
        import h5py
    except ImportError:
        raise UsageError(_INSTALL) from None
    try:
        with h5py.File(file, "r") as content:
            names = sorted((key for key in content if key.startswith("episode_")), key=lambda key: (len(key), key))
            reader = _Reader(h5py, MOST_NUMBERS + _MOST_IN_A_BYTE * file.stat().st_size)
            return [reader.episode(content, key, task) for key in names[:MOST_EPISODES]]
    except UsageError as error:
        raise UsageError(f"the Minari dataset {name}: {error}") from None
    except Exception as error:  # a damaged file raises almost anything in HDF5
        words = " ".join(f"{error}".split())[:200] or type(error).__name__
        raise UsageError(f"the Minari dataset {name} is damaged: {words}") from None


class _Reader:
    """A reader of at most `most` numbers: a small file can claim many, or list one array many times."""

    def __init__(self, h5py: Any, most: int) -> None:
        self._h5py, self._left = h5py, most

    def episode(self, content: Any, key: str, task: Task) -> Trajectory:
        group = self._member(content, key)
        observations = self._rows(self._member(group, "observations"), task.layout)
        names = ("actions", "rewards", "terminations", "truncations")
        actions, rewards, *flags = (self._numbers(self._member(group, name)) for name in names)
        terminated, truncated = (bool(len(one) and one[-1]) for one in flags)
        seed = group.attrs.get("seed")
        seed = int(seed) if isinstance(seed, int | np.integer) else -1
        paid = float(np.sum(rewards, dtype=np.float64))
        episode = Trajectory(observations, actions, np.ravel(rewards), paid, seed, terminated, truncated)
        return checked_trajectory(task, episode, key)

    def _member(self, group: Any, key: str) -> Any:
        """Return a member of a group, refusing links, which may lead into other files."""
        h5py = self._h5py
        if not isinstance(group, h5py.Group) or not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise UsageError(f"it has no `{key}` of its own")
        return group[key]

    def _numbers(self, data: Any) -> npt.NDArray[Any]:
        if not isinstance(data, self._h5py.Dataset) or data.dtype.kind not in "iufb" or data.size is None:
            raise UsageError("it holds values that are not numbers")
        if data.is_virtual or data.external:
            raise UsageError("it stores its numbers in other files")
        self._left -= data.size
        if self._left < 0:
            raise UsageError("its episodes claim more numbers than a file of its size holds")
        return np.asarray(data[()])

    def _rows(self, data: Any, layout: Layout | TextPart | None) -> npt.NDArray[Any]:
        """Read observations as rows, whether they are nested like the task's or flat."""
        if not isinstance(layout, Layout) or isinstance(data, self._h5py.Dataset):
            numbers = self._numbers(data)
            return numbers.reshape(len(numbers), -1)
        keys = [f"_index_{i}" for i in range(len(layout.parts))] if layout.keys is None else map(str, layout.keys)
        parts = [self._rows(self._member(data, key), part) for key, part in zip(keys, layout.parts, strict=True)]
        return np.concatenate(parts, axis=1)


def checked_trajectory(task: Task, episode: Trajectory, where: str) -> Trajectory:
    """Return an episode of another program in the types of a `Trajectory`.

    Args:
        where: the episode's name in messages.

    Raises:
        UsageError: the numbers do not fit the task, or the episode has no steps.
    """
    steps, count, gym_id = episode.length, len(task.actuators), task.gym_id
    observations, actions = episode.observations, episode.actions
    if observations.shape != (steps + 1, task.width) or len(actions) != steps:
        raise UsageError(
            f"{where} has {len(observations)} observations of {observations.shape[-1]} numbers, {len(actions)} actions "
            f"and {steps} rewards; an episode of {gym_id} has observations of {task.width} numbers, one observation "
            "more than actions, and a reward for each action"
        )
    if not steps:
        raise UsageError(f"{where}: it has no steps")
    with np.errstate(over="ignore"):
        seen, earned = observations.astype(np.float32, copy=False), episode.rewards.astype(np.float32, copy=False)
    if not np.isfinite(seen).all():
        raise UsageError(f"{where}: its observations hold a value that is not a finite number")
    flat = np.reshape(actions, (steps, count)) if np.size(actions) == count * steps else np.array([np.nan])
    if not (np.isfinite(flat).all() and np.isfinite(earned).all() and np.isfinite(episode.episode_return)):
        raise UsageError(f"{where}: its actions or rewards do not fit {gym_id}")
    for column, actuator in zip(flat.T, task.actuators, strict=True):
        labels = len(actuator.labels)
        if actuator.is_choice and not ((column == np.floor(column)) & (column >= 0) & (column < labels)).all():
            raise UsageError(f"{where}: its actions do not fit {gym_id}: choices are 0 to {labels - 1}")
    kept = flat.astype(np.float32 if task.has_numbers else np.int16, copy=False)
    if task.action_space == "discrete":
        kept = kept[:, 0]
    return replace(episode, observations=seen, actions=kept, rewards=earned)


def write_minari(episodes: Iterable[Trajectory], task: Task, name: str) -> Path:
    """Write episodes as a Minari dataset, and return its folder.

    Args:
        name: the dataset's id, such as `policygen/cartpole-v0`; its folder is in `MINARI_DATASETS_PATH`, by default
            `~/.minari/datasets`.

    Raises:
        UsageError: the dataset exists already, the name is invalid, there are no episodes, or minari is missing.
        TaskError: the environment, whose spaces the dataset records, cannot be made.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise UsageError(_INSTALL) from None
    if not _ID.fullmatch(name):
        raise UsageError(f"`{name}` is not a dataset id; write for example policygen/cartpole-v0")
    folder = dataset_folder(name)
    if folder.exists():
        raise UsageError(f"there is a dataset {name} already, in {folder}; choose another name")
    env = make_env(task)
    try:
        observation_space: Any = env.observation_space
        action_space: Any = env.action_space
        if task.layout is not None:  # nested observations are written as flat rows
            observation_space = spaces.Box(-np.inf, np.inf, (task.width,), np.float32)
        if task.action_layout is not None:  # actions that are not simply a row of actuators are written as one
            action_space = spaces.Box(-np.inf, np.inf, (len(task.actuators),), np.float32)
        buffers: list[Any] = []
        for episode in episodes:
            last = np.arange(episode.length) == episode.length - 1
            buffers.append(
                EpisodeBuffer(
                    id=len(buffers),
                    seed=episode.seed if episode.seed >= 0 else None,
                    observations=list(
                        episode.observations.reshape(-1, *observation_space.shape).astype(observation_space.dtype)
                    ),
                    actions=list(episode.actions.reshape(-1, *action_space.shape).astype(action_space.dtype)),
                    rewards=episode.rewards.tolist(),
                    terminations=(last & episode.terminated).tolist(),
                    truncations=(last & episode.truncated).tolist(),
                )
            )
        if not buffers:
            raise UsageError("there are no episodes to write")
        with warnings.catch_warnings(action="ignore"):  # Minari warns about a missing author, and more
            minari.create_dataset_from_buffers(
                name,
                buffers,
                env=env.spec if task.layout is None and task.action_layout is None else None,
                observation_space=observation_space,
                action_space=action_space,
                algorithm_name="policygen",
                description=f"Episodes of a policygen run on {task.gym_id}.",
            )
    except ValueError as error:  # Minari refuses the name
        raise UsageError(f"cannot write the Minari dataset {name}: {error}") from None
    except OSError as error:
        raise LogbookError(f"cannot write the Minari dataset {name} to {folder}: {error.strerror}") from None
    finally:
        close(env)
    return folder
