"""Runs of a sweep that were given more than it asked for: they stand where it put them, and it is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from policygen.reports.groups import Member
from policygen.runs.config import BUDGETS
from policygen.sweeps.plan import Cell, Plan


def budgets_asked(plan: Plan, cell: Cell) -> dict[str, Any]:
    """The budgets of a cell's run, as far as the sweep or its suite stated them."""
    stated = {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in plan.settings)}
    return {name: value for name, value in {**cell.entry.run, **stated}.items() if name in BUDGETS}


def without_extensions(
    members: Sequence[Member], asked: Mapping[Path, Mapping[str, Any]]
) -> tuple[list[Member], list[str]]:
    """The runs with the budgets that their sweep gave them, and sentences on which have been given more since.

    A run that goes on with a larger budget is what it would have been with it from the start, so that the settings of
    its sweep no longer tell how long it was. What neither the sweep nor its suite stated was the same for all runs of
    a task: a budget only grows, and the smallest is taken for it.

    Args:
        asked: by the folders of sweeps' runs, resolved, what `budgets_asked` says; other runs are as they are.
    """
    own = [asked.get(member.folder.resolve()) for member in members]
    smallest: dict[tuple[Path, str, str], Any] = {}
    for member, stated in zip(members, own, strict=True):
        for name in BUDGETS if stated is not None else ():
            place, now = (member.folder.parent, member.task.name, name), getattr(member.config, name)
            if now is not None:
                smallest[place] = min(now, smallest.get(place, now))
    found, extended = [], Counter[str]()
    for member, stated in zip(members, own, strict=True):
        less = {}
        for name in BUDGETS if stated is not None else ():
            now = getattr(member.config, name)
            least = smallest.get((member.folder.parent, member.task.name, name))
            before = _number(stated[name]) if stated and name in stated else least
            if now is not None and before is not None and now > before:
                less[name] = type(now)(before)
        found.append(replace(member, config=member.config.model_copy(update=less)) if less else member)
        if less:
            words = [f"{getattr(member.config, name):g} {name}" for name in less]
            extended[" and ".join(words)] += 1
    notes = [
        f"{count} of {len(members)} runs {'was' if count == 1 else 'were'} extended to {words}"
        for words, count in extended.items()
    ]
    return found, notes


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
