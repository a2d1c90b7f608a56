"""The library in a few calls, as the README shows them."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ALWAYS_LEFT, FALLING, LEANING, MALFORMED_LAKE, Written, environment, transcript_of

import policygen
from policygen.errors import PolicyError, PolicygenError, UsageError
from policygen.llm.messages import Prompt, Reply

pytestmark = pytest.mark.usefixtures("workplace")


def test_a_run_needs_no_key_and_returns_what_it_found() -> None:
    seen: list[int] = []
    result = policygen.run("cartpole", iterations=2, final_episodes=5, on_attempt=lambda a: seen.append(a.number))
    assert seen == [0, 1, 2] == [attempt.number for attempt in result.attempts]
    assert isinstance(result.policy, policygen.TablePolicy)
    assert result.final is not None
    assert result.final.episodes == 5
    assert result.folder.parent == Path("results")
    again = policygen.Policy.load(result.folder / "best.json")
    observations = np.zeros((7, 4))
    assert np.array_equal(again.act(observations), result.policy.act(observations))
    assert again.act(observations[0]) == again.act(observations)[0]


def test_what_is_printed_fits_a_screen() -> None:
    result = policygen.run("cartpole", iterations=1, final_episodes=5)
    printed = str(result)
    assert len(printed.splitlines()) <= 32
    assert max(map(len, printed.splitlines())) <= 160
    assert f"final score: {result.final}" in printed
    assert printed.splitlines()[0] == "cartpole (CartPole-v1), table policy, proposals from builtin"
    assert result.policy is not None
    assert result.policy.to_text().splitlines()[0] in printed
    assert repr(result.policy).startswith("<TablePolicy for cartpole, ")
    assert repr(result.final) == f"Score({result.final})"
    assert all(len(repr(value)) < 200 for value in (result, result.policy, result.final))


def test_a_provider_of_ones_own_is_used_and_named() -> None:
    provider = Written([ALWAYS_LEFT, LEANING])
    result = policygen.run("cartpole", llm=provider, iterations=2, final_episodes=5, out="mine")
    assert len(provider.prompts) == 2
    assert result.summary.llm == "written:by-hand"
    assert result.folder.parent == Path("mine")


class Talker(Written):
    """Answers with plain strings, as a first provider of one's own does."""

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        return super().complete(prompt, max_output_tokens).text  # type: ignore[return-value]


def test_a_provider_of_ones_own_may_answer_with_strings() -> None:
    result = policygen.run("cartpole", llm=Talker([LEANING]), iterations=1, final_episodes=5)
    assert result.policy is not None


def test_a_provider_that_raises_loses_nothing_and_is_one_sentence() -> None:
    with pytest.raises(PolicygenError, match=r"^written:by-hand failed with IndexError: list index out of range$"):
        policygen.run("cartpole", llm=Written([LEANING]), iterations=2, episodes=5)
    (folder,) = Path("results").iterdir()
    assert [line["attempt"] for line in transcript_of(folder)] == [1, 2]
    assert transcript_of(folder)[1]["error"].startswith("written:by-hand failed")


def test_an_object_that_is_no_provider_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"^llm=object\(...\) has no spec and no model and no is_language_model"):
        policygen.run("cartpole", llm=object())  # type: ignore[arg-type]


def test_pictures_take_strings_where_they_take_paths() -> None:
    result = policygen.run("cartpole", iterations=1, episodes=5, final_episodes=5)
    assert policygen.plot_runs([str(result.folder)], "curve.png").is_file()
    assert result.policy is not None
    assert policygen.plot_policy(result.policy, "policy.png").is_file()


def test_a_task_may_be_a_value_a_name_a_file_or_an_id(tmp_path: Path) -> None:
    shipped = Path(policygen.__file__).parents[1] / "envs" / "frozenlake.toml"
    local = tmp_path / "pond.toml"
    local.write_text(shipped.read_text().replace('name = "frozenlake"', 'name = "pond"'))
    names = [
        policygen.run(task, iterations=1, final_episodes=2).summary.task
        for task in (policygen.load_task("frozenlake"), "frozenlake", str(local), "CliffWalking-v1")
    ]
    assert names[:3] == ["frozenlake", "frozenlake", "pond"]
    assert names[3].lower().startswith("cliffwalking")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"iterations": 0}, "iterations"),
        ({"iteration": 3}, "there is no setting `iteration`; did you mean `iterations`?"),
        ({"policy": "tree"}, "policy"),
        ({"max_usd": -1}, "max_usd"),
        ({"price_in": 1.0}, "give both prices"),
        ({"llm": "opanai:x"}, "did you mean openai:MODEL"),
        ({"llm": "openai:x"}, "OPENAI_API_KEY"),
    ],
)
def test_wrong_settings_are_one_sentence_and_leave_no_folder(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as failure:
        policygen.run("frozenlake", **settings)
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not Path("results").exists()


def test_text_is_read_into_a_policy_or_into_all_its_problems() -> None:
    policy = policygen.parse(FALLING, "cartpole")
    assert policygen.parse(policy.to_text(), "cartpole") == policy
    assert policygen.parse("left = angle\nright = spin", "cartpole").kind == "linear"
    with pytest.raises(PolicyError) as failure:
        policygen.parse(MALFORMED_LAKE, "frozenlake")
    assert len(str(failure.value).splitlines()) >= 2


def test_a_policy_is_scored_on_fresh_episodes_or_exactly() -> None:
    score = policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=4)
    assert score.episodes == 30
    assert score.ci95 is not None
    assert score.ci95[0] < score.mean < score.ci95[1]
    assert score == policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=4)
    assert score.seeds != policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=5).seeds
    exact = policygen.score(policygen.parse("| row | column | action |\n| * | * | down |", "frozenlake"))
    assert exact.exact


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"episodes": 1}, "a score needs at least 2 episodes to say how sure it is, not 1"),
        ({"episodes": 0}, "at least 2 episodes .* not 0"),
        ({"seed": -1}, "a seed is 0 or more, not -1"),
    ],
)
def test_a_score_that_could_not_say_how_sure_it_is_is_refused(numbers: dict[str, int], sentence: str) -> None:
    with pytest.raises(policygen.PolicygenError, match=sentence):
        policygen.score(policygen.parse(LEANING, "cartpole"), **numbers)


def test_every_error_is_a_policygen_error() -> None:
    with pytest.raises(policygen.PolicygenError):
        policygen.run("no-such-task")
    assert policygen.PolicygenError is PolicygenError


def test_no_module_hides_a_public_name() -> None:
    for module in pkgutil.walk_packages(policygen.__path__, "policygen."):
        if module.name != "policygen.__main__":
            importlib.import_module(module.name)
    for name in policygen.__all__:
        value = getattr(policygen, name)
        assert callable(value), name
        assert name in dir(policygen)


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'evalute'; public are Attempt, "):
        _ = policygen.evalute  # type: ignore[attr-defined]


def test_importing_the_library_is_cheap() -> None:
    code = "import sys, policygen; print(sorted({'numpy', 'gymnasium', 'openai', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"
