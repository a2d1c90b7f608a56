"""The completion of a run's settings and task: the episodes per score, the equations, and the computed optimum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from support import Line, Written, discovered, fenced, figure, the_run

import policygen
from policygen.episodes.score import episode_seeds
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.search.prepare import with_optimum, with_sample_size
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

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


def chosen(name: str, **options: Any) -> int:
    task = discovered(name)
    _, config = with_sample_size(task, effective_config(task, name, options=options))
    assert config.final_episodes == effective_config(task, name, options=options).final_episodes
    return config.episodes


def test_short_noisy_episodes_are_played_by_the_hundreds_and_the_first_line_says_so(line: Line) -> None:
    done = line("run", "Blackjack-v1", "--iterations", 1, "--jobs", 1)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].endswith("; 400 episodes per score: they are short and vary")
    folder = the_run(Path("results"))
    logbook = Logbook(folder)
    config, summary = logbook.config(), logbook.summary()
    assert (config.episodes, config.warmup_episodes, config.final_episodes) == (400, 20, None)
    low, high = summary.final.ci95
    assert (summary.final.episodes, high - low < 0.1) == (2_000, True)
    seeds = logbook.attempts()[1].score.seeds
    assert seeds == episode_seeds(0, "search", 400)
    assert seeds[:20] == episode_seeds(0, "search", 20)


@pytest.mark.parametrize(
    ("name", "options", "episodes"),
    [
        # Long episodes, exact scores.
        *((name, {}, 20) for name in ("cartpole", "nim", "taxi", "CliffWalking-v1", "pendulum", "adventure")),
        ("policygen-tests/Endless-v0", {}, 20),  # episodes last as long as the policy is good
        ("policygen-tests/Still-v1", {}, 20),  # returns never vary
        # A stated number wins.
        ("Blackjack-v1", {"episodes": 20}, 20),
        ("Blackjack-v1", {"episodes": 7, "final_episodes": 100}, 7),
        ("blackjack", {}, 200),  # its task file says so
        # A budget is not used up by scores.
        ("Blackjack-v1", {"max_episodes": 8_000}, 95),
        ("Blackjack-v1", {"max_episodes": 8_000, "refine": "coordinate"}, 23),
        ("Blackjack-v1", {"max_episodes": 8_000, "refine": "coordinate:200"}, 45),
        ("Blackjack-v1", {"max_episodes": 500}, 20),
        ("Blackjack-v1", {"max_episodes": 10**6}, 400),
    ],
)
def test_the_number_of_episodes_per_score(name: str, options: dict[str, Any], episodes: int) -> None:
    assert chosen(name, **options) == episodes


def test_statements_about_a_plant_are_read_before_anything_is_played(line: Line) -> None:
    names = "".join(f'[[observations]]\nname = "{name}"\n' for name in ("cos", "sin", "rate"))
    Path("swing.toml").write_text(f'name = "swing"\ngym_id = "Pendulum-v1"\nreward = "-speed"\n{names}')
    done = line("run", "swing.toml", "--policy", "linear", "--refine", "model", "--max-steps", 1_000)
    assert done.code
    assert done.err.startswith("Error: `reward`, `ends` or `starts` of swing cannot be used: ")
    assert done.err.count("\n") == 1
    assert not list(Path("results").glob("*"))


# --- the optimum of a task that states none -------------------------------------------------------------------------


# 0 left, 1 down, 2 right, 3 up.
_BEST = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)


def test_a_threshold_that_nothing_reaches_is_dropped_with_a_sentence() -> None:
    task = discovered("Taxi-v4")
    assert task.solved == 8
    known = with_optimum(task)
    assert known.optimum.value == pytest.approx(7.93)
    assert known.optimum.source == "exact, by backward induction over 200 steps"
    assert known.solved is None
    assert known.assumed[-1] == "8 counts as solved, says the task, but no policy scores more than 7.93"


@pytest.mark.parametrize("name", ["frozenlake", "CartPole-v1"])
def test_a_stated_optimum_stays_and_an_unknown_one_is_not_invented(name: str) -> None:
    task = load_task(name)
    assert with_optimum(task) is task


def test_a_run_ends_at_the_optimum_it_computed_and_says_so() -> None:
    plain = discovered("FrozenLake-v1")
    columns = " | ".join(plain.grid.names if plain.grid is not None else ())
    rows = "\n".join(f"| {state} | {action} |" for state, action in enumerate(_BEST))
    reply = f"```\n| {columns} | action |\n{rows}\n```"
    result = policygen.run("FrozenLake-v1", llm=Written([reply, reply]), iterations=3, episodes=4, final_episodes=4)
    assert result.summary.stopped.startswith("the best known score, 0.740165")
    names = ("attempts", "reaches the best known score", "solved")
    assert [figure(result, name) for name in names] == [1, True, True]
    withheld = policygen.run("FrozenLake-v1", ablate="knowledge", iterations=1, episodes=4, final_episodes=4)
    assert withheld.task.optimum is None


# --- lengths of episodes that random actions do not show --------------------------------------------------------------


class Trap(gym.Env[Any, Any]):
    """Most actions end the episode at once, and cost little; a policy near 0.77 lives on, and earns more."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype("f4"), {}

    def step(self, action: Any) -> Any:
        lives = abs(float(action[0]) - 0.77) < 0.002
        return self.np_random.uniform(-1, 1, 1).astype("f4"), float(self.np_random.normal()), not lives, False, {}


gym.register("policygen-tests/Trap-v0", Trap, max_episode_steps=None)


def test_the_final_score_has_as_many_episodes_as_those_of_the_best_policy_allow() -> None:
    task = replace(discovered("policygen-tests/Trap-v0"), max_steps=300)
    assert chosen("policygen-tests/Trap-v0") == 400
    for text, episodes in (("action = 0.77", 100), ("action = 0.1 * obs", 2_000)):
        settings = {"iterations": 1, "episodes": 4, "fragility": False, "jobs": 1}
        done = policygen.run(task, llm=Written([fenced(text)]), policy="linear", out=text[-3:], **settings)
        assert done.final.episodes == episodes


def test_a_constant_action_that_lives_long_shows_that_episodes_are_not_short() -> None:
    class Middle(Trap):
        def step(self, action: Any) -> Any:
            found = super().step(action)
            return found[0], found[1], abs(float(action[0])) > 0.01, False, {}

    gym.register("policygen-tests/Middle-v0", Middle)
    assert chosen("policygen-tests/Middle-v0") == 20
