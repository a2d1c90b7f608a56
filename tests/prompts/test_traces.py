"""Traces: an episode as columns, with rhythms and the first anomaly."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from searched import searched, texts
from support import ALWAYS_RIGHT, Written, fenced

import policygen
from policygen.episodes.evidence import Relevance
from policygen.policies.parse import parse
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import render_prompt, template_variables
from policygen.prompts.traces import IN_TURN, MOST_COLUMNS, MOST_READ, episode_view, ranked, reader_for
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def test_features_named_like_a_column_of_the_trace_have_a_column_of_their_own() -> None:
    lets = ["let step = angle + 1", "let reward = 2*spin", "let first = where(prev(first, 1) > 0, angle, 3)"]
    reply = "\n".join([*lets, "left = 0", "right = step + reward + first - 1"])
    context, config = searched("cartpole", "linear", Written([reply]), iterations=1)
    episode = template_variables(context, config)["worst_episodes"][0]
    assert episode.columns["step"] == list(range(episode.length))
    assert set(episode.columns["reward"]) == {1.0}
    assert episode.columns["step_"] == pytest.approx([angle + 1 for angle in episode.columns["angle"]])
    assert {"step_", "reward_", "first_"} <= set(episode.traced)
    _, request = texts(render_prompt(context, config))
    header = next(line for line in request.splitlines() if line.startswith("steps "))
    row = request.split(header + "\n")[1].splitlines()[0]
    shown = dict(zip(header.split(), row.split(), strict=True))
    step = int(shown["steps"].split("-")[0])
    assert float(shown["first_"]) == pytest.approx(episode.columns["first_"][step], abs=0.01)


def test_a_trace_that_reaches_the_end_shows_where_it_ended() -> None:
    context, config = searched("frozenlake", "table", Written([ALWAYS_RIGHT]), iterations=1)
    episode = template_variables(context, config)["worst_episodes"][0]
    trajectory = next(
        e.trajectory for e in context.buffer.of_attempt(1) if e.trajectory.episode_return == episode.episode_return
    )
    *_, last, end = FILTERS["condensed"](episode, 9)
    assert end["cell"] == divmod(int(trajectory.observations[-1, 0]), 4) != last["cell"]
    assert (end["action"], end["reward"], end["total"]) == (None, None, None)
    _, request = texts(render_prompt(context, config))
    assert f"\nend {int(trajectory.observations[-1, 0])} {end['cell'][0]},{end['cell'][1]} - -\n" in request


def test_a_goal_is_told_only_of_a_task_that_is_described() -> None:
    rows = "| row | column | action |\n| 0,1 | * | down |\n| 2 | 0 | right |\n| 2 | * | down |\n| 3 | * | right |"
    context, _ = searched("frozenlake-deterministic", "table", Written([fenced(rows)]), iterations=1)
    (episode, *_) = context.buffer.of_attempt(1)
    quoted = dataclasses.replace(context.task, about="", documentation="A lake.")
    endings = [episode_view(episode, reader_for(task, task.grid), None).ending for task in (context.task, quoted)]
    assert endings == ["terminated by the environment, its goal reached", "terminated by the environment"]


def test_what_stands_still_is_one_row_and_no_column_is_there_twice() -> None:
    reply = "let copy = spin\nlet still = 2\nleft = 0\nright = copy + angle + still - 2"
    context, config = searched("cartpole", "linear", Written([reply]), iterations=1)
    variables = template_variables(context, config)
    view = [*variables["worst_episodes"], *variables["best_episodes"]][0]
    assert "copy" in view.columns
    assert not {"copy", "still"} & set(view.traced)
    resting = {name: [*values[:5], *[values[4]] * 100] for name, values in view.columns.items()}
    resting["step"] = list(range(105))
    rows = FILTERS["condensed"](dataclasses.replace(view, columns=resting, length=105), 50, "start")
    assert rows[-1]["steps"] == "4-104"
    assert rows[-1]["total"] == 101
    assert sum(row["count"] for row in rows) == 105
    assert [row["step"] for row in FILTERS["coarse"](view, 5)][::4] == [0, view.length - 1]


def test_a_table_sees_the_cell_of_every_step_and_words_for_every_action() -> None:
    context, config = searched("cartpole", "table", iterations=2)
    policy = context.incumbent
    assert isinstance(policy, policygen.TablePolicy)
    view = template_variables(context, config)["best_episodes"][0]
    trajectory = context.buffer.best(1)[0].trajectory
    cells = policy.grid.bins_of(policy.cells(trajectory.observations[:-1]))
    assert view.columns["cell"] == list(map(tuple, cells.tolist()))
    assert view.columns["action"] == [("left", "right")[a] for a in trajectory.actions]
    assert view.columns["reward"] == trajectory.rewards.tolist()
    assert view.outputs == ("action",)
    for signal in view.signals:
        values = view.columns[signal.name]
        assert (signal.low, signal.high) == (min(values), max(values))


def test_a_fall_has_a_first_anomaly_after_what_was_usual() -> None:
    reply = fenced("left = 0", "right = spin")
    context, config = searched("cartpole", "linear", Written([reply]), iterations=1)
    view = template_variables(context, config)["worst_episodes"][0]
    assert view.ending == "terminated by the environment"
    outside = np.array(view.columns[view.anomaly.name][view.anomaly.step :])
    assert ((outside < view.anomaly.low) | (outside > view.anomaly.high)).all()
    assert 0 < view.anomaly.step < view.length


def unnamed(count: int) -> Task:
    """Return a task with `count` observations; its text does not describe reward and ends."""
    observations = tuple(Observation(f"q{i}", low=-np.inf, high=np.inf) for i in range(count))
    task = policygen.load_task("pendulum")
    return replace(task, observations=observations, features=(), about="", inputs=(), reward="", solved=None)


NAMES = [f"q{i}" for i in range(30)]
KNOWN = Relevance(dict.fromkeys(NAMES, 0.0) | {"q25": 1.0, "q26": 2.0}, {f"q{i}": float(i) for i in range(30)})


def test_of_many_columns_the_relevant_and_the_varying_stay_and_the_rest_takes_turns() -> None:
    prompts = [ranked(NAMES, None, KNOWN, turn) for turn in range(1, 12)]
    assert all(len(names) == len(set(names)) == MOST_COLUMNS for names in prompts)
    assert {tuple(names[:-IN_TURN]) for names in prompts} == {tuple(prompts[0][:-IN_TURN])}
    assert prompts[0][:4] == ["q26", "q25", "q29", "q28"]
    assert {name for names in prompts for name in names} == set(NAMES)
    assert ranked(NAMES[:5], None, KNOWN, 1) == ["q4", "q3", "q2", "q1", "q0"]


def test_what_the_policy_reads_comes_after_the_relevant_and_before_the_rest() -> None:
    reply = fenced("let a = q3 + q4", "let b = a*q5", "torque = b + q6")
    policy = parse(reply, unnamed(30)).policy
    order = ranked([*NAMES, "a", "b"], policy, KNOWN, 1)
    assert order[:8] == ["q26", "q25", "q6", "b", "q3", "a", "q4", "q5"]
    assert len(order) == MOST_READ
    latch = parse(reply.replace("let b = a*q5", "let b = a*q5\nlet on = where(q7 > 1, 1, prev(on))\nlet c = on*b")
                  .replace("torque = b", "torque = c"), unnamed(30)).policy  # fmt: skip
    assert ranked([*NAMES, "a", "b", "on", "c"], latch, KNOWN, 1)[:6] == ["q26", "q25", "on", "q6", "c", "q3"]
