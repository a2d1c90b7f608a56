"""Play many copies of an environment at once in numpy, bit for bit equal to single environments.

It covers classic control and policygen's own dynamics. The equations of classic control are those of
`gymnasium.envs.classic_control` and of policygen's loaded pendulum, with the environment's constants. For equal
results, operations have the same order and precision, and squares and cosines use the same functions: the C library's
`pow(x, 2)` differs from `x * x` for one number in a thousand.
"""

from __future__ import annotations

import functools
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
from policygen.tasks.counted import CountedEnv
from policygen.tasks.environments import origin
from policygen.tasks.faults import close, fault, name_of, wrappers_of

VECTOR_COPIES = 1_024  # simultaneous episodes
Advance = Callable[[Any, Array, npt.NDArray[Any]], StepResult]


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether `VectorCopies` plays the same episodes: no wrapper changes observations, actions or rewards."""
    if any(type(wrapper) not in (TimeLimit, OrderEnforcing, CountedEnv) for wrapper in wrappers_of(env)):
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
    return np.array([*map(math.cos, values.tolist())])  # numpy's vectorised cosine may differ


def _acrobot(env: Any, state: Array, actions: npt.NDArray[Any]) -> StepResult:
    """Compute `AcrobotEnv.step`: one step of the fourth-order Runge-Kutta method."""
    torque = np.asarray(env.AVAIL_TORQUE, np.float64)[actions]
    masses, centres = (env.LINK_MASS_1, env.LINK_MASS_2), (env.LINK_COM_POS_1, env.LINK_COM_POS_2)
    links = _links(len(torque), masses, centres, env.LINK_LENGTH_1, env.LINK_MOI)
    links = *links, env.book_or_nips != "nips"
    step = env.dt
    half = step / 2.0
    k1 = _accelerations(links, state, torque)
    k2 = _accelerations(links, state + half * k1, torque)
    k3 = _accelerations(links, state + half * k2, torque)
    k4 = _accelerations(links, state + step * k3, torque)
    state = state + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles, speeds = state[:2], state[2:]
    while np.abs(angles).max() > np.pi:  # angles above pi first, as in Gymnasium
        angles[:] = np.where(angles > np.pi, angles - 2 * np.pi, np.where(angles < -np.pi, angles + 2 * np.pi, angles))
    fastest = _rows_of(len(torque), env.MAX_VEL_1, env.MAX_VEL_2)
    np.minimum(np.maximum(speeds, -fastest), fastest, out=speeds)
    seen, cosines = np.empty((6, len(torque)), np.float32), np.cos(angles)
    seen[0:4:2], seen[1:4:2], seen[4:] = cosines, np.sin(angles), speeds
    ended = -cosines[0] - np.cos(angles[1] + angles[0]) > 1.0
    return StepResult(state, seen.T, ended - 1.0, ended)


@functools.lru_cache(maxsize=32)
def _rows_of(n: int, *values: float) -> Array:
    """Return an array with n times the same value in each row, which numpy combines faster than a single number."""
    return np.repeat(np.array(values)[:, np.newaxis], n, axis=1)


@functools.lru_cache(maxsize=32)
def _links(
    n: int, masses: tuple[float, float], centres: tuple[float, float], l1: float, inertia: float
) -> tuple[Any, ...]:
    """Return the constants of `AcrobotEnv._dsdt` for n copies, some for two rows at once."""
    (m1, m2), (c1, c2), g = masses, centres, 9.8
    lever = m2 * l1 * c2
    return (
        _rows_of(n, np.pi / 2, np.pi / 2),
        _rows_of(n, 2 * l1 * c2, l1 * c2),
        _rows_of(n, l1**2 + c2**2, c2**2),
        _rows_of(n, m2, m2),
        _rows_of(n, inertia, inertia),
        _rows_of(n, m2 * c2 * g, (m1 * c1 + m2 * l1) * g),
        _rows_of(n, lever, -lever),
        *_rows_of(n, m1 * c1**2, inertia, 2 * m2 * l1 * c2, m2 * c2**2 + inertia),
    )


def _accelerations(links: tuple[Any, ...], state: Array, torque: Array) -> Array:
    """Compute `AcrobotEnv._dsdt`: derivatives of angles and speeds of n copies, shape (4, n).

    For few copies numpy's calls take longer than their arithmetic, so a call computes several rows where it can.
    """
    right, coupling, fixed, mass, inertias, weights, levers, own, inertia, cross, last, book = links
    derivatives, angles = np.empty_like(state), np.empty((3, len(torque)))
    angles[0], angles[2] = state[1], state[0]
    np.add(state[0], state[1], out=angles[1])
    angles[1:] -= right
    cosines, sine = np.cos(angles), np.sin(state[1])
    d = coupling * cosines[0]
    d += fixed
    d *= mass
    d1, d2 = d[0], d[1]
    d1 += own
    d += inertias
    d1 += inertia
    gravity = weights * cosines[1:]
    phi2 = gravity[0]
    centrifugal = levers * _squared(state[2:])
    centrifugal *= sine
    phi1 = cross * state[3]
    phi1 *= state[2]
    phi1 *= sine
    np.subtract(centrifugal[1], phi1, out=phi1)
    phi1 += gravity[1]
    phi1 += phi2
    driving = d2 / d1
    driving *= phi1
    driving += torque
    if book:
        driving -= centrifugal[0]
    driving -= phi2
    divisor = _squared(d2)
    divisor /= d1
    np.subtract(last, divisor, out=divisor)
    derivatives[:2] = state[2:]
    acceleration = derivatives[3]
    np.divide(driving, divisor, out=acceleration)
    d2 *= acceleration
    d2 += phi1
    np.negative(d2, out=d2)
    np.divide(d2, d1, out=derivatives[2])
    return derivatives


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
    np.copyto(velocity, 0.0, where=(position == env.min_position) & (velocity < 0))
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
