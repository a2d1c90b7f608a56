"""A wrapper that perturbs the sensors, actuators and physics of an environment."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.errors import TaskError
from policygen.tasks.actions import random_actions
from policygen.tasks.faults import STEP_TIMEOUT, Watchdog, close, fault, name_of
from policygen.tasks.task import OF_SPREAD, PHYSICS, SENSORS, STEP_COUNTS, Perturbation

SPREAD_STEPS = 1_000  # steps of random actions in which the spread of observations is measured
_STREAM = 0x9E37  # separates the perturbations from the environment's own draws with the same seed

Floats = npt.NDArray[np.float64]
# Spreads of environments outside runs, such as the copies that `eval` plays. A run measures its own, so that the steps
# it counts do not depend on what this process did before.
_spreads: dict[str, Floats] = {}


class PerturbedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that perturbs an environment's sensors, actuators and physics, but not its rewards.

    The sizes of perturbations and the noise depend only on the seed of the episode.

    Args:
        make: makes the environment with keyword arguments that replace those of the task.
        signals: the names of the observed numbers.
        limit: number of steps after which an episode is truncated, without those of `random_start`.

    Raises:
        TaskError: a perturbation does not fit the environment.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        perturbations: Sequence[Perturbation],
        make: Callable[[Mapping[str, Any]], gym.Env[Any, Any]],
        signals: Sequence[str],
        limit: int | None = None,
    ) -> None:
        super().__init__(env)
        self._perturbations, self._make, self._signals, self._limit = tuple(perturbations), make, signals, limit
        self._physics = _physics_of(env)
        self._perturbs_sensors = any(one.kind in SENSORS for one in self._perturbations)
        for one in self._perturbations:
            self._check(one)

    def _check(self, one: Perturbation) -> None:
        """Refuse a perturbation that does not fit the environment."""
        name, kind, env = one.name, one.kind, self.env
        if kind in SENSORS and not isinstance(env.observation_space, gym.spaces.Box):
            raise TaskError(f"perturbation {name} needs an environment whose observations are arrays of numbers")
        if kind == "actuator_gain" and not isinstance(env.action_space, gym.spaces.Box):
            raise TaskError(f"perturbation {name} needs an environment whose actions are arrays of numbers")
        if kind in PHYSICS and not self._physics:
            raise TaskError(
                f"perturbation {name} needs a MuJoCo environment; in others, perturb a keyword argument: "
                "kwargs.NAME=LOW..HIGH"
            )
        if kind == "kwargs":
            close(self._make({one.signal: one.low}))  # raises if the keyword is unknown
        elif one.signal and one.signal not in self._signals:
            raise TaskError(
                f"perturbation {name}: there is no signal `{one.signal}`; known are {', '.join(self._signals)}"
            )

    @functools.cached_property
    def _spread(self) -> Floats:
        if not self._perturbs_sensors:
            return np.zeros(1)
        if not any(one.name in OF_SPREAD for one in self._perturbations):
            return np.zeros(len(self._signals))
        measured = next((one.spread for one in self._perturbations if one.spread), None)
        if measured is not None:
            return np.array(measured)
        spec = self.env.spec
        if spec is None:
            return spread_of(self.env)
        key = repr((spec.id, spec.kwargs, spec.max_episode_steps))
        if key not in _spreads:
            _spreads[key] = spread_of(self.env)
        return _spreads[key]

    def _amounts(self, kind: str, spread: Floats) -> Floats:
        """Return the size of a perturbation for each observed number, in its own unit."""
        amounts = self._size.get(kind, 0.0) * spread
        for one in self._perturbations:
            if one.kind == kind and one.signal:
                amounts[self._signals.index(one.signal)] = self._size[one.name]
        return amounts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and draw the sizes of its perturbations."""
        spread = self._spread  # measured before the first perturbation changes the environment
        self._rng = np.random.default_rng(None if seed is None else [seed, _STREAM])
        self._size: dict[str, float] = {}
        for one in self._perturbations:
            if one.name in STEP_COUNTS:
                self._size[one.name] = float(self._rng.integers(int(one.low), int(one.high) + 1))
            else:
                self._size[one.name] = float(self._rng.uniform(one.low, one.high))
        keywords = {one.signal: self._size[one.name] for one in self._perturbations if one.kind == "kwargs"}
        if keywords:
            close(self.env)
            self.env = self._make(keywords)
            self._physics = _physics_of(self.env)
        for name, multiply in self._physics.items():
            multiply(self._size.get(name, 1.0))
        self._delayed: deque[Any] = deque()
        signs = self._rng.choice((-1.0, 1.0), size=len(spread))
        self._bias = signs * self._amounts("sensor_bias", spread)
        self._noise = self._amounts("sensor_noise", spread)
        self._steps = 0
        observation, info = self.env.reset(seed=seed, options=options)
        if random_steps := int(self._size.get("random_start", 0)):
            draw = random_actions(self.env.action_space, self._rng)
            for _ in range(random_steps):
                observation, _, terminated, truncated, info = self.env.step(draw())
                if terminated or truncated:  # another episode begins
                    observation, info = self.env.reset(seed=int(self._rng.integers(2**31)))
        self._last_observation: npt.NDArray[Any] | None = None
        return self._perturb_observation(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step with the perturbed action; return the perturbed observation."""
        observation, reward, terminated, truncated, info = self.env.step(self._perturb_action(action))
        self._steps += 1
        out_of_steps = self._limit is not None and self._steps >= self._limit and not terminated
        return self._perturb_observation(observation), reward, terminated, truncated or out_of_steps, info

    def _perturb_action(self, action: Any) -> Any:
        space = self.env.action_space
        self._delayed.append(action)
        if len(self._delayed) > self._size.get("action_delay", 0):
            delayed_action = self._delayed.popleft()
        elif isinstance(space, gym.spaces.Box):
            delayed_action = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        else:
            delayed_action = self._delayed[0]
        if not isinstance(space, gym.spaces.Box):
            return delayed_action
        value = np.asarray(delayed_action, np.float64) * self._size.get("actuator_gain", 1.0)
        return np.clip(value, space.low, space.high).astype(space.dtype)

    def _perturb_observation(self, observation: Any) -> Any:
        if not self._perturbs_sensors:
            return observation
        if self._last_observation is not None and self._rng.random() < self._size.get("sensor_dropout", 0.0):
            return self._last_observation
        array = np.asarray(observation, np.float64)
        bias, noise = (one.reshape(array.shape) for one in (self._bias, self._noise))
        value = array + bias + noise * self._rng.standard_normal(array.shape)
        self._last_observation = value.astype(observation.dtype)
        return self._last_observation


def spread_of(env: gym.Env[Any, Any], step_timeout: float = STEP_TIMEOUT) -> Floats:
    """Return the standard deviation of each observed number over 1,000 steps of random actions, shape (d,).

    It is 0 for a number that is constant within episodes, such as a set-point, so that it is not perturbed.

    Raises:
        EnvironmentFault: the environment fails or does not answer.
    """
    rng = np.random.default_rng(0)
    draw = random_actions(env.action_space, np.random.default_rng(0))
    seen: list[Floats] = []
    changes: Any = False
    try:
        with Watchdog(step_timeout, lambda: len(seen), env):
            observation, _ = env.reset(seed=0)
            for _ in range(SPREAD_STEPS):
                seen.append(np.asarray(observation, np.float64).ravel())
                observation, _, terminated, truncated, _ = env.step(draw())
                changes |= np.asarray(observation, np.float64).ravel() != seen[-1]
                if terminated or truncated:
                    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    except BaseException as error:
        raise fault(error, env, name_of(env), "step") from error
    with np.errstate(all="ignore"):
        return np.where(changes, np.nan_to_num(np.std(seen, axis=0), posinf=0.0), 0.0)


def _physics_of(env: gym.Env[Any, Any]) -> dict[str, Callable[[float], None]]:
    """Map each name in `PHYSICS` to a function that scales the nominal values; empty without a MuJoCo model."""
    model: Any = getattr(env.unwrapped, "model", None)
    data: Any = getattr(env.unwrapped, "data", None)
    if not all(hasattr(model, name) for name in ("body_mass", "geom_friction", "actuator_gainprm")):
        return {}
    from mujoco import mj_setConst  # the extra `mujoco`

    parts = {
        "mass": (model.body_mass, model.body_inertia),
        "friction": (model.geom_friction,),
        "motor": (model.actuator_gainprm, model.actuator_biasprm),  # the force of a servo depends on both
    }
    nominal = {name: [array.copy() for array in arrays] for name, arrays in parts.items()}

    def multiply(name: str, factor: float) -> None:
        for array, before in zip(parts[name], nominal[name], strict=True):
            array[:] = before * factor
        if name == "mass":
            mj_setConst(model, data)  # recomputes the quantities that MuJoCo derives from masses

    return {name: functools.partial(multiply, name) for name in parts}
