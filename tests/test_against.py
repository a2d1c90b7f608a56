"""Policies beside each other in `eval --against`, and the attempts of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support import Line, the_run

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.files import find_resource

STEADY = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n"
WORDS = ("eval", "steady.txt", "--against", "lean.txt", "--task")


@pytest.fixture(autouse=True)
def policies(workplace: Path) -> None:
    """Two policies for cartpole: one balances the pole, the other follows its lean."""
    (workplace / "steady.txt").write_text(STEADY)
    (workplace / "lean.txt").write_text("left = 0\nright = 10*angle\n")


def with_requirement(condition: str) -> str:
    """Write a task file for cartpole with a requirement `rail`; return its name."""
    rail = f'\n[[requirements]]\nname = "rail"\nalways = "{condition}"\n'
    Path("mine.toml").write_text(find_resource("envs", "cartpole", ".toml").read_text() + rail)
    return "mine.toml"


def test_eval_compares_with_other_policies_in_the_same_episodes(line: Line) -> None:
    words = (*WORDS, "cartpole", "--episodes", 20, "--against", "steady.txt")
    done = line(*words)
    assert done.code == 0, done.err
    first, same = (text for text in done.out.splitlines() if text.startswith("against "))
    assert first.startswith("against lean.txt (mean return ")
    assert " over 4 episodes): better by 46" in first
    assert " on 4 paired episodes, one-sided p < 0.0001" in first
    assert same == (
        "against steady.txt (mean return 500 [500, 500] over 20 episodes): no difference on 20 paired episodes"
    )
    record = json.loads(line(*words, "--json").out)
    assert [record[name] for name in ("task", "gym_id", "episodes", "exact")] == ["cartpole", "CartPole-v1", 20, False]
    own, lean = record["returns"], record["against"][0]
    mean = sum(a - b for a, b in zip(own[:4], lean["returns"], strict=True)) / 4
    assert (lean["verdict"], lean["gain"]) == ("better", pytest.approx(mean))
    assert lean["seeds"] == record["seeds"][:4]
    refused = line(*WORDS, "cartpole", "--against", "nowhere.txt")
    assert refused.code != 0
    assert "cannot read `nowhere.txt`" in refused.err


def test_a_violation_that_the_first_episodes_miss_decides_before_the_returns(line: Line) -> None:
    policy, seeds = policygen.parse(STEADY, "cartpole"), episode_seeds(0, "evaluation", 40)
    with Simulator(policy.task) as simulator:
        furthest = [float(np.abs(one.observations[:, 0]).max()) for one in simulator.play(policy, seeds)]
    limit = (max(furthest[:8]) + max(furthest)) / 2
    assert max(furthest[:8]) < limit < max(furthest)
    said = line(*WORDS, with_requirement(f"abs(position) < {limit}"), "--episodes", 40).out
    assert re.search(r"^against .*: worse: it violates `rail` in \d+ of 40 episodes, the other in \d+$", said, re.M)


def test_both_policies_are_scored_with_the_requirements(line: Line) -> None:
    said = line(*WORDS, with_requirement("abs(position) <= 0.01"), "--episodes", 12).out
    assert [text.split(": ")[0] for text in said.splitlines()[-2:]] == ["requirement rail", "lean.txt"]


def test_any_attempt_of_a_run_is_shown_scored_and_filmed(line: Line) -> None:
    few = ("--policy", "equations", "--iterations", 3, "--episodes", 5, "--set", "final_episodes=5", "--jobs", 1)
    assert line("run", "cartpole", *few, "--start", "lean.txt", "--set", "stop_at=501").code == 0
    folder = the_run(Path("results"))
    shown = [line("show", folder, "--attempt", number).out for number in (1, 2, 3)]
    assert len(set(shown)) == 3
    assert "right = 10*angle\n" in shown[0]
    scored = line("eval", folder, "--attempt", 1, "--episodes", 5)
    assert scored.out.startswith("cartpole: mean return 39.8 ")
    filmed = line("film", folder, "--attempt", 1, "--episodes", 1, "-o", "film.gif")
    assert filmed.code == 0, filmed.err
    assert re.search(r"return \d\d, \d\d steps", filmed.out)
    for words, said in (
        ((folder, "--attempt", 9), "has no attempt 9: its last one is 3"),
        ((folder / "best.json", "--attempt", 1), "--attempt 1 needs the folder of a run"),
    ):
        refused = line("eval", *words)
        assert refused.code != 0
        assert said in refused.err
