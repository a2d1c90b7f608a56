"""Environments built on minigrid: a robot in a room with a locked door, and when to ask a planner for a plan."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Box, Door, Key, WorldObj
from minigrid.minigrid_env import MiniGridEnv

from policygen.extensions.worlds import robot

MISSION = "open the door"
LEAST, MOST = 5, 10  # minimum and maximum number of cells along a room's side, walls included
STEPS = 100  # maximum of an episode


class LockedRoomEnv(MiniGridEnv):
    """A room with a locked door, seen three cells by three at a time.

    A robot stands in a room whose size it does not know. One wall has a locked door. The key of the door's colour lies
    on the floor or in a box. The robot sees the nine cells in front of it and beside it, and keeps a map of what it has
    seen. The four rooms are those of When2Ask (arXiv 2306.03604), seed for seed; each is the environment
    `policygen/ROOM-v0`. They differ in the things they contain:

        | Room           | Things besides the door                                          |
        |----------------|------------------------------------------------------------------|
        | SimpleDoorKey  | the key                                                          |
        | KeyInBox       | a box with the key in it                                         |
        | RandomBoxKey   | at random: the key and an empty box, or a box with the key in it |
        | ColoredDoorKey | the key, and a key of another colour                             |

    Actions: `Discrete(7)`: 0 turn left, 1 turn right, 2 forward into an empty cell, 3 pick up the key or box ahead
        (with empty hands), 4 drop what is carried into the empty cell ahead, 5 open the box ahead (which leaves what
        was in it) or the door (with its key), 6 nothing.
    Observation: `Dict(image=Box(0, 10, (10, 10, 4), uint8))`, the map of everything seen so far, indexed
        `[x, y, number]` with x to the right and y down. The robot's own cell shows what it carries. The numbers:
        0. the content: 0 not seen yet, 1 nothing, 2 wall, 4 door, 5 key, 7 box
        1. its colour: 0 red, 1 green, 2 blue, 3 purple, 4 yellow, 5 grey
        2. of a door: 0 open, 1 closed, 2 locked
        3. the robot's direction, 0 right, 1 down, 2 left, 3 up; 4 in all cells without the robot.
    Reward: `1 - 0.9 * steps / 100` for opening the door, 0 for every other step.
    Start: the sides of 5 to 10 cells, the place and colour of the door, the robot's place and direction, and the places
        of things are uniformly random.
    End: the door is open. Episodes are truncated after 100 steps.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, room: str, render_mode: str | None = None) -> None:
        if room not in robot.ROOM_NAMES:
            raise ValueError(f"there is no room {room}; choose one of {', '.join(robot.ROOM_NAMES)}")
        self._room = room
        super().__init__(
            mission_space=MissionSpace(mission_func=lambda: MISSION),
            grid_size=MOST,
            max_steps=STEPS,
            agent_view_size=3,
            render_mode=render_mode,
        )
        self.observation_space = spaces.Dict({"image": spaces.Box(0, 10, (MOST, MOST, 4), np.uint8)})

    # --- building a room, with the same random draws as the published code ------------------------------------------

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self._size = int(self._rand_int(LEAST, MOST + 1)), int(self._rand_int(LEAST, MOST + 1))
        right, bottom = self._size[0] - 1, self._size[1] - 1
        self.grid.wall_rect(0, 0, *self._size)
        wall = int(self._rand_int(0, 4))
        along = int(self._rand_int(1, bottom if wall in (0, 2) else right))
        place, self._front = (
            ((right, along), (right - 1, along)),
            ((along, bottom), (along, bottom - 1)),
            ((0, along), (1, along)),
            ((along, 0), (along, 1)),
        )[wall]
        self._door = Door(self._rand_elem(COLOR_NAMES), is_locked=True)
        self.grid.set(*place, self._door)
        self.place_agent((0, 0), self._size)  # type: ignore[no-untyped-call]
        self._furnish(self._door.color)
        self.mission = MISSION
        self._map = np.zeros((MOST, MOST, 4), np.uint8)
        self._map[:, :, 3] = robot.NOBODY
        self._last_cell: robot.Cell | None = None

    def _furnish(self, colour: str) -> None:
        """Put the room's things into random cells; `colour` is the door's."""
        if self._room == "SimpleDoorKey":
            self._put(Key(colour))
        elif self._room == "KeyInBox":
            self._put(Box(colour, Key(colour)))
        elif self._room == "ColoredDoorKey":
            self._put(Key(colour), before_door=False)
            other = self._rand_elem([name for name in COLOR_NAMES if name != colour])
            self._put(Key(other), before_door=False)
        elif self._rand_int(0, 2):
            self._put(Box(colour, Key(colour)), before_door=False)
        else:
            self._put(Key(colour))
            self._put(Box(colour), before_door=False)

    def _put(self, thing: WorldObj, *, before_door: bool = True) -> None:
        """Put a thing into a random free cell, which may be the one in front of the door if `before_door`."""
        self.place_obj(
            thing, (0, 0), self._size, None if before_door else lambda env, place: tuple(place) == self._front
        )

    # --- observations ----------------------------------------------------------------------------------------------

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action."""
        observation, _, _, truncated, info = super().step(action)
        opened = bool(action == robot.TOGGLE and self._door.is_open)
        return observation, float(self._reward()) if opened else 0.0, opened, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """Return the observation: the map of everything seen so far."""
        here = (int(self.agent_pos[0]), int(self.agent_pos[1]))
        ahead = robot.AHEAD[self.agent_dir]
        image = self._map
        if self._last_cell is not None and self._last_cell != here:
            image[self._last_cell] = (robot.EMPTY, 0, 0, robot.NOBODY)
        front = (here[0] + ahead[0], here[1] + ahead[1])
        for cell in (*self._visible_cells(here, ahead), front):
            if cell == front or image[cell[0], cell[1], 0] == robot.UNSEEN:
                thing = self.grid.get(*cell)
                image[cell][:3] = thing.encode() if thing is not None else (robot.EMPTY, 0, 0)
        carried = self.carrying.encode() if self.carrying is not None else (robot.EMPTY, 0, 0)
        image[here] = (*carried, self.agent_dir)
        self._last_cell = here
        return {"image": image.copy()}

    def _visible_cells(self, here: robot.Cell, ahead: robot.Cell) -> set[robot.Cell]:
        """Return the cells that the robot sees: light spreads ahead and diagonally for up to three cells."""
        (x, y), (dx, dy) = here, ahead
        found: set[robot.Cell] = set()
        lit = [False, True, False]  # cells to the left, ahead, to the right
        for _ in range(3):
            cells = (x + dy, y - dx), (x, y), (x - dy, y + dx)
            after = [False, False, False]
            for side, beside in ((0, 1), (1, 2), (2, 1), (1, 0)):
                if lit[side] and self._is_clear(cells[side]):
                    lit[beside] = after[beside] = after[side] = True
            found.update(cell for cell, is_lit in zip(cells, lit, strict=True) if is_lit and _is_inside(cell))
            x, y, lit = x + dx, y + dy, after
        return found

    def _is_clear(self, cell: robot.Cell) -> bool:
        if not _is_inside(cell):
            return False
        thing = self.grid.grid[cell[1] * MOST + cell[0]]
        return thing is None or bool(thing.see_behind())


def _is_inside(cell: robot.Cell) -> bool:
    return 0 <= cell[0] < MOST and 0 <= cell[1] < MOST


InputArray = npt.NDArray[np.int64]


class WhenToAskEnv(gym.Env[InputArray, np.int64]):
    """Decide when to ask a planner for the next plan.

    A robot in a room with a locked door follows a plan, such as `go to key, pick up key`. A rule-based planner makes
    the plans. In every step the agent, a mediator, either asks for a new plan, which has a cost, or continues with the
    current one. The rooms and the options of plans are those of When2Ask (arXiv 2306.03604).

    Actions: `Discrete(2)`: 0 continue with the plan, 1 ask the planner and begin the new plan.
    Observation: `MultiDiscrete([5, 2, 101])`, the numbers of `robot.MediatorInputs`.
    Reward: `1 - 0.9 * steps / 100` for opening the door, and `-cost` for every question.
    Start: a random room. The planner has been asked once, at no cost, and the robot has taken the first step of its
        plan.
    End: the door is open. Episodes are truncated after 100 steps of the robot. A robot whose plan is over does nothing
        until the mediator asks.
    Info: `"questions"`, the number of questions so far.

    Args:
        room: one of `robot.ROOM_NAMES`.
        cost: the cost of a question.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, room: str = "SimpleDoorKey", cost: float = 0.01, render_mode: str | None = None) -> None:
        self.observation_space = spaces.MultiDiscrete([5, 2, STEPS + 1])
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self._room, self._cost = room, cost
        self._env = LockedRoomEnv(room, render_mode)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[InputArray, dict[str, Any]]:
        """Start a random room with a first plan."""
        super().reset(seed=seed)
        self._episode = robot.RoomEpisode(self._env, self._room, seed)
        self._ask()
        self._episode.act()
        return self._seen()

    def step(self, action: Any) -> tuple[InputArray, float, bool, bool, dict[str, Any]]:
        """Move the robot one step, after a question if `action` is 1."""
        if action:
            self._ask()
        episode = self._episode
        reward = episode.act() - self._cost * int(action)
        inputs, info = self._seen()
        return inputs, reward, episode.opened, episode.over and not episode.opened, info

    def render(self) -> Any:
        """Return a picture of the room, shape (320, 320, 3)."""
        return self._env.render() if self.render_mode is not None else None  # type: ignore[no-untyped-call]

    def _ask(self) -> None:
        self._episode.follow(robot.plan_by_rules(self._episode.report, self._room))

    def _seen(self) -> tuple[InputArray, dict[str, Any]]:
        return np.array(self._episode.inputs, np.int64), {"questions": self._episode.questions}
