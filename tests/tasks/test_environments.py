"""Environments that cannot be made are answered with a sentence."""

from __future__ import annotations

import sys

import pytest

from policygen.errors import TaskError
from policygen.tasks.load import load_task


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)  # importing it fails, as where it is not installed
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(TaskError, match=r"LunarLander-v3 needs a package .*pip install \"policygen\[box2d\]\""):
        load_task("LunarLander-v3")
