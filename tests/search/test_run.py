"""A run records its templates, a replay must fit its task and kind of policy, and prompts can be seen before."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, BEST_LAKE, LEANING, Written, attempts_of

import policygen
from policygen.errors import UsageError
from policygen.extensions.plots.groups import grouped, read_member
from policygen.files import find_resource
from policygen.search.resume import preview

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"iterations": 1, "episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def edit(name: str, sentence: str) -> None:
    """Write a local template: the shipped one with one more sentence."""
    shipped = find_resource("templates", name, ".j2")
    own = Path("templates") / f"{name}.j2"
    own.parent.mkdir(exist_ok=True)
    own.write_text(shipped.read_text() + sentence)


def written(seed: int) -> Path:
    """Return the folder of a run whose provider reads prompts."""
    return policygen.run("frozenlake", seed=seed, llm=Written([ALWAYS_DOWN]), **QUICK).folder


def labels(*folders: Path) -> list[str]:
    return [name for _, name in grouped([read_member(folder) for folder in folders])]


def test_runs_with_an_edited_template_are_not_averaged_with_those_before() -> None:
    first = written(1)
    edit("_best", "Be bold.")
    second, third = written(2), written(3)
    one, two = labels(first, second, third)
    assert re.search(r"version \w{6}$", one)
    assert re.search(r"version \w{6}$", two)
    assert one != two
    assert len(labels(second, third)) == 1


# --- replays ---------------------------------------------------------------------------------------------------------


def recorded() -> Path:
    return policygen.run("frozenlake", llm=Written([ALWAYS_DOWN, BEST_LAKE]), **{**QUICK, "iterations": 2}).folder


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        ("cartpole", {}, "is a run of frozenlake (FrozenLake-v1); its replies cannot be replayed on cartpole"),
        ("frozenlake", {"policy": "linear"}, "holds replies of another kind; replay them with --policy table"),
    ],
)
def test_replies_to_another_task_or_kind_are_refused(task: str, settings: dict[str, str], said: str) -> None:
    folder = recorded()
    with pytest.raises(UsageError) as failure:
        policygen.run(task, llm=f"replay:{folder}", out="again", **QUICK, **settings)
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not Path("again").exists()


def test_a_replay_with_another_template_scores_the_same_and_is_averaged_with_no_other() -> None:
    first = recorded()
    shipped = find_resource("templates", "improve_table", ".j2")
    Path("templates").mkdir()
    shutil.copy(shipped, "templates/mine.j2")
    again = policygen.run("frozenlake", llm=f"replay:{first}", template="mine", out="again", **QUICK).folder
    assert attempts_of(again)[1]["score"]["mean"] == attempts_of(first)[1]["score"]["mean"]
    assert len(labels(first, again)) == 2


def test_a_transcript_alone_can_still_be_replayed() -> None:
    first = recorded()
    alone = Path("alone")
    alone.mkdir()
    shutil.copy(first / "transcript.jsonl", alone)
    assert policygen.run("frozenlake", llm=f"replay:{alone}", **QUICK).policy is not None


# --- previews of prompts ----------------------------------------------------------------------------------------------


def test_the_first_prompt_is_the_one_a_run_asks() -> None:
    provider = Written([LEANING])
    policygen.run("cartpole", llm=provider, **QUICK)
    shown, _ = preview("cartpole", None, (), QUICK)
    assert shown.messages == provider.prompts[0].messages


def test_the_next_prompt_of_a_run_is_the_one_it_asks() -> None:
    provider = Written([LEANING, LEANING])
    policygen.run("cartpole", llm=provider, out="whole", **{**QUICK, "iterations": 2})
    folder = policygen.run("cartpole", llm=Written([LEANING]), **QUICK).folder
    shown, _ = preview(str(folder), None, (), {"iterations": 2})
    assert shown.messages == provider.prompts[1].messages


def test_a_run_that_knew_names_is_not_shown_without_them() -> None:
    folder = policygen.run("frozenlake", **QUICK).folder
    with pytest.raises(UsageError, match="preview the task itself to see another --ablate"):
        preview(str(folder), None, (), {"ablate": "knowledge"})
