"""Runs of a sweep that were extended: they count with the budgets that the sweep gave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from policygen.extensions.plots.groups import Member
from policygen.extensions.sweeps.plan import cells_of, is_sweep, read_plan
from policygen.runs.config import BUDGETS

M = TypeVar("M", bound=Member)


def without_extensions(members: Sequence[M]) -> tuple[list[M], list[str]]:
    """Return the runs with the budgets of their sweep, and notes about runs that were extended later.

    A run with a larger budget continues as if it had had it from the start, so its settings no longer show the budget
    of the sweep. If neither the sweep nor its suite states a budget, it is the smallest among the runs of the task,
    because budgets only grow. Runs outside sweeps are returned unchanged.

    Raises:
        LogbookError: the manifest of a sweep is damaged.
    """
    asked = _asked([member.folder for member in members])
    own = [asked.get(member.folder.resolve()) for member in members]
    smallest: dict[tuple[Path, str, str], Any] = {}
    for member, stated in zip(members, own, strict=True):
        for name in BUDGETS if stated is not None else ():
            place, now = (member.folder.parent, member.task.name, name), getattr(member.config, name)
            if now is not None:
                smallest[place] = min(now, smallest.get(place, now))
    found = []
    for member, stated in zip(members, own, strict=True):
        less = {}
        for name in BUDGETS if stated is not None else ():
            now = getattr(member.config, name)
            least = smallest.get((member.folder.parent, member.task.name, name))
            before = _number(stated[name]) if stated and name in stated else least
            if now is not None and before is not None and now > before:
                less[name] = type(now)(before)
        words = " and ".join(f"{getattr(member.config, name):g} {name}" for name in less)
        config = member.config.model_copy(update=less)
        found.append(replace(member, config=config, extended=words) if less else member)
    extended = Counter(member.extended for member in found if member.extended)
    notes = [
        f"{count} of {len(members)} runs {'was' if count == 1 else 'were'} extended to {words}"
        for words, count in extended.items()
    ]
    return found, notes


def _asked(folders: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """Return the budgets that the sweep or its suite states for each run folder, resolved."""
    found = {}
    for sweep in filter(is_sweep, dict.fromkeys(folder.parent for folder in folders)):
        plan = read_plan(sweep)
        stated = {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in plan.settings)}
        for cell in cells_of(plan):
            asked = {**cell.entry.run, **stated}
            found[(sweep / cell.key).resolve()] = {name: asked[name] for name in BUDGETS if name in asked}
    return found


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
