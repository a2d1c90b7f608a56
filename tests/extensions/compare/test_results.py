"""Runs of other programs: monitor files, ProPS's logs, plain CSV, and a sentence for what is none of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from policygen.errors import UsageError
from policygen.extensions.compare.results import read_other_program

pytestmark = pytest.mark.usefixtures("workplace")


def written(text: str, name: str = "log.csv") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def monitor(returns: list[float], start: float = 10.0) -> str:
    rows = "".join(f"{r},{20},{i + 1}\n" for i, r in enumerate(returns))
    return f'#{{"t_start": {start}, "env_id": "CartPole-v1"}}\nr,l,t\n{rows}'


def test_a_monitor_file_scores_the_mean_of_its_last_hundred_episodes() -> None:
    run = read_other_program(written(monitor([0.0] * 100 + [float(i) for i in range(100)]), "monitor.csv"))
    assert (run.score, run.task) == (49.5, "CartPole-v1")
    assert run.meaning == "mean of the last 100 training episodes"
    assert run.curve["episodes"].tolist() == run.curve["seconds"].tolist() == list(range(1, 201))
    assert run.curve["level"][109] == pytest.approx(0.45)  # episodes 10 to 109: 0 to 9 and ninety zeros
    assert run.curve["env_steps"].tolist() == [20 * n for n in range(1, 201)]


def test_monitor_files_of_parallel_environments_are_one_run_in_order_of_time() -> None:
    written(monitor([1.0, 3.0]), "ppo/0.monitor.csv")
    written(monitor([2.0, 4.0], start=10.5), "ppo/1.monitor.csv")
    run = read_other_program(Path("ppo"))
    assert run.curve["level"].tolist() == [1.0, 1.5, 2.0, 2.5]
    assert run.curve["seconds"].tolist() == [1.0, 1.5, 2.0, 2.5]
    assert run.curve["env_steps"].tolist() == [20, 40, 60, 80]
    written('#{"t_start": 0.0}\nr,t\n5,3\n', "ppo/2.monitor.csv")
    assert read_other_program(Path("ppo")).curve.keys() == {"level", "episodes", "seconds"}  # one file counts no steps


def test_a_log_of_props_scores_its_best_mean_and_says_that_it_is_biased() -> None:
    run = read_other_program(
        written(
            "Iteration, CPU Time, API Time, Total Episodes, Total Steps, Total Reward, Parameters\n"
            "1, 0.5, 2.0, 40, 900, 12.5, [1.0, 2.0, 3.0]\n2, 0.9, 4.0, 60, 1500, 80.0, [1, 2, 3]\n"
            "3, 1.2, 6.0, 80, 1800, 40.0, [1, 2]\n",
            "overall_log.txt",
        )
    )
    assert run.score == 80.0
    assert "selection biases it upwards" in run.meaning
    spent = {name: amounts.tolist() for name, amounts in run.curve.items() if name != "level"}
    assert spent == {"episodes": [40, 60, 80], "env_steps": [900, 1500, 1800], "calls": [1, 2, 3]}
    assert run.curve["level"].tolist() == [12.5, 80.0, 80.0]


def test_a_plain_table_has_returns_over_episodes_or_calls() -> None:
    run = read_other_program(written("Calls,Return\n5,1.5\n9,2.5\n"))
    assert (run.score, run.costs, run.curve["calls"].tolist()) == (2.5, {"calls": 9}, [5, 9])
    assert read_other_program(written("episodes,usd,return\n5,0.5,1\n")).costs["usd"] == 0.5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has an unknown format: a CSV file needs a column `return`"),
        ("return\n1\n", "has an unknown format"),
        ("episodes,return\n1,high\n", "column `return` has a cell that is not a number"),
        ("episodes,return\n1,nan\n", "column `return` has a value that is not finite"),
        ("episodes,return\n", "has no rows yet"),
        ("episodes,return\n1,1e308\n", "column `return` has a value that is not finite, or is beyond"),
        ('#{"t_start": 1e999}\nr,l,t\n1,2,3\n', "is not a monitor file"),
        ('#{"a": ' + "[" * 100_000 + "\nr,l,t\n1,2,3\n", "is not a monitor file"),
        ('#{"t_start": 0}\nl,t\n1,2\n', "has no column `r`"),
        ('#{"t_start": 0}\nr,l,t\n', "has no episodes yet"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        read_other_program(written(text))
    assert "\n" not in str(caught.value)
