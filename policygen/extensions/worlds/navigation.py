"""A robot with five range readings drives along a walled track."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.play import Array
from policygen.episodes.vector import Dynamics, DynamicsEnv, StepResult

SIZE = 20.0  # side of the square around the track
NOISE = 0.02  # standard deviation of turn, distance and readings
CRASH = 0.4  # readings below this are a crash
FARTHEST = 30.0  # maximum reading
RAYS = np.deg2rad([-90.0, -45.0, 0.0, 45.0, 90.0])  # from left to right, relative to the heading
# By action: forward, rotate right, rotate left.
DISTANCE = np.array([0.2, 0.04, 0.04])
TURN = np.array([0.0, 0.2, -0.2])  # rad, clockwise
REWARD = np.array([5.0, -0.5, -0.5])

# The corners of the outer and of the inner wall.
OUTER = ((0.0, 0.0), (0.0, 20.0), (20.0, 20.0), (20.0, 8.5), (11.5, 8.5), (11.5, 0.0))
INNER = ((3.0, 3.0), (3.0, 17.0), (17.0, 17.0), (17.0, 11.5), (8.5, 11.5), (8.5, 3.0))
# The centre lines of the six stretches, as (x, y) of both ends: starting positions.
MIDDLE = np.array(
    [
        [(1.5, 1.5), (1.5, 18.5)],
        [(1.5, 18.5), (18.5, 18.5)],
        [(18.5, 10.0), (18.5, 18.5)],
        [(10.0, 10.0), (18.5, 10.0)],
        [(10.0, 1.5), (10.0, 10.0)],
        [(1.5, 1.5), (10.0, 1.5)],
    ]
)
_WALLS = np.array([(a, b) for ring in (OUTER, INNER) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)])
# Walls along y, as x, lower y and upper y, and walls along x, as y, lower x and upper x; shape (3, walls, 1).
_UPRIGHT = np.array([(a[0], *sorted((a[1], b[1]))) for a, b in _WALLS if a[0] == b[0]]).T[..., None]
_LEVEL = np.array([(a[1], *sorted((a[0], b[0]))) for a, b in _WALLS if a[1] == b[1]]).T[..., None]


class Track(Dynamics):
    """A robot on the track; the state is x, y and the heading, clockwise from +y."""

    observation_space = gym.spaces.Box(0.0, FARTHEST, (5,), np.float32)
    actions = 3
    noise_width = 7

    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Draw a point on the centre line of a stretch, and a heading."""
        first, last = MIDDLE[random.integers(len(MIDDLE))]
        x, y = first + random.random() * (last - first)
        state = np.array([x, y, random.uniform(-math.pi, math.pi)])
        return state, _readings(state[:, None], random.standard_normal((1, 5)))[0]

    def advance(self, state: Array, actions: npt.NDArray[np.integer[Any]], noise: Array) -> StepResult:
        """Move along the old heading, turn, then measure."""
        x, y, heading = state
        turn = TURN[actions] + NOISE * noise[:, 0]
        distance = np.abs(DISTANCE[actions] + NOISE * noise[:, 1])  # never backwards
        turned = heading + turn
        turned -= 2 * math.pi * np.rint(turned / (2 * math.pi))  # to between -pi and pi
        after = np.stack((x + distance * np.sin(heading), y + distance * np.cos(heading), turned))
        readings = _readings(after, noise[:, 2:])
        crashed = readings.min(axis=1) < CRASH
        return StepResult(after, readings, np.where(crashed, -200.0, REWARD[actions]), crashed)


def _readings(state: Array, noise: Array) -> Array:
    """Return the distance to the nearest wall along each ray, plus noise; shape (n, 5)."""
    angles = (state[2][:, None] + RAYS).ravel()
    x, y = np.repeat(state[0], len(RAYS)), np.repeat(state[1], len(RAYS))
    dx, dy = np.sin(angles), np.cos(angles)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a ray parallel to a wall
        upright = _first_hit((_UPRIGHT[0] - x) / dx, y, dy, _UPRIGHT)
        level = _first_hit((_LEVEL[0] - y) / dy, x, dx, _LEVEL)
    readings = np.minimum(upright, level).reshape(noise.shape) + NOISE * noise
    return np.minimum(np.maximum(readings, 0.0), FARTHEST)


def _first_hit(along: Array, origin: Array, slope: Array, walls: Array) -> Array:
    """Return the distance along each ray to the nearest of some parallel walls, shape (rays,).

    `along`, shape (walls, rays), holds the distances to the infinite lines that the walls lie on. Rays are the last
    axis because numpy is fast along a long last axis.
    """
    other = along * slope
    other += origin
    meets = (along >= 0) & (other >= walls[1]) & (other <= walls[2])
    nearest: Array = np.where(meets, along, FARTHEST).min(axis=0)
    return nearest


class NavigationEnv(DynamicsEnv):
    """Drive along a walled track.

    A robot, a point with a heading, drives in a corridor 3 units wide that runs around an L-shaped block: six
    right-angled corners, 68 units along the centre. It sees the distances to the walls in five directions and must keep
    driving without coming too close to a wall. Driving straight ahead is rewarded, turning costs a little. Progress
    itself earns nothing, so both directions around the block are equally good.

    The dynamics are those of the track that ProPS (NeurIPS 2025) uses, including the noise and one oddity: if noise
    makes a distance negative, the robot moves forward by its absolute value. Unlike in the original, readings are
    clipped to the declared bounds and have single precision; the robot crashes long before the lower bound matters.

    Actions: `Discrete(3)`: 0 forward by 0.2, 1 rotate right and 2 rotate left by 0.2 rad, which also moves the robot by
        0.04. It moves along its old heading, then turns; distance and turn have noise of standard deviation 0.02.
    Observation: `Box(0, 30, (5,), float32)`, the distances to the nearest wall to the left, front left (45 degrees),
        front, front right and right, with noise of standard deviation 0.02.
    Reward: 5 for a step forward, -0.5 for a rotation; -200 in place of these if the step ends in a crash.
    Start: one of the six stretches, a point on its centre line and a heading, each uniformly random.
    End: a crash: a reading is below 0.4. The registered environment truncates episodes after 1000 steps.
    """

    dynamics = Track()
