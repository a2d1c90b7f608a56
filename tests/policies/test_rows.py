from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.policies.rows import compressed, dense_table


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
        lambda shape: st.tuples(
            st.just(tuple(shape)), st.lists(st.integers(0, 3), min_size=math.prod(shape), max_size=math.prod(shape))
        )
    )
)
@settings(max_examples=200, deadline=None)
def test_few_rows_say_the_same_as_the_dense_table(case):
    shape, actions = case
    dense = np.array(actions, float).reshape(-1, 1)
    rules = compressed(dense, shape)
    spread, covered = dense_table(rules, shape, 1)
    assert covered.all()
    assert np.array_equal(spread, dense)
    assert len(rules) <= dense.size
