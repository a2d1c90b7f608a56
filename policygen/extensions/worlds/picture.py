"""Small pictures drawn with Pillow, so that rendering needs no window and no extra."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

_SCALE = 4  # shapes are drawn this many times larger and then reduced, for smooth edges

Point = tuple[float, float]  # (x to the right, y down), in pixels
Colour = tuple[int, int, int]


class Canvas:
    """A picture of `height` x `width` pixels; a shape has smooth edges and covers earlier ones."""

    def __init__(self, height: int, width: int, colour: Colour = (250, 249, 246)) -> None:
        self._image = Image.new("RGB", (_SCALE * width, _SCALE * height), colour)
        self._draw = ImageDraw.Draw(self._image)

    def rectangle(self, upper_left: Point, lower_right: Point, colour: Colour) -> None:
        """Draw a filled rectangle between two corners."""
        (left, top), (right, bottom) = upper_left, lower_right
        # Pillow includes the last pixel.
        self._draw.rectangle((_SCALE * left, _SCALE * top, _SCALE * right - 1, _SCALE * bottom - 1), colour)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        (x, y), reach = (_SCALE * centre[0], _SCALE * centre[1]), _SCALE * radius
        self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), colour)

    def segment(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Draw a straight line with round ends; `width` is in pixels."""
        self._draw.line([_SCALE * number for number in (*start, *end)], colour, round(_SCALE * width))
        for point in (start, end):
            self.disc(point, width / 2, colour)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the picture, shape (height, width, 3)."""
        return np.array(self._image.reduce(_SCALE))
