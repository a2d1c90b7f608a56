"""Which runs are averaged with which, what their group is called, and how the average comes about."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn import FAILED, LAKE, a_run, ended
from support import Line

from policygen.extensions.plots.groups import grouped, read_member, unique_runs
from policygen.llm.messages import Exchange, Message, Prompt, Reply
from policygen.runs.logbook import Logbook
from policygen.runs.request_log import FILE


def groups_of(*folders: Path) -> dict[str, list[Path]]:
    """The runs of each group, by its name."""
    groups = grouped([read_member(folder) for folder in folders])
    return {name: [run.folder for run in runs] for (_, name), runs in groups.items()}


def labels(*folders: Path) -> list[str]:
    return [name for _, name in grouped([read_member(folder) for folder in folders])]


def test_runs_that_differ_in_seed_spending_and_processes_are_one_group(tmp_path: Path) -> None:
    folders = [ended(tmp_path, [0.1], seed=i, **more) for i, more in enumerate(({}, {"jobs": 2}, {"max_calls": 7}))]
    folders += [a_run(tmp_path, [0.1], seed=3), ended(tmp_path, [FAILED], seed=4)]
    assert groups_of(*folders) == {"builtin (no language model)": folders}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"template": "mine"}, "template=mine"),
        ({"policy": "linear", "refine": "cma:9", "shape": True}, "equations, refine=cma:9, shape"),
        ({"max_episodes": 400}, "max_episodes=400"),
    ],
)
def test_settings_that_change_a_score_are_said_where_they_differ_and_keep_runs_apart(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    assert labels(ended(tmp_path, [0.1]), ended(tmp_path, [0.1], **settings))[1] == words
    assert labels(ended(tmp_path, [0.1], **settings)) == ["builtin (no language model)"]
    elsewhere = ended(tmp_path, [0.1], task=replace(LAKE, name="pond"), **settings)
    assert labels(ended(tmp_path, [0.1]), elsewhere) == ["builtin (no language model)"] * 2


def test_a_task_that_changed_under_its_name_is_another_group(tmp_path: Path) -> None:
    folders = [ended(tmp_path, [0.1], seed=i, task=replace(LAKE, max_steps=n)) for i, n in enumerate((100, 50, 100))]
    groups = groups_of(*folders)
    assert list(groups.values()) == [folders[::2], folders[1:2]]
    assert re.fullmatch(r"builtin \(no language model\), version [0-9a-f]{6}", next(iter(groups)))
    assert labels(folders[0], folders[2]) == ["builtin (no language model)"]


def test_a_run_given_twice_is_taken_once(tmp_path: Path) -> None:
    run = ended(tmp_path, [0.1])
    same = run.parent / "." / ".." / run.parent.name / run.name
    assert [path.resolve() for path in unique_runs([run, same])] == [run.resolve()]


def test_a_run_that_a_user_commented_is_averaged_with_no_other(tmp_path: Path) -> None:
    commented, later, alone = (ended(tmp_path, [0.1], seed=i, llm="openai:m") for i in range(3))
    for folder in (commented, later):
        (folder / FILE).write_text("Brake earlier.")
    assert len(groups_of(commented, later, alone)) == 1
    prompt = Prompt((Message("user", "?"),), comments=("Brake earlier.",))
    Logbook(commented).transcript.record(Exchange(1, 0, prompt, Reply("x", "m"), 1))
    assert len(groups_of(commented, later, alone)) == 2


def test_a_start_and_perturbations_separate_groups_and_fragility_does_not(line: Line, workplace: Path) -> None:
    (workplace / "mine.txt").write_text("left = 0\nright = angle\n")
    few = ("--policy", "equations", "--iterations", 1, "--episodes", 2, "--set", "final_episodes=2", "--jobs", 1)
    for more in (
        ("--seed", 1),
        ("--seed", 2, "--set", "fragility=false"),
        ("--seed", 3, "--start", "mine.txt"),
        ("--seed", 4, "--perturb", "action_delay=0..2"),
    ):
        assert line("run", "cartpole", *few, *more).code == 0
    runs = sorted((workplace / "results").iterdir(), key=lambda folder: folder.name[-1])
    groups = groups_of(*runs)
    assert list(groups.values()) == [runs[:2], runs[2:3], runs[3:]]
    _, started, perturbed = groups
    assert started == "with a start"
    assert perturbed == "perturbed by action_delay=0..2"
    (workplace / "mine.txt").write_text("left = 0\nright = angle + spin\n")
    assert line("run", "cartpole", *few, "--seed", 5, "--start", "mine.txt").code == 0
    (other,) = {*(workplace / "results").iterdir()} - {*runs}
    two = groups_of(runs[2], other)
    assert len(two) == 2
    assert all(re.fullmatch(r"start [0-9a-f]{6}", name) for name in two)
