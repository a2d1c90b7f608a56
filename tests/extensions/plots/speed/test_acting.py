"""The compiled kernels that lookups are compared with."""

from __future__ import annotations

import numpy as np
import pytest

from policygen.extensions.plots.speed import acting
from policygen.extensions.plots.speed.rows import Row


def test_compiled_kernels_look_up_what_the_policy_does() -> None:
    pytest.importorskip("numba")
    policy = acting.cartpole_table()
    rows = acting._observations(2_000)
    rows[:3] = np.array([np.nan, np.inf, -np.inf], np.float32)[:, None]
    for compiled_in in (True, False):
        assert np.array_equal(acting._fused_kernel(policy, compiled_in=compiled_in)(rows), policy.act(rows))


def test_rows_and_columns_are_named_for_what_was_timed() -> None:
    rows = [row for row in acting.lookup(1, True) if isinstance(row, Row)]
    assert [row.name for row in rows if row.against.startswith("np.digitize")] == ["act, 100,000 rows"]
    assert [row.name for row in rows if row.against.startswith("a dictionary")] == ["act, 100,000 rows"]
