"""`policygen distill`: tables and equations that imitate functions, objects and models."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import BEST_LAKE, Line, the_run

import policygen
from policygen.episodes.agents import action_values, play_labelled
from policygen.errors import UsageError
from policygen.extensions.distill import LabelledStates, count_numbers, distilled, fit_equations, fit_table
from policygen.policies.linear import LinearPolicy
from policygen.runs.config import effective_config

FEW = ("--episodes", 5, "--set", "final_episodes=10", "--set", "warmup_episodes=5", "--jobs", 1, "--rounds", 2)
UNTUNED = (*FEW, "--refine", "none")
RNG = np.random.default_rng(0)
TEACHERS = """
import numpy as np

def steady(observation):
    return int(observation @ [0.3, 0.5, 10, 3] > 0)


def word(observation):
    return "left"

class Valuing:
    def predict(self, observation):
        return steady(observation)

    def action_values(self, observation):
        return [0.0, -np.inf] if observation[0] > 0 else [1]
"""


@pytest.fixture
def teachers(workplace: Path) -> Path:
    (workplace / "own_teachers.py").write_text(TEACHERS)
    return workplace


def test_equations_are_distilled_and_start_a_run(line: Line, teachers: Path) -> None:
    done = line("distill", "own_teachers:steady", "cartpole", "--policy", "equations", *UNTUNED, "--seed", 3)
    assert done.code == 0, done.err
    for words in (
        "round 2: 500 [500, 500] over 50 episodes",
        "teacher: 500 [500, 500] over 10 episodes",
        "student: 500 [500, 500] over 10 episodes; difference +0 (p = 1)",
        "keeps 100.0% of the teacher's gain over random actions",
    ):
        assert words in done.out
    folder = the_run(teachers / "results")
    assert "# distilled from own_teachers:steady" in line("show", folder).out
    policy = policygen.Policy.load(folder / "best.json")
    assert f"the student has {count_numbers(policy)} numbers" in done.out
    assert count_numbers(policy) <= 15


def test_a_table_gets_the_teachers_exact_return_where_all_states_are_visited(line: Line, teachers: Path) -> None:
    (teachers / "best.txt").write_text(BEST_LAKE)
    done = line("distill", "best.txt", "frozenlake", "--policy", "table", *UNTUNED, "--iterations", 1)
    assert done.code == 0, done.err
    assert "teacher: 0.7402 (exact)" in done.out
    assert "student before tuning: 0.7402 (exact); difference" in done.out


def test_the_teacher_labels_the_states_that_the_student_visits() -> None:
    task = policygen.load_task("cartpole")
    always_left = policygen.parse("left = 1\nright = 0", task)
    played = play_labelled(lambda seen: int(seen[2] > 0), always_left, task, [1, 2])
    assert [set(episode.actions) for episode in played.episodes] == [{0}, {0}]
    angles = np.concatenate([episode.observations[:-1, 2] for episode in played.episodes])
    assert np.array_equal(played.actions, angles > 0)
    assert {*played.actions} == {0, 1}
    assert np.array_equal(np.array(played.seen)[:, 2], angles)


def test_a_cell_takes_the_label_with_most_weight_and_an_unseen_one_that_of_its_neighbour() -> None:
    task = policygen.load_task("cartpole")
    states = np.array([[0, 0, 0.1, 0.3]] * 4 + [[0, 0, -0.1, -0.3]], np.float32)
    labels = np.array([0, 0, 0, 1, 0], float)[:, None]
    equal = fit_table(task, LabelledStates(states, labels, np.ones(5)), RNG)
    assert {*equal.act(states).tolist()} == {0}
    weighed = fit_table(task, LabelledStates(states, labels, np.array([1, 1, 1, 9, 1.0])), RNG)
    assert weighed.act(states).tolist() == [1, 1, 1, 1, 0]
    assert weighed.act([[2, 0, 0.2, 0.9], [-2, 0, -0.2, -0.9]]).tolist() == [1, 0]
    states = np.array([[1, 0.05, 0.5]] * 2, np.float32)
    numbers = LabelledStates(states, np.array([[1.0], [0.5]]), np.ones(2))
    assert fit_table(policygen.load_task("pendulum"), numbers, RNG).act(states).tolist() == [[0.75], [0.75]]  # means


def test_labels_at_a_limit_bound_the_equation_and_idle_terms_are_left_out() -> None:
    task = policygen.load_task("pendulum")
    rng = np.random.default_rng(0)
    angle, rate = rng.uniform(-3, 3, 3_000), rng.uniform(-2, 2, 3_000)
    states = np.stack([np.cos(angle), np.sin(angle), rate], axis=1).astype(np.float32)
    labels = np.clip(-10 * states[:, 1:2] - 2 * states[:, 2:], -2, 2).astype(float)
    policy = fit_equations(task, LabelledStates(states, labels, np.ones(len(states))), rng)
    assert isinstance(policy, LinearPolicy)
    weights = dict(zip(map(repr, policy.terms), policy.weights[:, 0], strict=True))
    assert weights == pytest.approx({"Name(name='sin')": -10, "Name(name='rate')": -2}, rel=0.05)
    assert count_numbers(policy) == 3
    constant = LabelledStates(np.zeros((5, 4), np.float32), np.ones((5, 1)), np.ones(5))
    policy = fit_equations(policygen.load_task("cartpole"), constant, RNG)
    assert policy.act(constant.observations).tolist() == [1] * 5


@pytest.mark.parametrize(
    ("name", "teacher", "words"),
    [
        ("cartpole", lambda seen: int(seen[2] > 0), r"agrees in \d+\.\d% of [\d,]+ labels"),
        ("pendulum", lambda seen: np.clip([-10 * seen[1] - 2 * seen[2]], -2, 2), r"R\^2 1\.000 on [\d,]+ labels"),
    ],
)
def test_a_seed_gives_the_same_student_and_a_table_needs_a_grid(name: str, teacher: Any, words: str) -> None:
    task = policygen.load_task(name)
    linear, table = (
        effective_config(task, name, options={"policy": p, "seed": 4, "jobs": 1}) for p in ("linear", "table")
    )
    one, other = (distilled(teacher, task, linear, rounds=1) for _ in range(2))
    assert one.policy.to_text() == other.policy.to_text()
    assert re.search(words, str(one))
    with pytest.raises(UsageError, match="has no grid, which a table needs; use --policy equations"):
        distilled(teacher, replace(task, grid=None), table, rounds=1)


def test_bad_input_is_refused_in_a_sentence(line: Line, teachers: Path) -> None:
    for words, said in (
        ("own_teachers:word cartpole", "the scored agent returned 'left', not an action of CartPole-v1"),
        ("own_teachers:Valuing cartpole", "action_values(observation) of the agent must return 2 finite numbers"),
        ("own_teachers:steady no-such-task", "no-such-task"),
        ("model.zip cartpole", "model.zip: which kind of model is this? write ppo:model.zip"),
        ("own_teachers:steady cartpole --llm openai:m", "OPENAI_API_KEY"),
    ):
        refused = line("distill", *words.split(), *FEW)
        assert refused.code != 0
        assert said in refused.err
        assert "Traceback" not in refused.err
        assert not (teachers / "results").exists()


@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is None, reason="needs stable-baselines3")
def test_a_model_is_distilled_and_others_are_refused(line: Line, teachers: Path) -> None:
    from stable_baselines3 import DQN, PPO

    for name, made in {
        "ppo": PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu"),
        "other": PPO("MlpPolicy", "Pendulum-v1", n_steps=64, seed=0, device="cpu"),
        "dqn": DQN("MlpPolicy", "CartPole-v1", buffer_size=100, seed=0, device="cpu"),
    }.items():
        made.save(teachers / f"{name}.zip")
        task = policygen.load_task("pendulum" if name == "other" else "cartpole")
        values = action_values(made, task, [made.observation_space.sample() for _ in range(3)])
        assert values is None if name == "other" else values.shape == (3, 2)
    (teachers / "broken.zip").write_bytes(b"no archive")
    done = line("distill", "ppo:ppo.zip", "cartpole", "--trust", *UNTUNED, "--iterations", 1)
    assert done.code == 0, done.err
    assert "# distilled from ppo:ppo.zip" in line("show", the_run(teachers / "results")).out
    for model, said in (("other", "is a model of another environment"), ("broken", "cannot be loaded as a model")):
        refused = line("distill", f"ppo:{model}.zip", "cartpole", "--trust", *FEW)
        assert refused.code == 2
        assert said in refused.err
