"""`load_task` finds a task by name, file or id, or says what would have been one."""

from __future__ import annotations

import pytest

from policygen.errors import TaskError
from policygen.tasks.load import load_task


def test_a_shipped_task_is_found_by_name_with_suffix_and_by_path(tmp_path, monkeypatch):
    task = load_task("cartpole")
    assert load_task("cartpole.toml") == task
    (tmp_path / "copy.toml").write_text('name = "copy"\ngym_id = "CartPole-v1"\n')
    assert load_task(str(tmp_path / "copy.toml")).name == "copy"
    monkeypatch.chdir(tmp_path)
    assert load_task("cartpole") == task
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "cartpole.toml").write_text('name = "mine"\ngym_id = "CartPole-v1"\n')
    assert load_task("cartpole").name == "mine"  # the working directory comes first


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cartpol", "there is no task `cartpol`; did you mean cartpole"),
        ("nowhere/x.toml", "there is no task file nowhere/x.toml"),
        ("CartPoll-v1", "Gymnasium cannot make CartPoll-v1"),
        ("phys2d/CartPole-v1", "needs a package that is not installed; install the package that this error names"),
        ("", "there is no task ``"),
    ],
)
def test_a_task_that_is_not_there_is_answered_with_what_to_do(name, sentence):
    with pytest.raises(TaskError, match=sentence):
        load_task(name)
