"""A run records its templates, a replay must fit it, prompts can be seen before, and `--start` gives a first policy."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer
from support import ALWAYS_DOWN, BEST_LAKE, LEANING, Line, Written, attempts_of, fenced, the_run, transcript_of

import policygen
from policygen.errors import PolicyError, UsageError
from policygen.extensions.plots.groups import grouped, read_member
from policygen.files import find_resource
from policygen.policies.parse import parse
from policygen.runs.logbook import Logbook
from policygen.search.resume import preview
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"iterations": 1, "episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def labels(*folders: Path) -> list[str]:
    return [name for _, name in grouped([read_member(folder) for folder in folders])]


def test_runs_with_an_edited_template_are_not_averaged_with_those_before() -> None:
    def written(seed: int) -> Path:
        return policygen.run("frozenlake", seed=seed, llm=Written([ALWAYS_DOWN]), **QUICK).folder

    first = written(1)
    Path("templates").mkdir()
    Path("templates/_best.j2").write_text(find_resource("templates", "_best", ".j2").read_text() + "Be bold.")
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


def test_a_transcript_alone_can_still_be_replayed() -> None:
    first = recorded()
    alone = Path("alone")
    alone.mkdir()
    shutil.copy(first / "transcript.jsonl", alone)
    assert policygen.run("frozenlake", llm=f"replay:{alone}", **QUICK).policy is not None


# --- previews of prompts ----------------------------------------------------------------------------------------------


def test_a_preview_is_the_prompt_that_a_run_sends() -> None:
    provider = Written([LEANING, LEANING])
    twice = {**QUICK, "iterations": 2}
    policygen.run("cartpole", llm=provider, out="whole", **twice)
    shown, _ = preview("cartpole", None, (), twice)
    assert shown.messages == provider.prompts[0].messages
    folder = policygen.run("cartpole", llm=Written([LEANING]), **QUICK).folder
    shown, _ = preview(str(folder), None, (), {"iterations": 2})
    assert shown.messages == provider.prompts[1].messages


# --- runs that begin with a given policy (`--start`) -----------------------------------------------------------------


HASTY = "# by hand\nright = 1*angle\nleft = 0\n"
STEADY = fenced("right = 10*angle + 3*spin + 0.5*velocity + 0.3*position", "left = 0")
SHORT = ("--policy", "equations", "--episodes", 5, "--set", "final_episodes=10", "--jobs", 1)


@pytest.fixture
def hasty(workplace: Path) -> Path:
    path = workplace / "hasty.txt"
    path.write_text(HASTY)
    return path


@pytest.mark.usefixtures("hasty")
def test_attempt_1_is_the_given_policy_and_the_model_sees_it_as_the_best(line: Line) -> None:
    with ChatServer([STEADY]) as server:
        model = ("--llm", "compatible:m", "--base-url", server.openai_url)
        done = line("run", "cartpole", *SHORT, "--start", "hasty.txt", "--iterations", 2, *model)
    assert done.code == 0, done.err
    assert "proposals from the policy given with --start, then compatible:m" in done.out
    folder = the_run(Path("results"))
    _, first, second = Logbook(folder).attempts()
    assert "# by hand" in first.policy.to_text()
    assert (first.requests.model, first.requests.calls) == ("start", 0)
    assert second.accepted
    (asked,) = transcript_of(folder)  # one request, for the second attempt
    assert asked["attempt"] == 2
    assert "right = 1*angle" in asked["messages"][-1]["content"]


def test_builtin_goes_on_from_it(line: Line, hasty: Path) -> None:
    hasty.write_text("left = 0\nright = 1*angle + 0.1*spin + 0.01*position + 0.01*velocity\n")
    assert line("run", "cartpole", *SHORT, "--start", hasty, "--iterations", 6, "--set", "stop_at=501").code == 0
    _, _, *others = Logbook(the_run(Path("results"))).attempts()
    texts = {attempt.policy.to_text() for attempt in others if attempt.policy is not None}
    assert len(texts) == len(others)
    assert all("*angle" in text and "*spin" in text and "n_" not in text for text in texts)


def test_a_start_may_be_a_run_a_saved_policy_or_a_policy_object(line: Line, workplace: Path, hasty: Path) -> None:
    assert line("run", "cartpole", *SHORT, "--start", hasty, "--iterations", 1, "--out", "first").code == 0
    first = the_run(workplace / "first")
    for source in (first, first / "best.json"):
        done = line("run", "cartpole", *SHORT, "--start", source, "--iterations", 1, "--out", f"from-{source.name}")
        assert done.code == 0, done.err
        again = the_run(workplace / f"from-{source.name}")
        assert Logbook(again).attempts()[1].policy == Logbook(first).attempts()[1].policy
    own = parse(HASTY, load_task("cartpole"), "linear").policy
    found = policygen.run("cartpole", start=own, policy="linear", iterations=1, episodes=5, final_episodes=5, jobs=1)
    assert found.policy == own
    with pytest.raises(PolicyError, match="the text cannot be read as a policy of this run"):
        policygen.run("cartpole", start="nonsense", iterations=1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--start", "nowhere.txt"), "cannot read `nowhere.txt`: there is no such file or folder"),
        (("--start", "bad.txt"), "line 2: unknown name `lean`"),
        (
            ("--start", "hasty.txt", "--policy", "table"),
            "the text cannot be read as a policy of this run (--policy table)",
        ),
        (("--start", "bytes.txt"), "bytes.txt is not a UTF-8 text file"),
    ],
)
def test_a_start_that_cannot_be_read_is_refused_before_anything_is_played(
    line: Line, hasty: Path, more: tuple[str, ...], said: str
) -> None:
    hasty.with_name("bad.txt").write_text("left = 0\nright = lean\n")
    hasty.with_name("bytes.txt").write_bytes(b"\xff\xfe\x00")
    refused = line("run", "cartpole", *SHORT, *more)
    assert refused.code != 0
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert not Path("results").exists()


@pytest.mark.usefixtures("hasty")
def test_the_command_on_the_page_begins_with_it_too(line: Line) -> None:
    from policygen.extensions.page.render import command_of

    varied = ("--perturb", "action_delay=0..2", "--perturb", "sensor_noise=0.05")
    assert line("run", "cartpole", *SHORT, "--start", "hasty.txt", "--iterations", 1, *varied).code == 0
    logbook = Logbook(the_run(Path("results")))
    command = command_of(logbook.config(), logbook.task())
    _, *words = shlex.split(command)
    assert line(*words, "--iterations", 1, "--set", "final_episodes=10", "--out", "again").code == 0
    again = Logbook(the_run(Path("again")))
    assert again.attempts()[1].policy == logbook.attempts()[1].policy
    assert "# by hand" in str(again.config().start)
    assert again.task().perturb == logbook.task().perturb != ()


def test_a_replay_with_another_template_scores_the_same_and_is_averaged_with_no_other() -> None:
    first = recorded()
    shipped = find_resource("templates", "improve", ".j2")
    Path("templates").mkdir()
    shutil.copy(shipped, "templates/mine.j2")
    again = policygen.run("frozenlake", llm=f"replay:{first}", template="mine", out="again", **QUICK).folder
    assert attempts_of(again)[1]["score"]["mean"] == attempts_of(first)[1]["score"]["mean"]
    assert len(labels(first, again)) == 2
