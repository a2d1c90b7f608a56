"""Runs that maximise another aggregate than the mean: judge, prompts, records, displays and comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from support import Line, attempts_of, fenced, page_of, summary_of, the_run, transcript_of

from policygen.episodes.aggregate import MEAN, Aggregate, read_aggregate
from policygen.episodes.score import Score, score_of_returns
from policygen.extensions.plots.groups import grouped, read_member
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.search.judge import is_overestimated, judge, reaches, stop_score
from policygen.search.refine.cma import cma_es
from policygen.search.refine.tunable import Trials, Tunable
from policygen.tasks.load import load_task

# Betting pays 20 in 8 of 10 episodes: its mean is higher, its worst tenth lower.
LOTTERY = """
import gymnasium as gym
import numpy as np


class Lottery(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        bet = 20.0 * (self.np_random.random() < 0.8)
        return np.zeros(1, np.float32), float(bet if action else 10 + self.np_random.random()), True, False, {}
"""
TASK = """
name = "lottery"
gym_id = "lottery:Lottery"
max_steps = 1
solved = 9
[[observations]]
name = "nothing"
[[actions]]
name = "action"
labels = ["steady", "bet"]
"""
BETTING, STEADY = fenced("steady = 0", "bet = 1"), fenced("steady = 1", "bet = 0")
Play = Callable[..., Path]
SHORT = ("--policy", "equations", "--episodes", 20, "--set", "final_episodes=50", "--iterations", 2, "--jobs", 1)


@pytest.fixture
def play(workplace: Path, line: Line, monkeypatch: pytest.MonkeyPatch) -> Play:
    (workplace / "lottery.py").write_text(LOTTERY)
    (workplace / "lottery.toml").write_text(TASK)
    monkeypatch.syspath_prepend(str(workplace))

    def played(*options: object) -> Path:
        with ChatServer([BETTING, STEADY]) as server:
            model = ("--set", "fragility=false", "--llm", "compatible:m", "--base-url", server.openai_url)
            said = line("run", "lottery.toml", "--trust", *SHORT, *model, *options, "--out", f"out{len(options)}")
        assert said.code == 0, said.err
        return the_run(workplace / f"out{len(options)}")

    return played


def scored(returns: object, setting: str = "cvar:0.1") -> Score:
    values = np.asarray(returns, np.float64)
    return score_of_returns(values, tuple(range(len(values))), "vector", read_aggregate(setting))


def test_a_run_keeps_what_is_better_in_its_aggregate_and_says_so(play: Play, line: Line) -> None:
    folder = play("--score", "cvar:0.1")
    _, betting, steady = attempts_of(folder)
    assert betting["score"]["mean"] > steady["score"]["mean"]
    assert steady["accepted"]
    assert " in 10% CVaR against the best on 20 paired episodes, p = 0.0005" in steady["verdict"]
    name, value = steady["score"]["aggregated"]
    assert name == "cvar:0.1"
    assert value == pytest.approx(np.sort(steady["score"]["returns"])[:2].mean())
    summary = summary_of(folder)
    assert summary["final"]["aggregated"][0] == "cvar:0.1"
    assert summary["final"]["ci95"][0] <= summary["final"]["aggregated"][1] <= summary["final"]["ci95"][1]
    assert summary["solved"] is True
    asked = transcript_of(folder)[1]["messages"][-1]["content"]
    assert "the score is the mean sum of rewards of the worst 10% of episodes (CVaR). 9 counts as solved." in asked
    assert "Score 10% CVaR 0 [0, 0] over 20 episodes" in asked
    played = line("eval", folder, "--trust").out
    assert played.startswith("lottery: 10% CVaR 10.0")
    assert ", mean 10.5" in played
    assert "counts as solved from 9, by its 10% CVaR: yes" in played
    page = page_of(folder)
    assert "10% CVaR of the return over 50 fresh episodes" in page
    assert "solved by its 10% CVaR" in page
    Path("bet.txt").write_text(BETTING)
    compared = line("eval", folder, "--trust", "--against", "bet.txt", "--score", "quantile:0.1").out
    assert "against bet.txt (10% quantile 0 [0, 0] over 100 episodes): +10" in compared


@pytest.mark.usefixtures("workplace")
def test_a_resumed_run_keeps_its_aggregate_and_an_old_one_is_read_as_mean(line: Line) -> None:
    short = ("--episodes", 4, "--iterations", 2, "--jobs", 1, "--set", "final_episodes=4", "--set", "warmup_episodes=4")
    assert line("run", "cartpole", "--score", "worst", *short).code == 0
    folder = the_run(Path("results"))
    before, log = attempts_of(folder), folder / "attempts.jsonl"
    assert before[1]["score"]["aggregated"] == ["worst", min(before[1]["score"]["returns"])]
    (folder / "summary.json").unlink()
    log.write_text("".join(text for text in log.read_text().splitlines(keepends=True)[:2]))
    assert line("resume", folder).code == 0
    assert [attempt["score"] for attempt in attempts_of(folder)] == [attempt["score"] for attempt in before]
    assert summary_of(folder)["final"]["ci95"] is None
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('score = "worst"\n', ""))
    assert Logbook(folder).config().score == MEAN


def test_runs_with_other_aggregates_are_neither_averaged_nor_compared(play: Play, line: Line) -> None:
    mean, steady = play(), play("--score", "cvar:0.1")
    assert not attempts_of(mean)[2]["accepted"]
    assert [group.label for group in grouped([read_member(mean), read_member(steady)])] == [
        "compatible:m, equations",
        "compatible:m, equations, score cvar:0.1",
    ]
    refused = line("compare", mean, steady)
    assert refused.code == 2
    assert refused.err.startswith("Error: on lottery some scores are of `mean` and others of `cvar:0.1`, which cannot")
    alone = line("compare", steady, "-o", "table.md")
    assert alone.code == 0, alone.err
    assert "Scores on lottery are the 10% CVaR of the return." in Path("table.md").read_text()


def test_a_wrong_score_is_one_sentence(line: Line) -> None:
    for setting in ("cvar:2", "best", "worst:0.1"):
        said = line("run", "cartpole", "--score", setting)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"Error: --score {setting}: choose mean, median, worst, or quantile:Q or cvar:Q")
    said = line("run", "frozenlake", "--score", "median", "--refine", "policy-iteration")
    assert said.err == "Error: --refine policy-iteration maximises the mean: with --score median use coordinate\n"


def test_the_optimum_ends_only_runs_whose_score_it_bounds() -> None:
    pole = load_task("cartpole")
    bounded = (("mean", 500.0), ("cvar:0.1", 500.0), ("worst", 500.0), ("median", None), ("quantile:0.9", None))
    for setting, target in bounded:
        assert stop_score(pole, RunConfig(task="cartpole", score=setting)) == target
    assert stop_score(pole, RunConfig(task="cartpole", score="median", stop_at=490)) == 490


def test_a_target_is_reached_by_the_bound_of_the_aggregate() -> None:
    returns = np.random.default_rng(0).normal(size=100)
    assert reaches(scored(returns), float(np.sort(returns)[:10].mean()) - 2)
    assert not reaches(scored(returns), float(np.sort(returns)[:10].mean()))
    assert not reaches(scored(returns, "worst"), -10.0)  # 100 episodes may lack the worst
    assert reaches(scored(np.tile(returns, 3), "worst"), -10.0)


def test_a_tail_that_new_episodes_lower_was_lucky() -> None:
    lucky, failing = np.full(20, 10.0), np.where(np.arange(20) < 6, 0.0, 10.0)
    assert is_overestimated(scored(lucky + np.arange(20) / 99), scored(failing), None, 20)
    assert not is_overestimated(scored(failing, "median"), scored(lucky, "median"), None, 20)
    assert not is_overestimated(scored(lucky), scored(lucky), 12, 20)
    assert judge(scored(lucky + 1), scored(failing)).words.startswith("+11 in 10% CVaR against the best")


def test_tuning_maximises_the_aggregate() -> None:
    policy = parse("left = fixed(0)\nright = 1*angle", load_task("cartpole"), "linear").policy

    def returns(aggregate: Aggregate, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        gains = np.array([Tunable(one).values[0] for one in policies])[:, None]  # more gain: more return and more risk
        noise = np.array([np.random.default_rng(seed).normal() for seed in seeds])
        return np.asarray(aggregate.of(2 * gains - 0.2 * gains**2 + gains * noise))

    found = {}
    for aggregate in (MEAN, read_aggregate("cvar:0.1")):
        player = functools.partial(returns, aggregate)
        trials = Trials(player, lambda first, count: range(first, first + count), 3_000, aggregate=aggregate)
        refined = cma_es(Tunable(policy), trials, 0)
        found[aggregate] = abs(Tunable(refined.policy).values[0])
    assert found[MEAN] == pytest.approx(5, abs=1)  # the top of 2 g - 0.2 g^2
    assert found[read_aggregate("cvar:0.1")] < 2.5  # of 2 g - 0.2 g^2 - 1.75 g
