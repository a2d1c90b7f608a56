"""Small pictures drawn with numpy alone, so that rendering needs no window and no other package."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Point = tuple[float, float]  # (x to the right, y down), pixels
Colour = tuple[int, int, int]


class Picture:
    """A picture of `height` x `width` pixels; shapes have smooth edges and cover what is there."""

    def __init__(self, height: int, width: int, colour: Colour = (250, 249, 246)) -> None:
        self._ink = np.full((height, width, 3), colour, np.float64)
        self._y, self._x = np.mgrid[0.5 : height + 0.5, 0.5 : width + 0.5]

    def rectangle(self, upper_left: Point, lower_right: Point, colour: Colour) -> None:
        """An upright rectangle between two corners."""
        (left, top), (right, bottom) = upper_left, lower_right
        distance = np.maximum.reduce([left - self._x, self._x - right, top - self._y, self._y - bottom])
        self._paint(distance, colour)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """A filled circle."""
        self._paint(np.hypot(self._x - centre[0], self._y - centre[1]) - radius, colour)

    def segment(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """A straight line of that width with round ends."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        x, y = self._x - start[0], self._y - start[1]
        along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-12), 0, 1)
        self._paint(np.hypot(x - along * dx, y - along * dy) - width / 2, colour)

    def copy(self) -> Picture:
        """Return a copy to draw on."""
        twin = Picture(*self._ink.shape[:2])
        twin._ink[:] = self._ink
        return twin

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The picture, shape (height, width, 3)."""
        return np.rint(self._ink).astype(np.uint8)

    def _paint(self, distance: npt.NDArray[np.float64], colour: Colour) -> None:
        """Colour the inside, where `distance` is negative, blended over half a pixel at the edge."""
        share = np.clip(0.5 - distance, 0, 1)[..., None]
        self._ink += share * (np.array(colour) - self._ink)
