"""The benchmark of speed, without a word about how fast this machine is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import speed
from speed_parts import measure, sides
from speed_parts.measure import Missing, Promise, Sample, alternating, measured
from speed_parts.promises import PROMISES

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.tasks.load import load_task


def of(amounts: list[tuple[float, float]]) -> Callable[[], AbstractContextManager[Sample]]:
    """Sides whose amounts are these."""

    @contextmanager
    def prepared() -> Iterator[Sample]:
        yield partial(next, itertools.cycle(amounts))

    return prepared


@contextmanager
def lacking() -> Iterator[Sample]:
    raise Missing("there is no compiler")
    yield


AMOUNTS = [(1.0, 4.0), (2.0, 4.0), (1.0, 3.0)]
KEPT = Promise("kept", "another", 2.5, of(AMOUNTS), faster=True)
BROKEN = Promise("broken", "another", 0.25, of(AMOUNTS))
ABSENT = Promise("absent", "a compiler", 1.0, lacking)


def test_a_result_is_the_median_of_ratios_in_turn_and_says_whether_the_promise_is_kept() -> None:
    faster = measured(Promise("x", "y", 2.5, of(AMOUNTS), faster=True, repeats=3), quick=False)
    assert (faster.ours, faster.theirs, faster.ratio, faster.low, faster.high) == (1.0, 4.0, 3.0, 2.0, 4.0)
    assert faster.kept
    share = measured(Promise("x", "y", 0.3, of(AMOUNTS), repeats=6), quick=True)
    assert share.ratio == pytest.approx(1 / 3)
    assert not share.kept
    assert measured(Promise("x", "y", 0.34, of(AMOUNTS), repeats=3), quick=False).kept


def test_both_sides_are_called_in_turn_as_often_as_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()
    monkeypatch.setattr(measure, "_seconds", lambda function, calls, clock: [function() for _ in range(calls)] and 0.02)
    sample = alternating(lambda: called.append("ours"), lambda: called.append("theirs"), factor=3.0)
    called.clear()
    assert sample() == (0.02, pytest.approx(0.06))
    assert called == ["ours"] * 2 + ["theirs"] * 2


def test_both_forms_print_and_judge_one_table_and_a_full_run_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "PROMISES", (KEPT, BROKEN, ABSENT))
    for form in (["--quick"], []):
        assert speed.main([*form, "--out", str(tmp_path)]) == 1
        printed = capsys.readouterr()
        table = [line for line in printed.out.splitlines() if line.startswith("|")]
        assert [line.count("|") for line in table] == [9] * 5
        assert "| at least 2.5 times faster | yes |" in table[2]
        assert table[3].endswith("| at most 0.25 | **no** |")
        assert "not measured: there is no compiler" in table[4]
        assert printed.err == f"missed: {table[3]}\n"
        assert (tmp_path / "speed.md").exists() == (not form)
    assert "\n".join(table) in (tmp_path / "speed.md").read_text()
    monkeypatch.setattr(speed, "PROMISES", (ABSENT,))
    assert speed.main(["--quick"]) == 0


SMALL = ("hand_written", "exported_python", "numpy_by_hand", "exported_c")


@pytest.mark.parametrize(
    "promise", [promise for promise in PROMISES if getattr(promise.sides, "func", promise.sides).__name__ in SMALL]
)
def test_both_sides_of_a_promise_decide_alike(promise: Promise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_seconds", lambda function, calls, clock: 0.05)
    try:
        with promise.sides() as sample:
            ours, theirs = sample()
    except Missing as why:
        pytest.skip(str(why))
    assert ours > 0.0
    assert theirs > 0.0


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        returns = [t.episode_return for t in simulator.play(policy, seeds)]
    assert sides.plain_loop(task, policy.act_one, seeds) == returns
