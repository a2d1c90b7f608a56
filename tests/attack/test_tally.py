"""The tally itself: a try that raises is counted as tried and not as held."""

from __future__ import annotations

import pytest
from attacks import Tally


def test_a_try_that_raises_did_not_hold() -> None:
    counted = Tally("counting")
    with counted.one():
        pass
    with pytest.raises(ValueError), counted.one():
        raise ValueError
    assert (counted.tried, counted.held) == (2, 1)
