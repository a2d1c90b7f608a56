"""The text adventure: its maps, its shortest solution, and a table of `contains` that finds it."""

from __future__ import annotations

import copy

import gymnasium as gym
import pytest

from policygen.episodes.simulator import evaluate
from policygen.extensions.worlds.adventure import COMMANDS
from policygen.policies.parse import parse
from policygen.tasks.load import load_task

TABLE = """
| place | lamp | key | opened | way | command |
|---|---|---|---|---|---|
| 1 | 0 | * | * | * | take_lamp |
| 2 | * | 0 | * | * | take_key |
| 3 | 1 | * | 1 | * | take crown |
| 3 | 1 | 1 | 0 | * | open_chest |
| * | * | * | * | 0 | go_north |
| * | * | * | * | 1 | go_east |
| * | * | * | * | 2 | go_south |
| * | * | * | * | 3 | go_west |
"""


def test_there_are_24_maps_and_a_command_that_cannot_be_carried_out_is_answered():
    env = gym.make("policygen/Adventure-v0")
    assert len({env.reset(seed=seed)[0] for seed in range(150)}) == 24
    text, *_, info = env.step(COMMANDS.index("take crown"))
    assert text.startswith("You are in the hall. North: ")
    assert info == {"said": "There is no crown to take.", "score": 0}


def test_no_solution_is_shorter_than_the_one_that_is_documented():
    env = gym.make("policygen/Adventure-v0").unwrapped
    here, seen = [env], {env.reset(seed=3)[0]}
    for steps in range(1, 10):
        tried = [(copy.deepcopy(one), action) for one in here for action in range(len(COMMANDS))]
        here = []
        for one, action in tried:
            text, _, won, _, _ = one.step(action)
            assert not won or steps == 9
            if text not in seen:
                seen.add(text)
                here.append(one)
    assert any("crown" in text.splitlines()[1] for text in seen)


def test_what_the_text_says_is_enough_for_the_best_table():
    task = load_task("adventure")
    table = parse(TABLE, task, kind="table").policy
    assert evaluate(table, range(100, 130)).mean == task.optimum.value == task.solved == 41
    with pytest.raises(Exception, match="is a text of at most 240 bytes"):
        table.controller()(["no", "text"])
