"""Options in a locked room (explore, go to, pick up, drop, open), carried out action by action.

They behave like those of When2Ask (arXiv 2306.03604), including their flaws: exploring is a regular sweep that treats
keys and boxes as free cells and can push against them for ever, and a path is planned only once. A stuck robot
therefore has to ask for another plan.

A plan may name things that were not yet seen when it was made. Exploring then ends as soon as the next of them is
visible. If it is not visible by its turn, the plan is over.
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
class Sweep:
    """The state of exploring: actions to take next, and whether the upper wall was reached."""

    due: deque[int]
    reached: bool = False


@dataclass
class Executor:
    """Carries out a plan, one action at a time.

    Attributes:
        rng: for turns that exploring chooses at random.
        doing: the current option.
    """

    rng: np.random.Generator
    doing: Option | None = None
    _waiting: deque[tuple[Option, Cell | None]] = field(default_factory=deque)
    _control: _Control | None = None
    _sweep: Sweep | None = None

    def follow(self, plan: Plan, view: View) -> None:
        """Replace the plan; the places of its things are those known now."""
        self.doing = self._control = None
        self._waiting = deque((option, place_of(option.thing, view)) for option in plan)

    def act(self, view: View) -> int:
        """Return the next action; a finished plan does nothing."""
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
        """Whether no option is running and the plan is finished or its next target is not visible."""
        if self._control is not None:
            return False
        return not self._waiting or (self._awaited is not None and place_of(self._awaited, view) is None)

    @property
    def _awaited(self) -> str | None:
        """Return the next target if it had not been seen when the plan was made."""
        option, place = self._waiting[0] if self._waiting else (None, None)
        return option.thing if option is not None and option.verb == GO_TO and place is None else None

    def _begun(self, option: Option, place: Cell | None, view: View) -> _Control | None:
        """Start an option; return None if there is nothing to do, or no path."""
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
    """Return the last place where a thing with that name was seen; None if it was never seen."""
    words = name.split()
    if not words:
        return None
    kind, colour = words[-1], words[0] if len(words) > 1 else ""
    fitting = [thing for thing in view.things() if thing.kind == kind and colour in ("", thing.colour)]
    return fitting[-1].place if fitting else None


# --- how they are carried out ----------------------------------------------------------------------------------------


class _Control(Protocol):
    def act(self, view: View, /) -> tuple[int, bool]:
        """Return the next action, and whether it is the option's last."""
        ...


@dataclass(slots=True)
class _Listed:
    """A fixed list of actions."""

    actions: deque[int]

    def act(self, view: View, /) -> tuple[int, bool]:
        action = self.actions.popleft()
        return action, not self.actions


def _listed(actions: Sequence[int] | None) -> _Listed | None:
    return _Listed(deque(actions)) if actions else None


@dataclass(slots=True)
class _Exploring:
    """Exploring: to the upper left corner, then to and fro in lanes."""

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
        if view.direction == 1:  # the lower wall blocks the next lane
            turn = sweep.due[-1] if sweep.due else int(self.rng.choice([LEFT, RIGHT]))
        sweep.due.clear()
        return turn


def way_to(place: Cell, view: View) -> list[int] | None:
    """Return a shortest path through known empty cells until the robot faces a place; None if there is none."""
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
    """Whether a thing may be put there: the cell is known to be empty, with no door beside it."""
    return view.kind(cell) == EMPTY and all(view.kind(view.ahead(cell, d)) != DOOR for d in range(4))


def _exchanged(view: View) -> list[int] | None:
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
    return None


def _put_down(view: View) -> list[int] | None:
    """Put down the carried thing, ahead or beside."""
    for turn in (0, 2, 1, 3):
        if _is_free(view.ahead(direction=(view.direction + turn) % 4), view):
            return [*_TURNS[turn], DROP]
    return None
