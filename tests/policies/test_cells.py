from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ARM, PAIR

from policygen.policies.cells import action_text, bins_text, read_action, read_bins


@given(st.integers(1, 12).flatmap(lambda size: st.tuples(st.sets(st.integers(0, size - 1), min_size=1), st.just(size))))
def test_bins_read_back_as_they_are_written(case):
    bins, size = case
    assert read_bins(bins_text(sorted(bins), size), size) == tuple(sorted(bins))


@given(st.sampled_from([*ARM.actuators, *PAIR.actuators]), st.data())
def test_an_action_reads_back_as_it_is_written(actuator, data):
    if actuator.is_choice:
        value = data.draw(st.integers(0, len(actuator.labels) - 1).map(float))
    else:
        value = data.draw(st.floats(actuator.low, actuator.high))
    assert read_action(action_text(actuator, value), actuator) == value


@pytest.mark.parametrize("dash", ["-", "–", "—", "−", " to ", ".."])
def test_a_range_is_read_with_whatever_people_write_between_its_ends(dash):
    assert read_bins(f"1{dash}3", 6) == (1, 2, 3)
