"""The robot's knowledge of a locked room: its map, the things on it, and their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Cell = tuple[int, int]  # (x to the right, y down)

ROOM_NAMES = ("SimpleDoorKey", "KeyInBox", "RandomBoxKey", COLOURED := "ColoredDoorKey")
MISSION = "open the door"
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, NOTHING = range(7)
UNSEEN, EMPTY, WALL, DOOR, KEY, BOX = 0, 1, 2, 4, 5, 7
KINDS = {KEY: "key", BOX: "box", DOOR: "door"}  # in the order of reports
KINDS_IN = {room: ("key", "box", "door") if "Box" in room else ("key", "door") for room in ROOM_NAMES}
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
AHEAD: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))  # steps right, down, left, up, by direction
_EDGES = bytes(kind in (WALL, DOOR) for kind in range(256))  # 1 for kinds that bound a room
NOBODY = 4  # direction in cells without the robot
NO_ROBOT_CELL = (EMPTY, 0, 0, NOBODY)


@dataclass(frozen=True, slots=True)
class Thing:
    """A key, box or door on the map, with its place."""

    kind: str
    colour: str
    place: Cell


class View:
    """A map, shape (w, h, 4), uint8, as the environment returns it; see `LockedRoomEnv`.

    Attributes:
        here, direction: the robot's cell, and the direction it faces.
        carried: the thing it carries, as (kind, colour), or None.
    """

    __slots__ = ("_colours", "_height", "_kinds", "carried", "direction", "here")

    def __init__(self, image: npt.NDArray[Any]) -> None:
        self._height = image.shape[1]
        self._kinds: bytes = image[:, :, 0].tobytes()
        self._colours: bytes = image[:, :, 1].tobytes()
        robots: bytes = image[:, :, 3].tobytes()
        at = len(robots) - len(robots.lstrip(bytes([NOBODY])))
        self.here: Cell = divmod(at, self._height)
        self.direction: int = robots[at]
        held = self._kinds[at]
        self.carried = (KINDS[held], COLOURS[self._colours[at]]) if held in KINDS else None

    def kind(self, cell: Cell) -> int:
        """Return the known content of a cell."""
        return int(self._kinds[cell[0] * self._height + cell[1]])

    def ahead(self, cell: Cell | None = None, direction: int | None = None) -> Cell:
        """Return the cell in front of the robot, or in front of another cell or direction."""
        x, y = self.here if cell is None else cell
        dx, dy = AHEAD[self.direction if direction is None else direction]
        return x + dx, y + dy

    def things(self) -> Iterator[Thing]:
        """Yield the known keys, boxes and doors that are not carried, each kind from left to right."""
        own = self.here[0] * self._height + self.here[1]
        for number, kind in KINDS.items():
            at = self._kinds.find(number)
            while at >= 0:
                if at != own:
                    yield Thing(kind, COLOURS[self._colours[at]], divmod(at, self._height))
                at = self._kinds.find(number, at + 1)

    def is_complete(self) -> bool:
        """Whether the known walls and doors enclose the room, and everything inside has been seen."""
        height, edges = self._height, self._kinds.translate(_EDGES)
        left, right = edges.find(1) // height, edges.rfind(1) // height
        top, bottom = (found - left * height for found in (edges.find(1), edges.rfind(1, 0, (left + 1) * height)))
        sides = [edges[x * height + top : x * height + bottom + 1] for x in (left, right)]
        sides += [edges[left * height + y : right * height + y + 1 : height] for y in (top, bottom)]
        if right - left < 2 or bottom - top < 2 or any(0 in side for side in sides):
            return False
        return not any(
            UNSEEN in self._kinds[x * height + top : x * height + bottom + 1] for x in range(left + 1, right)
        )
