"""Tasks made in code, and tasks without their knowledge (`--ablate knowledge`)."""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium as gym
import pytest

from policygen.episodes.requirements import Requirements
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import TaskError
from policygen.search.resume import preview
from policygen.tasks.actions import actuators_of
from policygen.tasks.load import load_task
from policygen.tasks.spaces import observed_in
from policygen.tasks.task import Requirement, Task, without_knowledge


def test_a_broken_feature_of_a_task_made_in_code_is_named():
    space = gym.make("CartPole-v1")
    space.close()
    kind, actuators, _ = actuators_of(space.action_space)
    observations = tuple(observed_in(space.observation_space)[0])
    task = Task("mine", "CartPole-v1", observations, actuators, kind, 500, features=(("bad", "obs9"),))
    with pytest.raises(TaskError, match="task mine: feature bad: unknown name `obs9`"):
        _ = task.parsed_features


@pytest.mark.parametrize(
    ("task", "secret"), [("cartpole", "angle"), ("frozenlake", "ice"), ("CartPole-v1", "masspole = 0.1")]
)
def test_the_prompt_of_an_ablated_task_does_not_give_it_away(task: str, secret: str) -> None:
    told = "".join(m.content for m in preview(task, None, (), {})[0].messages)
    withheld = "".join(m.content for m in preview(task, None, (), {"ablate": "knowledge"})[0].messages)
    assert re.search(rf"\b{secret}\b", told)
    assert not re.search(rf"\b{secret}\b", withheld)
    assert task not in withheld
    assert "x0" in withheld


def test_an_integer_state_keeps_a_bin_for_each_value() -> None:
    withheld = without_knowledge(load_task("mountaincar"))
    assert (withheld.reward, withheld.ends, withheld.starts) == ("", "", ())
    assert without_knowledge(load_task("frozenlake")).grid.shape == (16,)  # type: ignore[union-attr]


def test_requirements_are_kept_in_the_names_that_remain() -> None:
    conditions = (
        Requirement("stays", always="abs(lean) < 0.2 and angle < 1"),
        Requirement("calm", always="abs(spin) < 9", after="right changes", within=5),
    )
    task = replace(load_task("cartpole"), features=(("lean", "angle + 0.1*spin"),), requirements=conditions)
    stays, calm = without_knowledge(task).requirements
    assert (stays.name, stays.always) == ("requirement1", "abs((x2 + 0.1*x3)) < 0.2 and x2 < 1")
    assert (calm.always, calm.after) == ("abs(x3) < 9", "a0_1 changes")
    with Simulator(task) as named, Simulator(without_knowledge(task)) as bare:
        one, other = (simulator.play(RandomActor(simulator.task, 0), (1, 2, 3)) for simulator in (named, bare))
    counts = [
        [v.violated for v in Requirements(t).count(played)]
        for t, played in ((task, one), (without_knowledge(task), other))
    ]
    assert counts[0] == counts[1] == [3, 0]
