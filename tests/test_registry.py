"""Registries find extensions of the package and of others, and do without those that are missing or fail."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from policygen import registry
from policygen.errors import UsageError
from policygen.registry import Registry


def test_a_name_is_entered_once() -> None:
    numbers: Registry[int] = Registry("number")
    numbers.add("one", 1)
    numbers.add("one", 1)  # a module that is imported twice
    with pytest.raises(UsageError, match="there are two numbers called `one`; rename one of them"):
        numbers.add("one", 2)
    assert dict(numbers) == {"one": 1}


def test_a_missing_extension_is_no_fault_and_a_failing_one_of_another_package_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_loaded", False)
    numbers: Registry[int] = Registry("number")
    points = [EntryPoint("mine", "tests_mine", "policygen"), EntryPoint("good", "json:loads", "policygen")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setitem(sys.modules, "policygen.extensions", None)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"extension mine \(tests_mine\) is left out: No module named 'tests_mine'"):
        assert len(numbers) == 0
    assert "one" not in numbers  # loaded once: no second warning
