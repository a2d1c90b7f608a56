"""Score agents of other libraries: models with `predict` (Stable-Baselines3), or functions of the observation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.episodes.copies import SingleCopies
from policygen.episodes.exact import finite_mdp
from policygen.episodes.play import play
from policygen.episodes.players import Players
from policygen.episodes.race import Course, Entrant
from policygen.episodes.score import engine_words
from policygen.episodes.trajectory import Indices, Rows, Trajectory
from policygen.errors import PolicyError, TaskError, UsageError
from policygen.policies.policy import Policy
from policygen.tasks.environments import import_user_module, make_env, opened
from policygen.tasks.task import Task

ENGINE = "one by one"
_MODEL = re.compile(r"(a2c|ddpg|dqn|ppo|sac|td3):(.+)", re.IGNORECASE)
_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def is_agent(text: str) -> bool:
    """Whether a text names an agent of another library: `MODULE:NAME` or `ppo:MODEL.zip`."""
    return _MODEL.fullmatch(text) is not None or _FUNCTION.fullmatch(text) is not None


def load_agent(text: str, task: Task, *, trust: bool = False) -> Any:
    """Load an agent for `play_agent`.

    Args:
        text: `MODULE:NAME` of a function, an object with `predict`, or a class of such objects; the module is imported,
            which runs its code, and may lie in the working directory. Or `ppo:MODEL.zip` (also a2c, ddpg, dqn, sac,
            td3).
        trust: must be true for a model's file.

    Raises:
        UsageError: there is no agent of this name, it cannot be loaded, or is not trusted or of another environment.
    """
    if model := _MODEL.fullmatch(text):
        return _sb3_model(model[1], model[2], task, trust=trust)
    module, _, name = text.partition(":")
    try:
        found = getattr(import_user_module(module), name, None)
    except TaskError as error:
        raise UsageError(str(error)) from None
    if isinstance(found, type):
        found = found()
    if not callable(found) and not hasattr(found, "predict"):
        raise UsageError(f"{text}: the module has no function of this name, and nothing with predict(observation)")
    return found


@contextmanager
def entrants(contenders: Sequence[Any], task: Task, seeds: Sequence[int]) -> Iterator[list[Entrant]]:
    """Yield the contenders of races on some seeds: policies, played at once, and agents, one by one (`play_agent`)."""
    with Players(task) as players:
        policies = Course(task, seeds, players.play, players.engine, finite_mdp(task))
        agents = Course(task, seeds, lambda agent, some: play_agent(agent, task, some), engine_words(ENGINE, task))
        yield [(policies if isinstance(one, Policy) else agents).entrant(one) for one in contenders]


def play_agent(agent: Any, task: Task, seeds: Sequence[int]) -> list[Trajectory]:
    """Play one episode per seed; the agent gets and returns the environment's own observations and actions.

    Args:
        agent: an object with `predict(observation, ...)`, which returns an action or an action and a state, and is
            called with `deterministic=True` if it takes that; or a function of the observation. A method `reset()` of a
            function object without `predict` is called at the start of each episode.

    Raises:
        UsageError: the agent is neither, or the task has an `action_layout`, for example for a Dict.
        PolicyError: the agent fails, or its action is not in the action space.
        EnvironmentFault: the environment fails.
    """
    layout = task.action_layout
    if layout is not None and (layout.kind != "array" or len(layout.shape) != 1 or layout.start):
        raise UsageError(
            f"only policies of policygen can be scored with the action space of {task.gym_id}: wrap the environment so "
            "that it has a Discrete or one-row MultiDiscrete that starts at 0, or a one-row Box of floats"
        )
    copies = SingleCopies(task, make_env(task))
    copies.most = 1
    try:
        return play(task, copies, _ForeignActor(agent, task, copies), seeds)
    finally:
        copies.close()


@dataclass
class _ForeignActor:
    """An agent of another library as an actor in a single environment, whose own observations it gets."""

    agent: Any
    task: Task
    copies: SingleCopies
    independent: bool = False

    def begin(self, episodes: int, /) -> _ForeignActor:
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> list[Any]:
        (running,) = self.copies.running
        if running.steps == 0:
            self._act = _begin(self.agent)
        try:
            action = self._act(running.observation)
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            words = f"the scored agent fails on {self.task.gym_id} after {running.steps} steps: {what}"
            raise PolicyError(words) from error
        return [_converted(action, running.env.action_space, self.task)]


def _sb3_model(kind: str, file: str, task: Task, *, trust: bool) -> Any:
    """Load a Stable-Baselines3 model, for example of the kind `ppo`; the pickles in its file may run any code."""
    if not trust:
        raise UsageError(
            f"{file} holds pickles: loading a Stable-Baselines3 model can run any code in the file; if you trust "
            "its author, add --trust"
        )
    if not Path(file).is_file() and not Path(f"{file}.zip").is_file():  # `load` adds the ending, too
        raise UsageError(f"cannot read the model {file}: there is no such file")
    try:
        import stable_baselines3  # optional
    except ImportError:
        words = "playing a Stable-Baselines3 model needs stable-baselines3; pip install stable-baselines3"
        raise UsageError(words) from None
    try:
        model: Any = getattr(stable_baselines3, kind.upper()).load(file, device="cpu")
    except Exception as error:  # the file raises almost anything in torch and pickle
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(
            f"{file} cannot be loaded as a model of {kind.upper()} (or was it made by another algorithm?): {words}"
        ) from None
    with opened(task) as env:
        for name in ("observation_space", "action_space"):
            its, wanted = getattr(model, name), getattr(env, name)
            kinds = [(type(space), space.shape, getattr(space, "n", None)) for space in (its, wanted)]
            if kinds[0] != kinds[1]:
                raise UsageError(f"{file} is a model of another environment: its {name} is {its}, not {wanted}")
    return model


def _begin(agent: Any) -> Callable[[Any], Any]:
    """Begin an episode of an agent; return the function that chooses its actions from observations."""
    if not hasattr(agent, "predict"):
        if not callable(agent):
            name = type(agent).__name__
            raise UsageError(f"{name} cannot be scored: it is no policy, no function, and has no predict(observation)")
        if callable(getattr(agent, "reset", None)):
            agent.reset()
        function: Callable[[Any], Any] = agent
        return function
    known: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # a method without a signature gets the observation alone
        known = inspect.signature(agent.predict).parameters
    all_names = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    state, is_first_step = None, True

    def act(observation: Any) -> Any:
        nonlocal state, is_first_step
        arguments = {"state": state, "episode_start": np.array([is_first_step]), "deterministic": True}
        answer = agent.predict(observation, **{k: v for k, v in arguments.items() if all_names or k in known})
        is_first_step = False
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, state = answer
        return answer

    return act


def _converted(action: Any, space: gym.Space[Any], task: Task) -> Any:
    """Convert an agent's action to the environment's own form; a batch of one action is unwrapped."""
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
