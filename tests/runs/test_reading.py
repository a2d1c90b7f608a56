"""Policies from a run folder, a saved file or a text, and the messages about unreadable ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import LEANING, NO_POLICY, Written

import policygen
from policygen.errors import PolicyError, UsageError
from policygen.runs.reading import best_policy, read_policy

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"iterations": 1, "episodes": 4, "final_episodes": 4, "warmup_episodes": 4, "repairs": 0}


def test_a_policy_is_the_same_from_its_run_its_file_and_its_text() -> None:
    result = policygen.run("cartpole", llm=Written([LEANING]), **QUICK)
    Path("policy.txt").write_text(result.policy.to_text())
    read = [
        read_policy(result.folder),
        read_policy(result.folder / "best.json"),
        read_policy(Path("policy.txt"), "cartpole"),
    ]
    assert [policy.to_text() for policy in read] == [result.policy.to_text()] * 3


def test_a_folder_without_a_policy_is_one_sentence() -> None:
    folder = policygen.run("frozenlake", llm=Written([NO_POLICY]), **QUICK).folder
    for path in (folder, Path("results")):
        with pytest.raises(PolicyError, match=r"^[^\n]* has no best.json: it is not a run folder, or [^\n]*$"):
            best_policy(path)


def test_a_text_needs_its_task_and_all_its_problems_are_said() -> None:
    path = Path("policy.txt")
    path.write_text("| row | column | action |\n| 9 | * | down |\n| * | * | north |\n")
    with pytest.raises(UsageError, match=r"policy.txt does not say which task it is for; add --task TASK"):
        read_policy(path)
    with pytest.raises(PolicyError) as failure:
        read_policy(path, "frozenlake")
    assert [line.split(":")[0].strip() for line in str(failure.value).splitlines()[1:]] == ["line 2", "line 3"]
    with pytest.raises(PolicyError, match="there is no such file or folder"):
        read_policy(Path("nowhere"))
