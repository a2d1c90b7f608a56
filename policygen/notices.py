"""Messages about slow activities, which the command line prints after a few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER = 4.0  # seconds before the message


class Notices:
    """The functions that print messages; only the command line sets them.

    Attributes:
        say: prints a line about a slow activity; None: print nothing.
        say_exit: prints why the process is about to be ended; None: never end it, as in a notebook.
    """

    say: Callable[[str], None] | None = None
    say_exit: Callable[[str], None] | None = None


notices = Notices()


@contextmanager
def announced_if_slow(activity: str) -> Iterator[None]:
    """Print an activity, such as "playing 100 episodes", if it is not over within `AFTER` seconds."""
    if notices.say is None:
        yield
        return

    def tell() -> None:
        if (say := notices.say) is not None:
            say(f"{activity} ...")

    timer = threading.Timer(AFTER, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
