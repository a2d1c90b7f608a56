"""Score agents of other libraries: models with `predict` (Stable-Baselines3), or functions of the observation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.episodes.score import Score, engine_words, score_with_violations
from policygen.episodes.simulator import RunningEpisode, renewed
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError, UsageError
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task

ENGINE = "one by one"


def score_guest(guest: Any, task: Task, seeds: Sequence[int]) -> Score:
    """Score another library's agent on one episode per seed; see `play_guest`."""
    return score_with_violations(task, play_guest(guest, task, seeds), engine_words(ENGINE, task))


def play_guest(guest: Any, task: Task, seeds: Sequence[int]) -> list[Trajectory]:
    """Play one episode per seed; the agent gets and returns the environment's own observations and actions.

    Args:
        guest: an object with `predict(observation, ...)`, which returns an action or an action and a state, and is
            called with `deterministic=True` if it takes that; or a function of the observation. If it has a method
            `reset()`, that is called at the start of each episode.

    Raises:
        UsageError: it is neither, or the environment's actions have several parts.
        PolicyError: it fails, or its action is not one of the environment's.
        EnvironmentFault: the environment fails.
    """
    new_act = _act_factory(guest)
    if task.action_layout is not None:
        raise UsageError(
            f"{task.gym_id} takes actions of several parts, for which only policies of policygen can be scored: "
            "wrap the environment so that its action is one Box or one Discrete"
        )
    env = make_env(task)
    try:
        episodes = []
        for seed in seeds:
            env = renewed(env, task)
            episodes.append(_episode(RunningEpisode.begun(env, task, 0, seed), new_act()))
        return episodes
    finally:
        close(env)


def _act_factory(guest: Any) -> Callable[[], Callable[[Any], Any]]:
    """Return a factory of functions from observations to actions, called once per episode."""
    if hasattr(guest, "predict"):
        return lambda: _predicting(guest)
    if not callable(guest):
        raise UsageError(
            f"{type(guest).__name__} cannot be scored: it is no policy, no function, and has no predict(observation)"
        )

    def begin() -> Callable[[Any], Any]:
        if callable(getattr(guest, "reset", None)):
            guest.reset()
        function: Callable[[Any], Any] = guest
        return function

    return begin


def _predicting(guest: Any) -> Callable[[Any], Any]:
    try:
        parameters = inspect.signature(guest.predict).parameters.values()
    except (TypeError, ValueError):
        parameters = inspect.signature(lambda observation: None).parameters.values()
    all_names = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = {parameter.name for parameter in parameters}
    state, begins = None, True

    def act(observation: Any) -> Any:
        nonlocal state, begins
        arguments = {"state": state, "episode_start": np.array([begins]), "deterministic": True}
        answer = guest.predict(observation, **{k: v for k, v in arguments.items() if all_names or k in known})
        begins = False
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, state = answer
        return answer

    return act


def _episode(episode: RunningEpisode, act: Callable[[Any], Any]) -> Trajectory:
    """Play an episode to its end."""
    task = episode.task
    while True:
        try:
            action = act(episode.seen)
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            steps = len(episode.rewards)
            raise PolicyError(f"the scored agent fails on {task.gym_id} after {steps} steps: {what}") from error
        action = _converted(action, episode.env.action_space, task)
        ended = episode.step(action, action)
        if ended is not None:
            return ended


def _converted(action: Any, space: gym.Space[Any], task: Task) -> Any:
    """Convert an action to the environment's own form; a batch of one is unwrapped.

    Raises:
        PolicyError: it is not an action of the environment.
    """
    try:
        array = np.asarray(action)
        if isinstance(space, gym.spaces.Discrete):
            choice = int(array.item())
            if choice != array.item() or not space.contains(choice):
                raise ValueError
            return choice
        shaped = array.reshape(space.shape or ())
        if not np.all(np.isfinite(shaped)):
            raise ValueError
        return shaped.astype(space.dtype)
    except (TypeError, ValueError, OverflowError):
        shown = " ".join(repr(action).split())[:100]
        raise PolicyError(f"the scored agent returned {shown}, not an action of {task.gym_id}: {space}") from None
