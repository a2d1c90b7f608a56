"""Actions as actuators, and back in the environment's own form."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from policygen.episodes.trajectory import RandomActor
from policygen.errors import PolicyError, TaskError
from policygen.policies.linear import constant_policy
from policygen.policies.parse import parse
from policygen.policies.policy import from_record
from policygen.tasks.actions import (
    ActionLayout,
    action_builder,
    actuators_of,
    random_actions,
    shaped,
    with_bounds,
)
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

NESTED = spaces.Dict(
    OrderedDict(
        [
            ("Arm Torque", spaces.Box(-2, 3, (2, 2), np.float64)),
            ("gear", spaces.Discrete(3, start=-1)),
            ("pair", spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))),
            ("speed", spaces.Box(0, 1, (1,), np.float32)),
            ("turns", spaces.Box(-1, 2, (1,), np.int32)),
        ]
    )
)


def mixed_task() -> Task:
    kind, actuators, layout = actuators_of(NESTED, ["speed"])
    return Task("mixed", "Mixed-v0", (Observation("x"), Observation("speed")), actuators, kind, 9, action_layout=layout)


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (spaces.Tuple((spaces.Text(3),)), "Text are not supported"),
        (spaces.Dict({("a", 1): spaces.Discrete(2)}), "must be text or whole numbers"),
        (spaces.Tuple(()), "has no parts"),
    ],
)
def test_action_spaces_that_cannot_be_written_are_refused(space, word):
    with pytest.raises(TaskError, match=word):
        actuators_of(space)


SPACES = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    spaces.MultiDiscrete([[2, 2], [3, 4]], start=[[1, 0], [5, -2]]),
    spaces.MultiDiscrete([2, 3], dtype=np.int16),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-1, 1, (), np.float32),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(-0.1, 0.1, (2,), np.float64),  # no bound of them is a float32
    spaces.Box(-1, 1, (2, 2), np.float16),
    spaces.Box(0, 255, (2,), np.uint8),
    spaces.Box(0, 1_000, (2,), np.int64),
    spaces.Dict(only=spaces.Discrete(4)),
    spaces.Box(-np.inf, np.inf, (1,), np.float64),
    NESTED,
]


def form(action):
    """The types, shapes and dtypes in an action."""
    if isinstance(action, dict | tuple):
        parts = action.items() if isinstance(action, dict) else enumerate(action)
        return isinstance(action, dict), [(key, form(part)) for key, part in parts]
    return type(action), getattr(action, "shape", None), getattr(action, "dtype", None)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_action_is_of_the_form_that_the_space_samples(space):
    kind, actuators, layout = actuators_of(space)
    assert len({a.name for a in actuators}) == len(actuators)
    actuators, _ = with_bounds(actuators)
    task = Task("any", "Any-v0", (Observation("x"),), actuators, kind, 9, action_layout=layout)
    build, draw = action_builder(space), random_actions(space, np.random.default_rng(3))
    actor, policy = RandomActor(task, 0), constant_policy(task, [1e9 if not a.is_choice else 1 for a in actuators])
    made = [draw() for _ in range(20)]
    made += [build(row) for _ in range(20) for row in actor.decide([np.zeros(1)], np.arange(1))]
    made += [build(policy.act_one([0.0])), policy.controller()(np.zeros(1))]
    for action in made:
        assert form(action) == form(space.sample())
        assert space.contains(action), action
    again = random_actions(space, np.random.default_rng(3))
    assert all(repr(again()) == repr(action) for action in made[:20])


def test_parts_are_named_after_their_keys_and_apart_from_what_is_observed():
    _, actuators, layout = actuators_of(NESTED, ["x", "speed"])
    arm, pairs = "arm_torque_0 arm_torque_1 arm_torque_2 arm_torque_3", "pair_0 pair_1_0 pair_1_1 pair_2_0 pair_2_1"
    assert " ".join(a.name for a in actuators) == f"{arm} gear {pairs} speed_action turns"
    assert actuators[4].labels == ("minus1", "0", "1")
    action = shaped(layout, [0.5, 1, 2, 3, 2, 1, 0, 1, 1, 2, 0.25, 3])
    assert (action["gear"], action["pair"][0], action["turns"].tolist()) == (1, 1, [2])
    assert action["Arm Torque"].tolist() == [[0.5, 1], [2, 3]]


@pytest.mark.parametrize("kind", ["table", "linear"])
def test_a_policy_that_mixes_choices_and_numbers_acts_and_is_kept(kind):
    task = mixed_task()
    outputs = [f"arm_torque_{i}" for i in range(4)] + ["gear_minus1", "gear_0", "gear_1"]
    outputs += [f"{name}_{i}" for name in ("pair_0", "pair_1_0", "pair_1_1", "pair_2_0") for i in range(2)]
    outputs += [f"pair_2_1_{i}" for i in range(3)] + ["speed_action", *(f"turns_{n}" for n in ("minus1", 0, 1, 2))]
    text = "\n".join(f"{name} = {i % 3 - 1}*x + {0.3 * i:g}*speed" for i, name in enumerate(outputs))
    if kind == "table":
        heads = ["lean", *(a.name for a in task.actuators)]
        rows = [["0", "-2", "0", "1", "3", "minus1", "0", "1", "0", "1", "2", "0.25", "2"], ["*"] * 13]
        rows[1][1:] = ["0", "0", "0", "0.5", "1", "1", "0", "0", "1", "0", "1", "minus1"]
        text = "let lean = x\nbins lean: 0\n" + "\n".join(f"| {' | '.join(row)} |" for row in [heads, *rows])
    policy = parse(text, task, kind).policy
    assert policy is not None, parse(text, task, kind).problems
    rows = np.random.default_rng(0).normal(size=(50, 2)) * 2
    actions = policy.act(rows)
    assert (actions.shape, actions.dtype) == ((50, 12), np.float32)
    assert all(np.array_equal(policy.act_one(row), action) for row, action in zip(rows, actions, strict=True))
    assert parse(policy.to_text(whole=True), task, kind).policy == policy
    again = from_record(json.loads(json.dumps(policy.to_record())))
    assert np.array_equal(again.act(rows), actions)
    controller = again.controller()
    assert all(NESTED.contains(controller(row)) for row in rows)
    assert NESTED.contains(again.predict(rows[0])[0])
    assert all(map(NESTED.contains, again.predict(rows)[0]))


@pytest.mark.parametrize(
    "layout",
    [
        ActionLayout("array", "object", (12,)),
        ActionLayout("array", "float32", (11,)),
        ActionLayout("parts", parts=(ActionLayout("array", "float32", (12,)),), keys=("a", "b")),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout):
    with pytest.raises(PolicyError, match="damaged task: `action_layout`"):
        task_from_record(json.loads(json.dumps(task_to_record(replace(mixed_task(), action_layout=layout)))))
