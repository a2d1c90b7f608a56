"""Policies that remember: `prev` in `policies.features`, controllers, batches, engines, exact scores, saved forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import policygen
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.score import sampled_score
from policygen.episodes.simulator import ParallelSimulator, Simulator
from policygen.errors import PolicyError
from policygen.policies import Policy
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import constants
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task

CARTPOLE = """
let smooth = 0.9*prev(smooth, spin) + 0.1*spin
let phase = mod(prev(phase) + 0.31, 6.2832)
let sum = clip(prev(sum) + 0.02*angle, -1, 1)
let rate = angle - prev(angle, angle)
left = 0
right = angle + 0.2*spin + 0.1*smooth + sum + 20*rate + 0.01*sin(phase) + 0.01*prev(left) - 0.01*prev(right)
"""
PENDULUM = """
let sum = clip(prev(sum) + 0.05*sin, -1, 1)
let late = prev(later)
let later = 0.5*prev(late, 1) + 0.1*rate
torque = -3*sin - rate - 0.2*sum + 0.1*late + 0.3*prev(torque)
"""
COUNTING = """
let turn = mod(prev(turn, -1) + 1, 4)
bins turn: 0.5, 1.5, 2.5
| turn | action |
| 0,2 | down |
| * | right |
"""


def read(text: str, name: str) -> Policy:
    return policygen.parse(text, name)


@pytest.fixture(params=[("cartpole", CARTPOLE), ("pendulum", PENDULUM)], ids=lambda param: param[0])
def policy(request: pytest.FixtureRequest) -> Policy:
    name, text = request.param
    return read(text, name)


def test_the_last_action_may_be_read_by_label_by_index_and_as_a_number():
    for left in ("1 - 2*prev(left)", "2*prev(action, 1) - 1"):
        controller = read(f"left = {left}\nright = 0", "cartpole").controller()
        assert [controller([0.0] * 4) for _ in range(4)] == [0, 1, 0, 1]
    controller = read("torque = 100 + prev(torque)", "pendulum").controller()
    assert [controller([0.0] * 3).tolist() for _ in range(2)] == [[2.0], [2.0]]
    assert controller.memory == [2.0], "the number that was done, not the one that was asked for"


def test_a_batch_with_its_memory_decides_as_controllers_do(policy):
    rng = np.random.default_rng(3)
    memory, controllers = policy.start(5), [policy.controller() for _ in range(5)]
    for _ in range(40):
        rows = rng.normal(size=(5, len(policy.task.observations)))
        together = policy.act(rows, memory)
        apart = np.array([controller(row) for controller, row in zip(controllers, rows, strict=True)])
        assert np.allclose(together, apart, atol=1e-5)
        assert np.allclose(memory, [controller.memory for controller in controllers], atol=1e-9)


def test_rows_that_belong_to_no_episode_are_refused():
    cartpole = read(CARTPOLE, "cartpole")
    for act in (cartpole.act, lambda rows: cartpole.act_one(rows[0])):
        with pytest.raises(PolicyError, match=r"this policy remembers angle, .*controller\(\)"):
            act(np.zeros((3, 4)))
    with pytest.raises(PolicyError, match=r"a memory of shape \(n, 6\), got \(3, 4\) and \(2, 6\)"):
        cartpole.act(np.zeros((3, 4)), cartpole.start(2))


def plays(policy: Policy, players: Simulator | ParallelSimulator, seeds: range) -> list[tuple[bytes, bytes]]:
    return [(t.observations.tobytes(), t.actions.tobytes()) for t in players.play(policy, seeds)]


def test_every_engine_and_worker_processes_play_the_same_episodes_to_the_last_bit(monkeypatch):
    cartpole = read(CARTPOLE, "cartpole")
    # More episodes than copies: environments are filled again, and rows compacted, while others run.
    task, seeds = replace(cartpole.task, max_steps=60), range(40)
    with Simulator(task) as simulator:
        assert simulator.engine == "vector"
        vector = plays(cartpole, simulator, seeds)
    assert all(actions for _, actions in vector)
    for name in ("SECONDS_WORTH_SHARING", "SECONDS_WORTH_STARTING"):
        monkeypatch.setattr(f"policygen.episodes.simulator.{name}", -1.0)
    with ParallelSimulator(task, jobs=2) as two:
        assert plays(cartpole, two, seeds) == vector
    monkeypatch.setattr("policygen.episodes.simulator.has_vector_form", lambda env: False)
    with Simulator(task) as simulator:
        assert simulator.engine == "copies"
        assert plays(cartpole, simulator, seeds) == vector


def test_an_episode_can_be_followed_later(policy):
    with Simulator(replace(policy.task, max_steps=60)) as simulator:
        [episode] = simulator.play(policy, [4])
    controller = policy.controller()
    columns = policy.reader.along((episode.observations[:-1], episode.actions))
    for step, observation in enumerate(episode.observations[:-1]):
        row = policy.reader.row([*observation.tolist(), *controller.memory])
        assert np.array_equal([column[step] for column in columns], row, equal_nan=True)
        controller(observation)


def test_exact_scores_go_through_states_and_memories(monkeypatch):
    policy = read(COUNTING, load_task("frozenlake"))
    mdp = finite_mdp(policy.task)
    assert mdp is not None
    exact = exact_score(policy, mdp)
    assert exact is not None
    assert exact.exact
    with Simulator(policy.task) as simulator:
        sampled = sampled_score(simulator.play(policy, range(600)), "copies")
    assert abs(exact.mean - sampled.mean) < 4 * sampled.std / np.sqrt(600)
    assert exact.std == pytest.approx(sampled.std, rel=0.25)
    monkeypatch.setattr("policygen.episodes.exact.MAX_EXACT_STATES", 20)
    score = policygen.score(policy, episodes=50)
    assert (score.exact, score.episodes) == (False, 50)


def test_tuning_moves_the_constants_inside_but_not_a_start_of_nothing():
    assert constants(parse_expression("0.9*prev(x, 2) + 0.1*prev(x)", ["x"])) == (0.9, 2.0, 0.1)
    text = "let phase = mod(prev(phase) + 0.31, 6.2832)\nleft = 0.5*sin(phase)\nright = 0"
    tunable = Tunable(read(text, "cartpole"))
    moved = tunable.at(np.full(tunable.size, 0.1))
    assert moved.remembers == ("phase",)
    assert "prev(phase) + 0.341" in moved.to_text()
