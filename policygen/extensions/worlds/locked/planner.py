"""The rule-based planner, with the rules of When2Ask's examples. It is not a language model."""

from __future__ import annotations

from dataclasses import dataclass

from policygen.extensions.worlds.locked.options import EXPLORE, GO_TO, OPEN, TAKE, Option, Plan
from policygen.extensions.worlds.locked.view import COLOURED, View


@dataclass(frozen=True, slots=True)
class Report:
    """The planner's input: known things (keys, then boxes, then doors) and the carried one.

    Equal reports are equal questions. Colours are included if keys differ in colour.
    """

    seen: tuple[str, ...]
    carried: str = ""


def reported(view: View, *, colours: bool) -> Report:
    """Build the report of a map."""
    names = (f"{thing.colour} {thing.kind}" if colours else thing.kind for thing in view.things())
    held = view.carried
    carried = "" if held is None else f"{held[1]} {held[0]}" if colours else held[0]
    return Report(tuple(dict.fromkeys(names)), carried)


def planned(report: Report, room: str) -> Plan:
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
