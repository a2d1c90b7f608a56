"""The rule-based planner: what the examples of When2Ask say to do next. It is not a language model."""

from __future__ import annotations

from dataclasses import dataclass

from policygen.extensions.worlds.locked.options import EXPLORE, GO_TO, OPEN, TAKE, Option, Plan
from policygen.extensions.worlds.locked.view import COLOURED, View


@dataclass(frozen=True, slots=True)
class Report:
    """What a planner is told: things that were seen, keys first, then boxes and doors, and what is carried.

    Equal reports are equal questions. Colours are told where keys differ in them.
    """

    seen: tuple[str, ...]
    carried: str = ""


def reported(view: View, *, colours: bool) -> Report:
    """What there is to tell of a map."""
    names = (f"{thing.colour} {thing.kind}" if colours else thing.kind for thing in view.things())
    held = view.carried
    carried = "" if held is None else f"{held[1]} {held[0]}" if colours else held[0]
    return Report(tuple(dict.fromkeys(names)), carried)


def planned(report: Report, room: str) -> Plan:
    """What to do next, by the rules of the published examples.

    A key that fits the door is fetched and used; without a key a box is opened, and without either it explores. Where
    no door is known yet, a key is picked up all the same; one that does not fit is exchanged later.

    Args:
        room: one of `ROOM_NAMES`; the examples differ in when they go on to explore with a key in hand.
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
