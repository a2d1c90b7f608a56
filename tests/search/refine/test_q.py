"""Learners with an adviser, and policy iteration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from refining import Player, policy_of, seeds

from policygen.cli import commands
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.optimum import best_return
from policygen.episodes.sampled import Sampler
from policygen.episodes.trajectory import Actor
from policygen.errors import PolicyError
from policygen.policies.table import TablePolicy
from policygen.search.refine.learner import Learner, Start, Step
from policygen.search.refine.lessons import Witness, appraised, board_of, entries_of, with_entries
from policygen.search.refine.methods import refine
from policygen.search.refine.tunable import Refined, Trials
from policygen.tasks.load import load_task

POOR = "| row | column | action |\n| 0 | 0 | left |\n| * | * | up |"
FELL = "| position | velocity | angle | spin | action |\n| * | * | 0-2 | * | left |\n| * | * | * | * | right |"


class Practising:
    """Trials for a learner, which count the episodes: drawn from the MDP, or played."""

    def __init__(self, task: str, *, sampled: bool) -> None:
        self.task, self.player, self.practised = load_task(task), Player(task), 0
        self.mdp = finite_mdp(self.task) if sampled else None

    def practice(self, actor: Actor, seeds: Sequence[int]) -> None:
        self.practised += len(seeds)
        if self.mdp is not None:
            Sampler(self.mdp, self.task.max_steps).play(actor, seeds)
        else:
            self.player.simulator.play(actor, seeds)

    def learn(self, text: str, episodes: int, method: Any = "q", rng_seed: int = 1) -> Refined | None:
        trials = Trials(self.player, seeds, episodes, self.practice)
        return refine(policy_of(text, self.task.name), method, trials, rng_seed, mdp=self.mdp)


@pytest.mark.parametrize("method", ["q", "sarsa"])
def test_a_learner_improves_a_poor_table_within_its_budget(method: str) -> None:
    trials = Practising("frozenlake", sampled=True)
    refined = trials.learn(POOR, 1_000, method)
    assert refined is not None
    assert refined.method == method
    assert refined.episodes == trials.practised == 1_000
    assert trials.mdp is not None
    before, after = (exact_score(p, trials.mdp) for p in (policy_of(POOR, "frozenlake"), refined.policy))
    assert before is not None
    assert after is not None
    assert after.mean > before.mean + 0.1


@pytest.mark.parametrize(("task", "text"), [("frozenlake", POOR), ("cartpole", FELL)])
def test_learning_in_copies_and_in_vectorised_environments_keeps_its_budget(task: str, text: str) -> None:
    trials = Practising(task, sampled=False)
    refined = trials.learn(text, 200)
    assert refined is not None
    assert refined.episodes == trials.practised + trials.player.episodes <= 200
    again = Practising(task, sampled=False).learn(text, 200)
    assert again is not None
    assert again.policy == refined.policy


def test_what_cannot_be_learnt_is_said() -> None:
    trials = Practising("frozenlake", sampled=False)
    assert trials.learn(POOR, 39) is None
    with pytest.raises(PolicyError, match="publishes its MDP; tune frozenlake by q"):
        trials.learn(POOR, 100, "policy-iteration")
    with pytest.raises(PolicyError, match="q learns tables"):
        Practising("cartpole", sampled=False).learn("left = 0\nright = angle", 100)


@pytest.mark.parametrize("task", ["frozenlake", "cliffwalking"])
def test_policy_iteration_reaches_the_best_table_from_any_table(task: str) -> None:
    policy = policy_of(POOR, task)
    mdp, player = finite_mdp(policy.task), Player(task)
    assert mdp is not None
    refined = refine(policy, "policy-iteration", Trials(player, seeds, 10), 1, mdp=mdp)
    assert refined is not None
    score = exact_score(refined.policy, mdp)
    assert score is not None
    assert score.mean >= best_return(mdp, policy.task.max_steps).by_table - 1e-9
    assert refined.episodes == player.episodes == 0


def test_policy_iteration_respects_the_cells_of_the_table() -> None:
    by_row = policy_of("| row | action |\n| 0 | left |\n| * | up |", "frozenlake")
    mdp = finite_mdp(by_row.task)
    assert mdp is not None
    assert isinstance(by_row, TablePolicy)
    narrow = TablePolicy.from_actions(by_row.task, [0, 0, 0, 3], type(by_row.grid)(by_row.grid.dimensions[:1]))
    refined = refine(narrow, "policy-iteration", Trials(Player("frozenlake"), seeds, 10), 1, mdp=mdp)
    assert refined is not None
    assert isinstance(refined.policy, TablePolicy)
    assert refined.policy.grid == narrow.grid
    after, before = exact_score(refined.policy, mdp), exact_score(narrow, mdp)
    assert after is not None
    assert before is not None
    assert after.mean > before.mean


def test_episodes_drawn_from_the_mdp_return_what_is_expected_of_them() -> None:
    policy = policy_of("| row | column | action |\n| * | * | left |\n", "cliffwalking")
    mdp = finite_mdp(policy.task)
    assert mdp is not None
    drawn = Sampler(mdp, policy.task.max_steps).play(policy, range(3_000), lanes=200)
    exact = exact_score(policy, mdp)
    assert exact is not None
    assert drawn.returns.mean() == pytest.approx(exact.mean, abs=5 * exact.std / np.sqrt(3_000))
    assert drawn.lengths.max() <= policy.task.max_steps
    again = Sampler(mdp, policy.task.max_steps).play(policy, range(3_000), lanes=200)
    assert (again.returns == drawn.returns).all()


def _step(cell: int, action: int, reward: float, after: int, terminated: bool, times: int = 1) -> Step:
    n = np.ones(times, np.int64)
    return Step(n * cell, n * action, n * float(reward), n * after, n.astype(bool) & terminated)


def test_values_are_those_of_what_follows_and_an_end_is_worth_nothing() -> None:
    rng = np.random.default_rng(0)
    learner = Learner(Start(np.full((2, 2), 5.0)), 0.5, rng)
    learner.learn(_step(0, 1, 1.0, 1, True))
    assert learner.values[0, 1] == pytest.approx(1.0)
    learner.learn(_step(0, 0, 1.0, 1, False, times=7))  # the time limit cuts nothing from what would follow
    assert learner.values[0, 0] == pytest.approx(1.0 + 0.5 * 5.0)
    sarsa = Learner(Start(np.array([[0.0, 0.0], [0.0, 8.0]])), 1.0, rng, expected=True)
    sarsa.learn(_step(0, 0, 0.0, 1, False))
    assert sarsa.values[0, 0] == pytest.approx(0.5 * 8.0 + 0.5 * 4.0)  # half of its actions are random as yet


def test_good_advice_is_kept_and_advice_that_is_no_better_than_chance_is_put_aside() -> None:
    task = load_task("frozenlake")
    mdp = finite_mdp(task)
    assert mdp is not None
    best = TablePolicy.from_actions(task, best_return(mdp, 100).actions)
    board, rng, sampler = board_of(best, len(mdp.start)), np.random.default_rng(0), Sampler(mdp, task.max_steps)
    assert with_entries(best, entries_of(best)).actions.tolist() == best.actions.tolist()
    worst = (entries_of(best) + 2) % 4
    kept = []
    for table in (entries_of(best), worst):
        seen = [Witness(board, one, rng) for one in (table, None)]
        for witness in seen:
            sampler.play(witness, range(32))
        start = appraised(seen[0], seen[1], 32, 0.99)
        kept.append(start.advice is not None)
        if kept[-1]:
            learner = Learner(start, 0.99, rng)
            assert (learner.best() == table).all()
            assert (start.values.argmax(axis=1) == table)[start.seen > 1].mean() > 0.5
    assert kept == [True, False]


def test_a_run_counts_and_records_what_the_learner_played(tmp_path: Path) -> None:
    run = [
        "run",
        "frozenlake",
        "--iterations",
        "1",
        "--set",
        "warmup_episodes=4",
        "--episodes",
        "4",
        "--out",
        str(tmp_path),
    ]
    done = CliRunner().invoke(commands, [*run, "--refine", "q:60", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    (log,) = tmp_path.glob("*/attempts.jsonl")
    attempt = json.loads(log.read_text().splitlines()[-1])
    assert attempt["refinement"].startswith("q over 16 entries, 60 episodes: ")
    # Random actions, the proposal, the learner, the table that it left.
    assert attempt["episodes"] == 4 + 4 + 60 + 4
