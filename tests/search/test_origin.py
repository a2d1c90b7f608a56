"""The origin of scores: runs record their templates, and a replay must fit its task and kind of policy."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, Written, attempts_of

import policygen
from policygen.errors import UsageError
from policygen.extensions.compare.contenders import read_scores
from policygen.extensions.plots.groups import grouped, read_member
from policygen.files import find_resource
from policygen.runs.logbook import Logbook
from policygen.search.resume import resume

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"iterations": 1, "episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def edit(name: str, sentence: str) -> None:
    """Write a local template: the shipped one with one more sentence."""
    shipped = find_resource("templates", name, ".j2")
    own = Path("templates") / f"{name}.j2"
    own.parent.mkdir(exist_ok=True)
    own.write_text(shipped.read_text() + sentence)


def written(seed: int, iterations: int = 1) -> Path:
    """Return the folder of a run whose provider reads prompts."""
    replies = Written([ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE])
    return policygen.run("frozenlake", seed=seed, llm=replies, **{**QUICK, "iterations": iterations}).folder


def labels(*folders: Path) -> list[str]:
    return [group.label for group in grouped([read_member(folder) for folder in folders])]


def test_a_run_records_the_texts_of_its_templates_and_what_they_include() -> None:
    folder = policygen.run("frozenlake", **QUICK).folder
    (version,) = Logbook(folder).templates()
    assert {"system", "improve_table", "repair", "_language_table", "_best"} <= version.texts.keys()
    assert "_language_linear" not in version.texts
    assert version.since == 1
    shipped = find_resource("templates", "system", ".j2")
    assert version.texts["system"] == shipped.read_text()


def test_runs_with_an_edited_template_are_not_averaged_with_those_before() -> None:
    first = written(1)
    edit("_best", "Be bold.")
    second, third = written(2), written(3)
    one, two = labels(first, second, third)
    digests = [Logbook(folder).templates()[0].digest for folder in (first, second)]
    assert one.endswith(f"templates {digests[0]}")
    assert two.endswith(f"templates {digests[1]}")
    assert len(labels(second, third)) == 1


def test_a_run_from_before_templates_were_recorded_stands_alone() -> None:
    old, new = written(1), written(2)
    (old / "templates.json").unlink()
    assert labels(old, new)[0].endswith("templates not recorded")


def broken_off(folder: Path) -> None:
    """Make the folder that of a run killed after its first attempt."""
    for name in ("summary.json", "best.json", "episodes.npz", "learning_curve.csv"):
        (folder / name).unlink(missing_ok=True)
    for name, lines in (("attempts.jsonl", 2), ("transcript.jsonl", 1)):
        kept = (folder / name).read_text().split("\n")[:lines]
        (folder / name).write_text("".join(line + "\n" for line in kept))


def test_a_run_resumed_with_an_edited_template_says_so_and_is_marked_as_mixed() -> None:
    pure, folder = written(1, iterations=3), written(2, iterations=3)
    broken_off(folder)
    edit("system", "Be bold.")
    begun = resume(folder, Written([ALWAYS_RIGHT, BEST_LAKE]))
    with pytest.warns(UserWarning, match=r"^from attempt 2 on.* \(system; digest \w{8} before, \w{8} now\)"):
        list(begun.attempts())
    begun.finish()
    before, after = Logbook(folder).templates()
    assert (before.since, after.since) == (1, 2)
    assert before.digest != after.digest
    assert before == Logbook(pure).templates()[0]
    one, two = labels(pure, folder)
    assert two.endswith(f"templates {before.digest} from attempt 1, {after.digest} from attempt 2")
    assert one.endswith(f"templates {before.digest}")


def test_templates_make_no_difference_to_a_run_that_reads_no_prompts() -> None:
    settings = {**QUICK, "iterations": 2}
    before, folder = (policygen.run("frozenlake", seed=seed, **settings).folder for seed in (1, 2))
    broken_off(folder)
    edit("system", "Be bold.")
    begun = resume(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        list(begun.attempts())
    begun.finish()
    after = policygen.run("frozenlake", seed=3, **settings).folder
    assert labels(before, folder, after) == ["builtin (no language model), table policy"]
    field = read_scores([str(before), str(folder), str(after)])
    assert field.contenders == ["builtin (no language model)"]


def test_a_template_edited_while_a_run_works_is_noticed() -> None:
    class Editor(Written):
        def complete(self, prompt, max_output_tokens):  # type: ignore[no-untyped-def]
            if len(self.prompts) == 1:
                edit("improve_table", "Be bold.")
            return super().complete(prompt, max_output_tokens)

    provider = Editor([ALWAYS_DOWN, ALWAYS_RIGHT, ALWAYS_DOWN])
    with pytest.warns(UserWarning, match="not averaged with other"):
        folder = policygen.run("frozenlake", llm=provider, **{**QUICK, "iterations": 3}).folder
    assert len(Logbook(folder).templates()) == 2
    assert provider.prompts[2].messages[-1].content.rstrip().endswith("Be bold.")


def test_a_run_resumed_as_it_was_says_nothing() -> None:
    folder = written(1, iterations=2)
    broken_off(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        list(resume(folder, Written([ALWAYS_RIGHT])).attempts())
    assert len(Logbook(folder).templates()) == 1


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


def test_a_replay_is_never_the_score_of_another_template() -> None:
    first = recorded()
    shipped = find_resource("templates", "improve_table", ".j2")
    Path("templates").mkdir()
    shutil.copy(shipped, "templates/mine.j2")
    again = policygen.run("frozenlake", llm=f"replay:{first}", template="mine", out="again", **QUICK).folder
    assert attempts_of(again)[1]["score"]["mean"] == attempts_of(first)[1]["score"]["mean"]
    (label,) = labels(again)
    assert label == f"replay of {first.name}, table policy"
    plain = policygen.run("frozenlake", llm=f"replay:{first}", seed=5, out="again", **QUICK).folder
    assert len(labels(again, plain)) == 1  # the same replies, whatever the template
    assert len(labels(first, again)) == 2


def test_a_transcript_alone_can_still_be_replayed() -> None:
    first = recorded()
    alone = Path("alone")
    alone.mkdir()
    shutil.copy(first / "transcript.jsonl", alone)
    assert policygen.run("frozenlake", llm=f"replay:{alone}", **QUICK).policy is not None
