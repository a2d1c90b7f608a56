"""When to ask, as an environment: a mediator decides when a robot asks its planner."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from policygen.extensions.worlds.locked.doors import ROOMS, STEPS
from policygen.extensions.worlds.locked.planner import planned
from policygen.extensions.worlds.locked.room_episode import RoomEpisode

Signs = npt.NDArray[np.int64]


class WhenToAskEnv(gym.Env[Signs, np.int64]):
    """When to ask a planner for the next options.

    ## Description
    A robot in a room with a locked door follows a plan, such as `go to key, pick up key`, that a planner answered when
    it was asked. The planner here goes by rules. In every step the mediator decides whether to ask for a new plan, at
    a cost, or to go on with the one there is. The rooms and the options are those of When2Ask (arXiv 2306.03604).

    ## Action Space
    `Discrete(2)`

    | Num | Action                                 |
    |-----|----------------------------------------|
    | 0   | continue with the plan                 |
    | 1   | ask the planner what to do, and do it  |

    ## Observation Space
    `MultiDiscrete([5, 2, 101])`

    | Num | Observation                                              |
    |-----|----------------------------------------------------------|
    | 0   | new: things that were seen first since the last question |
    | 1   | ended: whether the plan is over                          |
    | 2   | since: steps since the last question                     |

    ## Reward
    `1 - 0.9 * steps / 100` for opening the door, and `-cost` for every question.

    ## Starting State
    A random room. The planner was asked once, without a cost, and the first step of its plan is done.

    ## Episode End
    The episode terminates when the door is open, and is truncated after 100 steps of the robot. A robot whose plan is
    over does nothing until it asks.

    ## Information
    `step()` returns the `"questions"` asked so far.

    ## Arguments
    `gymnasium.make("policygen/WhenToAsk-v0", room="SimpleDoorKey", cost=0.01)`; other rooms are `KeyInBox`,
    `RandomBoxKey` and `ColoredDoorKey`.

    ## Version History
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, room: str = "SimpleDoorKey", cost: float = 0.01, render_mode: str | None = None) -> None:
        if room not in ROOMS:
            raise ValueError(f"room is {room}; there are {', '.join(ROOMS)}")
        self.observation_space = spaces.MultiDiscrete([5, 2, STEPS + 1])
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self._room, self._cost = room, cost
        self._env = ROOMS[room](render_mode)
        self._errand: RoomEpisode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Signs, dict[str, Any]]:
        """Start a random room with a first plan."""
        super().reset(seed=seed)
        self._errand = RoomEpisode(self._env, self._room, seed)
        self._errand.follow(planned(self._errand.report, self._room))
        self._errand.act()
        return self._seen(self._errand)

    def step(self, action: Any) -> tuple[Signs, float, bool, bool, dict[str, Any]]:
        """Take one step of the robot, after a question or without one."""
        errand = self._errand
        if errand is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        if action not in (0, 1):
            raise gym.error.InvalidAction(f"there is no action {action}; 0 continues and 1 asks")
        if action:
            errand.follow(planned(errand.report, self._room))
        reward = errand.act() - self._cost * int(action)
        signs, info = self._seen(errand)
        return signs, reward, errand.opened, errand.over and not errand.opened, info

    def render(self) -> Any:
        """Draw the room, as a picture of 320 x 320 pixels."""
        return self._env.render() if self.render_mode is not None else None  # type: ignore[no-untyped-call]

    def _seen(self, errand: RoomEpisode) -> tuple[Signs, dict[str, Any]]:
        return np.array(errand.signs, np.int64), {"questions": errand.questions}
