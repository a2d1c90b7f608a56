"""How much an attack tries, little with every change and much by `make attack`, and how often it held."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LONG = os.environ.get("POLICYGEN_ATTACK") == "long"
# Of runs that are disturbed: small, so that most of a try is what is tried.
SETTINGS = (
    *("--iterations", 5, "--episodes", 5, "--seed", 3, "--jobs", 1),
    *("--set", "warmup_episodes=5", "--set", "final_episodes=5"),
)


def amount(usual: int, long: int) -> int:
    """How many to try: `long` of them where POLICYGEN_ATTACK=long is set."""
    return long if LONG else usual


@dataclass
class Tally:
    """How often something was tried, how often it held, and the longest that one try took."""

    name: str
    tried: int = 0
    held: int = 0
    worst: float = 0.0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one try; it holds if nothing is raised."""
        started = time.perf_counter()
        self.tried += 1
        try:
            yield
            self.held += 1
        finally:
            self.worst = max(self.worst, time.perf_counter() - started)

    @contextmanager
    def each(self, where: str) -> Iterator[None]:
        """Count one try, and go on after a failure, so that the tally is of all tries; `check` fails then."""
        try:
            with self.one():
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failures.append(f"{where}: {type(error).__name__}: {error}"[:500])

    def check(self) -> None:
        """Fail if any try of `each` did."""
        assert not self.failures, f"{len(self.failures)} failures:\n" + "\n".join(self.failures[:20])


Tallies = Callable[[str], Tally]  # begins the tally of an attack: the fixture `tally`
