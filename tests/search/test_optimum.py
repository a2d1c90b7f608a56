"""The computed optimum of a task with a known MDP, and thresholds above it."""

from __future__ import annotations

import pytest
from support import Written, discovered

import policygen
from policygen.search.prepare import with_optimum
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")


def test_a_threshold_that_nothing_reaches_is_dropped_with_a_sentence() -> None:
    task = discovered("Taxi-v4")
    assert task.solved == 8
    known = with_optimum(task)
    assert known.optimum.value == pytest.approx(7.93)
    assert known.optimum.source == "exact, by backward induction over 200 steps"
    assert known.solved is None
    assert known.assumed[-1] == "8 counts as solved, says the task, but no policy scores more than 7.93"


def test_where_no_table_reaches_the_optimum_the_best_table_counts() -> None:
    known = with_optimum(discovered("FrozenLake-v1"))
    assert known.optimum.value == pytest.approx(0.740165, abs=1e-6)
    assert known.optimum.source == "the best table found; a policy that counts steps could reach 0.74419"
    assert known.solved == 0.7


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
    assert (result.summary.attempts, result.summary.optimum_reached, result.summary.solved) == (1, True, True)


def test_where_knowledge_is_withheld_so_is_the_optimum() -> None:
    result = policygen.run("FrozenLake-v1", ablate="knowledge", iterations=1, episodes=4, final_episodes=4)
    assert result.summary.optimum is None


# 0 left, 1 down, 2 right, 3 up.
_BEST = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
