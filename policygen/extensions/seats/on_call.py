"""When to ask, learned: a table over what speaks for asking, tuned on episodes in which every question has a cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.errors import UsageError
from policygen.extensions.seats.mediator import LEARNED, MEDIATORS, Mediator, mediator_of
from policygen.extensions.worlds.locked.view import ROOM_NAMES
from policygen.files import check_name
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.reading import best_policy
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Trials, Vector
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

TASK = "when-to-ask"
COST = 0.01  # of a question, as published
EPISODES = 3_000
# What tuning starts from: the hard-coded mediator.
START = "| new | ended | since | action |\n|---|---|---|---|\n| * | 1 | * | ask |\n| * | * | * | continue |"


def task_of_room(room: str, cost: float = COST) -> Task:
    """The task of when to ask in a room."""
    return replace(load_task(TASK), kwargs=(("room", room), ("cost", cost)))


def learned_mediator(room: str, *, seed: int = 0, episodes: int = EPISODES, cost: float = COST) -> Policy:
    """The table that tuning makes of the hard-coded mediator, entry by entry (`--refine coordinate`).

    It is tuned with the rule-based planner, which costs nothing to ask, on seeds that nothing else plays.

    Raises:
        TaskError: the package minigrid is missing.
    """
    task = task_of_room(room, cost)
    start = parse(START, task).policy
    assert start is not None
    with Simulator(task) as simulator:
        trials = Trials(partial(_returns, simulator), partial(_seeds, seed), episodes)
        refined = refine(start, "coordinate", trials, seed)
    return refined.policy if refined is not None else start


def _returns(simulator: Simulator, policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
    return np.array([np.mean([one.episode_return for one in simulator.play(p, seeds)]) for p in policies])


def _seeds(seed: int, first: int, count: int) -> tuple[int, ...]:
    return episode_seeds(seed, "learning to ask", count, first)


def named_mediators(names: Sequence[str]) -> dict[str, Mediator | None]:
    """The mediators of some names: of `MEDIATORS`, or of a file or run with a policy; None for the learned one.

    Raises:
        UsageError: a name is none of these.
        PolicyError: the policy is for something else.
    """
    found: dict[str, Mediator | None] = {}
    for name in names:
        if name in MEDIATORS or name == LEARNED:
            found[name] = MEDIATORS.get(name)
        elif Path(check_name(name)).exists():
            found[name] = mediator_of(best_policy(Path(name)), load_task(TASK), name)
        else:
            raise UsageError(
                f"--mediator {name} is neither one of {', '.join((*MEDIATORS, LEARNED))} nor a file; a policy for "
                f"{TASK}, such as `policygen mediate` saves, is a mediator as well"
            )
    return found


def rooms_of(names: Sequence[str]) -> tuple[str, ...]:
    """The rooms of some names, all of them for none; `simple-door-key` is SimpleDoorKey.

    Raises:
        UsageError: there is no such room.
    """
    known = {room.lower(): room for room in ROOM_NAMES}
    rooms = []
    for name in names:
        room = known.get(re.sub(r"^policygen/|-v0$|[-_ ]", "", name.lower()))
        if room is None:
            raise UsageError(f"there is no room {name}; there are {', '.join(ROOM_NAMES)}")
        rooms.append(room)
    return tuple(dict.fromkeys(rooms)) or ROOM_NAMES
