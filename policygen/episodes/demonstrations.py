"""Demonstrations: episodes that somebody else played, to be shown beside a run's own best ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from policygen.episodes.buffer import KEPT_EXTREMES, ReplayBuffer
from policygen.episodes.datasets import are_choices, read_minari
from policygen.episodes.guests import play_guest
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task

DEMONSTRATION = -1  # in the place of the number of the attempt that played an episode
EPISODES_OF_A_MODEL = 10
_MODEL = re.compile(r"(a2c|ddpg|dqn|ppo|sac|td3):(.+)", re.IGNORECASE)


def read_demonstrations(source: str, task: Task, *, seed: int = 0, trust: bool = False) -> ReplayBuffer:
    """The 16 best episodes of a source.

    Args:
        source: a Minari dataset (its id or its folder), a file `episodes.npz` or the run folder with it, or
            `ppo:model.zip`, a model of Stable-Baselines3 (also a2c, ddpg, dqn, sac, td3), which plays ten episodes.
            It is shown the task's own observations: what `VecNormalize` made of them in training is not in the file.
        seed: chooses the model's episodes.
        trust: a model's file holds pickles, and loading them runs whatever code they hold. Without it the file is not
            opened.

    Raises:
        UsageError: it cannot be read, is of another environment, or is a model that nobody vouched for.
    """
    if model := _MODEL.fullmatch(source):
        episodes = _of_model(model[1].upper(), model[2], task, seed, trust=trust)
    elif source.endswith(".zip"):
        raise UsageError(f"{source} does not say what kind of model it is; write ppo:{source}, sac:{source}, ...")
    elif (path := _saved(source)) is not None:
        episodes = _of_file(path, task)
    else:
        episodes = read_minari(source, task)
    if not episodes:
        raise UsageError(f"{source} holds no episodes")
    best = sorted(episodes, key=lambda episode: -episode.episode_return)[:KEPT_EXTREMES]
    buffer = ReplayBuffer(sum(episode.length for episode in best) * 2 + 10_000)
    buffer.add(DEMONSTRATION, best)
    return buffer


def _saved(source: str) -> Path | None:
    path = Path(source)
    if path.suffix == ".npz":
        return path
    return path / "episodes.npz" if (path / "episodes.npz").is_file() else None


def _of_file(path: Path, task: Task) -> list[Trajectory]:
    try:
        episodes = [episode.trajectory for episode in ReplayBuffer.load(path)]
    except LogbookError as error:
        raise UsageError(str(error)) from None
    check_shape(path, episodes, task)
    return episodes


def check_shape(path: Path, episodes: list[Trajectory], task: Task) -> None:
    """Refuse episodes of another environment.

    Raises:
        UsageError: their observations or actions have another shape.
    """
    wanted = () if task.action_space == "discrete" else (len(task.actuators),)
    for episode in episodes:
        found = (episode.observations.shape[1:], episode.actions.shape[1:])
        if found != ((task.width,), wanted):
            raise UsageError(f"{path} holds episodes of another task than {task.gym_id}")
        if not are_choices(episode.actions.reshape(episode.length, len(task.actuators)), task):
            raise UsageError(f"{path} holds actions that {task.gym_id} does not have")


def _of_model(kind: str, file: str, task: Task, seed: int, *, trust: bool) -> list[Trajectory]:
    if not trust:
        raise UsageError(
            f"{file} holds pickles: loading a Stable-Baselines3 model runs whatever code the file holds; if you made "
            "it, or know who did, add --trust"
        )
    if not Path(file).is_file() and not Path(f"{file}.zip").is_file():  # `save` adds the ending, and so does `load`
        raise UsageError(f"cannot read the model {file}: there is no such file")
    try:
        import stable_baselines3
    except ImportError:
        raise UsageError(
            "playing a Stable-Baselines3 model needs stable-baselines3; pip install stable-baselines3"
        ) from None
    try:
        model: Any = getattr(stable_baselines3, kind).load(file, device="cpu")
    except Exception as error:  # whatever a file makes of torch and pickle
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(
            f"{file} cannot be loaded as a model of {kind} (or was it made by another algorithm?): {words}"
        ) from None
    _check_spaces(file, model, task)
    return play_guest(model, task, episode_seeds(seed, "demonstrations", EPISODES_OF_A_MODEL))


def _check_spaces(file: str, model: Any, task: Task) -> None:
    """Refuse a model of another environment.

    Raises:
        UsageError: it observes or does something else.
    """
    env = make_env(task)
    try:
        for name in ("observation_space", "action_space"):
            its, wanted = getattr(model, name), getattr(env, name)
            kinds = [(type(space), space.shape, getattr(space, "n", None)) for space in (its, wanted)]
            if kinds[0] != kinds[1]:
                raise UsageError(f"{file} is a model of another environment: its {name} is {its}, not {wanted}")
    finally:
        close(env)
