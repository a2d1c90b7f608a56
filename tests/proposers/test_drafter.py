"""Task files that a model writes: accepted, repaired, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from support import Line, Written, lines_of

from policygen.proposers.drafter import Draft, described_by, read_draft
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog
from policygen.tasks.load import task_from_file, task_from_gym
from policygen.tasks.task import Task
from policygen.tasks.taskfile import draft_of
from policygen.tasks.warmup import WarmUp

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

GOOD = """The names stand in the docstring.
```toml
about = "A rod on a motor."
hints = ["Swing first."]
[[observations]]
name = "cos"
about = "of the angle"
[[observations]]
name = "sin"
[[observations]]
name = "rate"
unit = "rad/s"
low = -8.0
high = 8.0
[[actions]]
name = "torque"
unit = "N m"
```
"""


@pytest.fixture
def pendulum() -> Task:
    return task_from_gym("Pendulum-v1")


def described(provider: Written, task: Task, **limits: int) -> Draft:
    return described_by(provider, task, RequestLog(Ledger(RunConfig(task="Pendulum-v1", **limits))))


def test_a_reply_names_the_quantities_and_the_file_loads_to_the_same_task(pendulum: Task, tmp_path: Path) -> None:
    draft = described(Written([GOOD]), pendulum)
    assert draft.problems == ()
    assert draft.task.observation_names == ("cos", "sin", "rate")
    assert (draft.task.observations[2].unit, draft.task.actuators[0].name) == ("rad/s", "torque")
    assert (draft.task.about, draft.task.hints) == ("A rod on a motor.", ("Swing first.",))
    assert draft.task.grid is not None
    assert draft.task.grid.names == ("cos", "sin", "rate")
    path = tmp_path / "mine.toml"
    path.write_text(draft_of(draft.task))
    assert task_from_file(path) == draft.task


def test_the_request_has_the_documentation_and_a_repair_every_problem(pendulum: Task) -> None:
    provider = Written([GOOD.replace("low = -8.0", "low = -0.01").replace('"sin"', '"cos"'), GOOD])
    draft = described(provider, pendulum)
    assert draft.task.observation_names == ("cos", "sin", "rate")
    first, second = provider.prompts
    assert "> The inverted pendulum swingup problem" in first.messages[-1].content
    assert "3 `[[observations]]` and 1 `[[actions]]`" in first.messages[-1].content
    request = second.messages[-1].content
    assert "the name `cos` stands 2 times" in request
    assert "rate is said to go from -0.01 to 8.0" in request
    assert "corrected description as TOML" in request
    assert "policy" not in request


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('[[observations]]\nname = "sin"\n', "", "`observations` has 2 entries; write 3"),
        ('"torque"', '"if"', "`if` is not a name"),
        ("hints", "tips", "unknown key `tips`"),
        ('"A rod on a motor."', "A rod", "this is not valid TOML"),
        ('name = "rate"', 'name = "rate"\nset_point = true', "rate is said to be a set-point; it changes within"),
        ('name = "torque"', 'name = "torque"\nlabels = ["a"]', "torque has 1 labels; it has 0 choices"),
        ('about = "A rod on a motor."\n', 'gym_id = "os:system"\nabout = "x"\n', "unknown key `gym_id`"),
    ],
)
def test_what_does_not_fit_the_environment_is_a_problem(pendulum: Task, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    warm = WarmUp(np.array([[1.0, 0.0, 0.1], [0.9, 0.1, 0.2], [0.8, 0.2, 0.3]]), np.array([0, 0, 1]))
    found, problems = read_draft(GOOD.replace(old, new), pendulum, warm)
    assert found is None
    assert any(problem in str(one) for one in problems), problems


@pytest.mark.parametrize(
    ("limits", "replies", "problem"),
    [({}, 3, "write TOML inside one fenced block"), ({"max_calls": 1}, 1, "all 1 calls (--max-calls) are used")],
)
def test_without_a_usable_reply_the_task_is_unchanged(
    pendulum: Task, limits: dict[str, int], replies: int, problem: str
) -> None:
    draft = described(Written(["no", "no", "no"]), pendulum, **limits)
    assert draft.task == pendulum
    assert len(draft.replies) == replies
    assert problem in str(draft.problems[-1])


def test_a_file_to_edit_has_what_was_seen_and_commented_examples(line: Line) -> None:
    assert line("new", "Pendulum-v1", "--kwarg", "g=9.81", "-o", "mine.toml").code == 0
    text = Path("mine.toml").read_text()
    for part in ("# obs0: ", ", sd 0.", "# [[requirements]]", "# step_seconds", "# [perturb]"):
        assert part in text
    assert "Name each of `observations` below" in text
    assert line("new", "Pendulum-v1", "-o", "named.toml").code == 0
    assert 'name = "angular_velocity"' in Path("named.toml").read_text()
    refused = line("new", "Pendulum-v1", "-o", "other.toml", "--llm", "builtin")
    assert "is no language model" in refused.err


def test_new_keeps_what_a_model_was_asked_and_replied(line: Line) -> None:
    with ChatServer(["no", GOOD]) as server:
        asking = ("new", "Pendulum-v1", "-o", "a.toml", "--llm", "compatible:m", "--base-url", server.openai_url)
        said = line(*asking, "--max-calls", 2)
    assert said.code == 0, said.err
    assert 'name = "torque"' in Path("a.toml").read_text()
    replies = [one["reply"]["text"] for one in lines_of(Path("a.transcript.jsonl")) if one.get("reply")]
    assert replies == ["no", GOOD.strip()]
    with ChatServer(["no", GOOD]) as server:
        said = line(*asking[:3], "b.toml", *asking[4:-1], server.openai_url, "--max-calls", 1)
    assert "all 1 calls (--max-calls) are used" in said.err
    assert len(server.chats) == 1
    assert Path("b.toml").exists()
