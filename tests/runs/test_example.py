"""A policy of another task as a worked example: its text in prompts, its sources, and its copy in the run."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Scripted
from searched import searched
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, Line, Written, sentences, the_run

import policygen
from policygen.errors import LogbookError, PolicygenError
from policygen.policies.policy import Policy
from policygen.prompts.render import render_prompt
from policygen.runs.config import effective_config
from policygen.runs.example import ExampleScore, example_from_record, example_of
from policygen.runs.reading import read_example
from policygen.search.preview import preview
from policygen.search.resume import load_run, resume
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")

LAW = "let lean = angle + 0.25*spin\nleft = -lean\nright = lean"
TITLE = "## A worked example"
SMALL: dict[str, Any] = {"iterations": 1, "episodes": 4, "warmup_episodes": 4, "final_episodes": 2}


def saved(text: str = LAW, task: str = "cartpole", path: str = "law.json") -> Path:
    policygen.parse(text, task).save(path)
    return Path(path)


def request(name: str, **options: Any) -> str:
    """Return the request of the first prompt of a task."""
    return preview(name, None, (), options).prompt.messages[-1].content


def section(text: str) -> str:
    """Return the example in a prompt, up to the next heading."""
    assert text.count(TITLE) == 1
    return text.split(TITLE)[1].split("\n## ")[0]


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "kind"), [("frozenlake", "table"), ("pendulum", "linear")])
def test_the_prompt_has_the_policy_and_the_meaning_of_what_it_reads_and_of_nothing_else(task: str, kind: str) -> None:
    shown = section(request(task, policy=kind, example=str(saved())))
    cartpole = policygen.load_task("cartpole")
    assert f"```\n{policygen.parse(LAW, cartpole).to_text()}\n```" in shown
    assert "for another task, cartpole (CartPole-v1). A pole is hinged on a cart" in shown
    meaning = {o.name: f"- {o.name} [{o.unit}]: {o.about}" for o in cartpole.observations}
    assert meaning["angle"] in shown
    assert meaning["spin"] in shown
    assert "- position" not in shown
    assert "- velocity" not in shown
    assert "- action (push the cart): left, right" in shown
    assert "Take over the idea, not the numbers" in shown
    assert "scores" not in shown  # a saved policy does not say what it scored


def with_features(*features: tuple[str, str]) -> Task:
    return dataclasses.replace(policygen.load_task("cartpole"), features=features)


def test_a_feature_of_its_task_is_explained_by_its_formula_and_by_what_that_reads() -> None:
    task = with_features(("reach", "position + velocity"), ("double", "2*reach"), ("other", "spin^2"))
    example = example_of(policygen.parse("left = 0\nright = double", task))
    assert [(q.name, q.formula) for q in example.quantities] == [
        ("position", ""),
        ("velocity", ""),
        ("reach", "position + velocity"),
        ("double", "2*reach"),
    ]


def test_a_table_brings_its_bins_along_even_those_of_its_task() -> None:
    policy = policygen.parse(BEST_LAKE, "frozenlake")
    assert "bins" not in policy.to_text()
    example = example_of(policy)
    assert example.lines[:2] == ("bins row: 0.5, 1.5, 2.5", "bins column: 0.5, 1.5, 2.5")
    shown = section(request("cartpole", policy="linear", example=str(saved(BEST_LAKE, "frozenlake"))))
    assert "\n".join(example.lines) in shown
    assert "k edges make k + 1 bins" in shown
    again = policygen.parse("\n".join(example.lines), "frozenlake")
    assert again.act([[state] for state in range(16)]).tolist() == policy.act([[s] for s in range(16)]).tolist()


def test_a_long_description_is_shortened() -> None:
    task = dataclasses.replace(policygen.load_task("cartpole"), about="word " * 400 + "\n\nA second paragraph.")
    about = example_of(policygen.parse(LAW, task)).about
    assert 500 < len(about) <= 600
    assert about.endswith("word ...")


@pytest.mark.parametrize(
    ("worth", "said"),
    [
        (ExampleScore(0.7402, None, 0, True, True), "On that task it scores 0.7402 (exact); 475 counts as solved."),
        (
            ExampleScore(480.25, (470.5, 490), 100, False, True),
            "480.2 [470.5, 490] over 100 episodes that its search never saw",
        ),
        (
            ExampleScore(480, (470.5, 490), 20, False, False),
            "480 [470.5, 490] over 20 episodes, those it was chosen by",
        ),
    ],
)
def test_a_score_says_what_it_rests_on(worth: ExampleScore, said: str) -> None:
    context, config = searched("frozenlake", "table", iterations=1)
    shown = dataclasses.replace(context, example=example_of(policygen.parse(LAW, "cartpole"), worth))
    assert said in section(render_prompt(shown, config).messages[-1].content)


def test_a_policy_of_the_same_task_is_not_said_to_be_of_another() -> None:
    shown = section(request("cartpole", example=str(saved())))
    assert "for this same task, cartpole" in shown
    assert "another" not in shown


# --- the budget ------------------------------------------------------------------------------------------------------


def test_an_example_is_shortened_and_then_left_out_where_tokens_are_few() -> None:
    context, config = searched("cartpole", "table", iterations=4)
    rows = "\n".join(f"| {r} | {c} | {'left' if (r + c) % 2 else 'right'} |" for r in range(8) for c in range(9))
    cells = "bins angle: -3,-2,-1,0,1,2,3\nbins spin: -4,-3,-2,-1,1,2,3,4\n| angle | spin | action |\n|---|---|---|\n"
    policy = policygen.parse(cells + rows, "cartpole")
    assert isinstance(policy, policygen.TablePolicy)
    assert len(policy.rules) > 30
    with_one = dataclasses.replace(context, example=example_of(policy))

    def rendered(tokens: int) -> str:
        prompt = render_prompt(with_one, config.model_copy(update={"prompt_tokens": tokens}))
        assert prompt.estimated_tokens <= tokens
        return prompt.messages[-1].content

    full = render_prompt(with_one, config.model_copy(update={"prompt_tokens": 100_000})).estimated_tokens
    whole = section(rendered(full))
    shorter = section(rendered(round(0.75 * full)))
    assert len(shorter) < len(whole)
    assert "bins angle: -3, -2, -1, 0, 1, 2, 3" in shorter  # rows go, what explains them stays
    assert "more rows are not shown.)" in shorter
    tokens = round(0.75 * full)
    while TITLE in (smallest := rendered(tokens)):
        tokens -= 200
    assert "## Best policy so far" in smallest
    assert "## Your turn" in smallest


def test_equations_are_shown_whole_or_not_at_all() -> None:
    context, config = searched("frozenlake", "table", iterations=4)
    with_one = dataclasses.replace(context, example=example_of(policygen.parse(LAW, "cartpole")))
    shown = 0
    for tokens in range(2_600, 1_000, -200):
        try:
            prompt = render_prompt(with_one, config.model_copy(update={"prompt_tokens": tokens}))
        except PolicygenError:
            break
        text = prompt.messages[-1].content
        if TITLE in text:
            shown += 1
            assert policygen.parse(LAW, "cartpole").to_text() in section(text)
    assert shown
    assert TITLE not in text


# --- where it comes from ---------------------------------------------------------------------------------------------


def test_latest_is_the_newest_run_and_the_new_run_remembers_which_that_was() -> None:
    older = policygen.run("frozenlake", seed=1, **SMALL).folder
    newest = policygen.run("cartpole", seed=2, **SMALL).folder
    os.utime(older / "config.toml", (1, 1))
    run = policygen.run("pendulum", policy="linear", example="latest", **SMALL).folder
    loaded = load_run(run)
    assert loaded.config.example == str(newest)
    assert loaded.search.example == read_example(newest)
    assert "cartpole" in request("frozenlake", example=str(newest))


def test_an_example_is_given_as_an_option(line: Line) -> None:
    path = saved()
    done = line("run", "frozenlake", "--iterations", 1, "--set", "final_episodes=2", "--example", path)
    assert done.code == 0, done.err
    assert "  example: equations for cartpole; builtin ignores it\n" in done.out
    record = json.loads((the_run(Path("results")) / "example.json").read_text())
    assert (record["task"], record["gym_id"], record["kind"]) == ("cartpole", "CartPole-v1", "linear")
    assert record["lines"] == Policy.load(path).to_text().splitlines()


def test_builtin_ignores_it() -> None:
    without = policygen.run("cartpole", **SMALL)
    with_one = policygen.run("cartpole", **SMALL, example=saved())
    assert with_one.policy == without.policy


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nope", "there is no example to show: cannot read nope: No such file or directory"),
        ("folder", "there is no example to show: folder has no best.json"),
        ("torn.json", "there is no example to show: torn.json is not a saved policy (it is not JSON)"),
        ("other.json", "there is no example to show: other.json: not a saved policy of format"),
        ("latest", "there is no run in results/ yet"),
    ],
)
def test_an_example_that_cannot_be_read_is_one_sentence_before_anything_is_played(
    given: str, said: str, line: Line
) -> None:
    Path("folder").mkdir()
    Path("torn.json").write_text("{ torn")
    Path("other.json").write_text("{}")
    for command in ("run", "prompt"):
        done = line(command, "cartpole", "--example", given)
        assert done.code in (1, 2)
        assert done.out == ""
        (sentence,) = sentences(done.err)
        assert sentence.startswith(f"Error: {said}")
    assert not Path("results").exists()


# --- frozen ----------------------------------------------------------------------------------------------------------


def requests_of(server: ChatServer) -> list[str]:
    return [chat.body["messages"][-1]["content"] for chat in server.chats]


def interrupted(server: ChatServer) -> tuple[Path, Path]:
    """Return the source of an example, and a run that shows it and ended after its first attempt."""
    source = policygen.run("cartpole", **{**SMALL, "final_episodes": 3}, out="source").folder
    with pytest.raises(PolicygenError):
        policygen.run("frozenlake", llm="compatible:m", base_url=server.openai_url, iterations=2, example=source)
    return source, the_run(Path("results"))


def test_a_resumed_run_shows_the_same_example_although_its_source_changed_and_names_the_file_if_it_is_damaged() -> None:
    with ChatServer([ALWAYS_RIGHT, Scripted(status=401), ALWAYS_DOWN]) as server:
        source, folder = interrupted(server)
        saved("left = 1\nright = 2", path=str(source / "best.json"))
        path = folder / "example.json"
        whole = path.read_text()
        record = json.loads(whole)
        path.unlink()
        with pytest.raises(LogbookError, match=r"example\.json is missing"):
            resume(folder)
        for damage in ("{ torn", "[]", "{}", {**record, "rows": 99}, {**record, "lines": [[3]]}):
            path.write_text(damage if isinstance(damage, str) else json.dumps(damage))
            with pytest.raises(LogbookError, match=r"^[^\n]*example\.json is damaged[^\n]*$"):
                resume(folder)
        path.write_text(whole)
        begun = resume(folder)
        assert len(list(begun.attempts())) == 1
        sent = requests_of(server)
    first, _, resumed = sent
    assert section(first) == section(resumed)
    assert "over 3 episodes that its search never saw" in section(first)
    assert resumed == sent[1]  # the request that failed is asked again in the same words


def test_an_example_reads_back_as_it_was_written() -> None:
    for text, task in ((LAW, "cartpole"), (BEST_LAKE, "frozenlake"), ("torque = -rate", "pendulum")):
        for worth in (None, ExampleScore(1.5, (1, 2), 10, False, True), ExampleScore(0.5, None, 0, True, True)):
            example = example_of(policygen.parse(text, task), worth)
            assert example_from_record(json.loads(json.dumps(dataclasses.asdict(example)))) == example


def test_another_example_can_be_tried_on_a_run_or_none() -> None:
    folder = policygen.run("frozenlake", llm=Written([ALWAYS_DOWN]), iterations=1, example=saved()).folder
    Path("law.json").unlink()
    assert "let lean" in section(request(str(folder)))
    other = saved("left = 0\nright = position", path="other.json")
    assert "right = position" in section(request(str(folder), example=str(other)))
    assert TITLE not in preview(str(folder), None, ("example=",), {}).prompt.messages[-1].content


# --- ablation, curves ------------------------------------------------------------------------------------------------


def test_where_knowledge_is_withheld_only_an_example_the_user_names_is_shown() -> None:
    task = dataclasses.replace(policygen.load_task("cartpole"), run=(("example", "law.json"),))
    assert effective_config(task, "cartpole").example == "law.json"
    assert effective_config(task, "cartpole", options={"example": "mine.json"}).example == "mine.json"
    for told in ({"options": {"ablate": "knowledge"}}, {"assignments": ["ablate=knowledge"]}):
        assert effective_config(task, "cartpole", **told).example is None  # type: ignore[arg-type]
    named = effective_config(task, "cartpole", options={"ablate": "knowledge", "example": "law.json"})
    assert named.example == "law.json"
    assert effective_config(task, "cartpole", base=named).example == "law.json"
    shown = request("frozenlake", ablate="knowledge", example=str(saved()))
    assert "angle" in section(shown)
    assert "ice" not in shown.replace(section(shown), "")
