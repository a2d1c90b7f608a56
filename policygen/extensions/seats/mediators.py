"""When a model is asked for a plan: fixed rules, and a table tuned on episodes in which every question has a cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.errors import PolicyError, UsageError
from policygen.extensions.worlds.locked.episode import Signs
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
# The start of tuning: the hard-coded mediator.
START = "| new | ended | since | action |\n|---|---|---|---|\n| * | 1 | * | ask |\n| * | * | * | continue |"


@dataclass(frozen=True, slots=True)
class Mediator:
    """A rule that decides at each step whether to ask the planner; the first step of an episode always asks.

    Attributes:
        asks: whether to ask, from the signs of a step and the episode's own random generator.
        policy: the policy that the rule was made from; None for the other rules.
    """

    name: str
    asks: Callable[[Signs, np.random.Generator], bool]
    policy: Policy | None = None


LEARNED = "learned"
MEDIATORS = {
    mediator.name: mediator
    for mediator in (
        Mediator("always", lambda signs, rng: True),
        Mediator("never", lambda signs, rng: False),  # again: the first plan is the only one
        Mediator("random", lambda signs, rng: signs.ended > 0 or rng.random() < 0.5),
        Mediator("hard-coded", lambda signs, rng: signs.ended > 0),
    )
}


def mediator_of(policy: Policy, task: Task, name: str) -> Mediator:
    """Return the mediator that a policy for the task of when to ask makes.

    Args:
        task: the task of when to ask.

    Raises:
        PolicyError: it is a policy for something else.
    """
    theirs, ours = (([o.name for o in t.observations], t.actuators) for t in (policy.task, task))
    if theirs != ours or policy.remembers:
        raise PolicyError(
            f"{name} is a policy for {policy.task.name}; a mediator is one for {task.name} without memory"
        )
    return Mediator(name, lambda signs, rng: bool(policy.act_one(np.array(signs))), policy)


def task_of_room(room: str, cost: float = COST) -> Task:
    """Return the task of when to ask in a room."""
    return replace(load_task(TASK), kwargs=(("room", room), ("cost", cost)))


def learned_mediator(room: str, *, seed: int, episodes: int, cost: float) -> Policy:
    """Tune the hard-coded mediator, entry by entry (`--refine coordinate`), and return its table.

    The plans are those of the rule-based planner, which costs nothing to ask; the seeds are used for nothing else.

    Raises:
        TaskError: the package minigrid is missing.
    """
    task = task_of_room(room, cost)
    start = parse(START, task).policy
    assert start is not None
    with Simulator(task) as simulator:

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
            return np.array([np.mean([one.episode_return for one in simulator.play(p, seeds)]) for p in policies])

        def seeds(first: int, count: int) -> tuple[int, ...]:
            return episode_seeds(seed, "learning to ask", count, first)

        refined = refine(start, "coordinate", Trials(returns, seeds, episodes), seed)
    return refined.policy if refined is not None else start


def named_mediators(names: Sequence[str]) -> dict[str, Mediator | None]:
    """Return mediators by their names in `MEDIATORS`, or by the file or run of a policy; None for the learned one.

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
    """Return the rooms of some names, by default all rooms; `simple-door-key` is SimpleDoorKey.

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
