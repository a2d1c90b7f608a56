"""A prompt is a pure function of the saved search: a process without simulators, which cannot play, renders it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from searched import made
from support import ALWAYS_LEFT, FALLING, LEANING, Written

from policygen.prompts.render import render_prompt
from policygen.runs.logbook import Logbook
from policygen.search.resume import load_run

pytestmark = pytest.mark.usefixtures("workplace")

WITHOUT_SIMULATORS = """
import importlib.abc, pathlib, sys

class Absent(importlib.abc.MetaPathFinder):
    names = ("mujoco", "Box2D", "pygame", "ale_py", "envpool",
             *(f"policygen.episodes.{one}" for one in ("simulator", "players", "vector")),
             *(f"gymnasium.envs.{one}" for one in
               ("mujoco", "box2d", "classic_control", "toy_text", "phys2d", "tabular")))
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in self.names):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Absent())
import gymnasium
from policygen.episodes import exact
from policygen.policies import policy
from policygen.prompts.render import render_prompt
from policygen.runs.logbook import Logbook
from policygen.runs.state import Search
from policygen.tasks import environments

def refuse(*given, **named):
    raise AssertionError("a prompt makes no environment, plays nothing and lets no policy act")

for owner, name in ((gymnasium, "make"), (environments, "make_env"), (exact, "exact_score"), (exact, "finite_mdp"),
                    *((policy.Policy, name) for name in ("act", "act_one", "begin"))):
    assert hasattr(owner, name)
    setattr(owner, name, refuse)
logbook = Logbook(pathlib.Path(sys.argv[1]))
search = Search(logbook.task(), logbook.buffer())
for attempt in logbook.attempts():
    search.add(attempt)
search.best_score = search.best.score
prompt = render_prompt(search.context(logbook.config()), logbook.config())
sys.stdout.buffer.write("\\0".join(message.content for message in prompt.messages).encode())
"""


def test_a_prompt_needs_no_simulator(tmp_path: Path) -> None:
    settings = {"policy": "table", "episodes": 8, "warmup_episodes": 8, "final_episodes": 2}
    provider = Written([ALWAYS_LEFT, FALLING, LEANING])
    folder = made("cartpole", tmp_path, provider, iterations=3, refine="none", fragility=False, **settings)
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIMULATORS, str(folder)], capture_output=True, timeout=300, check=False
    )
    assert child.returncode == 0, child.stderr.decode()
    search, config = load_run(folder).search, Logbook(folder).config()
    search.best_score, search.validation = search.best.score, None
    rendered = render_prompt(search.context(config), config)
    assert child.stdout.decode() == "\0".join(message.content for message in rendered.messages)
    assert "## What actions led to" in rendered.messages[-1].content
