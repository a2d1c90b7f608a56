"""Learners with an adviser, and policy iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from refining import Player, exact_mean, mdp_of, policy_of, seeds, tuned

from policygen.episodes.exact import Sampler, best_return, exact_score, expected_return
from policygen.episodes.trajectory import Actor
from policygen.errors import PolicyError
from policygen.extensions.learners.q import CellView, Learner, ParallelStep, learn_tables
from policygen.policies.table import TablePolicy
from policygen.search.refine.tables import entries_of
from policygen.search.refine.tunable import Refined, Trials, refine
from policygen.tasks.load import load_task

POOR = "| row | column | action |\n| 0 | 0 | left |\n| * | * | up |"
FELL = "| position | velocity | angle | spin | action |\n| * | * | 0-2 | * | left |\n| * | * | * | * | right |"


class Practising:
    """Trials for a learner, which count the episodes."""

    def __init__(self, task: str) -> None:
        self.task, self.player, self.practised = task, Player(task), 0

    def practice(self, actor: Actor, seeds: Sequence[int]) -> np.ndarray:
        self.practised += len(seeds)
        return np.array([t.episode_return for t in self.player.simulator.play(actor, seeds)])

    def learn(self, text: str, episodes: int, method: Any = "q") -> Refined | None:
        trials = Trials(self.player, seeds, episodes, self.practice)
        return refine(policy_of(text, self.task), method, trials, 1)


@pytest.mark.parametrize(("task", "text"), [("frozenlake", POOR), ("cartpole", FELL)])
def test_learning_keeps_its_budget_and_can_be_repeated(task: str, text: str) -> None:
    trials = Practising(task)
    refined = trials.learn(text, 50)
    assert refined is not None
    assert refined.method == "q"
    assert refined.episodes == trials.practised + trials.player.episodes <= 50
    again = Practising(task).learn(text, 50)
    assert again is not None
    assert again.policy == refined.policy


def test_what_cannot_be_learnt_is_said() -> None:
    trials = Practising("frozenlake")
    assert trials.learn(POOR, 39) is None
    with pytest.raises(PolicyError, match="publishes its MDP; tune frozenlake by q"):
        trials.learn(POOR, 100, "policy-iteration")
    with pytest.raises(PolicyError, match="q learns tables"):
        Practising("cartpole").learn("left = 0\nright = angle", 100)


def test_policy_iteration_reaches_the_best_table_and_respects_the_cells() -> None:
    policy, player = policy_of(POOR, "cliffwalking"), Player("cliffwalking")
    mdp = mdp_of(policy.task)
    refined = tuned(policy, "policy-iteration", Trials(player, seeds, 10), 1, mdp=mdp)
    assert exact_mean(refined.policy) >= best_return(mdp, policy.task.max_steps)[1] - 1e-9
    assert refined.episodes == player.episodes == 0
    task = load_task("frozenlake")
    narrow = TablePolicy.from_actions(task, [0, 0, 0, 3], type(task.grid)(task.grid.dimensions[:1]))  # type: ignore[union-attr]
    refined = tuned(narrow, "policy-iteration", Trials(player, seeds, 10), 1, mdp=mdp_of(task))
    assert refined.policy.grid == narrow.grid  # type: ignore[attr-defined]
    assert exact_mean(refined.policy) > exact_mean(narrow)


def test_episodes_drawn_from_the_mdp_return_what_is_expected_of_them() -> None:
    policy = policy_of("| row | column | action |\n| * | * | left |\n", "cliffwalking")
    mdp = mdp_of(policy.task)
    drawn, lengths = Sampler(mdp, policy.task.max_steps).play(policy, range(3_000))
    exact = exact_score(policy, mdp)
    assert exact is not None
    assert drawn.mean() == pytest.approx(exact.mean, abs=5 * exact.std / np.sqrt(3_000) + 1e-9)
    assert lengths.max() <= policy.task.max_steps


def _step(cell: int, action: int, reward: float, after: int, terminated: bool, times: int = 1) -> ParallelStep:
    n = np.ones(times, np.int64)
    return ParallelStep(n * cell, n * action, n * float(reward), n * after, n.astype(bool) & terminated)


def test_values_are_those_of_what_follows_and_an_end_is_worth_nothing() -> None:
    learner = Learner(3, 2, 0.5, np.random.default_rng(0))
    assert np.isneginf(learner.values).all()
    cut = _step(0, 0, 1.0, 1, False, times=7)  # the time limit cuts nothing from what would follow
    learner.replay([_step(0, 1, 1.0, 1, True), _step(1, 0, 8.0, 2, True), cut])
    assert learner.values[1, 0] == pytest.approx(1.0)
    assert learner.values[0, 0] == pytest.approx(1.0 + 0.5 * 8.0)
    assert np.isneginf(learner.values[:, 2]).all()


def test_what_was_never_tried_is_tried_before_anything_is_given_up() -> None:
    """Five cells in a row: left pays 1 and ends, right pays nothing until the far end, which pays 100."""
    learner = Learner(5, 2, 0.99, np.random.default_rng(0))
    for _ in range(60):
        steps = []
        for at in range(5):
            right = int(learner.choose(np.array([at]))[0])
            reward, ended = ((100.0, True) if at == 4 else (0.0, False)) if right else (1.0, True)
            steps.append(_step(at, right, reward, min(at + 1, 4), ended))
            if ended:
                break
        learner.replay(steps)
    assert learner.best().tolist() == [1, 1, 1, 1, 1]


def test_advice_is_left_only_for_what_is_surely_better() -> None:
    def best(times: int, reward: float, advised_times: int = 20) -> int:
        learner = Learner(2, 2, 0.9, np.random.default_rng(0), advice=np.array([0, 0]))
        learner.replay(
            [
                _step(1, 0, 0.0, 0, True, times=20),
                _step(0, 0, 1.0, 0, True, times=advised_times),
                _step(0, 1, reward, 0, True, times=times),
            ]
        )
        return int(learner.best()[0])

    assert best(1, 1.2) == 0  # seen once
    assert best(100, 1.2) == 1
    assert best(100, 0.8) == 0
    assert best(100, 1.2, advised_times=0) == 0  # not refuted before it was tried


def test_good_advice_is_kept_and_advice_that_is_no_better_than_chance_is_put_aside() -> None:
    task = load_task("frozenlake")
    mdp = mdp_of(task)
    best = TablePolicy.from_actions(task, best_return(mdp, 100)[2])
    view, sampler, good = CellView(best, len(mdp.start)), Sampler(mdp, task.max_steps), entries_of(best)
    firsts, lasts = [], []
    for table in (good, (good + 2) % 4):
        rng = np.random.default_rng(0)
        practised = learn_tables(
            view, lambda actor, seeds: sampler.play(actor, seeds)[0], seeds, 640, rng, advice=table
        )
        tables = [entries for _, entries in practised]
        firsts.append((tables[0] == table).all())
        lasts.append(expected_return(mdp, tables[-1][view.read(np.arange(16).reshape(-1, 1))], 100))
    assert firsts == [True, False]
    assert min(lasts) > 0.98 * 0.7402
