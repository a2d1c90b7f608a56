"""Agents beside policies: functions and models to compare with, and the attempts of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support import Line, the_run

import policygen
from policygen.episodes.players import Simulator
from policygen.episodes.score import episode_seeds
from policygen.files import find_resource

STEADY = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n"
OWN = """
def lean(observation):
    return int(observation[2] > 0)

class Model:
    def predict(self, observation, deterministic=True):
        return int(observation[2] + 0.3 * observation[3] > 0), None

def bad(observation):
    return "left"

number = 3
"""


@pytest.fixture
def steady(workplace: Path) -> Path:
    (workplace / "own_agents.py").write_text(OWN)
    path = workplace / "steady.txt"
    path.write_text(STEADY)
    return path


def test_eval_compares_with_other_agents_in_the_same_episodes(line: Line, steady: Path) -> None:
    words = ("eval", steady, "--task", "cartpole", "--episodes", 20)
    others = ("--against", "own_agents:lean", "--against", "own_agents:Model", "--against", steady.name)
    done = line(*words, *others)
    assert done.code == 0, done.err
    first, second, same = (text for text in done.out.splitlines() if text.startswith("against "))
    assert first.startswith("against own_agents:lean (")
    assert " over 4 episodes): better by 46" in first
    assert " on 4 paired episodes, p < 0.0001" in first
    assert second.startswith("against own_agents:Model (")
    assert same == ("against steady.txt (500 [500, 500] over 20 episodes): no difference on 20 paired episodes")
    record = json.loads(line(*words, *others, "--json").out)
    own, lean = record["returns"], record["against"][0]
    mean = sum(a - b for a, b in zip(own[:4], lean["returns"], strict=True)) / 4
    assert (lean["verdict"], lean["gain"]) == ("better", pytest.approx(mean))
    assert lean["seeds"] == record["seeds"][:4]


def test_a_violation_that_the_first_episodes_miss_decides_before_the_returns(line: Line, steady: Path) -> None:
    policy, seeds = policygen.parse(STEADY, "cartpole"), episode_seeds(0, "evaluation", 40)
    with Simulator(policy.task) as simulator:
        furthest = [float(np.abs(one.observations[:, 0]).max()) for one in simulator.play(policy, seeds)]
    limit = (max(furthest[:8]) + max(furthest)) / 2
    assert max(furthest[:8]) < limit < max(furthest)
    near = f'\n[[requirements]]\nname = "near"\nalways = "abs(position) < {limit}"\n'
    Path("mine.toml").write_text(find_resource("envs", "cartpole", ".toml").read_text() + near)
    words = ("eval", steady, "--task", "mine.toml", "--episodes", 40, "--against", "own_agents:lean")
    (said,) = (text for text in line(*words).out.splitlines() if text.startswith("against "))
    assert re.search(r"worse: it violates `near` in \d+ of 40 episodes, the other in \d+$", said)


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("own_agents:nothing", "own_agents:nothing: the module has no function of this name"),
        ("own_agents:number", "own_agents:number: the module has no function of this name"),
        ("no_such_module:f", "there is no module `no_such_module`"),
        ("os:system", "os is a module of Python itself"),
        ("own_agents:bad", "the scored agent returned 'left', not an action of CartPole-v1"),
        ("ppo:model.zip", "loading a Stable-Baselines3 model can run any code in the file"),
        ("model.zip", "model.zip: which kind of model is this? write ppo:model.zip"),
        ("nowhere.txt", "cannot read nowhere.txt"),
    ],
)
def test_an_agent_that_cannot_play_is_refused_in_a_sentence(line: Line, steady: Path, agent: str, said: str) -> None:
    refused = line("eval", steady, "--task", "cartpole", "--episodes", 2, "--against", agent)
    assert refused.code != 0
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_a_model_of_stable_baselines3_is_compared_and_others_are_refused(line: Line, steady: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    for name, environment in (("ppo", "CartPole-v1"), ("other", "Pendulum-v1")):
        sb3.PPO("MlpPolicy", environment, n_steps=64, seed=0, device="cpu").save(f"{name}.zip")
    Path("broken.zip").write_bytes(b"no archive")
    words = ("eval", steady, "--task", "cartpole", "--episodes", 3, "--trust", "--against")
    done = line(*words, "ppo:ppo.zip")
    assert done.code == 0, done.err
    assert "against ppo:ppo.zip (" in done.out
    for model, said in (("other", "is a model of another environment"), ("broken", "cannot be loaded as a model")):
        refused = line(*words, f"ppo:{model}.zip")
        assert refused.code == 2
        assert said in refused.err


RAIL = '\n[[requirements]]\nname = "rail"\nalways = "abs(position) <= 0.01"\n'


def test_an_agent_beside_a_policy_is_scored_with_the_requirements(line: Line, steady: Path) -> None:
    Path("mine.toml").write_text(Path(str(find_resource("envs", "cartpole", ".toml"))).read_text() + RAIL)
    against = line("eval", steady, "--task", "mine.toml", "--episodes", 12, "--against", "own_agents:lean").out
    assert [text.split(": ")[0] for text in against.splitlines()[-2:]] == ["requirement rail", "own_agents:lean"]


@pytest.mark.usefixtures("workplace")
def test_any_attempt_of_a_run_is_shown_scored_and_filmed(line: Line) -> None:
    Path("lean.txt").write_text("left = 0\nright = 10*angle\n")  # falls soon: a short film
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
