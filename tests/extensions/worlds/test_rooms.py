"""Rooms with a locked door: laid out as published, and options that do what the published ones do."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from minigrid.core.world_object import Box, Door, Key

from policygen.errors import TaskError
from policygen.extensions.worlds.robot import (
    DROP,
    FORWARD,
    LEFT,
    NOTHING,
    PICK_UP,
    RIGHT,
    TOGGLE,
    Option,
    PlanExecutor,
    RoomEpisode,
    RoomReport,
    View,
    plan_by_rules,
)
from policygen.extensions.worlds.rooms import LockedRoomEnv
from policygen.tasks.environments import make

# Steps, questions and successes of the published environments and option code with this planner, seeds 0 to 99, where
# a question follows the end of a plan, in every step, or when a new thing is seen.
PUBLISHED = {
    ("SimpleDoorKey", "ended"): (64.90, 1.58, 59),
    ("KeyInBox", "new"): (26.82, 4.21, 100),
    ("ColoredDoorKey", "always"): (65.34, 65.34, 46),
    ("SimpleDoorKey", "new"): (25.82, 2.75, 100),
    ("RandomBoxKey", "new"): (30.30, 3.91, 94),
}


def led(env: LockedRoomEnv, room: str, seed: int, rule: str) -> RoomEpisode:
    """An episode in which the planner is asked by a rule."""
    episode = RoomEpisode(env, room, seed)
    while not episode.over:
        new, ended, _ = episode.inputs
        if ended or rule == "always" or (rule == "new" and new):
            episode.follow(plan_by_rules(episode.report, room))
        episode.act()
    return episode


@pytest.mark.parametrize(("room", "rule"), PUBLISHED)
def test_the_planner_reaches_what_was_measured_on_the_published_code(room, rule):
    steps, questions, successes = PUBLISHED[room, rule]
    env = LockedRoomEnv(room)
    episodes = [led(env, room, seed, rule) for seed in range(100)]
    # Of equally short ways another one may be taken, which shows other cells.
    assert np.mean([episode.steps for episode in episodes]) == pytest.approx(steps, abs=0.1)
    assert np.mean([episode.questions for episode in episodes]) == pytest.approx(questions, abs=0.1)
    assert sum(episode.opened for episode in episodes) == successes


def room_with(things: dict) -> LockedRoomEnv:
    """A room of 6 x 6 cells, all seen; the door is red and in the right wall, in row 3; the robot looks right."""
    env = LockedRoomEnv("SimpleDoorKey")
    env.reset(seed=0)
    env._gen_grid(10, 10)
    env.grid.grid = [None] * 100
    env.grid.wall_rect(0, 0, 6, 6)
    env._door = Door("red", is_locked=True)
    for place, thing in {(5, 3): env._door, **things}.items():
        env.grid.set(place[0], place[1], thing)
    env.agent_pos, env.agent_dir = (2, 2), 0
    env.gen_obs()
    for x, y in np.ndindex(6, 6):
        thing = env.grid.get(x, y)
        env._map[x, y, :3] = thing.encode() if thing else (1, 0, 0)
    return env


def carried_out(env: LockedRoomEnv, *plan: Option, most: int = 30) -> list[int]:
    """The actions that a plan takes."""
    view = View(env.gen_obs()["image"])
    executor = PlanExecutor(np.random.default_rng(0))
    executor.follow(plan, view)
    actions = []
    while not actions or (not executor.is_over(view) and len(actions) < most):
        actions.append(executor.act(view))
        view = View(env.step(actions[-1])[0]["image"])
    return actions


AROUND = [LEFT, FORWARD, RIGHT, FORWARD, FORWARD, RIGHT]
EXCHANGE = [RIGHT, RIGHT, DROP, RIGHT, RIGHT, PICK_UP]
FETCH = [Option("go to", "key"), Option("pick up", "key"), Option("go to", "door"), Option("open", "door")]


@pytest.mark.parametrize(
    ("things", "carried", "plan", "actions"),
    [
        ({(4, 2): Key("red")}, None, FETCH, [FORWARD, PICK_UP, RIGHT, FORWARD, LEFT, FORWARD, TOGGLE]),
        ({(3, 2): Box("red"), (4, 2): Key("blue")}, None, [Option("go to", "blue key")], AROUND),
        ({(3, 2): Key("red")}, Key("blue"), [Option("pick up", "red key")], EXCHANGE),
        ({}, Box("red"), [Option("drop")], [DROP]),
        ({}, None, [Option("drop")], [NOTHING]),
        ({}, None, [], [NOTHING]),
        *(({}, None, [Option(*words), Option("drop")], [NOTHING]) for words in (("go to", ""), ("go to", "key"))),
        *(({}, None, [Option(word)], [NOTHING]) for word in ("explore", "dance")),
    ],
)
def test_an_option_is_carried_out_or_does_nothing(things, carried, plan, actions):
    env = room_with(things)
    env.carrying = carried
    assert carried_out(env, *plan) == actions
    assert env._door.is_open == (TOGGLE in actions)


@pytest.mark.parametrize(
    ("room", "seen", "carried", "plan"),
    [
        ("SimpleDoorKey", "", "", "explore"),
        ("SimpleDoorKey", "key, door", "", "go to key, pick up key, go to door, open door"),
        ("SimpleDoorKey", "door", "key", "go to door, open door"),
        ("KeyInBox", "box, door", "", "go to box, open box"),
        ("KeyInBox", "key", "", "go to key, pick up key"),
        ("RandomBoxKey", "box", "key", "explore"),
        ("ColoredDoorKey", "red door", "blue key", "explore"),
        ("ColoredDoorKey", "red key, red door", "blue key", "go to red key, pick up red key"),
        ("ColoredDoorKey", "blue key, red door", "red key", "go to red door, open red door"),
    ],
)
def test_the_planner_keeps_to_the_published_examples(room, seen, carried, plan):
    report = RoomReport(tuple(filter(None, seen.split(", "))), carried)
    assert ", ".join(map(str, plan_by_rules(report, room))) == plan


def test_asking_costs_and_is_counted_and_the_first_question_is_free():
    with pytest.raises(TaskError, match="there is no room Hall; choose one of SimpleDoorKey, KeyInBox"):
        make("policygen/WhenToAsk-v0", {"room": "Hall"})
    env = gym.make("policygen/WhenToAsk-v0", disable_env_checker=True, cost=0.5)
    inputs, info = env.reset(seed=0)
    assert info == {"questions": 1}
    assert inputs.tolist()[2] == 1
    _, reward, _, _, info = env.step(1)
    assert (reward, info) == (-0.5, {"questions": 2})
    inputs, reward, _, _, info = env.step(0)
    assert (reward, info) == (0.0, {"questions": 2})
    assert inputs.tolist()[2] == 2
