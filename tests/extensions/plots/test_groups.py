"""Which runs are averaged with which, what their group is called, and how the average comes about."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import FAILED, LAKE, a_run, ended

from policygen.extensions.plots.groups import Group, Member, each_once, grouped, read_member, repeated_runs
from policygen.extensions.plots.statistics import average
from policygen.runs.steering import Steering


def groups_of(*folders: Path) -> tuple[Group[Member], ...]:
    return grouped([read_member(folder) for folder in folders])


def labels(*folders: Path) -> list[str]:
    return [group.label for group in groups_of(*folders)]


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path: Path) -> None:
    folders = [ended(tmp_path, [0.1], seed=i) for i in range(3)]
    (group,) = groups_of(*folders)
    assert (group.task, group.policy) == ("frozenlake", "table")
    assert group.label == "builtin (no language model), table policy"
    assert [run.folder for run in group.averaged] == folders


def test_budgets_and_processes_keep_no_runs_apart(tmp_path: Path) -> None:
    assert len(groups_of(ended(tmp_path, [0.1], jobs=1), ended(tmp_path, [0.3], seed=1, max_calls=7))) == 1


def test_an_unfinished_run_belongs_to_its_group_and_is_not_averaged(tmp_path: Path) -> None:
    done, begun = ended(tmp_path, [0.4]), a_run(tmp_path, [0.1], seed=1)
    (group,) = groups_of(begun, done)
    assert [run.folder for run in group.averaged] == [done]
    assert [run.folder for run in group.unfinished] == [begun]
    assert group.final_score is not None
    assert group.final_score.mean == 0.4


def test_a_run_without_a_policy_has_no_final_score_and_is_counted(tmp_path: Path) -> None:
    (group,) = groups_of(*[ended(tmp_path, scores, seed=i) for i, scores in enumerate(([0.2], [0.4], [FAILED]))])
    assert group.final_score is not None
    assert group.final_score.mean == pytest.approx(0.3)
    assert group.without_policy == 1
    (none,) = groups_of(ended(tmp_path, [FAILED]))
    assert none.final_score is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ablate": "knowledge"}, "table policy, ablate knowledge"),
        ({"refine": "coordinate:300"}, "table policy, refine coordinate:300"),
        ({"template": "mine", "example": "old/run"}, "table policy, template mine, example old/run"),
        ({"policy": "linear", "normalise": True}, "linear policy, normalise"),
    ],
)
def test_settings_that_change_a_score_are_said_and_keep_runs_apart(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    plain, special = labels(ended(tmp_path, [0.1]), ended(tmp_path, [0.1], **settings))
    assert plain == "builtin (no language model), table policy"
    assert special == f"builtin (no language model), {words}"
    assert labels(ended(tmp_path, [0.1], **settings)) == [special]


def test_other_settings_are_said_only_where_they_differ(tmp_path: Path) -> None:
    few, more = (ended(tmp_path, [0.1], iterations=n) for n in (3, 9))
    assert labels(few) == ["builtin (no language model), table policy"]
    assert [label.rpartition(", ")[2] for label in labels(few, more)] == ["iterations 3", "iterations 9"]
    elsewhere = ended(tmp_path, [0.1], iterations=9, task=replace(LAKE, name="pond"))
    assert labels(few, elsewhere) == ["builtin (no language model), table policy"] * 2


def test_a_task_that_changed_under_its_name_is_another_group(tmp_path: Path) -> None:
    folders = [ended(tmp_path, [0.1], seed=i, task=replace(LAKE, max_steps=n)) for i, n in enumerate((100, 50, 100))]
    first, second = groups_of(*folders)
    assert len(first.averaged) == 2
    assert first.task == second.task
    assert first.label != second.label
    assert all(group.settings[0].startswith("task ") for group in (first, second))
    assert labels(folders[0], folders[2]) == ["builtin (no language model), table policy"]


def test_a_replay_is_a_group_of_its_own_and_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spellings = ("runs/x", tmp_path / "runs" / "x")
    same = [ended(tmp_path, [0.1], seed=i, llm=f"replay:{path}") for i, path in enumerate(spellings)]
    (group,) = groups_of(*same)
    assert group.proposals == "replay of x"
    other = ended(tmp_path, [0.1], llm="replay:elsewhere/x")
    first, second = groups_of(*same, other)
    assert first.label != second.label
    assert second.label.startswith("replay of x, table policy, proposals ")


def test_a_folder_in_other_words_counts_once(tmp_path: Path) -> None:
    run = ended(tmp_path, [0.1])
    again = run.parent / "." / ".." / run.parent.name / run.name
    assert [path.resolve() for path in each_once([run, again])] == [run.resolve()]


def test_runs_that_repeat_settings_and_seed_are_found(tmp_path: Path) -> None:
    first, again, other = ended(tmp_path, [0.1]), ended(tmp_path, [0.1], jobs=1), ended(tmp_path, [0.1], seed=1)
    assert repeated_runs([first, again, other, first]) == [again]


# --- the average -----------------------------------------------------------------------------------------------------


def arrays(*rows: Sequence[float]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [np.array(row, float) for row in rows]


def test_the_band_is_that_of_all_resamples() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    band = average(arrays(*[[0]] * 5), arrays(*[[value] for value in values]))
    # A quarter of five runs is 1.25 of them: none of the outermost, three quarters of their neighbours.
    weights = [0, 0.3, 0.4, 0.3, 0]
    assert band.centre == pytest.approx([0.3 * 1 + 0.4 * 2 + 0.3 * 3])
    resamples = [np.dot(sorted(drawn), weights) for drawn in itertools.product(values, repeat=5)]
    low, high = np.percentile(resamples, [2.5, 97.5])
    assert 0 < low < 2 < high < 10
    assert band.low[0] == pytest.approx(low, abs=0.3)
    assert band.high[0] == pytest.approx(high, abs=0.7)


def test_of_three_runs_all_count_and_of_four_the_middle_ones() -> None:
    assert average(arrays(*[[0]] * 3), arrays([0], [4], [100])).centre == pytest.approx([104 / 3])
    assert average(arrays(*[[0]] * 4), arrays([0], [4], [8], [100])).centre == pytest.approx([6])


def test_the_average_takes_every_step_of_every_run() -> None:
    band = average(arrays([0, 10, 30], [5, 20]), arrays([0, 1, 2], [4, 6]))
    assert band.x.tolist() == [0, 5, 10, 20, 30]
    # The second run keeps its last level after its end, and its first one before its start.
    assert band.centre.tolist() == [2, 2, 2.5, 3.5, 4]
    assert band.low.tolist() == [0, 0, 1, 1, 2]
    assert band.high.tolist() == [4, 4, 4, 6, 6]


def test_of_several_levels_at_one_place_the_last_counts() -> None:
    assert average(arrays([0, 0, 0]), arrays([1, 2, 3])).centre.tolist() == [3]


def test_the_average_begins_where_every_run_has_a_level() -> None:
    band = average(arrays([0, 1, 2], [0, 1, 2]), arrays([np.nan, 1, 1], [np.nan, np.nan, 3]))
    assert band.x.tolist() == [2]
    assert band.centre.tolist() == [2]


def test_runs_that_agree_have_a_band_without_width() -> None:
    band = average(arrays(*[[0, 1]] * 4), arrays(*[[1, 2]] * 4))
    assert band.low.tolist() == band.centre.tolist() == band.high.tolist() == [1, 2]


def test_the_same_runs_have_the_same_band() -> None:
    rows = np.random.default_rng(0).random((6, 3))
    xs, levels = arrays(*[[0, 1, 2]] * 6), arrays(*rows)
    assert average(xs, levels).low.tolist() == average(xs, levels).low.tolist()


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    xs = np.arange(5_000.0)
    band = average([xs, xs], [xs, xs])
    assert len(band.x) == 200
    assert (band.x[0], band.x[-1]) == (0, 4_999)
    assert (band.centre == band.x).all()


def test_a_run_that_a_user_steered_is_averaged_with_no_other(tmp_path: Path) -> None:
    steered, told_later, alone = (ended(tmp_path, [0.1], seed=i, llm="openai:m") for i in range(3))
    Steering(steered).say("Brake earlier.")
    Steering(told_later).say("Never told to any prompt.")
    assert len(groups_of(steered, told_later, alone)) == 1
    Steering(steered).for_prompt(1, answered=False)
    assert len(groups_of(steered, told_later, alone)) == 2
    assert any("comments " in label for label in labels(steered, alone))
