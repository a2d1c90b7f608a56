"""State-based Pong: a paddle against a scripted one, observed as positions and speeds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.play import Array
from policygen.episodes.vector import Dynamics, DynamicsEnv, StepResult

WIDTH, HEIGHT = 800.0, 600.0
PADDLE_WIDTH, PADDLE = 10.0, 80.0  # width and height of a paddle
BALL = 10.0  # side of the square ball
SPEED = 5.0  # of paddles, and of the ball sideways, per step
LOWEST = HEIGHT - PADDLE  # maximum y of a paddle's upper edge
MOVES = np.array([-SPEED, SPEED, 0.0])


class PongDynamics(Dynamics):
    """The dynamics; the state is the y of both paddles' upper edges (agent, opponent) and the ball's x, y, vx, vy."""

    observation_space = gym.spaces.Box(
        np.array([PADDLE / 2, -SPEED, -SPEED, -SPEED, -SPEED], np.float32),
        np.array([HEIGHT - PADDLE / 2, WIDTH - BALL + SPEED, HEIGHT + SPEED, SPEED, SPEED], np.float32),
        dtype=np.float32,
    )
    actions = 3

    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Place paddles and ball in the middle; the ball flies to a random side."""
        middle = (HEIGHT - PADDLE) / 2
        vx = SPEED if random.random() < 0.5 else -SPEED
        state = np.array([middle, middle, WIDTH / 2, HEIGHT / 2, vx, random.uniform(-SPEED, SPEED)])
        return state, _observations(state[:, None])[0]

    def advance(self, state: Array, actions: npt.NDArray[np.integer[Any]], noise: Array) -> StepResult:
        """Move the paddles, then the ball; it bounces off walls first, then off paddles."""
        agent, opponent, x, y, vx, vy = state
        agent = _clip_to_field(agent + MOVES[actions])
        # The opponent moves towards the ball's previous position, and never rests.
        opponent = _clip_to_field(opponent + np.where(opponent + PADDLE / 2 < y, SPEED, -SPEED))
        x, y = x + vx, y + vy
        vy = np.where((y <= 0) | (y >= HEIGHT - BALL), -vy, vy)
        leftwards = vx < 0
        edge = np.where(leftwards, agent, opponent)
        there = np.where(leftwards, x <= PADDLE_WIDTH, x >= WIDTH - PADDLE_WIDTH - BALL)
        hit = there & (edge <= y) & (y <= edge + PADDLE)
        vx = np.where(hit, -vx, vx)
        vy = np.where(hit, SPEED * (2 * (y - edge) / PADDLE - 1), vy)
        after = np.stack((agent, opponent, x, y, vx, vy))
        return StepResult(
            after, _observations(after), (hit & leftwards).astype(np.float64), (x < 0) | (x > WIDTH - BALL)
        )


def _clip_to_field(edge: Array) -> Array:
    """Clip a paddle's upper edge to the field; for a single environment, this is much faster than `np.clip`."""
    kept: Array = np.minimum(np.maximum(edge, 0.0), LOWEST)
    return kept


def _observations(state: Array) -> Array:
    """Return the observations: the middle of the agent's paddle, and the ball's x, y, vx, vy; shape (n, 5)."""
    agent, _, x, y, vx, vy = state
    return np.stack((agent + PADDLE / 2, x, y, vx, vy), axis=1)


class PongEnv(DynamicsEnv):
    """State-based Pong.

    Two paddles guard the left and the right edge of a field of 800 x 600, x to the right and y downwards. The agent
    moves the left paddle; the right one follows the ball and never misses. Each hit of the agent is worth 1. The limit
    of 1000 steps allows three hits: the ball first arrives after 78 steps, or 230 if it starts towards the opponent,
    and comes back 308 steps or more after each hit. A policy that never misses has a return of exactly 3.

    This is the state-based game of ProPS (NeurIPS 2025), unrelated to the Atari game. Its dynamics are kept with their
    oddities: a wall reverses the ball's vertical speed without moving it back into the field, and a ball that is hit
    exactly at x = -5 counts although it ends the episode. The declared bounds are corrected: the published ones exclude
    observations that occur.

    Actions: `Discrete(3)`, which add -5 (up), 5 (down) or 0 to the y of the paddle.
    Observation: `Box` of shape (5,), float32: the y of the paddle's middle, and the ball's x, y, vx and vy.
    Step: the agent's paddle moves, then the opponent's: 5 down if its middle is above the ball, else 5 up. Then the
        ball moves, 5 sideways. At y <= 0 or y >= 590 its vertical speed is reversed. A ball flying left at x <= 10, or
        right at x >= 780, is hit if its y lies between the upper and the lower edge of the paddle on that side: vx
        changes its sign and vy = 5 (2 h - 1), with h from 0 at the paddle's upper edge to 1 at its lower edge.
    Reward: 1 for each hit of the agent, 0 for a miss by either side.
    Start: both paddles and the ball are in the middle; vx is 5 or -5, vy uniform between -5 and 5.
    End: the ball leaves the field at the left or right. The registered environment truncates episodes after 1000
        steps.
    """

    dynamics = PongDynamics()
