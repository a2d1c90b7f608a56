"""Step many copies of an environment at once in numpy, bit for bit equal to single environments.

This covers classic control and policygen's own dynamics (`Dynamics`). The equations are those of
`gymnasium.envs.classic_control`, with the environment's constants. To get equal results, operations have the same order
and precision, and squares and cosines use the same functions: the C library's `pow(x, 2)` differs from `x * x` for one
number in a thousand.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control.acrobot import AcrobotEnv
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from policygen.episodes.play import Array, Copies, Flags, StepOutput
from policygen.tasks.environments import CountedEnv, origin
from policygen.tasks.faults import close, fault, name_of, wrappers_of

VECTOR_COPIES = 1_024  # simultaneous episodes
_AHEAD = 64  # steps of noise drawn at once: calling a generator costs as much as drawing hundreds of numbers


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step of n copies.

    Attributes:
        state: shape (numbers, n).
        observations: shape (n, d).
        rewards, ended: shape (n,).
    """

    state: Array
    observations: npt.NDArray[Any]
    rewards: Array
    ended: npt.NDArray[np.bool_]


class Noise:
    """Standard normal noise for n copies, `width` numbers per step and copy.

    Args:
        generators: one for each seed.
        copies: the index of each copy's generator, shape (n,).
    """

    def __init__(
        self, generators: Sequence[np.random.Generator], copies: npt.NDArray[np.integer[Any]], width: int
    ) -> None:
        self._generators, self._copies = generators, copies
        self._ahead, self._used = np.empty((len(generators), 0, width)), 0

    def __call__(self) -> Array:
        """Draw the noise of one step, shape (n, width)."""
        if self._used == self._ahead.shape[1]:
            size = (_AHEAD, self._ahead.shape[2])
            self._ahead, self._used = np.stack([one.standard_normal(size) for one in self._generators]), 0
        self._used += 1
        noise: Array = self._ahead[self._copies, self._used - 1]
        return noise

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        self._copies = self._copies[which]


class Dynamics(ABC):
    """The initial state and the step of an environment, for n copies at once.

    Attributes:
        observation_space: observation space of one copy.
        actions: number of actions; they are 0 to `actions` - 1.
        noise_width: number of standard normal numbers per step and copy.
    """

    observation_space: ClassVar[gym.spaces.Box]
    actions: ClassVar[int]
    noise_width: ClassVar[int] = 0

    @abstractmethod
    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Return the initial state of one copy, shape (numbers,), and its first observation, shape (d,)."""

    @abstractmethod
    def advance(self, state: Array, actions: npt.NDArray[np.integer[Any]], noise: Array) -> StepResult:
        """Compute one step of n copies; `actions` has shape (n,), `noise` shape (n, `self.noise_width`)."""


class DynamicsEnv(gym.Env[Any, Any]):
    """A single environment with the given `dynamics`."""

    dynamics: ClassVar[Dynamics]

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise gym.error.UnsupportedMode(f"there is no render mode {render_mode!r}; there is rgb_array")
        self.observation_space = self.dynamics.observation_space
        self.action_space = gym.spaces.Discrete(self.dynamics.actions)
        self.render_mode = render_mode
        self.state: Array | None = None  # shape (numbers,)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin an episode and return its first observation."""
        super().reset(seed=seed)
        self.state, observation = self.dynamics.start(self.np_random)
        return observation.astype(np.float32), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one step.

        Raises:
            gymnasium.error.ResetNeeded: there is no episode yet.
            gymnasium.error.InvalidAction: there is no such action.
        """
        if self.state is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        if not 0 <= action < self.dynamics.actions:
            raise gym.error.InvalidAction(f"there is no action {action}; there are 0 to {self.dynamics.actions - 1}")
        noise = self.np_random.standard_normal((1, self.dynamics.noise_width))
        after = self.dynamics.advance(self.state[:, None], np.array([action]), noise)
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), bool(after.ended[0]), False, {}


Advance = Callable[[Any, Array, npt.NDArray[Any]], StepResult]


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether `VectorCopies` can play the environment: it has equations here, and no wrapper changes what it does."""
    if any(type(wrapper) not in (TimeLimit, OrderEnforcing, CountedEnv) for wrapper in wrappers_of(env)):
        return False
    return type(env.unwrapped) in ADVANCES or isinstance(env.unwrapped, DynamicsEnv)


class VectorCopies(Copies):
    """Copies of an environment with `has_vector_form`; each starts like a single environment with its seed."""

    engine: ClassVar[str] = "vector"
    max_copies = VECTOR_COPIES
    max_idle: ClassVar[float] = 0.5

    def __init__(self, env: gym.Env[Any, Any], max_steps: int) -> None:
        self._env, self._max_steps, self.origin = env, max_steps, origin(env)
        self._single: Any = env.unwrapped
        self._advance = ADVANCES.get(type(self._single))
        self._deviation = float(getattr(self._single, "noise", 0.0))

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`."""
        self._rows: Array
        different, lanes = np.unique(np.asarray(seeds, np.int64), return_inverse=True)
        starts = []
        for seed in different.tolist():
            row = np.asarray(self._single.reset(seed=seed)[0], np.float32)
            starts.append((row, np.asarray(self._single.state, np.float64), self._single.np_random))
        rows, states, generators = zip(*starts, strict=True)
        self._steps = 0
        self._noise = Noise(generators, lanes, rows[0].size if self._advance else self._single.dynamics.noise_width)
        self._state = np.stack(states)[lanes].T.copy()
        self._rows = np.stack(rows)[lanes]
        return self._rows

    def step(self, actions: npt.NDArray[Any], /) -> StepOutput:
        """Step every copy, including those whose episodes have ended; see `Copies`.

        Raises:
            EnvironmentFault: there is no such action.
        """
        try:
            if self._advance is None:
                after = self._single.dynamics.advance(self._state, actions, self._noise())
            else:
                after = self._advance(self._single, self._state, actions)
        except gym.error.Error as error:
            raise fault(error, self._env, name_of(self._env), "step") from error
        self._state, self._steps = after.state, self._steps + 1
        observations = after.observations
        if self._deviation:
            observations = observations + self._deviation * self._noise()
        self._rows = observations.astype(np.float32)
        return self._rows, after.rewards, after.ended, self._steps == self._max_steps

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Drop the ended copies; see `Copies`."""
        kept = ~ended
        self._state, self._rows = np.ascontiguousarray(self._state[:, kept]), self._rows[kept]
        self._noise.keep(kept)
        return self._rows

    def close(self) -> None:
        """Close the environment."""
        close(self._env)


def _clipped(values: Array, low: float, high: float) -> Array:
    """Clip values; for few copies, twice as fast as `np.clip`."""
    clipped: Array = np.minimum(np.maximum(values, low), high)
    return clipped


def _squared(values: Array) -> Array:
    return np.float_power(values, 2.0)  # `values**2` multiplies; `np.power` may not be the C library's


def _cosines(values: Array) -> Array:
    return np.array([*map(math.cos, values.tolist())])  # numpy's vectorised cosine may differ


def _acrobot(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `AcrobotEnv.step`: one step of the fourth-order Runge-Kutta method."""
    torque = np.asarray(env.AVAIL_TORQUE, np.float64)[actions]
    step, half = env.dt, env.dt / 2.0
    k1 = _accelerations(env, state, torque)
    k2 = _accelerations(env, state + half * k1, torque)
    k3 = _accelerations(env, state + half * k2, torque)
    k4 = _accelerations(env, state + step * k3, torque)
    state = state + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles, speeds = state[:2], state[2:]
    while np.abs(angles).max() > np.pi:  # those above pi first, as in Gymnasium
        angles[:] = np.where(angles > np.pi, angles - 2 * np.pi, np.where(angles < -np.pi, angles + 2 * np.pi, angles))
    speeds[0] = _clipped(speeds[0], -env.MAX_VEL_1, env.MAX_VEL_1)
    speeds[1] = _clipped(speeds[1], -env.MAX_VEL_2, env.MAX_VEL_2)
    cosines, sines = np.cos(angles), np.sin(angles)
    ended = -cosines[0] - np.cos(angles[1] + angles[0]) > 1.0
    return StepResult(state, np.array((cosines[0], sines[0], cosines[1], sines[1], *speeds)).T, ended - 1.0, ended)


def _accelerations(env: Any, state: Array, torque: Array) -> Array:
    """Compute `AcrobotEnv._dsdt`: the derivatives of angles and speeds, shape (4, n)."""
    m1, m2, c1, c2 = env.LINK_MASS_1, env.LINK_MASS_2, env.LINK_COM_POS_1, env.LINK_COM_POS_2
    l1, inertia, g = env.LINK_LENGTH_1, env.LINK_MOI, 9.8
    angle1, angle2, rate1, rate2 = state
    cosine, sine = np.cos(angle2), np.sin(angle2)
    d1 = m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cosine) + inertia + inertia
    d2 = m2 * (c2**2 + l1 * c2 * cosine) + inertia
    phi2 = m2 * c2 * g * np.cos(angle1 + angle2 - np.pi / 2)
    phi1 = -m2 * l1 * c2 * _squared(rate2) * sine - 2 * m2 * l1 * c2 * rate2 * rate1 * sine
    phi1 = phi1 + (m1 * c1 + m2 * l1) * g * np.cos(angle1 - np.pi / 2) + phi2
    driving = torque + d2 / d1 * phi1
    if env.book_or_nips != "nips":
        driving = driving - m2 * l1 * c2 * _squared(rate1) * sine
    acceleration2 = (driving - phi2) / (m2 * c2**2 + inertia - _squared(d2) / d1)
    return np.array((rate1, rate2, -(d2 * acceleration2 + phi1) / d1, acceleration2))


def _cart_pole(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `CartPoleEnv.step`."""
    right = actions == 1
    if not (right | (actions == 0)).all():
        raise gym.error.InvalidAction("there is no such action; there are 0 and 1")
    place, velocity, angle, spin = state
    force = np.where(right, env.force_mag, -env.force_mag)
    cosine, sine = np.cos(angle), np.sin(angle)
    push = (force + env.polemass_length * np.square(spin) * sine) / env.total_mass
    turn = (env.gravity * sine - cosine * push) / (
        env.length * (4.0 / 3.0 - env.masspole * np.square(cosine) / env.total_mass)
    )
    acceleration = push - env.polemass_length * turn * cosine / env.total_mass
    place, angle = place + env.tau * velocity, angle + env.tau * spin
    state = np.array((place, velocity + env.tau * acceleration, angle, spin + env.tau * turn))
    ended = (np.abs(place) > env.x_threshold) | (np.abs(angle) > env.theta_threshold_radians)
    paid = (0.0, -1.0) if env.spec.kwargs.get("sutton_barto_reward") else (1.0, 1.0)
    return StepResult(state, state.T, np.where(ended, paid[1], paid[0]), ended)


def _mountain_car(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    position, velocity = state
    velocity = velocity + ((actions - 1) * env.force + _cosines(3 * position) * (-env.gravity))
    velocity = _clipped(velocity, -env.max_speed, env.max_speed)
    position = _clipped(position + velocity, env.min_position, env.max_position)
    np.copyto(velocity, 0.0, where=(position == env.min_position) & (velocity < 0))
    ended = (position >= env.goal_position) & (velocity >= env.goal_velocity)
    state = np.array((position, velocity))
    return StepResult(state, state.T, np.full(len(ended), -1.0), ended)


def _continuous_mountain_car(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `Continuous_MountainCarEnv.step`, which uses single precision after its first step.

    In Gymnasium, a force within its limits has the action's precision, while a clipped force is a Python float.
    """
    position, velocity = state
    requested = actions[:, 0]
    force = _clipped(requested, env.min_action, env.max_action)
    slope = 0.0025 * _cosines(3 * position)
    within = force * requested.dtype.type(env.power) - slope.astype(requested.dtype)
    clipped = np.where(requested < env.min_action, env.min_action, env.max_action) * env.power - slope
    change = np.where(requested == force, within.astype(velocity.dtype), clipped.astype(velocity.dtype))
    velocity = _clipped(velocity + change, -env.max_speed, env.max_speed)
    position = _clipped(position + velocity, env.min_position, env.max_position)
    velocity = np.where((position == position.dtype.type(env.min_position)) & (velocity < 0), 0, velocity)
    ended = (position >= env.goal_position) & (velocity >= env.goal_velocity)
    rewards = np.where(ended, 100.0, 0.0) - _squared(requested.astype(np.float64)) * 0.1
    after: Any = np.array((position, velocity), np.float32)
    return StepResult(after, after.T, rewards, ended)


def advance_pendulum(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `PendulumEnv.step`; an optional third state variable is a torque added to that of the motor."""
    angle, speed = state[:2]
    torque = _clipped(actions, -env.max_torque, env.max_torque)[:, 0]
    pull = torque + state[2] if len(state) > 2 else torque
    upright = ((angle + np.pi) % (2 * np.pi)) - np.pi
    effort = np.array([one**2 for one in torque], torque.dtype)  # in the torque's precision, unlike `float_power`
    costs = _squared(upright) + 0.1 * _squared(speed) + 0.001 * effort
    speed = speed + (3 * env.g / (2 * env.l) * np.sin(angle) + 3.0 / (env.m * env.l**2) * pull) * env.dt
    speed = _clipped(speed, -env.max_speed, env.max_speed)
    angle = angle + speed * env.dt
    observations = np.array((np.cos(angle), np.sin(angle), speed)).T
    return StepResult(np.array((angle, speed, *state[2:])), observations, -costs, np.zeros(len(costs), np.bool_))


# A subclass may be added if its step differs only in attributes that the function reads.
ADVANCES: dict[type, Advance] = {
    AcrobotEnv: _acrobot,
    CartPoleEnv: _cart_pole,
    MountainCarEnv: _mountain_car,
    Continuous_MountainCarEnv: _continuous_mountain_car,
    PendulumEnv: advance_pendulum,
}
