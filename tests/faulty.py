"""A zoo of environments, each with one fault: action 0 is harmless, the third action 1 of an episode is not."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np

STEPS = 8


class Zoo(gym.Env[Any, Any]):
    """Observes how many steps and how many ones there have been; each step is worth a point."""

    observation_space = gym.spaces.Box(0, STEPS, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str = "calm") -> None:
        self.fault = fault
        self.elsewhere = os.path.abspath("moved")
        self.steps = self.ones = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if self.fault in RESETS and self.fault not in met:
            met.add(self.fault)
            return RESETS[self.fault](self)
        self.steps = self.ones = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.ones += int(action)
        if self.fault == "moves":
            os.makedirs(self.elsewhere, exist_ok=True)
            os.chdir(self.elsewhere)
        result = (self.seen(), 1.0, self.steps >= STEPS, False, {})
        if self.ones >= 3 and self.fault in STEPPED:
            return STEPPED[self.fault](self, *result)
        return result

    def close(self) -> None:
        if self.fault in CLOSED:
            CLOSED[self.fault]()

    def seen(self) -> Any:
        return np.array([self.steps, self.ones], np.float32)


def raising(error: BaseException) -> Any:
    raise error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def forever(*_: Any) -> Any:
    while True:
        with suppress(Exception):
            time.sleep(0.01)


# What a step returns or does instead, from (env, observation, reward, terminated, truncated, info).
STEPPED: dict[str, Any] = {
    "raises": lambda env, *rest: 1 / 0,
    "unspeakable": lambda env, *rest: raising(Unspeakable()),
    "exits": lambda env, *rest: raising(SystemExit(3)),
    "recurses": lambda env, *rest: STEPPED["recurses"](env, *rest),
    "none": lambda env, *rest: None,
    "four-values": lambda env, *rest: rest[:4],
    "observes-none": lambda env, *rest: (None, *rest[1:]),
    "observes-three": lambda env, *rest: (np.zeros(3), *rest[1:]),
    "observes-text": lambda env, *rest: (np.array(["a", "b"]), *rest[1:]),
    "observes-nan": lambda env, *rest: (np.array([np.nan, 0]), *rest[1:]),
    "observes-infinity": lambda env, *rest: (np.array([np.inf, 0]), *rest[1:]),
    "rewards-none": lambda env, *rest: (rest[0], None, *rest[2:]),
    "rewards-text": lambda env, *rest: (rest[0], "1.0", *rest[2:]),
    "rewards-array": lambda env, *rest: (rest[0], np.ones(2), *rest[2:]),
    "rewards-nan": lambda env, *rest: (rest[0], float("nan"), *rest[2:]),
    "rewards-infinity": lambda env, *rest: (rest[0], float("inf"), *rest[2:]),
    "rewards-too-much": lambda env, *rest: (rest[0], 1e308, *rest[2:]),
    "ends-with-an-array": lambda env, *rest: (*rest[:2], np.array([True, False]), *rest[3:]),
    "ends-with-a-text": lambda env, *rest: (*rest[:2], "False", *rest[3:]),
    "is-cut-by-a-text": lambda env, *rest: (*rest[:3], "no", rest[4]),
    "hangs": forever,
}
# What the first reset of a process does.
met: set[str] = set()
RESETS = {
    "reset-raises": lambda env: {}["missing"],
    "reset-none": lambda env: None,
    "reset-three": lambda env: (np.zeros(3), {}),
    "reset-exits": lambda env: raising(SystemExit("bye")),
}


def blocked(*_: Any) -> Any:
    """Waits for itself, in compiled code that no signal interrupts."""
    lock, system = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    while True:
        system.pthread_mutex_lock(lock)


# What closing one does.
CLOSED = {"close-hangs": forever, "close-exits": lambda: raising(SystemExit(3)), "close-raises": lambda: 1 / 0}
# What ends the process that plays.
DEADLY = {
    "crashes": lambda env, *rest: ctypes.string_at(0),
    "leaves": lambda env, *rest: os._exit(0),
    "is-killed": lambda env, *rest: os.kill(os.getpid(), 9),
}
STEPPED |= DEADLY | {"blocks": blocked}

for name in ("calm", *STEPPED, *RESETS, *CLOSED, "moves"):
    gym.register(f"Zoo-{name}-v0", Zoo, kwargs={"fault": name})
