"""A robot in a locked room: its map of what it has seen, its options, the rule-based planner, and an episode.

The options (explore, go to, pick up, drop, open) behave like those of When2Ask (arXiv 2306.03604), including their
flaws: exploring follows regular lanes, treats keys and boxes as free cells and can push against them forever, and a
path is computed only once. A stuck robot therefore has to ask for another plan. A plan may name things that the robot
has not seen yet. Exploring then ends as soon as the robot sees the next of them. If it has not seen a thing when its
turn comes, the plan ends.

The planner is not a language model: it follows the rules of When2Ask's examples.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

Cell = tuple[int, int]  # (x to the right, y down)

ROOM_NAMES = ("SimpleDoorKey", "KeyInBox", "RandomBoxKey", COLOURED := "ColoredDoorKey")
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, NOTHING = range(7)
UNSEEN, EMPTY, WALL, DOOR, KEY, BOX = 0, 1, 2, 4, 5, 7
KINDS = {KEY: "key", BOX: "box", DOOR: "door"}  # in the order of reports
KINDS_IN = {room: ("key", "box", "door") if "Box" in room else ("key", "door") for room in ROOM_NAMES}
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
AHEAD: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y) of a step, by direction: right, down, left, up
_EDGES = bytes(kind in (WALL, DOOR) for kind in range(256))  # translates walls and doors to 1, everything else to 0
NOBODY = 4  # in place of a direction (0 to 3), in cells without the robot


class Thing(NamedTuple):
    """A key, box or door on the map."""

    kind: str
    colour: str
    place: Cell


class View:
    """The robot's view of the room, read from the map that a `LockedRoomEnv` returns."""

    __slots__ = ("_colours", "_height", "_kinds", "carried", "direction", "here")

    def __init__(self, image: npt.NDArray[Any]) -> None:
        self._height = image.shape[1]
        self._kinds: bytes = image[:, :, 0].tobytes()
        self._colours: bytes = image[:, :, 1].tobytes()
        robots: bytes = image[:, :, 3].tobytes()
        at = len(robots) - len(robots.lstrip(bytes([NOBODY])))
        self.here: Cell = divmod(at, self._height)
        self.direction: int = robots[at]
        held = self._kinds[at]
        # The kind and colour of the thing that the robot carries, or None.
        self.carried = (KINDS[held], COLOURS[self._colours[at]]) if held in KINDS else None

    def kind(self, cell: Cell) -> int:
        """Return the content of a cell, as far as it is known."""
        return int(self._kinds[cell[0] * self._height + cell[1]])

    def ahead(self, cell: Cell | None = None, direction: int | None = None) -> Cell:
        """Return the neighbouring cell in a direction; by default, the cell in front of the robot."""
        x, y = self.here if cell is None else cell
        dx, dy = AHEAD[self.direction if direction is None else direction]
        return x + dx, y + dy

    def things(self) -> Iterator[Thing]:
        """Yield the known keys, then boxes, then doors, except what the robot carries; each kind from left to right."""
        own = self.here[0] * self._height + self.here[1]
        for number, kind in KINDS.items():
            at = self._kinds.find(number)
            while at >= 0:
                if at != own:
                    yield Thing(kind, COLOURS[self._colours[at]], divmod(at, self._height))
                at = self._kinds.find(number, at + 1)

    def is_complete(self) -> bool:
        """Return whether the known walls and doors enclose the room, and everything inside has been seen."""
        height, edges = self._height, self._kinds.translate(_EDGES)
        left, right = edges.find(1) // height, edges.rfind(1) // height
        top, bottom = (found - left * height for found in (edges.find(1), edges.rfind(1, 0, (left + 1) * height)))
        sides = [edges[x * height + top : x * height + bottom + 1] for x in (left, right)]
        sides += [edges[left * height + y : right * height + y + 1 : height] for y in (top, bottom)]
        if right - left < 2 or bottom - top < 2 or any(0 in side for side in sides):
            return False
        return not any(
            UNSEEN in self._kinds[x * height + top : x * height + bottom + 1] for x in range(left + 1, right)
        )


# --- options ---------------------------------------------------------------------------------------------------------

EXPLORE, GO_TO, TAKE, PUT, OPEN = ("explore", "go to", "pick up", "drop", "open")
STRIP = 3  # steps between lanes of an exploration: the width of the view
# The actions that turn by a number of quarter turns to the right; `_TURNS[-n]` turns back.
_TURNS: tuple[list[int], ...] = ([], [RIGHT], [RIGHT, RIGHT], [LEFT])


@dataclass(frozen=True, slots=True)
class Option:
    """One item of a plan: a verb and a thing (`key`, `red key`, `box`, `door`); `explore` and `drop` have no thing."""

    verb: str
    thing: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.thing}".strip()


Plan = tuple[Option, ...]


@dataclass(slots=True)
class Exploration:
    """An exploration: the robot goes to the upper left corner, then sweeps back and forth in lanes."""

    queue: deque[int]  # the actions to take next
    reached: bool = False  # whether the robot has reached the upper wall

    def next_action(self, view: View, rng: np.random.Generator) -> int:
        """Return the next action; `rng` draws turns at random."""
        blocked = view.kind(view.ahead()) in (WALL, DOOR)
        if not self.reached:
            if self.queue:
                return self.queue.popleft()
            if blocked:
                self.reached = view.direction == 3
                return RIGHT
            return FORWARD
        if not blocked:
            return self.queue.popleft() if self.queue else FORWARD
        if view.direction in (0, 2):  # the end of a lane
            turn = RIGHT if view.direction == 0 else LEFT
            self.queue = deque([FORWARD] * STRIP + [turn])
            return turn
        turn = RIGHT
        if view.direction == 1:  # the lower wall blocks the next lane
            turn = self.queue[-1] if self.queue else int(rng.choice([LEFT, RIGHT]))
        self.queue.clear()
        return turn


@dataclass
class PlanExecutor:
    """Carries out a plan, one action at a time."""

    rng: np.random.Generator  # for the random turns of exploring
    _waiting: deque[tuple[Option, Cell | None]] = field(default_factory=deque)  # with the places of their things
    _running: deque[int] | Exploration | None = None  # the current option: its remaining actions, or an exploration
    _exploration: Exploration | None = None  # the next `explore` continues it, unless the robot goes to a thing first

    def follow(self, plan: Plan, view: View) -> None:
        """Replace the plan; its things are where the robot has seen them by now."""
        self._running = None
        self._waiting = deque((option, place_of(option.thing, view)) for option in plan)

    def act(self, view: View) -> int:
        """Return the next action; NOTHING when the plan is over."""
        if isinstance(self._running, Exploration) and self._sees_awaited(view):
            self._running = None
        while not self._running and not self.is_over(view):
            option, place = self._waiting.popleft()
            self._running = self._start(option, place or place_of(option.thing, view), view)
        if not self._running:
            self._waiting.clear()
            return NOTHING
        if isinstance(self._running, Exploration):
            action = self._running.next_action(view, self.rng)
            if view.is_complete():
                self._running = None
            return action
        return self._running.popleft()

    def is_over(self, view: View) -> bool:
        """Return whether no option is running, and none is left or the thing of the next one has not been seen."""
        if self._running:
            return False
        return not self._waiting or (self._awaits_thing() and not self._sees_awaited(view))

    def _awaits_thing(self) -> bool:
        """Return whether the next option goes to a thing that the robot had not seen when the plan was made."""
        return bool(self._waiting) and self._waiting[0][0].verb == GO_TO and self._waiting[0][1] is None

    def _sees_awaited(self, view: View) -> bool:
        return self._awaits_thing() and place_of(self._waiting[0][0].thing, view) is not None

    def _start(self, option: Option, place: Cell | None, view: View) -> deque[int] | Exploration | None:
        """Return the actions of an option, or an exploration; None or no actions if the option is impossible."""
        if option.verb == EXPLORE:
            if view.is_complete() or self._sees_awaited(view):
                return None
            if self._exploration is None:
                self._exploration = Exploration(deque(([LEFT, LEFT], [RIGHT], [], [LEFT])[view.direction]))
            return self._exploration
        actions: list[int] = []
        if option.verb == GO_TO:
            self._exploration = None
            actions = path_to(place, view) if place is not None else []
        elif option.verb == TAKE:
            actions = [PICK_UP] if view.carried is None else _exchange(view)
        elif option.verb == PUT and view.carried is not None:
            actions = _put_down(view)
        elif option.verb == OPEN:
            actions = [TOGGLE]
        return deque(actions)


def place_of(name: str, view: View) -> Cell | None:
    """Return the place of the last thing in `View.things` with this name; None if there is none."""
    words = name.split()
    if not words:
        return None
    kind, colour = words[-1], words[0] if len(words) > 1 else ""
    fitting = [thing for thing in view.things() if thing.kind == kind and colour in ("", thing.colour)]
    return fitting[-1].place if fitting else None


def path_to(place: Cell, view: View) -> list[int]:
    """Return the shortest sequence of actions through known empty cells to face a place; empty without a path."""
    start = (*view.here, view.direction)
    reached, waiting = {start}, deque([(start, list[int]())])
    while waiting:
        (x, y, direction), path = waiting.popleft()
        ahead = view.ahead((x, y), direction)
        if ahead == place:
            return path
        moves = [((x, y, (direction - 1) % 4), LEFT), ((x, y, (direction + 1) % 4), RIGHT)]
        if view.kind(ahead) == EMPTY:
            moves.append(((*ahead, direction), FORWARD))
        for after, action in moves:
            if after not in reached:
                reached.add(after)
                waiting.append((after, [*path, action]))
    return []


def _is_free(cell: Cell, view: View) -> bool:
    """Return whether a thing may be put into a cell: known to be empty, and not next to a door."""
    return view.kind(cell) == EMPTY and all(view.kind(view.ahead(cell, d)) != DOOR for d in range(4))


def _exchange(view: View) -> list[int]:
    """Return the actions that drop the carried thing at most two cells away and pick up the one ahead."""
    for turn in (2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP, *_TURNS[-turn], PICK_UP]
    for turn, second in itertools.product((2, 1, 3), (0, 1, 3)):
        direction = (view.direction + turn) % 4
        cell = view.ahead(direction=direction)
        if view.kind(cell) == EMPTY and _is_free(view.ahead(cell, (direction + second) % 4), view):
            aside = [*_TURNS[second], DROP, *_TURNS[-second]]
            return [*_TURNS[turn], FORWARD, *aside, RIGHT, RIGHT, FORWARD, *_TURNS[2 - turn], PICK_UP]
    return []


def _put_down(view: View) -> list[int]:
    """Return the actions that drop the carried thing into a cell next to the robot."""
    for turn in (0, 2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP]
    return []


# --- planning --------------------------------------------------------------------------------------------------------


class RoomReport(NamedTuple):
    """The planner's input: the names of known things (keys, then boxes, then doors), and of the carried thing.

    Equal reports get the same plan, so a model is asked about each only once. Names include the colour (`red key`) in
    rooms with keys of several colours.
    """

    seen: tuple[str, ...]
    carried: str = ""


def plan_by_rules(report: RoomReport, room: str) -> Plan:
    """Return the plan by the rules of When2Ask's examples.

    The robot fetches and uses a key that fits the door. If it knows no key, it opens a box; without boxes, it explores.
    If it knows no door yet, it picks up any key, and exchanges it later if it does not fit. Whether a plan continues
    after a key is picked up depends on the room.
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


class MediatorInputs(NamedTuple):
    """The inputs from which a mediator decides whether to ask the planner."""

    new: int  # number of things first seen since the last question
    ended: int  # 1 if the plan is over, else 0
    since: int  # number of steps since the last question


class RoomEpisode:
    """An episode in `env`, the `LockedRoomEnv` of `room`: the robot follows a plan until it gets another one.

    Without a seed, the random generator of `env` continues.
    """

    def __init__(self, env: gym.Env[Any, Any], room: str, seed: int | None = None) -> None:
        self._env, self._colours = env, room == COLOURED
        observation, _ = env.reset(seed=seed)
        self._view = View(observation["image"])
        self._executor = PlanExecutor(env.np_random)
        self._reported: set[tuple[str, str]] = set()
        self._plan_is_over, self._since = True, 0
        self.steps = self.questions = 0  # so far
        self.returned = 0.0  # the sum of rewards so far
        self.opened = self.over = False  # whether the door is open, and whether the episode has ended

    @property
    def report(self) -> RoomReport:
        """The planner's current input."""

        def name(kind: str, colour: str) -> str:
            return f"{colour} {kind}" if self._colours else kind

        seen, held = dict.fromkeys(name(*thing[:2]) for thing in self._view.things()), self._view.carried
        return RoomReport(tuple(seen), name(*held) if held is not None else "")

    @property
    def inputs(self) -> MediatorInputs:
        """The mediator's current input."""
        return MediatorInputs(len(self._known() - self._reported), int(self._plan_is_over), self._since)

    def follow(self, plan: Plan) -> None:
        """Start following a new plan."""
        self.questions += 1
        self._reported, self._since = self._reported | self._known(), 0
        self._executor.follow(plan, self._view)

    def act(self) -> float:
        """Take one step of the plan and return the reward; without a plan, the robot does nothing."""
        action = self._executor.act(self._view)
        observation, reward, self.opened, truncated, _ = self._env.step(action)
        self._view = View(observation["image"])
        self._plan_is_over = self._executor.is_over(self._view)
        self.over = self.opened or truncated
        self.steps += 1
        self._since += 1
        self.returned += float(reward)
        return float(reward)

    def _known(self) -> set[tuple[str, str]]:
        """Return the kinds and colours of the things on the map and in hand."""
        known = {thing[:2] for thing in self._view.things()}
        return known | {self._view.carried} if self._view.carried is not None else known
