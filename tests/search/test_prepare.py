"""The completion of settings for a run: the episodes per score, and the equations of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from searched import written
from support import Line, discovered, the_run

import policygen
from policygen.episodes.score import episode_seeds
from policygen.extensions.page.content import command_of
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.search.prepare import with_sample_size

pytestmark = pytest.mark.usefixtures("workplace")

gym.register("policygen-tests/Endless-v0", CartPoleEnv)


class Still(gym.Env[Any, Any]):
    """Episodes of one step that all return the same."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 1.0, True, False, {}


gym.register("policygen-tests/Still-v1", Still)


def chosen(name: str, **options: Any) -> tuple[int, int]:
    task = discovered(name)
    config = with_sample_size(task, effective_config(task, name, options=options))
    return config.episodes, config.final_episodes


def test_short_noisy_episodes_are_played_by_the_hundreds_and_the_first_line_says_so(line: Line) -> None:
    done = line("run", "Blackjack-v1", "--iterations", 1, "--jobs", 1)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].endswith(
        "; 400 episodes per score, 2,000 for the final one: they are short and vary"
    )
    folder = the_run(Path("results"))
    logbook = Logbook(folder)
    config, summary = logbook.config(), logbook.summary()
    assert (config.episodes, config.warmup_episodes, config.final_episodes) == (400, 20, 2_000)
    low, high = summary.final.ci95
    assert (summary.final.episodes, high - low < 0.1) == (2_000, True)
    seeds = logbook.attempts()[1].score.seeds
    assert seeds == episode_seeds(0, "search", 400)
    assert seeds[:20] == episode_seeds(0, "search", 20)


@pytest.mark.parametrize("name", ["cartpole", "nim", "taxi", "CliffWalking-v1", "pendulum", "adventure"])
def test_long_or_exact_episodes_are_as_many_as_usual(name: str) -> None:
    assert chosen(name) == (20, 100)


def test_episodes_that_last_as_long_as_the_policy_is_good_or_never_vary_are_as_many_as_usual() -> None:
    assert chosen("policygen-tests/Endless-v0") == (20, 100)
    assert chosen("policygen-tests/Still-v1") == (20, 100)


def test_a_number_that_is_stated_wins() -> None:
    assert chosen("Blackjack-v1", episodes=20) == (20, 2_000)
    assert chosen("Blackjack-v1", episodes=7, final_episodes=100) == (7, 100)
    assert chosen("blackjack") == (200, 2_000)  # its task file says so


def test_runs_of_one_task_have_one_number_whatever_their_seed_and_machine() -> None:
    assert {chosen("Blackjack-v1", seed=seed, jobs=jobs) for seed in (0, 1, 2) for jobs in (1, 2)} == {(400, 2_000)}


def test_a_budget_of_episodes_is_not_eaten_by_scores() -> None:
    assert chosen("Blackjack-v1", max_episodes=8_000) == (95, 2_000)
    assert chosen("Blackjack-v1", max_episodes=8_000, candidates=4) == (24, 2_000)
    assert chosen("Blackjack-v1", max_episodes=8_000, refine="coordinate") == (23, 2_000)
    assert chosen("Blackjack-v1", max_episodes=8_000, refine="coordinate:200") == (45, 2_000)
    assert chosen("Blackjack-v1", max_episodes=500) == (20, 2_000)
    assert chosen("Blackjack-v1", max_episodes=10**6) == (400, 2_000)


def test_the_command_that_repeats_a_run_states_its_numbers() -> None:
    result = policygen.run("Blackjack-v1", iterations=1, episodes=20, final_episodes=100, jobs=1)
    logbook = Logbook(result.folder)
    command = command_of(logbook.config(), logbook.task()).split()
    assert {"episodes=20", "final_episodes=100"} <= set(command)


def test_a_prompt_says_the_number_that_the_run_has(line: Line) -> None:
    written("over {{ rule.episodes }} episodes")
    assert "over 400 episodes" in line("prompt", "Blackjack-v1", "--llm", "manual").out


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ('reward = "-speed"', "`reward`, `ends` or `starts` of swing cannot be used: "),
        ('starts = { angle = "uniform(0, 1)" }', "`angle` is not observed"),
        ('starts = { rate = "about 0" }', "`about 0` is not a start; write `normal(MEAN, DEVIATION)`"),
    ],
)
def test_what_a_task_states_of_its_plant_is_read_before_anything_is_played(
    stated: str, reason: str, line: Line
) -> None:
    names = "".join(f'[[observations]]\nname = "{name}"\n' for name in ("cos", "sin", "rate"))
    Path("swing.toml").write_text(f'name = "swing"\ngym_id = "Pendulum-v1"\n{stated}\n{names}')
    done = line("run", "swing.toml", "--policy", "linear", "--refine", "model", "--max-steps", 1_000)
    assert done.code
    assert done.err.startswith("Error: ")
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert not list(Path("results").glob("*"))
