"""Options in a locked room (explore, go to, pick up, drop, open), each carried out by code, action by action.

They behave as those of When2Ask (arXiv 2306.03604), shortcomings included: exploring is a regular sweep that takes keys
and boxes for free cells and pushes against them for ever, and a way is planned once. What rescues a robot that pushes
is to ask for another plan, which is the point of asking.

A plan may go on to things that were not seen when it was made. Exploring then ends as soon as the next of them is in
sight; where it is not in sight by its turn, the plan is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

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

EXPLORE, GO_TO, TAKE, PUT, OPEN = VERBS = ("explore", "go to", "pick up", "drop", "open")
STRIP = 3  # steps from one lane of the sweep to the next: as wide as what is seen
_TURNS = {0: [], 1: [RIGHT], 2: [RIGHT, RIGHT], 3: [LEFT]}  # quarters to the right
_BACK = {0: [], 1: [LEFT], 2: [RIGHT, RIGHT], 3: [RIGHT]}


@dataclass(frozen=True, slots=True)
class Option:
    """What to do, and with which thing (`key`, `red key`, `box`, `door`); to explore and to drop need none."""

    verb: str
    thing: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.thing}".strip()


Plan = tuple[Option, ...]


@dataclass(slots=True)
class Sweep:
    """How far exploring has come: actions that are due, and whether the upper wall was reached."""

    due: deque[int]
    reached: bool = False


@dataclass
class Executor:
    """Carries out a plan, one action at a time.

    Attributes:
        rng: for the turn that exploring leaves open.
        doing: what is being carried out.
    """

    rng: np.random.Generator
    doing: Option | None = None
    _waiting: deque[tuple[Option, Cell | None]] = field(default_factory=deque)
    _control: _Control | None = None
    _sweep: Sweep | None = None

    def follow(self, plan: Plan, view: View) -> None:
        """Take up a plan in the place of the one before; where its things are is what is known now."""
        self.doing = self._control = None
        self._waiting = deque((option, place_of(option.thing, view)) for option in plan)

    def act(self, view: View) -> int:
        """The next action. A plan of which nothing is left does nothing."""
        if isinstance(self._control, _Exploring) and self._awaited and place_of(self._awaited, view):
            self._control = None
        while self._control is None and not self.is_over(view):
            self.doing, place = self._waiting.popleft()
            self._control = self._begun(self.doing, place or place_of(self.doing.thing, view), view)
        if self._control is None:
            self._waiting.clear()
            self.doing = None
            return NOTHING
        action, over = self._control.act(view)
        if over:
            self._control = None
        return action

    def is_over(self, view: View) -> bool:
        """Whether nothing is under way, and nothing is left or what is to be gone to next is not in sight."""
        if self._control is not None:
            return False
        return not self._waiting or (self._awaited is not None and place_of(self._awaited, view) is None)

    @property
    def _awaited(self) -> str | None:
        """What is to be gone to next, where it was not seen when the plan was made."""
        option, place = self._waiting[0] if self._waiting else (None, None)
        return option.thing if option is not None and option.verb == GO_TO and place is None else None

    def _begun(self, option: Option, place: Cell | None, view: View) -> _Control | None:
        """What carries out an option; None where there is nothing to do, or no way to do it."""
        if option.verb == EXPLORE:
            if view.is_complete() or (self._awaited and place_of(self._awaited, view)):
                return None
            if self._sweep is None:
                self._sweep = Sweep(deque(([LEFT, LEFT], [RIGHT], [], [LEFT])[view.direction]))
            return _Exploring(self._sweep, self.rng)
        if option.verb == GO_TO:
            self._sweep = None
            return _listed(way_to(place, view) if place is not None else None)
        if option.verb == TAKE:
            return _listed([PICK_UP] if view.carried is None else _exchanged(view))
        if option.verb == PUT:
            return _listed(_put_down(view) if view.carried is not None else None)
        return _listed([TOGGLE] if option.verb == OPEN else None)


def place_of(name: str, view: View) -> Cell | None:
    """Where a thing of that name was seen, the last one of several; None if none was."""
    words = name.split()
    if not words:
        return None
    kind, colour = words[-1], words[0] if len(words) > 1 else ""
    fitting = [thing for thing in view.things() if thing.kind == kind and colour in ("", thing.colour)]
    return fitting[-1].place if fitting else None


# --- how they are carried out ----------------------------------------------------------------------------------------


class _Control(Protocol):
    def act(self, view: View, /) -> tuple[int, bool]:
        """The next action, and whether it is the option's last."""
        ...


@dataclass(slots=True)
class _Listed:
    """Actions that are known beforehand."""

    actions: deque[int]

    def act(self, view: View, /) -> tuple[int, bool]:
        action = self.actions.popleft()
        return action, not self.actions


def _listed(actions: Sequence[int] | None) -> _Listed | None:
    return _Listed(deque(actions)) if actions else None


@dataclass(slots=True)
class _Exploring:
    """To the upper left corner, and then to and fro in lanes."""

    sweep: Sweep
    rng: np.random.Generator

    def act(self, view: View, /) -> tuple[int, bool]:
        return self._next(view), view.is_complete()

    def _next(self, view: View) -> int:
        sweep = self.sweep
        blocked = view.kind(view.ahead()) in (WALL, DOOR)
        if not sweep.reached:
            if sweep.due:
                return sweep.due.popleft()
            if blocked:
                sweep.reached = view.direction == 3
                return RIGHT
            return FORWARD
        if not blocked:
            return sweep.due.popleft() if sweep.due else FORWARD
        if view.direction in (0, 2):  # the end of a lane
            turn = RIGHT if view.direction == 0 else LEFT
            sweep.due = deque([FORWARD] * STRIP + [turn])
            return turn
        turn = RIGHT
        if view.direction == 1:  # the lower wall ends the way to the next lane
            turn = sweep.due[-1] if sweep.due else int(self.rng.choice([LEFT, RIGHT]))
        sweep.due.clear()
        return turn


def way_to(place: Cell, view: View) -> list[int] | None:
    """A shortest way, through cells known to be empty, to where the robot looks at a place; None without one."""
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
    return None


def _is_free(cell: Cell, view: View) -> bool:
    """Whether a thing may be put there: it is known to be empty, and no door is beside it."""
    return view.kind(cell) == EMPTY and all(view.kind(view.ahead(cell, d)) != DOOR for d in range(4))


def _exchanged(view: View) -> list[int] | None:
    """Put down what is carried beside the robot, or beside the next cell, and pick up what is ahead."""
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
    return None


def _put_down(view: View) -> list[int] | None:
    """Put down what is carried, ahead or beside."""
    for turn in (0, 2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP]
    return None
