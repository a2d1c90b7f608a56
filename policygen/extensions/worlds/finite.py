"""Nim and a maze: environments of finitely many states that publish their transitions, as Gymnasium's toy text does."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

# (probability, next state, reward, whether the episode ends) of each outcome of an action
Outcomes = list[tuple[float, int, float, bool]]


class FiniteEnv(gym.Env[Any, Any]):
    """An environment with published transitions, from which returns can be computed exactly; it starts in `start`.

    Attributes:
        P: `P[state][action]` lists the outcomes of an action.
        initial_state_distrib: initial probability of each state, shape (states,).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 2}  # noqa: RUF012

    def __init__(self, transitions: dict[int, dict[int, Outcomes]], start: int, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise gym.error.UnsupportedMode(f"there is no render mode {render_mode!r}; choose ansi")
        self.P = transitions
        self.start = start
        self.initial_state_distrib: npt.NDArray[np.float64] = np.eye(len(transitions))[start]
        self.observation_space = gym.spaces.Discrete(len(transitions))
        self.action_space = gym.spaces.Discrete(len(transitions[start]))
        self.render_mode = render_mode
        self.state = start
        self._ended = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode in the state `start`."""
        super().reset(seed=seed)
        self.state, self._ended = self.start, False
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one of the outcomes in `P` by its probability.

        Raises:
            gymnasium.error.ResetNeeded: the episode has ended.
            gymnasium.error.InvalidAction: there is no such action.
        """
        if self._ended:
            raise gym.error.ResetNeeded("the episode has ended: call reset() before step()")
        choices = self.P[self.state]
        if int(action) not in choices:
            raise gym.error.InvalidAction(f"there is no action {action}; actions are 0 to {len(choices) - 1}")
        outcomes, chosen = choices[int(action)], 0
        if len(outcomes) > 1:  # a certain outcome needs no random draw
            chosen = int(self.np_random.choice(len(outcomes), p=[outcome[0] for outcome in outcomes]))
        probability, self.state, reward, self._ended = outcomes[chosen]
        return self.state, reward, self._ended, False, {"prob": probability}

    def render(self) -> Any:
        """Return the state as text (`ansi`)."""
        return self._text() if self.render_mode == "ansi" else None

    @abstractmethod
    def _text(self) -> str: ...


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

    def __init__(self, render_mode: str | None = None) -> None:
        sticks, moves = range(STICKS + 1), range(MOST)
        super().__init__({n: {a: _outcomes_of_taking(n, a + 1) for a in moves} for n in sticks}, STICKS, render_mode)

    def _text(self) -> str:
        return f"{'|' * self.state}{'.' * (STICKS - self.state)}  {self.state} left\n"


def _outcomes_of_taking(sticks: int, taken: int) -> Outcomes:
    """Return the outcomes after the agent has taken `taken` sticks."""
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
MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, 1), 3: (0, -1)}  # (rows, columns)
# The pairs of squares without a wall between them: a spanning tree of the grid.
PASSAGES = frozenset(map(frozenset, [(0, 1), (1, 2), (2, 5), (5, 4), (0, 3), (3, 6), (6, 7), (7, 8)]))


class MazeEnv(FiniteEnv):
    """The 3 x 3 sample maze.

    A robot moves between nine squares, some of which have a wall between them. It starts in the upper left corner and
    must reach the lower right one. There is one way only: down, down, right, right. `render_mode="ansi"` draws it.

    It is the sample maze of ProPS (NeurIPS 2025), whose observation is (x, y). As published, the goal does not count as
    an end when it is reached on the very last step of the limit; here it always does.

    Actions: `Discrete(4)`, north (up), south, east, west. A step into a wall leaves the robot where it is.
    Observation: `Discrete(9)`, the square: 3 * row + column, counted from the upper left corner.
    Reward: 1 for the step that ends in the goal, -0.1/9 for every other: the way of four steps is worth 0.9667.
    Start: always square 0.
    End: the robot is in the goal. The registered environment truncates episodes after 100 steps.
    Info: `"prob"`, the probability of the outcome, here always 1.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        squares = range(SIDE * SIDE)
        super().__init__({s: {a: _outcomes_of_moving(s, a) for a in MOVES} for s in squares}, 0, render_mode)

    def _text(self) -> str:
        marks = {0: "S", GOAL: "G", self.state: "R"}
        lines = ["+---" * SIDE + "+"]
        for row in range(SIDE):
            squares, below = "|", "+"
            for square in range(SIDE * row, SIDE * row + SIDE):
                squares += f" {marks.get(square, ' ')} " + (" " if _is_open(square, 2) else "|")
                below += ("   " if _is_open(square, 1) else "---") + "+"
            lines += [squares, below]
        return "\n".join(lines) + "\n"


def _is_open(square: int, action: int) -> bool:
    """Return whether the action leads from the square to another one, not into a wall."""
    row, column = (a + b for a, b in zip(divmod(square, SIDE), MOVES[action], strict=True))
    inside = 0 <= row < SIDE and 0 <= column < SIDE
    return inside and frozenset((square, SIDE * row + column)) in PASSAGES


def _outcomes_of_moving(square: int, action: int) -> Outcomes:
    if square == GOAL:
        return [(1.0, GOAL, 0.0, True)]
    rows, columns = MOVES[action]
    after = square + SIDE * rows + columns if _is_open(square, action) else square
    return [(1.0, after, 1.0, True) if after == GOAL else (1.0, after, STEP_REWARD, False)]
