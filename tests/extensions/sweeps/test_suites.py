"""Suites: those that are shipped, and one sentence for every mistake in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from policygen.errors import UsageError
from policygen.extensions.sweeps.plan import find_suite, list_suites, load_suite
from policygen.files import list_resources
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")


def test_the_shipped_suites_name_shipped_tasks_and_the_source_of_every_column() -> None:
    tasks = set(list_resources("envs", ".toml"))
    assert sorted(list_suites()) == ["classic", "finite", "locomotion", "props15", "quick"]
    assert not set(list_suites()) & tasks
    for suite in map(load_suite, list_suites()):
        assert suite.about
        assert set(suite.tasks) <= tasks
        assert all(len(column.source) > 20 for column in suite.published)


def test_the_fifteen_tasks_have_all_published_figures() -> None:
    suite = load_suite("props15")
    assert len(suite.tasks) == 15
    columns = {column.name: column.scores for column in suite.published}
    for column in suite.published:  # how many runs is said where the source says it
        assert (column.runs == 10) is ("10 runs" in column.source), column.name
    assert all(set(columns[name]) == set(suite.tasks) for name in ("ProPS", "ProPS+"))
    scores = {("ProPS", "frozenlake"): (0.57, 0.17), ("TRPO", "pong"): (1.36, None)}
    assert {place: columns[place[0]][place[1]] for place in scores} == scores
    best = {task: max(scores[task][0] for scores in columns.values() if task in scores) for task in suite.tasks}
    assert (best["hopper"], best["reacher"], best["mountaincar-continuous"]) == (716.90, -7.32, 89.16)
    # Each task is stated with the ProPS columns and two of the baselines.
    assert all(sum(task in scores for scores in columns.values()) == 4 for task in suite.tasks)
    # Its step limits are those of the task files.
    limits = {"cartpole": 500, "frozenlake": 100, "cliffwalking": 100, "maze": 100, "pong": 1000, "navigation": 1000}
    assert {task: load_task(task).max_steps for task in limits} == limits


GOOD = """
name = "mine"
tasks = ["cartpole", "nim"]
[run]
episodes = 5
[policy]
cartpole = "linear"
[[published]]
name = "they"
source = "a paper"
[published.scores]
cartpole = [400, 12.5]
"""


def written(text: str) -> Path:
    path = Path("envs/suites/mine.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_suite_of_ones_own_is_found_where_one_works() -> None:
    path = written(GOOD)
    suite = load_suite("mine")
    assert suite == load_suite(str(path))
    assert (suite.tasks, suite.run, suite.policy) == (("cartpole", "nim"), {"episodes": 5}, {"cartpole": "linear"})
    assert suite.published[0].scores == {"cartpole": (400.0, 12.5)}
    assert find_suite("cartpole") is None


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "mine"', 'name = "yours"', "`name` is `yours`; it must be the name of the file, `mine`"),
        ('name = "mine"', "", "the key `name` is missing"),
        ('["cartpole", "nim"]', '["nim", "cartpole", "nim"]', "`tasks` names nim twice"),
        ("episodes = 5", 'base_url = "http://x"', "`run.base_url`: a suite may state only policy"),
        ("episodes = 5", "episodes = 1", "`run`: `episodes`"),
        ("episodes = 5", 'refine = "magic"', "`run`: --refine magic: there is no method `magic`"),
        ("cartpole = [400, 12.5]", "taxi = 1", "`published.they.scores` names taxi, which is not one of its tasks"),
        ("cartpole = [400, 12.5]", "cartpole = [1, -2]", "`published.0.scores.cartpole.1`"),
        ('cartpole = "linear"', 'taxi = "linear"', "`policy` names taxi, which is not one of its tasks: cartpole, nim"),
        ("[policy]", "[limits]", "unknown key `limits`"),
        ("[policy]", "[policy", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_sentence(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=sentence) as caught:
        load_suite(str(written(GOOD.replace(old, new))))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(("suite mine.toml", "suite envs/suites/mine.toml is not"))
