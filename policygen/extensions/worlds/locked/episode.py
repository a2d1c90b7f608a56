"""An episode in a locked room: the robot's report, the plan that it follows, and the signals for asking again.

The rule-based planner follows the rules of When2Ask's examples. It is not a language model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym

from policygen.extensions.worlds.locked.options import EXPLORE, GO_TO, OPEN, TAKE, Option, Plan, PlanExecutor
from policygen.extensions.worlds.locked.view import COLOURED, View


@dataclass(frozen=True, slots=True)
class RoomReport:
    """The planner's input: known things (keys, then boxes, then doors) and the carried one.

    Equal reports are equal questions. Colours are included if keys differ in colour.
    """

    seen: tuple[str, ...]
    carried: str = ""


def reported(view: View, *, colours: bool) -> RoomReport:
    """Build the report of a map."""
    names = (f"{thing.colour} {thing.kind}" if colours else thing.kind for thing in view.things())
    held = view.carried
    carried = "" if held is None else f"{held[1]} {held[0]}" if colours else held[0]
    return RoomReport(tuple(dict.fromkeys(names)), carried)


def planned(report: RoomReport, room: str) -> Plan:
    """Return the plan by the rules of the published examples.

    A key that fits the door is fetched and used; without a key a box is opened; without either the robot explores. If
    no door is known yet, any key is picked up; one that does not fit is exchanged later.

    Args:
        room: one of `ROOM_NAMES`; the rules differ in when they continue to explore with a key in hand.
    """
    keys, boxes, doors = ([name for name in report.seen if name.endswith(kind)] for kind in ("key", "box", "door"))
    has_key = report.carried.endswith("key")
    if doors:
        door = doors[0]
        fits = door.removesuffix("door") + "key"
        if report.carried == fits:
            return Option(GO_TO, door), Option(OPEN, door)
        if fits in keys:
            fetch = Option(GO_TO, fits), Option(TAKE, fits)
            return fetch if room == COLOURED else (*fetch, Option(GO_TO, door), Option(OPEN, door))
    if keys and not has_key:
        fetch = Option(GO_TO, keys[0]), Option(TAKE, keys[0])
        return (*fetch, Option(EXPLORE)) if boxes or room == "SimpleDoorKey" else fetch
    if boxes and not has_key:
        return Option(GO_TO, boxes[0]), Option(OPEN, boxes[0])
    return (Option(EXPLORE),)


class Signs(NamedTuple):
    """Signals for asking the planner again.

    Attributes:
        new: number of things first seen since the last question.
        ended: 1 if the plan is over, else 0.
        since: steps since the last question.
    """

    new: int
    ended: int
    since: int


class RoomEpisode:
    """An episode in which the robot follows a plan until it gets another one.

    Args:
        env: a `LockedRoomEnv`.
        room: the kind of room of `env`: `SimpleDoorKey`, `KeyInBox`, `RandomBoxKey` or `ColoredDoorKey`.
        seed: of the episode; None continues with the generator of `env`.

    Attributes:
        steps, questions: number of steps and of questions so far.
        returned: the sum of rewards so far.
        opened: whether the door is open.
        over: whether the episode has ended.
    """

    def __init__(self, env: gym.Env[Any, Any], room: str, seed: int | None = None) -> None:
        self._env, self._colours = env, room == COLOURED
        observation, _ = env.reset(seed=seed)
        self._view = View(observation["image"])
        self._executor = PlanExecutor(env.np_random)
        self._reported: set[tuple[str, str]] = set()
        self._ended, self._since = True, 0
        self.steps = self.questions = 0
        self.returned = 0.0
        self.opened = self.over = False

    @property
    def report(self) -> RoomReport:
        """Return the planner's current input."""
        return reported(self._view, colours=self._colours)

    @property
    def signs(self) -> Signs:
        """Return the current signals for asking."""
        return Signs(len(self._known() - self._reported), int(self._ended), self._since)

    def follow(self, plan: Plan) -> None:
        """Start following a new plan."""
        self.questions += 1
        self._reported, self._since = self._reported | self._known(), 0
        self._executor.follow(plan, self._view)

    def act(self) -> float:
        """Take a step of the plan and return its reward; without a plan the robot does nothing."""
        action = self._executor.act(self._view)
        observation, reward, self.opened, truncated, _ = self._env.step(action)
        self._view = View(observation["image"])
        self._ended = self._executor.is_over(self._view)
        self.over = self.opened or truncated
        self.steps += 1
        self._since += 1
        self.returned += float(reward)
        return float(reward)

    def _known(self) -> set[tuple[str, str]]:
        known = {(thing.kind, thing.colour) for thing in self._view.things()}
        return known | {self._view.carried} if self._view.carried is not None else known
