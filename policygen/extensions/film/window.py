"""A window that plays a film, with pause and single steps."""

# Imports inside functions: pygame is part of the extra `render`.

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from policygen.errors import UsageError
from policygen.extensions.film.scenes import is_headless

if TYPE_CHECKING:
    from policygen.extensions.film.frames import Frame

KEYS = "space: pause, left and right: single steps, home: restart, q: quit"


def show(frames: Sequence[Frame], title: str) -> int:
    """Show a film until the window is closed or `q` is pressed; return the number of frames shown, repeats included.

    Raises:
        UsageError: no window can be opened; `check_screen` tells this earlier, before the film is made.
    """
    import pygame

    try:
        pygame.display.init()
        screen = pygame.display.set_mode(frames[0].image.size)
    except pygame.error as error:
        raise UsageError(f"no window can be opened ({error}); write a film instead: -o film.gif") from None
    pygame.display.set_caption(f"{title}: {KEYS}")
    try:
        pictures = [pygame.image.frombuffer(f.image.tobytes(), f.image.size, "RGB") for f in frames]
        return _play(pygame, screen, pictures, [f.seconds for f in frames])
    finally:
        pygame.display.quit()


def check_screen() -> None:
    """Check that a window can be opened, before anything is played.

    Raises:
        UsageError: there is no screen, or pygame is missing.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame  # noqa: F401
    except ImportError:
        raise UsageError('a window needs pygame; run: pip install "policygen[render]"') from None
    if is_headless() and "SDL_VIDEODRIVER" not in os.environ:
        raise UsageError("there is no screen to open a window on; write a film instead: -o film.gif")


def _play(pygame: Any, screen: Any, pictures: Sequence[Any], seconds: Sequence[float]) -> int:
    at, shown, paused = 0, 0, False
    while True:
        screen.blit(pictures[at], (0, 0))
        pygame.display.flip()
        shown += 1
        until = time.monotonic() + seconds[at]
        step = 1
        # The last frame stays until the window is closed.
        while paused or at == len(pictures) - 1 or time.monotonic() < until:
            event = pygame.event.wait(20)
            if event.type == pygame.QUIT:
                return shown
            if event.type != pygame.KEYDOWN:
                continue
            if event.key in (pygame.K_q, pygame.K_ESCAPE):
                return shown
            if event.key == pygame.K_SPACE:
                paused = not paused
            elif event.key in (pygame.K_LEFT, pygame.K_RIGHT, pygame.K_HOME):
                step = {pygame.K_LEFT: -1, pygame.K_RIGHT: 1, pygame.K_HOME: -at}[event.key]
                paused = event.key != pygame.K_HOME
                break
        at = min(max(0, at + step), len(pictures) - 1)
