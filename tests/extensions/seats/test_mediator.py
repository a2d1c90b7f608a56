"""Mediation: the questions for plans, the plans read from answers, the mediators, and the costs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import ChatServer
from support import Line

from policygen.cli.seats import ROOMS
from policygen.extensions.seats.mediate import (
    MEDIATOR_TASK,
    MEDIATORS,
    mediate,
    open_mediation,
    read_plan,
)
from policygen.extensions.seats.session import UnreadableAnswer
from policygen.extensions.worlds.robot import ROOM_NAMES, MediatorInputs, RoomReport
from policygen.policies.policy import Policy
from policygen.runs.config import effective_config
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")
Found = dict[str, Any]
Asked = tuple[Path, Found, ChatServer]


def mediation(
    llm: str, names: Sequence[str] = ("always",), out: str = "out", episodes: int = 3, **options: Any
) -> Found:
    config = effective_config(load_task(MEDIATOR_TASK), MEDIATOR_TASK, options={"llm": llm, **options})
    with closing(open_mediation(config, Path(out), concurrency=1)) as session:
        return mediate(session, ["SimpleDoorKey"], names, episodes=episodes, train=200)


def read(text: str, known: str) -> str:
    """The plan in an answer, as text, with what is seen and, after a plus sign, in hand; colours tell the room."""
    seen, _, carried = known.partition("+")
    report = RoomReport(tuple(filter(None, seen.split(", "))), carried)
    room = "ColoredDoorKey" if any(" " in name for name in report.seen) else "KeyInBox"
    return ", ".join(map(str, read_plan(text, report, room)))


PLAIN, COLOURS = "key, box, door", "blue key, red key, red door+grey key"


@pytest.mark.parametrize(
    ("text", "known", "plan"),
    [
        ("Plan: explore", "", "explore"),
        ("The key first.\n\n**Plan:** go to key, pick up key, explore", PLAIN, "go to key, pick up key, explore"),
        ("plan: explore\nNo: rather\nPlan: Go to the box; open the box.", PLAIN, "go to box, open box"),
        ("Plan:\n1. go to key\n2. pick up the key\n\nThat is all.", PLAIN, "go to key, pick up key"),
        ("Plan: {go to door, toggle door}", PLAIN, "go to door, open door"),
        ("`go to key` and then `pick key up`", PLAIN, "go to key, pick up key"),
        ("Plan: walk to the red key -> take it: red key", COLOURS, "go to red key, pick up red key"),
        (
            "Plan: go to the red key -> grab red key -> unlock the red door",
            COLOURS,
            "go to red key, pick up red key, open red door",
        ),
        ("Plan: drop grey key, go to blue key", COLOURS, "drop, go to blue key"),
        ("Plan: go to red key", PLAIN, "go to key"),  # colours are not told where they make no difference
        ("Plan: explore, go to key, pick up key", "box", "explore, go to key, pick up key"),
        (
            "Plan: go to box; open it: box; pick up the key",
            "box",
            "go to box, open box, explore, go to key, pick up key",
        ),
        (
            "Plan: pick up the red key, explore; open the red door",
            "grey key",
            "explore, go to red key, pick up red key, explore, go to red door, open red door",
        ),
        # What is in hand is not fetched.
        ("Plan: pick up key, explore, go to door, open door", "door+key", "explore, go to door, open door"),
    ],
)
def test_a_plan_is_read_in_the_forms_that_models_write(text: str, known: str, plan: str) -> None:
    assert read(text, known) == plan


@pytest.mark.parametrize(
    ("text", "known", "problem"),
    [
        ("Plan:", PLAIN, "no option to carry out"),
        ("I would look around.", PLAIN, "`I would look around` is no option; options are explore, go to THING"),
        ("Plan: pick up key", "+key", "its plan has no option to carry out; key is in hand already"),
        ("Plan: go to key", COLOURS, "does not say which: blue key or red key"),
        ("Plan: explore, open box", COLOURS, "`open box` names nothing in this room; it has key and door"),
        ("Plan: open it", PLAIN, "`open it` names no key, box or door"),
        ("Plan: " + "explore, " * 13, PLAIN, "it has 13 options; the maximum is 12"),
    ],
)
def test_what_is_no_plan_is_said(text: str, known: str, problem: str) -> None:
    with pytest.raises(UnreadableAnswer, match=re.escape(problem)):
        read(text, known)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Three episodes in which a model always explores, one answer is repaired, and one is no plan even then."""
    folder = tmp_path_factory.mktemp("on call") / "out"
    with ChatServer(["Hm.", "Plan: explore", "Hm.", "Hm?", *["Plan: explore"] * 20]) as server:
        options = {"base_url": server.openai_url}
        found = mediation("compatible:m", ("always", "hard-coded"), str(folder), **options)
    return folder, found, server


def test_equal_reports_are_one_question_for_all_mediators(asked: Asked) -> None:
    folder, found, server = asked
    reports = [one.body["messages"][1]["content"] for one in server.chats if len(one.body["messages"]) == 2]
    assert len(reports) == len(set(reports)) == found["asked"]
    assert reports[0] == "Seen so far: nothing but walls and floor.\nIn hand: nothing.\n\nWhat is the plan?\n"
    assert sum(sum(row["questions"]) for row in found["rows"]) > 10 * found["asked"]
    assert (found["repairs"], found["fallbacks"], found["fallback_uses"] >= 1) == (2, 1, True)
    assert "`Hm` is no option; options are explore" in server.chats[1].body["messages"][3]["content"]
    saved = json.loads((folder / "mediate.json").read_text())
    assert (saved["asked"], saved["finished"]) == (found["asked"], True)


def test_a_mediator_whose_episodes_a_budget_cut_short_is_left_out() -> None:
    with ChatServer(["Plan: explore"] * 9) as server:
        options = {"base_url": server.openai_url, "episodes": 8, "max_calls": 1}
        found = mediation("compatible:m", **options)
        assert (found["requests"], found["stopped"], found["rows"]) == (1, "all 1 calls (--max-calls) are used", [])


def test_mediators_ask_when_their_names_say() -> None:
    rng = np.random.default_rng(0)
    going, over = MediatorInputs(1, 0, 3), MediatorInputs(0, 1, 3)
    asks = {name: [mediator(inputs, rng) for inputs in (going, over)] for name, mediator in MEDIATORS.items()}
    del asks["random"]
    assert asks == {"always": [True, True], "never": [False, False], "hard-coded": [False, True]}
    tosses = [MEDIATORS["random"](going, rng) for _ in range(200)]
    assert 70 < sum(tosses) < 130
    assert MEDIATORS["random"](over, rng)


def test_a_mediator_is_learned_and_the_page_has_a_row_for_each(line: Line) -> None:
    names = [word for name in ("always", "hard-coded", "learned") for word in ("--mediator", name)]
    assert ROOMS == ROOM_NAMES
    options = ("--train", 200, "--episodes", 30, "-o", "on_call.md", "--out", "here")
    said = line("mediate", "SimpleDoorKey", "--llm", "planner", *names, *options)
    assert said.code == 0, said.err
    assert "plans by: planner, which is not a language model" in said.out
    found = json.loads(Path("here/mediate.json").read_text())
    assert found["llm_calls"] == 0
    always, hard_coded, learned = found["rows"]
    assert learned["table"] == Policy.load(Path("here/SimpleDoorKey.json")).to_text(whole=True)
    assert sum(learned["opened"]) == sum(always["opened"]) == 30 > sum(hard_coded["opened"])
    assert 30 < sum(hard_coded["questions"]) < sum(learned["questions"]) < sum(always["questions"]) / 5
    text = Path("on_call.md").read_text()
    assert text.count("\n| SimpleDoorKey | ") == 3
    assert "Plans come from `planner`, a rule-based planner, not a language model;" in " ".join(text.split())
