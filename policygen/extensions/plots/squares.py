"""Squares of a finite world in which no action is taken: goals, holes and unreachable states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP, finite_mdp
from policygen.errors import PolicygenError
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close


@dataclass(frozen=True, slots=True)
class Mark:
    """The symbol that a map shows in place of an action."""

    symbol: str
    name: str


GOAL, HOLE, CLIFF, END, NEVER = (
    Mark("G", "goal"),
    Mark("H", "hole"),
    Mark("C", "cliff"),
    Mark("X", "end"),
    Mark("·", "never met"),
)


def marks(policy: TablePolicy) -> dict[int, Mark]:
    """Return the marks of cells in which the policy never acts, by cell number; empty if the world is not finite."""
    task = policy.task
    if len(task.observations) != 1 or not task.observations[0].integer or policy.remembers:
        return {}
    try:
        mdp = finite_mdp(task)
        env = make_env(task) if mdp is not None else None
    except PolicygenError:
        return {}
    if mdp is None or env is None:
        return {}
    try:
        found = _names(mdp, env)
    finally:
        close(env)
    cells = policy.cells(np.arange(len(found)).reshape(-1, 1))
    marked: dict[int, Mark] = {}
    acting = {int(cell) for cell, mark in zip(cells, found, strict=True) if mark is None}
    for cell, mark in zip(cells.tolist(), found, strict=True):
        if mark is not None and cell not in acting and (cell not in marked or mark != NEVER):
            marked[cell] = mark
    return marked


def _names(mdp: FiniteMDP, env: gym.Env[Any, Any]) -> list[Mark | None]:
    """Classify each state; None if an action is taken there."""
    possible = mdp.probabilities > 0
    decided = mdp.start > 0
    while True:
        going_on = possible[decided] & (mdp.going_on[decided] > 0)
        reached = decided.copy()
        reached[mdp.next_states[decided][going_on]] = True
        if (reached == decided).all():
            break
        decided = reached
    ending = possible & (mdp.going_on == 0) & decided[:, None, None]
    ends = mdp.next_states[ending]
    worth = {int(s): mdp.rewards[ending][ends == s] for s in np.unique(ends)}
    best = max((float(rewards.max()) for rewards in worth.values()), default=0.0)
    letters = _letters(env, len(mdp.start))
    named: list[Mark | None] = []
    for state, acts in enumerate(decided.tolist()):
        if acts:
            named.append(None)
        elif state in worth:
            goal = bool((worth[state] == best).all())  # an end may be good or bad, depending on the way into it
            named.append(GOAL if goal else HOLE if letters[state] == "H" else END)
        else:
            named.append({"H": HOLE, "C": CLIFF}.get(letters[state], NEVER))
    return named


def _letters(env: gym.Env[Any, Any], states: int) -> list[str]:
    """Return the letter of each state on the maps of Gymnasium's lakes and cliffs."""
    inner: Any = env.unwrapped
    letters = ["?"] * states
    board: npt.NDArray[Any] = np.asarray(getattr(inner, "desc", ()))
    cliff = np.asarray(getattr(inner, "_cliff", ()))
    if board.size == states and board.dtype.kind == "S":
        letters = [letter.decode("ascii", "replace") for letter in board.ravel().tolist()]
    elif cliff.size == states and cliff.dtype == np.bool_:
        letters = ["C" if falls else "?" for falls in cliff.ravel().tolist()]
    return letters
