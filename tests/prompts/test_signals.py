from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.prompts.account import account, reached_its_goal
from policygen.prompts.signals import first_anomaly, rhythms, turning_points, usual_ranges
from policygen.tasks.load import load_task

STEPS = np.arange(1000.0)


def wave(period: float, shift: float = 0.0) -> np.ndarray:
    return np.sin(2 * np.pi * (STEPS - shift) / period)


def test_a_rhythm_has_its_period_and_its_lag():
    noise = np.random.default_rng(0).normal(size=1000)
    columns = {"lead": wave(64), "late": 0.2 * wave(64, 16) + 3, "other": wave(41), "noise": noise, "still": 0 * STEPS}
    found, reference = rhythms(columns, {})
    signals = {signal.name: signal for signal in found}
    assert reference in ("lead", "late", "other")
    assert signals["lead"].period == pytest.approx(64, abs=1)
    assert signals["late"].period == pytest.approx(64, abs=1)
    assert signals["other"].period == pytest.approx(41, abs=1)
    assert signals["noise"].period is None
    assert signals["still"].period is None
    assert signals["late"].high == pytest.approx(3.2, abs=0.01)


def test_lags_refer_to_the_reference_and_are_signed():
    found, reference = rhythms({"lead": wave(50), "late": wave(50, 10), "early": wave(50, -5)}, {})
    lags = {signal.name: signal.lag for signal in found}
    assert lags[reference] == 0
    assert lags["late"] - lags["lead"] == pytest.approx(10, abs=1)
    assert lags["early"] - lags["lead"] == pytest.approx(-5, abs=1)


def test_a_slow_drift_under_a_rhythm_does_not_hide_it():
    found, _ = rhythms({"drifting": wave(40) + 0.01 * STEPS}, {})
    assert found[0].period == pytest.approx(40, abs=1)


def test_a_pulse_train_has_the_distance_of_its_pulses_as_period():
    found, _ = rhythms({"foot": (STEPS % 55 < 8).astype(float)}, {})
    assert found[0].period == 55


def test_saturation_is_the_share_of_steps_at_a_limit():
    torque = np.clip(2 * wave(40), -1, 1)
    found, _ = rhythms({"torque": torque, "angle": torque}, {"torque": (-1.0, 1.0)})
    assert found[0].saturated == pytest.approx(2 / 3, abs=0.05)
    assert found[1].saturated is None


@pytest.mark.parametrize("length", [1, 3, 7])
def test_short_episodes_have_ranges_and_no_rhythm(length):
    found, reference = rhythms({"x": wave(5)[:length]}, {})
    assert (found[0].period, reference) == (None, "")


def test_the_first_anomaly_is_what_leaves_its_range_for_good_first():
    usual = {"lean": (-0.1, 0.1), "height": (1.0, 1.3)}
    lean, height = np.zeros(100), np.full(100, 1.2)
    lean[30:35] = 0.5  # comes back: not it
    lean[80:] = 0.5
    height[90:] = 0.8
    anomaly = first_anomaly({"lean": lean, "height": height}, usual)
    assert anomaly is not None
    assert (anomaly.name, anomaly.step) == ("lean", 80)
    assert first_anomaly({"lean": np.zeros(100), "height": np.full(100, 1.2)}, usual) is None


def test_the_moments_before_a_fall_are_not_usual():
    lean = np.concatenate([wave(50)[:300] * 0.1, np.linspace(0.1, 5, 40)])
    low, high = usual_ranges([({"lean": lean}, True)])["lean"]
    assert -0.2 < low < -0.1
    assert 0.1 < high < 0.2
    assert usual_ranges([({"lean": lean}, False)])["lean"][1] > 4
    assert usual_ranges([]) == {}
    assert usual_ranges([({"lean": lean[:20]}, True)]) == {}


def test_turning_points_leave_ripples_out():
    swing = wave(100) + 0.01 * wave(7)
    steps = turning_points(swing)
    assert len(steps) == pytest.approx(20, abs=1)
    assert np.diff(steps).min() > 40
    assert turning_points(np.ones(10)) == []


def episode(rewards: list[float], terminated: bool, terms: tuple[tuple[str, float], ...] = ()) -> Trajectory:
    n = len(rewards)
    return Trajectory(
        np.zeros((n + 1, 1), np.float32),
        np.zeros(n, np.int16),
        np.array(rewards, np.float32),
        float(sum(rewards)),
        0,
        terminated,
        not terminated,
        terms,
    )


def test_the_account_says_what_early_ends_cost_and_when_points_come():
    whole = episode([2.0] * 50 + [1.0] * 50, False, (("forward", 100.0), ("ctrl", -10.0)))
    half = episode([1.5] * 50, True, (("forward", 60.0), ("ctrl", -20.0)))
    found = account([whole, half], 100)
    assert found is not None
    assert dict(found.terms) == {"forward": 80, "ctrl": -15}
    assert (found.failed, found.failed_steps, found.reached) == (1, (50, 50), 0)
    assert found.lost == pytest.approx(50 * 1.5 / 2)
    assert found.parts[0] == pytest.approx(1.75)
    assert found.parts[4] == pytest.approx(1.25)
    assert account([], 100) is None
    falling = account([episode([-1.0] * 10, True)], 100)
    assert falling is not None
    assert falling.lost == 0  # ending early spares costs


def test_an_episode_may_end_early_for_its_success():
    assert reached_its_goal(episode([-1.0] * 80 + [0.0], True), -100)  # Acrobot
    assert reached_its_goal(episode([-1.0] * 120, True), -110)  # MountainCar
    assert reached_its_goal(episode([-0.01] * 80 + [100.0], True), 90)  # MountainCarContinuous
    assert reached_its_goal(episode([0.25] * 1250, True), 300)  # a walker at the far end
    assert reached_its_goal(episode([0.0] * 20 + [1.0], True), None)  # FrozenLake
    assert reached_its_goal(episode([1.0], True), None)  # a hand of cards, won
    assert not reached_its_goal(episode([-1.0], True), None)
    assert not reached_its_goal(episode([0.0] * 20, True), None)  # a hole
    assert not reached_its_goal(episode([1.0, 1.1, 1.2, 1.3], True), 3800)  # a hopper that falls forward
    assert not reached_its_goal(episode([0.1, -0.1, 0.2, -100.0], True), 300)  # a walker that falls
    assert not reached_its_goal(episode([-1.0] * 80 + [0.0], False), None)
    found = account([episode([-1.0] * 80 + [0.0], True), episode([-1.0] * 100, False)], 100)
    assert found is not None
    assert (found.reached, found.reached_steps, found.failed) == (1, (81, 81), 0)


@pytest.mark.parametrize("task_name", ["reacher", "hopper", "inverted-double-pendulum"])
def test_the_terms_of_a_real_reward_add_up_to_the_return(task_name):
    pytest.importorskip("mujoco")
    task = load_task(task_name)
    with Simulator(task) as simulator:
        for t in simulator.play(RandomActor(task, 0), [1, 2]):
            assert len(t.terms) >= 2
            assert sum(value for _, value in t.terms) == pytest.approx(t.episode_return, rel=1e-6)


def test_rewards_without_terms_have_none():
    task = load_task("pendulum")
    with Simulator(task) as simulator:
        assert simulator.play(RandomActor(task, 0), [1])[0].terms == ()


class Fickle(gym.Env):
    """An environment whose `info` is not to be relied on."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        info = {"reward_a": 1.0 if self.steps < 3 else None, "reward_b": 2, "reward_c": "no number"}
        return np.zeros(1, np.float32), 3.0, self.steps == 4, False, info


def test_terms_that_stop_being_numbers_are_left_out_of_the_sum():
    gym.register("Fickle-v0", entry_point=Fickle)
    try:
        task = load_task("Fickle-v0")
        with Simulator(task) as simulator:
            assert dict(simulator.play(RandomActor(task, 0), [1])[0].terms) == {"a": 2.0, "b": 8.0}
    finally:
        gym.registry.pop("Fickle-v0")
