"""Small pictures drawn with Pillow, so that rendering needs no window and no extra."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

FINE = 4  # shapes are drawn this many times larger and then reduced, for smooth edges

Point = tuple[float, float]  # (x to the right, y down), pixels
Colour = tuple[int, int, int]


class Canvas:
    """A picture of `height` x `width` pixels; shapes have smooth edges and cover what is there."""

    def __init__(self, height: int, width: int, colour: Colour = (250, 249, 246)) -> None:
        self._image = Image.new("RGB", (FINE * width, FINE * height), colour)
        self._draw = ImageDraw.Draw(self._image)

    def rectangle(self, upper_left: Point, lower_right: Point, colour: Colour) -> None:
        """Draw an upright rectangle between two corners."""
        (left, top), (right, bottom) = upper_left, lower_right
        # Pillow includes the last pixel.
        self._draw.rectangle((FINE * left, FINE * top, FINE * right - 1, FINE * bottom - 1), colour)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        (x, y), reach = centre, FINE * radius
        self._draw.ellipse((FINE * x - reach, FINE * y - reach, FINE * x + reach, FINE * y + reach), colour)

    def segment(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Draw a straight line of that width with round ends."""
        self._draw.line((FINE * start[0], FINE * start[1], FINE * end[0], FINE * end[1]), colour, round(FINE * width))
        for point in (start, end):
            self.disc(point, width / 2, colour)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the picture, shape (height, width, 3)."""
        return np.array(self._image.reduce(FINE))
