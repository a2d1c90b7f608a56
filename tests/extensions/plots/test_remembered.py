"""Traces of what a policy remembers, beside its portrait."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import Line

from policygen.extensions.plots.played import MOST_STEPS, played, traces
from policygen.extensions.plots.portraits import policy_figure
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task

CLOCKED = "let phase = mod(prev(phase) + 0.5, 6)\ntorque = sin(phase) - sin - 0.1*prev(torque)"
COUNTING = "let turn = mod(prev(turn, -1) + 1, 4)\nbins turn: 0.5, 1.5\n| turn | action |\n| 0 | down |\n| * | right |"


def policy_of(text: str, task: str) -> Policy:
    policy = parse(text, load_task(task)).policy
    assert policy is not None
    return policy


def test_traces_are_what_the_episode_left() -> None:
    policy = policy_of(CLOCKED, "pendulum")
    found = traces(policy, played(policy)[0][0])
    assert set(found) == {"phase", "torque"}
    assert np.isnan(found["phase"][0])
    assert found["phase"][1:4].tolist() == [0.5, 1.0, 1.5]
    assert len(found["torque"]) == 200


@pytest.mark.parametrize(("text", "task", "names"), [(CLOCKED, "pendulum", 2), (COUNTING, "frozenlake", 1)])
def test_a_picture_has_a_trace_of_each_remembered_quantity_beside_it(text: str, task: str, names: int) -> None:
    policy = policy_of(text, task)
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    beside = [axes for axes in figure.axes if axes.lines and axes.get_position().x0 > 0.5]
    labels = [axes.get_ylabel().split(" ")[0] for axes in beside if axes.get_ylabel()]
    assert labels == list(policy.remembers)
    assert len(labels) == names
    left = min(axes.get_window_extent().x0 for axes in beside)
    others = [axes.get_window_extent().x1 for axes in figure.axes if axes not in beside]
    assert max(others) < left


def test_a_long_episode_is_cut_and_says_so() -> None:
    policy = policy_of(CLOCKED, "pendulum")
    figure = policy_figure(replace(policy, task=replace(policy.task, max_steps=MOST_STEPS + 50)))
    assert any("the first 300 of 350" in axes.get_xlabel() for axes in figure.axes)


def test_what_cannot_be_played_has_a_sentence_in_its_place() -> None:
    policy = policy_of(CLOCKED, "pendulum")
    figure = policy_figure(replace(policy, task=replace(policy.task, gym_id="Nowhere-v0")))
    assert any("no traces of memory" in text.get_text() for text in figure.texts)


def test_a_policy_without_memory_has_the_picture_it_had() -> None:
    figure = policy_figure(policy_of("torque = -sin", "pendulum"))
    assert len(figure.axes) == 1


def test_show_says_what_a_picture_lacks_where_nobody_vouched_for_the_task(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swings.py").write_text("from gymnasium.envs.classic_control import PendulumEnv as Swing\n")
    monkeypatch.syspath_prepend(tmp_path)
    policy = policy_of(CLOCKED, "pendulum")
    replace(policy, task=replace(policy.task, gym_id="swings:Swing", kwargs=())).save(tmp_path / "p.json")
    shown = line("show", tmp_path / "p.json", "-o", tmp_path / "p.svg")
    assert shown.code == 0
    assert shown.err.startswith(
        "Warning: the picture lacks the usual sizes of the terms, the traces of memory: the saved task names the module"
    )
    assert "add --trust" in shown.err
    trusted = line("show", tmp_path / "p.json", "-o", tmp_path / "q.svg", "--trust")
    assert (trusted.code, trusted.err) == (0, "")
    assert "no traces of memory" in (tmp_path / "p.svg").read_text()
    assert "no traces of memory" not in (tmp_path / "q.svg").read_text()
    monkeypatch.delitem(sys.modules, "swings")
