"""Misère Nim against a perfect player: ten sticks, one to three per move; taking the last one loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.extensions.worlds.finite import FiniteEnv, Outcomes
from policygen.extensions.worlds.picture import Picture

STICKS = 10
MOST = 3  # sticks in one move


class NimEnv(FiniteEnv):
    """Misère Nim against a perfect player.

    ## Description
    Ten sticks lie on the table. The agent and its opponent take one, two or three sticks in turn, the agent first;
    whoever takes the last stick loses. The opponent leaves one more than a multiple of four sticks whenever it can;
    where the agent has left it such a number it takes a uniformly random legal number of sticks.

    The game is that of ProPS (NeurIPS 2025). As published, its action is the number of sticks itself although the
    declared actions are 0, 1 and 2: action 0 loses at once, and taking three is not declared. Here action `a` takes
    `a + 1` sticks, as in the game; `published_actions=True` gives the published three actions back, with which the
    best expected return is -1/9 instead of 1.

    ## Action Space
    `Discrete(3)`

    | Num | Action            |
    |-----|-------------------|
    | 0   | take one stick    |
    | 1   | take two sticks   |
    | 2   | take three sticks |

    ## Observation Space
    `Discrete(11)`: the number of sticks left, after the opponent's move.

    ## Reward
    1 for a won game, -1 for a lost one, 0 before the end. Taking more sticks than there are loses the game.

    ## Starting State
    Always ten sticks.

    ## Episode End
    The episode terminates when the game is won or lost, which is after five moves of the agent at the latest.

    ## Information
    `step()` returns the probability of what happened as `"prob"`. `P` and `initial_state_distrib` publish all of them.

    ## Arguments
    `gymnasium.make("policygen/Nim-v0", published_actions=False)`

    ## Version History
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 2}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, published_actions: bool = False) -> None:
        fewest = 0 if published_actions else 1
        transitions = {
            sticks: {action: _outcomes(sticks, action + fewest) for action in range(MOST)}
            for sticks in range(STICKS + 1)
        }
        super().__init__(transitions, STICKS, render_mode)

    def render(self) -> Any:
        """The sticks as text (`ansi`) or as a picture of 80 x 240 pixels (`rgb_array`); those taken are pale."""
        if self.render_mode == "ansi":
            return f"{'|' * self.state}{'.' * (STICKS - self.state)}  {self.state} left\n"
        return self._picture() if self.render_mode == "rgb_array" else None

    def _picture(self) -> npt.NDArray[np.uint8]:
        picture = Picture(80, 240)
        for i in range(STICKS):
            x = 23.0 + 21.5 * i
            there = i < self.state
            picture.segment((x, 22), (x, 66), 6, (196, 150, 92) if there else (232, 230, 224))
            if there:
                picture.disc((x, 18), 5.5, (190, 60, 44))
        return picture.pixels()


def _outcomes(sticks: int, taken: int) -> Outcomes:
    """Return the outcomes after the agent has taken `taken` sticks."""
    if sticks == 0:  # the game is over
        return [(1.0, 0, 0.0, True)]
    if not 1 <= taken <= min(MOST, sticks):
        return [(1.0, sticks, -1.0, True)]
    left = sticks - taken
    if left == 0:
        return [(1.0, 0, -1.0, True)]
    replies = [(left - 1) % 4] if (left - 1) % 4 else list(range(1, min(MOST, left) + 1))
    return [(1 / len(replies), left - k, float(left == k), left == k) for k in replies]
