"""Count the steps of environments: every environment that a task makes counts the calls of its `step`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

_NO_LIMIT = 10**12


class _Steps(threading.local):
    """The steps of a thread's environments."""

    taken = 0
    most = _NO_LIMIT  # number of `taken` at which loading a task takes no more


_steps = _Steps()


class CountedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that counts the calls of `step`, whoever makes them; see `steps_taken`."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step of the environment and count it, also if it fails."""
        _steps.taken += 1
        return self.env.step(action)

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The specification of the environment, which counting does not change."""
        return self.env.spec


def steps_taken() -> int:
    """Return how many steps the environments of this thread have taken so far."""
    return _steps.taken


def steps_left() -> int:
    """Return how many steps loading a task may still take, see `limited_to`; a large number without a limit."""
    return max(0, _steps.most - _steps.taken)


@contextmanager
def limited_to(steps: int | None) -> Iterator[None]:
    """Limit the steps that loading a task takes in this context; None is no limit."""
    before, _steps.most = _steps.most, _NO_LIMIT if steps is None else _steps.taken + steps
    try:
        yield
    finally:
        _steps.most = before
