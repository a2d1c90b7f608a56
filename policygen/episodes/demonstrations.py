"""Read demonstrations: episodes from outside the run, which prompts show with the run's best episodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.agents import MODEL, play_agent, refuse_nameless_model, sb3_model
from policygen.episodes.buffer import KEPT_EXTREMES, ReplayBuffer, read_arrays
from policygen.episodes.datasets import checked_trajectory, read_minari
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.files import check_name
from policygen.tasks.task import Task

DEMONSTRATION = -1  # attempt number of an episode that no attempt played
EPISODES_OF_A_MODEL = 10
NEEDED = ("observations", "actions", "rewards", "lengths", "terminated")  # arrays of a user's own file
FORM = (
    "write a file of your own with numpy.savez, its episodes one after the other; it holds "
    "`observations` (for each episode one row more than steps), `actions` and `rewards` (one row or number per step), "
    "`lengths` (steps of each episode) and `terminated` (whether the environment, not a time limit, ended it)"
)


def read_demonstrations(source: str, task: Task, *, seed: int = 0, trust: bool = False) -> ReplayBuffer:
    """Read the 16 best episodes of a source.

    Args:
        source: a Minari dataset (id or folder), a run's folder or its `episodes.npz`, an `.npz` in the `FORM` above, or
            `ppo:model.zip`, a Stable-Baselines3 model (also a2c, ddpg, dqn, sac, td3), which plays ten episodes. The
            model gets the task's raw observations: its file does not hold the statistics of `VecNormalize`.
        seed: determines the model's episodes.
        trust: allows loading a model's file, whose pickles may run any code.

    Raises:
        UsageError: the source cannot be read, is of another environment, or is an untrusted model.
    """
    if model := MODEL.fullmatch(source):
        agent = sb3_model(model[1], model[2], task, trust=trust)
        episodes = play_agent(agent, task, episode_seeds(seed, "demonstrations", EPISODES_OF_A_MODEL))
    else:
        refuse_nameless_model(source)
        path = Path(check_name(source))
        file = path if path.suffix == ".npz" else path / "episodes.npz"
        episodes = _read_file(file, task) if file == path or file.is_file() else read_minari(source, task)
    if not episodes:
        raise UsageError(f"{source} holds no episodes")
    best = sorted(episodes, key=lambda episode: -episode.episode_return)[:KEPT_EXTREMES]
    buffer = ReplayBuffer(sum(episode.length for episode in best) * 2 + 10_000)
    buffer.add(DEMONSTRATION, best)
    return buffer


def _read_file(path: Path, task: Task) -> list[Trajectory]:
    try:
        arrays = read_arrays(path)
        if "format" not in arrays:
            return _read_own_file(path, arrays, task)
        episodes = [episode.trajectory for episode in ReplayBuffer.load(path, remedy=FORM)]
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except UsageError:
        raise
    except LogbookError as error:
        raise UsageError(str(error)) from None
    except Exception as error:  # a damaged archive raises almost anything in zipfile and numpy
        raise UsageError(f"{path} cannot be read ({str(error)[:200] or type(error).__name__}): {FORM}") from None
    check_shape(path, episodes, task)
    return episodes


def _read_own_file(path: Path, arrays: Mapping[str, npt.NDArray[Any]], task: Task) -> list[Trajectory]:
    """Read the episodes of a user's own file.

    Optional arrays, one value per episode: `truncated` (default: not terminated) and `seeds` (default: unknown).

    Raises:
        UsageError: an array is missing, they do not fit together, or they are not of the task.
    """
    if missing := [f"`{name}`" for name in NEEDED if name not in arrays]:
        raise UsageError(f"{path} has no {', '.join(missing)}: {FORM}")
    if any(arrays[name].dtype.kind not in "biuf" for name in NEEDED):
        raise UsageError(f"{path} holds values that are not numbers: {FORM}")
    lengths = arrays["lengths"]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise UsageError(f"{path}: `lengths` must be whole numbers of at least 1, the steps of each episode")
    count, steps = len(lengths), sum(lengths.tolist())
    terminated = arrays["terminated"].astype(np.bool_)
    truncated = np.asarray(arrays.get("truncated", ~terminated), np.bool_)
    seeds = np.asarray(arrays.get("seeds", np.full(count, -1)), np.int64)
    for name, values in (("terminated", terminated), ("truncated", truncated), ("seeds", seeds)):
        if values.shape != (count,):
            shape = f"{values.shape} instead of ({count},)"
            raise UsageError(f"{path}: `{name}` has the shape {shape}, one value per episode")
    for name, rows in (("observations", steps + count), ("actions", steps), ("rewards", steps)):
        if not arrays[name].ndim or len(arrays[name]) != rows:
            raise UsageError(
                f"{path}: `{name}` has the shape {arrays[name].shape}, and {count} episodes of {steps} steps together "
                f"need {rows} rows"
            )
    ends = np.cumsum(lengths)[:-1]
    parts = zip(
        np.split(arrays["observations"].reshape(steps + count, -1), ends + np.arange(1, count)),
        np.split(arrays["actions"], ends),
        np.split(arrays["rewards"].ravel(), ends),
        zip(terminated.tolist(), truncated.tolist(), strict=True),
        seeds.tolist(),
        strict=True,
    )
    return [
        checked_trajectory(task, seen, actions, rewards, ends=end, seed=seed, where=f"{path}, episode {number}")
        for number, (seen, actions, rewards, end, seed) in enumerate(parts, start=1)
    ]


def check_shape(path: Path, episodes: list[Trajectory], task: Task) -> None:
    """Refuse episodes of another environment.

    Raises:
        UsageError: observations or actions have another shape, an episode is empty, or a value is not finite.
    """
    wanted = () if task.action_space == "discrete" else (len(task.actuators),)
    for number, one in enumerate(episodes, start=1):
        ends, where = (one.terminated, one.truncated), f"{path}, episode {number}"
        checked_trajectory(task, one.observations, one.actions, one.rewards, ends=ends, seed=one.seed, where=where)
        if one.actions.shape[1:] != wanted or not np.isfinite(one.episode_return):
            raise UsageError(f"{where}: its actions or its return do not fit {task.gym_id}")
