"""Helpers for the tests of plants: episodes with random actions, plants as text, and made-up episodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Actor, HeldRandomActor, Trajectory
from policygen.extensions.plants.equations import Equations
from policygen.extensions.plants.fit import Transitions
from policygen.extensions.plants.plant import Plant
from policygen.policies.parse import ParseResult, parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

PENDULUM = replace(load_task("pendulum"), max_steps=60)
# As Gymnasium's source has it, where the torque stays within its limits.
EXACT = """
let later = clip(rate + 0.75*sin + 0.15*torque, fixed(-8), fixed(8))
let angle = atan2(sin, cos)
next cos = cos(angle + 0.05*later)
next sin = sin(angle + 0.05*later)
next rate = later
reward = -(angle^2 + 0.1*rate^2 + 0.001*torque^2)
"""
SWINGS = "torque = -1*rate*energy - 0.5*sin"


def read(text: str, task: Task = PENDULUM, incumbent: Policy | None = None) -> ParseResult:
    """Read a plant beside a policy of zeros, or the one in the text."""
    return parse(text, task, "linear", incumbent or policy(SWINGS if task is PENDULUM else "u = 0*x", task))


def policy(text: str, task: Task = PENDULUM) -> Policy:
    found = parse(text, task, "linear").policy
    assert found is not None
    return found


def plant(text: str, task: Task = PENDULUM) -> Plant:
    parsed = read(text, task)
    assert "plant" in parsed.notes, [str(problem) for problem in parsed.problems]
    found: Plant = parsed.notes["plant"]
    return found


def equations(text: str, task: Task = PENDULUM) -> Equations:
    return Equations(task, plant(text, task))


def played(task: Task, seeds: Sequence[int], actor: Actor | None = None) -> list[Trajectory]:
    """Episodes one after the other, by default with random actions that hold for a few steps."""
    actor = actor or HeldRandomActor(task, 0)
    with Simulator(task) as simulator:
        return [episode for seed in seeds for episode in simulator.play(actor, (seed,))]


@functools.cache
def swings() -> Transitions:
    """Three episodes of the pendulum."""
    return Transitions.of(PENDULUM, played(PENDULUM, (1, 2, 3)))


# --- environments that are equations ---------------------------------------------------------------------------------

LINE = Task(
    name="line",
    gym_id="Line-v0",
    observations=(Observation("x"),),
    actuators=(Actuator("u", (), -1.0, 1.0),),
    action_space="box",
    max_steps=50,
)


def episode(observations: object, actions: object, rewards: object, *, terminated: bool = False) -> Trajectory:
    rows = np.asarray(observations, np.float32)
    paid = np.asarray(rewards, np.float32)
    return Trajectory(rows, np.asarray(actions), paid, float(paid.sum()), 0, terminated, not terminated)


def driven(n: int, seed: int = 0, *, noise: float = 0.0, delay: int = 0) -> Transitions:
    """One episode of `next x = 0.9*x + 0.5*u`, or with the action of the step before."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    x = np.zeros((n + 1, 1))
    for t in range(n):
        x[t + 1] = 0.9 * x[t] + 0.5 * (u[t - delay] if t >= delay else 0) + noise * rng.normal()
    return Transitions.of(LINE, [episode(x, u, -(x[:-1, 0] ** 2))])
