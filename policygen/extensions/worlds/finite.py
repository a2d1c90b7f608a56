"""Nim and a maze: finite environments that publish their transitions, as Gymnasium's toy text does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

# (probability, next state, reward, whether the episode ends) of each outcome of an action
Outcomes = list[tuple[float, int, float, bool]]


class FiniteEnv(gym.Env[Any, Any]):
    """An environment with published transitions, from which expected returns can be computed exactly.

    Attributes:
        P: `P[state][action]` lists the outcomes of an action.
        initial_state_distrib: initial probability of each state, shape (states,).
    """

    def __init__(self, transitions: dict[int, dict[int, Outcomes]], start: int) -> None:
        self.P = transitions
        self.start = self.state = start
        self.initial_state_distrib: npt.NDArray[np.float64] = np.eye(len(transitions))[start]
        self.observation_space = gym.spaces.Discrete(len(transitions))
        self.action_space = gym.spaces.Discrete(len(transitions[start]))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode in the state `start`."""
        super().reset(seed=seed)
        self.state = self.start
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one of the outcomes in `P` by its probability."""
        outcomes, chosen = self.P[self.state][int(action)], 0
        if len(outcomes) > 1:  # a certain outcome needs no random draw
            chosen = int(self.np_random.choice(len(outcomes), p=[outcome[0] for outcome in outcomes]))
        probability, self.state, reward, ended = outcomes[chosen]
        return self.state, reward, ended, False, {"prob": probability}


# --- Nim -------------------------------------------------------------------------------------------------------------

STICKS = 10
MOST = 3  # sticks that a move can take


class NimEnv(FiniteEnv):
    """Misère Nim against a perfect player.

    Ten sticks lie on the table. The agent and its opponent take one, two or three sticks in turn, the agent first;
    the player who takes the last stick loses. The opponent leaves one more than a multiple of four sticks whenever it
    can. If the agent leaves it such a number, it takes a uniformly random legal number of sticks.

    Actions: `Discrete(3)`; action `a` takes `a + 1` sticks.
    Observation: `Discrete(11)`, the number of sticks left after the opponent's move.
    Reward: 1 for a won game, -1 for a lost one, 0 before the end. Taking more sticks than there are loses the game.
    Start: always ten sticks.
    End: the game is won or lost, after five moves of the agent at the latest.
    Info: `"prob"`, the probability of the outcome.
    """

    def __init__(self) -> None:
        sticks, moves = range(STICKS + 1), range(MOST)
        super().__init__({n: {a: _outcomes_of_taking(n, a + 1) for a in moves} for n in sticks}, STICKS)


def _outcomes_of_taking(sticks: int, taken: int) -> Outcomes:
    if sticks == 0:  # the game is over
        return [(1.0, 0, 0.0, True)]
    if taken > sticks:
        return [(1.0, sticks, -1.0, True)]
    left = sticks - taken
    if left == 0:
        return [(1.0, 0, -1.0, True)]
    replies = [(left - 1) % 4] if (left - 1) % 4 else list(range(1, min(MOST, left) + 1))
    return [(1 / len(replies), left - k, float(left == k), left == k) for k in replies]


# --- a maze ----------------------------------------------------------------------------------------------------------

SIDE = 3
GOAL = SIDE * SIDE - 1
STEP_REWARD = -0.1 / (SIDE * SIDE)
MOVES = (-SIDE, SIDE, 1, -1)  # north, south, east, west, in numbers of squares
# The pairs of neighbouring squares without a wall between them.
PASSAGES = ({0, 1}, {1, 2}, {2, 5}, {4, 5}, {0, 3}, {3, 6}, {6, 7}, {7, 8})


class MazeEnv(FiniteEnv):
    """The 3 x 3 sample maze.

    A robot moves between nine squares, some of which have a wall between them. It starts in the upper left corner and
    must reach the lower right one. There is one way only: down, down, right, right.

    It is the sample maze of ProPS (NeurIPS 2025), whose observation is (x, y). As published, the goal does not count as
    an end when it is reached on the very last step of the limit; here it always does.

    Actions: `Discrete(4)`, north (up), south, east, west. A step into a wall leaves the robot where it is.
    Observation: `Discrete(9)`, the square: 3 * row + column, counted from the upper left corner.
    Reward: 1 for the step that ends in the goal, -0.1/9 for every other: the way of four steps is worth 0.9667.
    Start: always square 0.
    End: the robot is in the goal. The registered environment truncates episodes after 100 steps.
    Info: `"prob"`, the probability of the outcome, here always 1.
    """

    def __init__(self) -> None:
        squares = range(SIDE * SIDE)
        super().__init__({s: {a: _outcomes_of_moving(s, a) for a in range(len(MOVES))} for s in squares}, 0)


def _outcomes_of_moving(square: int, action: int) -> Outcomes:
    if square == GOAL:
        return [(1.0, GOAL, 0.0, True)]
    after = square + MOVES[action]
    if {square, after} not in PASSAGES:
        after = square
    return [(1.0, after, 1.0, True) if after == GOAL else (1.0, after, STEP_REWARD, False)]
