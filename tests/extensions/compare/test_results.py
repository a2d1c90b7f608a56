"""Trainings by Stable-Baselines3: monitor files, and a sentence for what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from policygen.errors import UsageError
from policygen.extensions.compare.contenders import read_training

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
    run = read_training(
        written(monitor([0.0] * 100 + [float(i) for i in range(100)]), "monitor.csv"), "cartpole", "PPO"
    )
    assert (run.score, run.task, run.contender) == (49.5, "cartpole", "PPO")
    assert run.meaning == "mean of the last 100 training episodes"
    episodes, level = run.curve
    assert episodes.tolist() == list(range(1, 201))
    assert level[109] == pytest.approx(0.45)  # episodes 10 to 109: 0 to 9 and ninety zeros
    assert run.costs == {"episodes": 200, "env_steps": 20 * 200, "seconds": 200}


def test_monitor_files_of_parallel_environments_are_one_run_in_order_of_time() -> None:
    written(monitor([1.0, 3.0]), "ppo/0.monitor.csv")
    written(monitor([2.0, 4.0], start=10.5), "ppo/1.monitor.csv")
    run = read_training(Path("ppo"), "t", "PPO")
    assert run.curve[1].tolist() == [1.0, 1.5, 2.0, 2.5]
    assert run.costs == {"episodes": 4, "env_steps": 80, "seconds": 2.5}


@pytest.mark.parametrize(
    "row",
    [
        *("7,2", "1,20,2.8,20,3", "2.53.5,20,2.5", "-2-3.5,20,2.5", "2,20-3,2.5"),
        *('2,20,2.5#{"t_start": 3}\nr,l,t', "2,20,2.5#{}\nr,l,t"),
    ],
)
def test_a_row_that_a_crash_has_cut_or_joined_is_left_out(row: str) -> None:
    run = read_training(written(f'#{{"t_start": 0}}\nr,l,t\n-1e-05,20,1.5\n{row}\n4.0,20,4.5\n'), "t", "PPO")
    assert (run.costs["episodes"], run.costs["env_steps"]) == (2, 40)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "is not a monitor file"),
        ('#{"t_start": 0}\nr,l,t\n1,high,2\n', "is not a monitor file of Stable-Baselines3: could not convert"),
        ('#{"t_start": 0}\nr,l,t\n1,2,inf\n', "has a value that is not finite"),
        ('#{"t_start": 0}\nr,l,t\n1e308,2,3\n', "has a value that is not finite, or is beyond"),
        ('#{"t_start": 1e999}\nr,l,t\n1,2,3\n', "has a value that is not finite"),
        ('#{"a": ' + "[" * 100_000 + "\nr,l,t\n1,2,3\n", "is not a monitor file"),
        ('#{"t_start": 0}\nl,t\n1,2\n', "is not a monitor file"),
        ('#{"t_start": 0}\nr,l,t\n', "has no episodes of Stable-Baselines3"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        read_training(written(text), "t", "PPO")
    assert "\n" not in str(caught.value)
