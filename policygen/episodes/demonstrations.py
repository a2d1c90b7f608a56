"""Read demonstrations: episodes from outside the run, which prompts show with the run's best episodes."""

from __future__ import annotations

from pathlib import Path

from policygen.episodes.agents import MODEL, load_agent, play_agent, refuse_model_without_algorithm
from policygen.episodes.buffer import KEPT_EXTREMES, ReplayBuffer, read_arrays, trajectories_in
from policygen.episodes.datasets import checked_trajectory, read_minari
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.files import check_name
from policygen.tasks.task import Task

DEMONSTRATION = -1  # attempt number of an episode that no attempt played
EPISODES_OF_A_MODEL = 10
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
    if MODEL.fullmatch(source):
        agent = load_agent(source, task, trust=trust)
        episodes = play_agent(agent, task, episode_seeds(seed, "demonstrations", EPISODES_OF_A_MODEL))
    else:
        refuse_model_without_algorithm(source)
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
        if "format" in arrays:  # a run's episodes
            episodes = [episode.trajectory for episode in ReplayBuffer.load(path, remedy=FORM)]
        else:
            arrays.pop("returns", None)  # a user's array of this name may mean something else
            episodes = trajectories_in(arrays)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except LogbookError as error:
        raise UsageError(str(error)) from None
    except Exception as error:  # a damaged archive raises almost anything in zipfile and numpy
        raise UsageError(f"{path} cannot be read ({str(error)[:200] or type(error).__name__}): {FORM}") from None
    return checked_episodes(path, episodes, task)


def checked_episodes(path: Path, episodes: list[Trajectory], task: Task) -> list[Trajectory]:
    """Return episodes of a file in the types of a `Trajectory`.

    Raises:
        UsageError: they are of another environment, an episode is empty, or a value is not finite.
    """
    return [checked_trajectory(task, one, f"{path}, episode {number}") for number, one in enumerate(episodes, start=1)]
