"""Options in a locked room (explore, go to, pick up, drop, open), carried out action by action.

They behave like those of When2Ask (arXiv 2306.03604), including their flaws: exploring is a regular sweep that treats
keys and boxes as free cells and can push against them for ever, and a path is planned only once. A stuck robot
therefore has to ask for another plan.

A plan may name things that were not yet seen when it was made. Exploring then ends as soon as the next of them is
visible. If it is not visible by its turn, the plan is over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from policygen.extensions.worlds.locked.view import (
    DOOR,
    DROP,
    EMPTY,
    FORWARD,
    LEFT,
    NOTHING,
    PICK_UP,
    RIGHT,
    TOGGLE,
    WALL,
    Cell,
    View,
)

EXPLORE, GO_TO, TAKE, PUT, OPEN = ("explore", "go to", "pick up", "drop", "open")
STRIP = 3  # steps between lanes of the sweep: the width of the view
_TURNS = {0: [], 1: [RIGHT], 2: [RIGHT, RIGHT], 3: [LEFT]}  # by quarter turns to the right
_BACK = {0: [], 1: [LEFT], 2: [RIGHT, RIGHT], 3: [RIGHT]}


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of action and its thing (`key`, `red key`, `box`, `door`); exploring and dropping need none."""

    verb: str
    thing: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.thing}".strip()


Plan = tuple[Option, ...]


@dataclass(slots=True)
class Exploration:
    """Exploring: to the upper left corner, then to and fro in lanes.

    Attributes:
        due: the actions to take next.
        reached: whether the upper wall was reached.
    """

    due: deque[int]
    reached: bool = False

    def next(self, view: View, rng: np.random.Generator) -> int:
        """Return the next action."""
        blocked = view.kind(view.ahead()) in (WALL, DOOR)
        if not self.reached:
            if self.due:
                return self.due.popleft()
            if blocked:
                self.reached = view.direction == 3
                return RIGHT
            return FORWARD
        if not blocked:
            return self.due.popleft() if self.due else FORWARD
        if view.direction in (0, 2):  # the end of a lane
            turn = RIGHT if view.direction == 0 else LEFT
            self.due = deque([FORWARD] * STRIP + [turn])
            return turn
        turn = RIGHT
        if view.direction == 1:  # the lower wall blocks the next lane
            turn = self.due[-1] if self.due else int(rng.choice([LEFT, RIGHT]))
        self.due.clear()
        return turn


@dataclass
class PlanExecutor:
    """Carries out a plan, one action at a time.

    Attributes:
        rng: for turns that exploring chooses at random.
    """

    rng: np.random.Generator
    _waiting: deque[tuple[Option, Cell | None]] = field(default_factory=deque)
    _running: deque[int] | Exploration | None = None  # the option under way: the actions left, or exploring
    _sweep: Exploration | None = None  # where exploring goes on, until the robot goes to a thing

    def follow(self, plan: Plan, view: View) -> None:
        """Replace the plan; the places of its things are those known now."""
        self._running = None
        self._waiting = deque((option, place_of(option.thing, view)) for option in plan)

    def act(self, view: View) -> int:
        """Return the next action; a finished plan does nothing."""
        if isinstance(self._running, Exploration) and self._sees_awaited(view):
            self._running = None
        while not self._running and not self.is_over(view):
            option, place = self._waiting.popleft()
            self._running = self._start(option, place or place_of(option.thing, view), view)
        if not self._running:
            self._waiting.clear()
            return NOTHING
        if isinstance(self._running, Exploration):
            action = self._running.next(view, self.rng)
            if view.is_complete():
                self._running = None
            return action
        return self._running.popleft()

    def is_over(self, view: View) -> bool:
        """Whether no option is running and the plan is finished or its next target is not visible."""
        if self._running:
            return False
        return not self._waiting or (self._awaited is not None and place_of(self._awaited, view) is None)

    @property
    def _awaited(self) -> str | None:
        """Return the next target if it had not been seen when the plan was made."""
        option, place = self._waiting[0] if self._waiting else (None, None)
        return option.thing if option is not None and option.verb == GO_TO and place is None else None

    def _sees_awaited(self, view: View) -> bool:
        return bool(self._awaited and place_of(self._awaited, view))

    def _start(self, option: Option, place: Cell | None, view: View) -> deque[int] | Exploration | None:
        """Start an option; return None or no actions if there is nothing to do, or no path."""
        if option.verb == EXPLORE:
            if view.is_complete() or self._sees_awaited(view):
                return None
            if self._sweep is None:
                self._sweep = Exploration(deque(([LEFT, LEFT], [RIGHT], [], [LEFT])[view.direction]))
            return self._sweep
        actions: list[int] = []
        if option.verb == GO_TO:
            self._sweep = None
            actions = way_to(place, view) if place is not None else []
        elif option.verb == TAKE:
            actions = [PICK_UP] if view.carried is None else _exchange(view)
        elif option.verb == PUT and view.carried is not None:
            actions = _put_down(view)
        elif option.verb == OPEN:
            actions = [TOGGLE]
        return deque(actions)


def place_of(name: str, view: View) -> Cell | None:
    """Return the last place where a thing with that name was seen; None if it was never seen."""
    words = name.split()
    if not words:
        return None
    kind, colour = words[-1], words[0] if len(words) > 1 else ""
    fitting = [thing for thing in view.things() if thing.kind == kind and colour in ("", thing.colour)]
    return fitting[-1].place if fitting else None


def way_to(place: Cell, view: View) -> list[int]:
    """Return a shortest path through known empty cells until the robot faces a place; empty if there is none."""
    start = (*view.here, view.direction)
    before: dict[tuple[int, int, int], tuple[tuple[int, int, int], int]] = {start: (start, -1)}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        x, y, direction = state
        ahead = view.ahead((x, y), direction)
        if ahead == place:
            way: list[int] = []
            while state != start:
                state, action = before[state]
                way.append(action)
            return way[::-1]
        moves = [((x, y, (direction - 1) % 4), LEFT), ((x, y, (direction + 1) % 4), RIGHT)]
        if view.kind(ahead) == EMPTY:
            moves.append(((*ahead, direction), FORWARD))
        for after, action in moves:
            if after not in before:
                before[after] = (state, action)
                waiting.append(after)
    return []


def _is_free(cell: Cell, view: View) -> bool:
    """Whether a thing may be put there: the cell is known to be empty, with no door beside it."""
    return view.kind(cell) == EMPTY and all(view.kind(view.ahead(cell, d)) != DOOR for d in range(4))


def _exchange(view: View) -> list[int]:
    """Put down the carried thing beside the robot, or beside the next cell, and pick up the one ahead."""
    for turn in (2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP, *_BACK[turn], PICK_UP]
    for turn in (2, 1, 3):
        direction = (view.direction + turn) % 4
        cell = view.ahead(direction=direction)
        if view.kind(cell) != EMPTY:
            continue
        for second in (0, 1, 3):
            if _is_free(view.ahead(cell, (direction + second) % 4), view):
                aside = [*_TURNS[second], DROP, *_BACK[second]]
                return [*_TURNS[turn], FORWARD, *aside, RIGHT, RIGHT, FORWARD, *_TURNS[(2 - turn) % 4], PICK_UP]
    return []


def _put_down(view: View) -> list[int]:
    """Put down the carried thing, ahead or beside."""
    for turn in (0, 2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP]
    return []
