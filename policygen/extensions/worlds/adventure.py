"""A small text adventure: five rooms, a lamp, a key, a locked chest in the dark, and commands of a verb and a noun."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium import spaces

DIRECTIONS = ("north", "east", "south", "west")
SIDE_ROOMS = ("kitchen", "library", "cave", "garden")
COMMANDS = (*(f"go {direction}" for direction in DIRECTIONS), "take lamp", "take key", "take crown", "open chest")
POINTS = {"take lamp": 10, "take key": 10, "open chest": 10, "take crown": 20}
MOST_POINTS = sum(POINTS.values())
_ROOM_OF = {"lamp": "kitchen", "key": "library"}


@dataclass(slots=True)
class _State:
    """The state of the game; `doors` maps each direction of the hall to a room."""

    doors: dict[str, str]
    room: str = "hall"
    carried: tuple[str, ...] = ()
    chest_is_open: bool = False
    score: int = 0

    def exits(self) -> dict[str, str]:
        """Return the rooms that the exits lead to, by direction."""
        if self.room == "hall":
            return self.doors
        way = next(direction for direction, room in self.doors.items() if room == self.room)
        return {DIRECTIONS[(DIRECTIONS.index(way) + 2) % 4]: "hall"}

    def is_dark(self) -> bool:
        return self.room == "cave" and "lamp" not in self.carried

    def things_to_take(self) -> list[str]:
        if self.room == "cave":
            return ["crown"] if self.chest_is_open and "crown" not in self.carried else []
        return [thing for thing, room in _ROOM_OF.items() if room == self.room and thing not in self.carried]

    def carry_out(self, command: str) -> str:
        """Carry out a command, and return a sentence about the result."""
        verb, _, thing = command.partition(" ")
        if verb == "go":
            if thing not in self.exits():
                return "There is no way."
            self.room = self.exits()[thing]
            return f"You go {thing}."
        if self.is_dark():
            return "It is too dark for that."
        if verb == "open":
            if self.room != "cave" or self.chest_is_open:
                return "There is nothing to open."
            if "key" not in self.carried:
                return "The chest is locked."
            self.chest_is_open = True
        elif thing in self.things_to_take():
            self.carried += (thing,)
        else:
            return f"There is no {thing} to take."
        self.score += POINTS[command]
        return "Done."

    def describe(self) -> str:
        """Return the observation."""
        sentences = [f"You are in the {self.room}."]
        if self.is_dark():
            sentences.append("It is pitch dark.")
        else:
            if self.room == "cave":
                sentences.append(f"A {'chest stands open' if self.chest_is_open else 'locked chest stands'} here.")
            sentences += [f"A {thing} lies here." for thing in self.things_to_take()]
        sentences += [f"{way.capitalize()}: {room}." for way, room in self.exits().items()]
        carried = ", ".join(sorted(self.carried, reverse=True)) or "nothing"
        return f"{' '.join(sentences)}\nCarried: {carried}. Score: {self.score} of {MOST_POINTS}."


class AdventureEnv(gym.Env[str, Any]):
    """A small text adventure: take the crown to win.

    A hall has a door in each of the four directions; behind them lie a kitchen, a library, a cave and a garden, in an
    order that the seed decides (24 maps). A lamp lies in the kitchen and a key in the library. In the cave, which is
    dark without the lamp, a locked chest holds the crown.

    The shortest solution has nine commands on every map: go to the kitchen, take the lamp, go back to the hall, go to
    the library, take the key, go back, go to the cave, open the chest, take the crown (the key may be fetched first).
    Its return is 50 points minus one for each command: 41.

    Actions: `Discrete(8)`, the commands in `COMMANDS`. A command that cannot be carried out changes nothing.
    Observation: `Text(max_length=240)`, the room, what lies there, where the exits lead, what is carried, the score. It
        is complete: earlier observations add nothing.
    Reward: the points that a command earns, minus 1. `POINTS` lists them.
    Start: in the hall, with nothing; one of the 24 maps at random.
    End: the crown is taken. The registered environment truncates episodes after 60 commands.
    Info: `"said"`, the result of the last command in a sentence; `"score"`, the points so far.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Text(
            max_length=240, min_length=1, charset=string.ascii_letters + string.digits + " .,:'\n"
        )
        self.action_space = spaces.Discrete(len(COMMANDS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a new map, in the hall."""
        super().reset(seed=seed)
        rooms = [SIDE_ROOMS[i] for i in self.np_random.permutation(len(SIDE_ROOMS))]
        self._state = _State(dict(zip(DIRECTIONS, rooms, strict=True)))
        return self._state.describe(), {"said": "Find the crown.", "score": 0}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out a command."""
        before = self._state.score
        said = self._state.carry_out(COMMANDS[int(action)])
        points, won = self._state.score - before, "crown" in self._state.carried
        info = {"said": said, "score": self._state.score}
        return self._state.describe(), float(points - 1), won, False, info
