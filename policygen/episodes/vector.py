"""Play many copies of an environment at once in numpy, bit for bit equal to single environments.

It covers classic control and policygen's own dynamics. The equations of classic control are those of
`gymnasium.envs.classic_control` and of policygen's loaded pendulum, with the environment's constants. For equal
results, operations have the same order and precision, and squares and cosines use the same functions: the C library's
`pow(x, 2)` differs from `x * x` for one number in a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

from policygen.episodes.dynamics import DynamicsEnv, Noise, StepResult
from policygen.episodes.play import Array, Copies, Flags, Stepped
from policygen.tasks.environments import origin
from policygen.tasks.faults import close, fault, name_of, wrappers_of

VECTOR_COPIES = 1_024  # simultaneous episodes
Advance = Callable[[Any, Array, npt.NDArray[Any]], StepResult]


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether `VectorCopies` plays the same episodes: no wrapper changes observations, actions or rewards."""
    if any(type(wrapper) not in (TimeLimit, OrderEnforcing) for wrapper in wrappers_of(env)):
        return False
    return type(env.unwrapped) in ADVANCES or isinstance(env.unwrapped, DynamicsEnv)


class VectorCopies(Copies):
    """Copies of an environment with `has_vector_form`; each starts as a single environment does with its seed."""

    engine: ClassVar[str] = "vector"
    most = VECTOR_COPIES
    most_idle: ClassVar[float] = 0.5

    def __init__(self, env: gym.Env[Any, Any], max_steps: int) -> None:
        self._env, self._max_steps, self.origin = env, max_steps, origin(env)
        self._single: Any = env.unwrapped
        self._advance = ADVANCES.get(type(self._single))
        self._deviation = float(getattr(self._single, "noise", 0.0))

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`."""
        self._rows: Array
        starts: dict[int, tuple[Array, Array, np.random.Generator]] = {}
        for seed in dict.fromkeys(map(int, seeds)):
            row = np.asarray(self._single.reset(seed=seed)[0], np.float32)
            starts[seed] = row, np.asarray(self._single.state, np.float64), self._single.np_random
        rows, states, generators = zip(*starts.values(), strict=True)
        numbers = dict(zip(starts, range(len(starts)), strict=True))
        lanes = np.array([numbers[int(seed)] for seed in seeds])
        self._steps = 0
        self._noise = Noise(generators, lanes, rows[0].size if self._advance else self._single.dynamics.noise_width)
        self._state = np.stack(states)[lanes].T.copy()
        self._rows = np.stack(rows)[lanes]
        return self._rows

    def step(self, actions: npt.NDArray[Any], /) -> Stepped:
        """Step every copy, even if its episode has ended; see `Copies`.

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


def _rows(*values: Array) -> Array:
    """Stack rows without the checks of `np.stack`, which for few copies take longer than the copying."""
    rows = np.empty((len(values), len(values[0])), values[0].dtype)
    for row, value in zip(rows, values, strict=True):
        row[:] = value
    return rows


def _clipped(values: Array, low: float, high: float) -> Array:
    """Clip in two steps: for few copies four times as fast as `np.clip`."""
    clipped: Array = np.minimum(np.maximum(values, low), high)
    return clipped


def _squared(values: Array) -> Array:
    return np.float_power(values, 2.0)  # `values**2` multiplies; `np.power` may not be the C library's


def _cosines(values: Array) -> Array:
    return np.array([math.cos(value) for value in values.tolist()])  # numpy's vectorised cosine may differ


def _acrobot(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `AcrobotEnv.step`: one step of the fourth-order Runge-Kutta method."""
    torque = np.asarray(env.AVAIL_TORQUE, np.float64)[actions]
    step = env.dt
    half = step / 2.0
    k1 = _accelerations(env, state, torque)
    k2 = _accelerations(env, state + half * k1, torque)
    k3 = _accelerations(env, state + half * k2, torque)
    k4 = _accelerations(env, state + step * k3, torque)
    state = state + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = state[:2]
    while (np.abs(angles) > np.pi).any():  # angles above pi first, as in Gymnasium
        angles[:] = np.where(angles > np.pi, angles - 2 * np.pi, np.where(angles < -np.pi, angles + 2 * np.pi, angles))
    state[2] = _clipped(state[2], -env.MAX_VEL_1, env.MAX_VEL_1)
    state[3] = _clipped(state[3], -env.MAX_VEL_2, env.MAX_VEL_2)
    cosines, sines = np.cos(angles), np.sin(angles)
    observations = _rows(cosines[0], sines[0], cosines[1], sines[1], state[2], state[3]).T
    ended = -cosines[0] - np.cos(state[1] + state[0]) > 1.0
    return StepResult(state, observations, np.where(ended, 0.0, -1.0), ended)


def _accelerations(env: Any, state: Array, torque: Array) -> Array:
    """Compute `AcrobotEnv._dsdt`: derivatives of angles and speeds of n copies, shape (4, n)."""
    m1, m2, l1 = env.LINK_MASS_1, env.LINK_MASS_2, env.LINK_LENGTH_1
    c1, c2, inertia, g = env.LINK_COM_POS_1, env.LINK_COM_POS_2, env.LINK_MOI, 9.8
    theta1, theta2, speed1, speed2 = state
    cosine, sine = np.cos(theta2), np.sin(theta2)
    d1 = m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cosine) + inertia + inertia
    d2 = m2 * (c2**2 + l1 * c2 * cosine) + inertia
    phi2 = m2 * c2 * g * np.cos(theta1 + theta2 - np.pi / 2.0)
    phi1 = (
        -m2 * l1 * c2 * _squared(speed2) * sine
        - 2 * m2 * l1 * c2 * speed2 * speed1 * sine
        + (m1 * c1 + m2 * l1) * g * np.cos(theta1 - np.pi / 2)
        + phi2
    )
    driving = torque + d2 / d1 * phi1
    if env.book_or_nips != "nips":
        driving = driving - m2 * l1 * c2 * _squared(speed1) * sine
    acceleration2 = (driving - phi2) / (m2 * c2**2 + inertia - _squared(d2) / d1)
    return _rows(speed1, speed2, -(d2 * acceleration2 + phi1) / d1, acceleration2)


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
    state = _rows(place, velocity + env.tau * acceleration, angle, spin + env.tau * turn)
    ended = (np.abs(place) > env.x_threshold) | (np.abs(angle) > env.theta_threshold_radians)
    paid = (0.0, -1.0) if env.spec.kwargs.get("sutton_barto_reward") else (1.0, 1.0)
    return StepResult(state, state.T, np.where(ended, paid[1], paid[0]), ended)


def _mountain_car(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    position, velocity = state
    velocity = velocity + ((actions - 1) * env.force + _cosines(3 * position) * (-env.gravity))
    velocity = _clipped(velocity, -env.max_speed, env.max_speed)
    position = _clipped(position + velocity, env.min_position, env.max_position)
    velocity = np.where((position == env.min_position) & (velocity < 0), 0.0, velocity)
    ended = (position >= env.goal_position) & (velocity >= env.goal_velocity)
    state = _rows(position, velocity)
    return StepResult(state, state.T, np.full(len(ended), -1.0), ended)


def _continuous_mountain_car(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `Continuous_MountainCarEnv.step`, which uses single precision after its first step.

    A force within its limits has the action's precision; a clipped one is a Python float, and so is the acceleration.
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
    after: Any = _rows(position, velocity).astype(np.float32)
    return StepResult(after, after.T, rewards, ended)


def advance_pendulum(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute one step of `PendulumEnv`; an optional third state variable is a torque added to the motor's."""
    angle, speed = state[:2]
    torque = _clipped(actions, -env.max_torque, env.max_torque)[:, 0]
    pull = torque + state[2] if len(state) > 2 else torque
    upright = ((angle + np.pi) % (2 * np.pi)) - np.pi
    effort = np.array([one**2 for one in torque], torque.dtype)  # in the torque's own precision, unlike `float_power`
    costs = _squared(upright) + 0.1 * _squared(speed) + 0.001 * effort
    speed = speed + (3 * env.g / (2 * env.l) * np.sin(angle) + 3.0 / (env.m * env.l**2) * pull) * env.dt
    speed = _clipped(speed, -env.max_speed, env.max_speed)
    angle = angle + speed * env.dt
    observations = _rows(np.cos(angle), np.sin(angle), speed).T
    return StepResult(_rows(angle, speed, *state[2:]), observations, -costs, np.zeros(len(costs), np.bool_))


# Subclasses may be added if their step differs only in attributes that `advance` reads.
ADVANCES: dict[type, Advance] = {
    AcrobotEnv: _acrobot,
    CartPoleEnv: _cart_pole,
    MountainCarEnv: _mountain_car,
    Continuous_MountainCarEnv: _continuous_mountain_car,
    PendulumEnv: advance_pendulum,
}
