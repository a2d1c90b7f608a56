"""A maze of three by three squares with a single way to the goal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.extensions.worlds.finite import FiniteEnv, Outcomes
from policygen.extensions.worlds.picture import Picture

SIDE = 3
GOAL = SIDE * SIDE - 1
STEP_REWARD = -0.1 / (SIDE * SIDE)
MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, 1), 3: (0, -1)}  # (rows, columns)
# The pairs of squares without a wall between them: a spanning tree of the grid.
OPEN = frozenset(map(frozenset, [(0, 1), (1, 2), (2, 5), (5, 4), (0, 3), (3, 6), (6, 7), (7, 8)]))
_SCALE = 64  # pixels a square


class MazeEnv(FiniteEnv):
    """The 3 x 3 sample maze.

    ## Description
    A robot moves between nine squares, some of which have a wall between them. It starts in the upper left corner and
    must reach the lower right one. There is one way only: down, down, right, right.

    ```text
    +---+---+---+
    | S         |
    +   +---+   +
    |   |       |
    +   +---+---+
    |         G |
    +---+---+---+
    ```

    The maze is the sample maze that ProPS (NeurIPS 2025) uses, whose observation is (x, y); here it is the number of
    the square, which ProPS derives from it. As published the goal does not count as an end when it is reached on the
    very last step of the limit; here it always does.

    ## Action Space
    `Discrete(4)`

    | Num | Action      |
    |-----|-------------|
    | 0   | north (up)  |
    | 1   | south       |
    | 2   | east        |
    | 3   | west        |

    A step into a wall leaves the robot where it is.

    ## Observation Space
    `Discrete(9)`: the square, 3 * row + column, counted from the upper left corner.

    ## Reward
    1 for the step that ends in the goal, -0.1/9 for every other: the way of four steps is worth 1 - 0.3/9 = 0.9667.

    ## Starting State
    Always square 0.

    ## Episode End
    The episode terminates in the goal, and is truncated after 100 steps.

    ## Information
    `step()` returns the probability of what happened as `"prob"`, here always 1. `P` and `initial_state_distrib`
    publish the whole maze.

    ## Arguments
    `gymnasium.make("policygen/Maze-v0")`; for another limit `max_episode_steps=20`.

    ## Version History
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        squares = range(SIDE * SIDE)
        super().__init__({s: {a: _outcomes(s, a) for a in MOVES} for s in squares}, 0, render_mode)

    def render(self) -> Any:
        """The maze as text (`ansi`), or as a picture of 208 x 208 pixels (`rgb_array`)."""
        if self.render_mode == "ansi":
            return self._text()
        return self._picture() if self.render_mode == "rgb_array" else None

    def _text(self) -> str:
        marks = {0: "S", GOAL: "G", self.state: "R"}
        lines = ["+---" * SIDE + "+"]
        for row in range(SIDE):
            squares, below = "|", "+"
            for square in range(SIDE * row, SIDE * row + SIDE):
                squares += f" {marks.get(square, ' ')} " + (" " if _open(square, 2) else "|")
                below += ("   " if _open(square, 1) else "---") + "+"
            lines += [squares, below]
        return "\n".join(lines) + "\n"

    def _picture(self) -> npt.NDArray[np.uint8]:
        margin = 8
        size = SIDE * _SCALE + 2 * margin
        picture = Picture(size, size)
        corner = margin + (SIDE - 1) * _SCALE
        picture.rectangle((corner, corner), (corner + _SCALE, corner + _SCALE), (176, 214, 164))
        wall = (62, 66, 74)
        for i in (margin, size - margin):
            picture.segment((margin, i), (size - margin, i), 6, wall)
            picture.segment((i, margin), (i, size - margin), 6, wall)
        for square in range(SIDE * SIDE):
            row, column = divmod(square, SIDE)
            left, top = margin + column * _SCALE, margin + row * _SCALE
            if column < SIDE - 1 and not _open(square, 2):
                picture.segment((left + _SCALE, top), (left + _SCALE, top + _SCALE), 6, wall)
            if row < SIDE - 1 and not _open(square, 1):
                picture.segment((left, top + _SCALE), (left + _SCALE, top + _SCALE), 6, wall)
        row, column = divmod(self.state, SIDE)
        picture.disc((margin + (column + 0.5) * _SCALE, margin + (row + 0.5) * _SCALE), 16, (58, 104, 176))
        return picture.pixels()


def _open(square: int, action: int) -> bool:
    """Whether a step from the square leads into another."""
    row, column = (a + b for a, b in zip(divmod(square, SIDE), MOVES[action], strict=True))
    inside = 0 <= row < SIDE and 0 <= column < SIDE
    return inside and frozenset((square, SIDE * row + column)) in OPEN


def _outcomes(square: int, action: int) -> Outcomes:
    if square == GOAL:
        return [(1.0, GOAL, 0.0, True)]
    rows, columns = MOVES[action]
    after = square + SIDE * rows + columns if _open(square, action) else square
    return [(1.0, after, 1.0, True) if after == GOAL else (1.0, after, STEP_REWARD, False)]
