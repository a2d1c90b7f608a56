"""Requirements in task files: what they may say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from policygen.errors import TaskError
from policygen.tasks.load import task_from_file
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Requirement, Task
from policygen.tasks.taskfile import draft_of


def stated(folder: Path, lines: str, gym_id: str = "Pendulum-v1", more: str = "") -> Task:
    path = folder / "mine.toml"
    path.write_text(
        f'\nname = "mine"\nabout = "x"\ngym_id = "{gym_id}"\n{more}\n[[requirements]]\nname = "r"\n{lines}\n'
    )
    return task_from_file(path)


def test_all_keys_are_read_and_survive_saving(tmp_path: Path) -> None:
    timed = 'always = "abs(obs2) < 1"\nafter = "action changes"\nwithin = "0.4 s"\nhard = false\nallowed = 0.2'
    first, last = stated(tmp_path, timed), stated(tmp_path, 'finally = "obs0 > 0.9"')
    expected = Requirement("r", "abs(obs2) < 1", "", first.requirements[0].after, 8, False, 0.2)
    assert first.requirements == (expected,)
    assert str(expected) == "always abs(obs2) < 1, from 8 steps after action changes on"
    assert (str(last.requirements[0]), last.requirements[0].allowed) == ("finally obs0 > 0.9", 0.01)
    path = tmp_path / "draft.toml"
    for task in (first, last):
        assert task_from_record(task_to_record(task)).requirements == task.requirements
        path.write_text(draft_of(task))
        assert task_from_file(path) == task


@pytest.mark.parametrize(
    ("gym_id", "more", "steps"),
    [
        ("Pendulum-v1", "", 8),  # `dt`, 0.05 s
        ("CartPole-v1", "", 20),  # `tau`, 0.02 s
        ("Pendulum-v1", "step_seconds = 0.1", 4),
    ],
)
def test_seconds_become_steps(tmp_path: Path, gym_id: str, more: str, steps: int) -> None:
    (requirement,) = stated(tmp_path, 'always = "1 > 0"\nwithin = "400 ms"', gym_id, more).requirements
    assert requirement.within == steps


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('always = "speed < 1"', "requirement `r`: unknown name `speed`"),
        ('always = "obs0 < 1"\nfinally = "obs0 < 1"', "requirement `r` needs one condition: `always` or `finally`"),
        ("hard = true", "requirement `r` needs one condition"),
        ('finally = "obs0 < 1"\nwithin = "2 steps"', "requirement `r`: `after` and `within` are for `always`"),
        ('always = "1 > 0"\nwithin = "0.4 s"', "the length of a step is unknown; write `step_seconds"),
        ('always = "obs0 < 1"\nwithin = "soon"', "`within = 'soon'` is not a duration; write `20 steps` or `0.4 s`"),
        ('always = "obs0 < 1"\nafter = "speed changes"', "requirement `r`: "),
        ('always = "obs0 < 1"\nallowed = 2', "allowed"),
        ('always = "obs0 < 1"\n[[requirements]]\nname = "r"\nalways = "obs0 < 2"', "two requirements are called `r`"),
    ],
)
def test_mistakes_are_named_in_a_sentence(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(TaskError, match=r"^mine.toml: .*") as error:
        stated(tmp_path, lines, "MountainCar-v0")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
