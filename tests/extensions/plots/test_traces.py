"""Pictures of whole episodes: panels, limits of requirements, and the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import Line

from policygen.episodes.simulator import ParallelSimulator
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.traces import best_median_worst, traces_figure
from policygen.policies.parse import parse
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement, Task

RAIL = Requirement("rail", "abs(position) <= 0.2")
CALM = Requirement("calm", "abs(angle) + abs(spin) <= 0.5")
FALLEN = Requirement("standing", "angle < 0.2", hard=False)
STEADY = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n"


def played(task: Task, count: int = 4) -> list[Trajectory]:
    policy = parse(STEADY, task, "linear").policy
    with ParallelSimulator(task, 1) as players:
        return players.play(policy, range(count))


def test_each_episode_is_a_column_and_limits_are_drawn() -> None:
    task = replace(load_task("cartpole"), max_steps=60, requirements=(RAIL, CALM, FALLEN))
    episodes = played(task)
    figure = traces_figure(task, best_median_worst(episodes))
    grid = np.array(figure.axes).reshape(-1, 3)
    observed = ["position [m]", "velocity [m/s]", "angle [rad]", "spin [rad/s]"]
    assert [axes.get_ylabel() for axes in grid[:, 0]] == [*observed, "action", "abs(angle) +\nabs(spin)"]
    position, angle, calm = grid[0, 0], grid[2, 0], grid[5, 0]
    assert [line.get_ydata()[0] for line in position.lines[1:]] == [0.2, -0.2]
    assert [line.get_ydata()[0] for line in angle.lines[1:]] == [0.2]
    best = max(episodes, key=lambda episode: episode.episode_return)
    assert position.lines[0].get_ydata() == pytest.approx(best.observations[:, 0])
    assert calm.lines[0].get_ydata() == pytest.approx(np.abs(best.observations[:, 2:]).sum(axis=1))
    assert calm.lines[1].get_ydata()[0] == 0.5
    assert [label.get_text() for label in grid[4, 0].get_yticklabels()] == ["left", "right"]
    assert "best of 4" in position.get_title()
    assert position.lines[0].get_xdata()[:3] == pytest.approx([0, 0.02, 0.04])
    assert grid[-1, 0].get_xlabel() == "time [s]"


def test_signals_of_one_unit_share_a_panel() -> None:
    task = load_task("cartpole")
    wanted = tuple(replace(one, unit="m") if one.name == "velocity" else one for one in task.observations)
    figure = traces_figure(replace(task, observations=wanted), {"an episode": played(task, 1)[0]})
    assert [axes.get_ylabel() for axes in figure.axes][:2] == ["position, velocity\n[m]", "angle [rad]"]
    assert [line.get_label() for line in figure.axes[0].lines] == ["position", "velocity"]
    steps = traces_figure(replace(task, step_seconds=None), {"an episode": played(task, 1)[0]}).axes[-1]
    assert (steps.get_xlabel(), steps.lines[0].get_xdata()[1]) == ("step", 1)


def test_best_median_and_worst_are_chosen_by_return() -> None:
    episodes = played(load_task("cartpole"), 1) * 5
    by_return = [
        replace(one, episode_return=float(value)) for one, value in zip(episodes, (3, 9, 1, 5, 7), strict=True)
    ]
    chosen = {title: one.episode_return for title, one in best_median_worst(by_return).items()}
    assert chosen == {"best of 5": 9, "median of 5": 5, "worst of 5": 1}
    assert list(best_median_worst(by_return[:1])) == ["worst of 1"]
    assert best_median_worst([]) == {}


def test_the_command_draws_and_prints_the_chosen_episodes(line: Line, workplace: Path) -> None:
    (workplace / "steady.txt").write_text(STEADY)
    text = (Path(__file__).parents[3] / "envs" / "cartpole.toml").read_text().replace('"cartpole"', '"mine"', 1)
    rail = '\n[[requirements]]\nname = "rail"\nalways = "abs(position) <= 0.1"\n'
    (workplace / "mine.toml").write_text(text + rail)
    words = ("plot", "steady.txt", "--episode", "--task", "mine.toml", "-o", "e.png", "--episodes")
    done = line(*words, 5)
    assert done.code == 0, done.err
    assert Path("e.png").read_bytes().startswith(b"\x89PNG")
    titles = ["best of 5", "median of 5", "worst of 5", "requirement rail"]
    assert [text.split(":")[0] for text in done.out.splitlines()] == ["e.png", *titles]  # the worst is the furthest
    more = line(*words, 30).out.splitlines()
    drawn, furthest = ({text.rpartition("seed ")[2] for text in some} for some in (more[1:4], more[4:5]))
    assert more[4].startswith("furthest from meeting rail: return ")
    assert not furthest & drawn
    assert more[5].endswith(f"with seed {more[4].rpartition('seed ')[2]}")
