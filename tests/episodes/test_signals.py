from __future__ import annotations

import numpy as np
import pytest

from policygen.episodes.signals import first_anomaly, rhythms, usual_ranges

STEPS = np.arange(1000.0)


def wave(period: float, shift: float = 0.0) -> np.ndarray:
    return np.sin(2 * np.pi * (STEPS - shift) / period)


def test_a_rhythm_has_its_period():
    noise = np.random.default_rng(0).normal(size=1000)
    columns = {"lead": wave(64), "late": 0.2 * wave(64, 16) + 3, "other": wave(41), "noise": noise, "still": 0 * STEPS}
    columns |= {"drifting": wave(40) + 0.01 * STEPS, "foot": (STEPS % 55 < 8).astype(float), "short": wave(5)[:7]}
    found, reference = rhythms(columns, {})
    periods = {signal.name: signal.period for signal in found}
    expected = {"lead": 64, "late": 64, "other": 41, "noise": None, "still": None, "drifting": 40, "foot": 55}
    assert periods == pytest.approx(expected | {"short": None}, abs=1)
    assert periods[reference]
    assert found[1].high == pytest.approx(3.2, abs=0.01)
    assert rhythms({"x": wave(5)[:1]}, {})[1] == ""


def test_saturation_is_the_share_of_steps_at_a_limit():
    torque = np.clip(2 * wave(40), -1, 1)
    found, _ = rhythms({"torque": torque, "angle": torque}, {"torque": (-1.0, 1.0)})
    assert found[0].saturated == pytest.approx(2 / 3, abs=0.05)
    assert found[1].saturated is None


def test_the_first_anomaly_is_what_leaves_its_range_for_good_first():
    usual = {"lean": (-0.1, 0.1), "height": (1.0, 1.3)}
    lean, height = np.zeros(100), np.full(100, 1.2)
    lean[30:35] = 0.5  # comes back: not it
    lean[80:] = 0.5
    height[90:] = 0.8
    anomaly = first_anomaly({"lean": lean, "height": height}, usual)
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
