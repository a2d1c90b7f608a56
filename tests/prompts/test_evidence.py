"""Evidence: the attempts with their changes, the best policy, episodes as columns, and visited cells."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from searched import searched, texts
from support import ALWAYS_LEFT, ALWAYS_RIGHT, LEANING, Written, fenced

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import Relevance, make_episodes
from policygen.episodes.score import Score
from policygen.episodes.trajectory import Trajectory
from policygen.errors import TemplateError
from policygen.policies.parse import parse
from policygen.prompts.evidence import (
    LEAST_EPISODES,
    MOST_ATTEMPTS,
    MOST_READ,
    attempt_views,
    best_view,
    episode_view,
    ranked,
    reader_for,
    refused_view,
)
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import render_prompt, shortened, template_variables
from policygen.runs.attempt import Attempt, Played, saved
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.notes import IDEA
from policygen.runs.state import Context
from policygen.runs.tuning import LAST_SIGNIFICANCE, PROLONGATIONS
from policygen.search.loop import new_search
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


# --- attempts and the best policy ------------------------------------------------------------------------------------


LAW = """
let drive = rate1 - 0.1*sin2
minus = -1*drive
zero = 0
plus = drive
"""
OTHER_LAW = LAW.replace("0.1*sin2", "0.3*sin1")


def test_the_history_tells_what_a_linear_proposal_changed_and_what_was_proposed_before() -> None:
    context, config = searched("acrobot", "linear", Written([LAW, OTHER_LAW, LAW, OTHER_LAW]), iterations=4)
    views = template_variables(context, config)["attempts"]
    assert [view["same_as"] for view in views] == [None, None, 1, 2]
    assert views[0]["parent"] is None
    assert views[1]["parent"] == 1
    assert views[1]["changed"] == "`let drive = rate1 - 0.3*sin1`"
    _, request = texts(render_prompt(context, config))
    assert "; proposed like 1" in request


def test_the_history_says_how_each_proposal_was_decided_and_what_its_idea_was() -> None:
    worse = "**Idea:** lean less. Then more.\n" + ALWAYS_LEFT
    context, config = searched("cartpole", "table", Written([LEANING, worse]), iterations=2)
    first, second = context.attempts[1:]
    assert (first.comparison.gain, first.comparison.p, first.accepted) == (None, None, True)
    assert second.comparison.gain == pytest.approx(second.score.mean - first.score.mean)
    assert (second.comparison.paired_episodes, second.accepted, IDEA.of(second)) == (4, False, "Idea: lean less.")
    _, request = texts(render_prompt(context, config))
    history = request.split("## Attempts so far\n")[1].split("\n## ")[0]
    assert f"refused: {-second.comparison.gain:.3g} below attempt 1 on 4 paired episodes" in history
    assert "; idea: Idea: lean less." in history
    assert f"over the same {config.episodes} episodes" in " ".join(history.split())
    assert f"up to {PROLONGATIONS[-1]} times the episodes, where p <= {LAST_SIGNIFICANCE} is enough" in " ".join(
        history.split()
    )
    assert "; changes: `| * | * | * | * | left |`" in history
    assert "Against attempt 1 it lost most in steps " in history


# --- long runs -------------------------------------------------------------------------------------------------------


def after(kind: str, replies: list[str], accepted: tuple[int, ...]) -> Context:
    """Return a context after attempts with the policies of these replies, scored at random."""
    task, rng = policygen.load_task("cartpole"), np.random.default_rng(0)
    search = new_search(task)
    for number, reply in enumerate(replies, start=1):
        policy = parse(reply, task, kind, search.best.policy if search.best else None, policy_only=True).policy
        score = Score(float(rng.normal()), 1.0, None, False, "test", (1.0,), (1,))
        search.add(Attempt(number, saved(policy), score, accepted=number in accepted))
    return search.context(effective_config(task, "cartpole", options={"policy": kind}))


def test_templates_get_the_last_attempts_with_what_they_repeat_and_revise_of_all() -> None:
    weights = np.random.default_rng(0).normal(size=300).round(6)
    weights[6::7] = weights[:-6:7]  # every seventh repeats an earlier one
    context = after("linear", [f"left = 0\nright = {weight}*angle" for weight in weights], (1, 30, 150))
    views = attempt_views(context)
    assert [view["number"] for view in views] == list(range(300 - MOST_ATTEMPTS + 1, 301))
    for view in views:
        first = list(weights).index(weights[view["number"] - 1]) + 1
        assert view["same_as"] == (first if first != view["number"] else None)
        assert (view["parent"], view["changed"]) == (150, f"`right = {weights[view['number'] - 1]}*angle`")
    for count in (1, 50, 70, 300):  # a prompt each; then an earlier state of the same run, and on again
        part = replace(context, attempts=context.attempts[:count])
        assert attempt_views(part) == attempt_views(replace(part, buffer=ReplayBuffer()))


def test_a_table_tells_the_rows_that_the_best_of_its_time_lacked_and_those_it_dropped() -> None:
    rows = ["| * | * | 0-2 | * | left |", "| * | * | * | 3-5 | right |", "| * | * | * | * | left |"]
    more = ["| * | * | 3 | 0 | right |", *rows]
    header = ("| position | velocity | angle | spin | action |", "|-|-|-|-|-|")
    tables = (rows, more, [rows[1], rows[0], rows[2]], rows[1:], more)
    views = attempt_views(after("table", [fenced(*header, *some) for some in tables], (1,)))
    assert [view["changed"] for view in views[1:4]] == [
        "`| * | * | 3 | 0 | right |`",
        "another order of rows",
        "without `| * | * | 0-2 | * | left |`",
    ]
    assert [view["same_as"] for view in views] == [None, None, None, None, 2]


# --- policies too long for a prompt ----------------------------------------------------------------------------------


def view_of(policy: policygen.Policy) -> Any:
    score = Score(1.0, 1.0, None, False, "test", (1.0,), (1,))
    return best_view(Attempt(1, saved(policy), score), score)


def test_a_long_policy_keeps_its_first_and_last_lines_and_says_how_many_are_left_out() -> None:
    task = policygen.load_task("cartpole")
    lets = "\n".join(f"let quantity_{i} = {i}*angle + spin" for i in range(90))
    total = " + ".join(f"quantity_{i}" for i in range(90))
    policy = parse(f"{lets}\nleft = 0\nright = {total}", task, "linear").policy
    whole = view_of(policy)
    assert shortened(whole, len(whole["text"])) == whole
    for characters in (3_000, 50):
        short = shortened(whole, characters)
        assert len(short["text"]) < characters + 200
        assert short["text"] == "\n".join(short["lines"])
        gap = next(i for i, line in enumerate(short["lines"]) if "left out" in line)
        assert f"({93 - len(short['lines']):,} of 92 lines are left out here)" in short["lines"][gap]
        if characters > 50:
            assert short["lines"][:gap] == whole["lines"][:gap]
            assert short["lines"][gap + 1 :][-1].startswith("right = quantity_0 + quantity_1 ")
            assert gap > 20


@pytest.mark.parametrize("kind", ["linear", "table"])
def test_a_policy_too_long_for_any_prompt_does_not_end_the_run(kind: str) -> None:
    if kind == "linear":
        names = [f"a_quantity_of_quite_a_long_name_that_says_what_it_is_{i}" for i in range(30)]
        lets = [f"let {name} = {i}*angle + sin({i}*spin)/(1 + position^2)" for i, name in enumerate(names)]
        reply = fenced(*lets, "left = 0", "right = " + " + ".join(names[:30]))
        options: dict[str, Any] = {}
    else:
        edges = ", ".join(str(round(i / 100, 2)) for i in range(-250, 250))
        rows = [f"| {i} | {i % 2} |" for i in range(501)]
        reply = fenced(f"bins angle: {edges}", "| angle | action |", "|---|---|", *rows)
        options = {"grid": "free"}
    context, config = searched("cartpole", kind, Written([reply, reply]), iterations=2, prompt_tokens=2_400, **options)
    assert len(context.incumbent.to_text()) > 4 * 1_000
    prompt = render_prompt(context, config)
    assert prompt.estimated_tokens <= 2_400
    request = texts(prompt)[1]
    assert "left out here" in request
    assert "## Your turn" in request
    with pytest.raises(TemplateError, match="at its shortest"):
        render_prompt(context, config.model_copy(update={"prompt_tokens": 700}))


def test_changes_are_told_in_whole_lines_those_that_decide_first() -> None:
    lets = [f"let part_{i} = {i + 2}*angle + sin({i}*spin)/7 + 0.123*position" for i in range(30)]
    total = " + ".join(f"part_{i}" for i in range(30))
    replies = ["left = 0\nright = angle", "\n".join([*lets, f"right = 2*angle + {total}"])]
    _, request = texts(render_prompt(*searched("cartpole", "linear", Written(replies), iterations=2)))
    entry = request.split("\n- 2: ")[1].split("\n\n")[0]
    listed = entry.split("  Its lines that differ from 1: ")[1].split("\n")[0] if "differ from 1" in entry else entry
    first = listed[listed.index("`") :].split("; ")
    assert first[0].startswith("`right = 2*angle")
    assert all(re.fullmatch(r"`[^`]+`", line) for line in first[:-1])
    assert re.fullmatch(r"and \d+ more", first[-1])
    assert len(first) - 1 + int(first[-1].split()[1]) == 31


def lost(mine: list[np.ndarray], best: list[np.ndarray], first_seed: int = 0, ended: bool = False) -> Any:
    """Return what a prompt tells of the loss of attempt 2 against attempt 1, from the rewards of their episodes."""
    task = policygen.load_task("cartpole")
    buffer = ReplayBuffer()
    attempts = []
    for number, some, reply in ((1, best, ALWAYS_LEFT), (2, mine, LEANING)):
        trajectories = []
        for seed, rewards in enumerate(some, start=first_seed * (number - 1)):
            n, over = len(rewards), ended and number == 2
            observations = np.linspace(0, 1, 4 * (n + 1), dtype=np.float32).reshape(n + 1, 4)
            actions, paid = np.zeros(n, np.int16), rewards.astype(np.float32)
            trajectories.append(Trajectory(observations, actions, paid, float(rewards.sum()), seed, over, not over))
        buffer.add(make_episodes(number, trajectories, task))
        policy = saved(parse(reply, task, "table").policy)
        attempts.append(Attempt(number, policy, None, Played.of(trajectories)))
    context = replace(new_search(task).context(RunConfig(task="cartpole")), buffer=buffer)
    return refused_view(attempts[1], attempts[0], context)["lost"]


def test_the_fifth_in_which_a_proposal_lost_is_found_with_its_worst_step_unless_chance_explains_it() -> None:
    best = [np.ones(100) + 0.1 * i for i in range(6)]
    mine = [rewards.copy() for rewards in best]
    for i, rewards in enumerate(mine):
        rewards[40:60] -= 0.5 + 0.01 * i
    mine[5][47] -= 1
    found = lost(mine, best)
    assert (found["first"], found["last"], found["paired"], found["episodes"]) == (40, 59, True, 6)
    assert found["mean"] == pytest.approx(np.mean([(b - m).sum() for b, m in zip(best, mine, strict=True)]))
    assert found["row"]["step"] == 47
    assert {"angle", "cell", "action", "reward"} <= set(found["row"])
    rng = np.random.default_rng(0)
    assert lost([rng.normal(size=100) for _ in range(4)], [rng.normal(size=100) for _ in range(4)]) is None
    assert lost([np.zeros(100)], [np.ones(100)]) is None  # a single episode shows nothing


def test_an_episode_that_ends_early_loses_what_would_have_followed() -> None:
    found = lost([np.ones(50 + i) for i in range(5)], [np.ones(100)] * 5, ended=True)
    assert found["first"] >= 60
    assert found["row"]["step"] in range(49, 54)
    assert not lost([np.zeros(50)] * 5, [np.ones(50)] * 5, first_seed=100)["paired"]


# --- episodes --------------------------------------------------------------------------------------------------------


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
    names = re.search(r"^A line holds: (.*?)\.", request, re.MULTILINE)[1].split()
    row = re.search(r"^\d+(-\d+)? .*$", request.split("\n## Worst")[1], re.MULTILINE)[0]
    shown = dict(zip(names, row.split(), strict=True))
    step = int(shown["step"].split("-")[0])
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


def test_of_many_columns_the_relevant_and_the_varying_stay() -> None:
    assert ranked(NAMES, None, KNOWN) == ["q26", "q25", *(f"q{i}" for i in (29, 28, 27, 24, 23, 22, 21, 20, 19, 18))]
    assert ranked(NAMES[:5], None, KNOWN) == ["q4", "q3", "q2", "q1", "q0"]


def test_what_the_policy_reads_comes_after_the_relevant_and_before_the_rest() -> None:
    reply = fenced("let a = q3 + q4", "let b = a*q5", "torque = b + q6")
    policy = parse(reply, unnamed(30)).policy
    order = ranked([*NAMES, "a", "b"], policy, KNOWN)
    assert order[:8] == ["q26", "q25", "q6", "b", "q5", "q4", "q3", "a"]
    assert len(order) == MOST_READ
    latch = parse(reply.replace("let b = a*q5", "let b = a*q5\nlet on = where(q7 > 1, 1, prev(on))\nlet c = on*b")
                  .replace("torque = b", "torque = c"), unnamed(30)).policy  # fmt: skip
    assert ranked([*NAMES, "a", "b", "on", "c"], latch, KNOWN)[:6] == ["q26", "q25", "on", "q6", "c", "q7"]


# --- visited cells ---------------------------------------------------------------------------------------------------


def counted(episodes: collections.abc.Iterable[Any], policy: policygen.TablePolicy) -> tuple[Any, Any, Any]:
    """Return visits, visits before a fall, and the returns to go from first visits, by (bins, action)."""
    counts: collections.Counter[Any] = collections.Counter()
    ends: collections.Counter[Any] = collections.Counter()
    returns: collections.defaultdict[Any, list[float]] = collections.defaultdict(list)
    for episode in episodes:
        t, met = episode.trajectory, set()
        for step, cell in enumerate(policy.cells(t.observations[:-1]).tolist()):
            key = (tuple(policy.grid.bins_of(cell).tolist()), ("left", "right")[int(t.actions[step])])
            counts[key] += 1
            ends[key] += t.terminated and step >= t.length - 10
            if key not in met:
                met.add(key)
                returns[key].append(float(t.rewards[step:].sum()))
    return counts, ends, returns


def test_visits_are_those_of_the_best_policy_and_told_only_where_chance_does_not_explain_them() -> None:
    context, config = searched("cartpole", "table", iterations=6, episodes=20, warmup_episodes=40)
    policy = context.incumbent
    assert isinstance(policy, policygen.TablePolicy)
    counts, ends, returns = counted(context.buffer.of_attempt(context.best.number), policy)
    _, _, anywhere = counted(context.buffer, policy)
    views = template_variables(context, config)["visits"]
    assert views

    def interval(values: list[float]) -> tuple[float, float]:
        half = 2 * np.std(values, ddof=1) / np.sqrt(len(values))
        return np.mean(values) - half, np.mean(values) + half

    for view in views:
        key = (view["bins"], view["action"])
        assert (view["visits"], view["ends_soon"], view["episodes"]) == (counts[key], ends[key], len(returns[key]))
        assert view["mean_return"] == pytest.approx(np.mean(returns[key]))
        low, high = interval(returns[key])
        assert view["error"] == pytest.approx((high - low) / 4)
        other = (view["bins"], {"left": "right", "right": "left"}[view["action"]])
        if len(anywhere[other]) >= LEAST_EPISODES:
            assert view["other"] == other[1]
            assert view["other_return"] == pytest.approx(np.mean(anywhere[other]))
            below, above = interval(anywhere[other])
            assert above < low + 1e-9 or below > high - 1e-9
        else:
            assert view["other"] == ""
    order = [(-view["ends_soon"], -view["visits"]) for view in views]
    assert order == sorted(order)


def test_actions_that_are_random_numbers_are_not_counted() -> None:
    context, config = searched("Pendulum-v1", "table", iterations=1, warmup_episodes=8)
    assert context.buffer.transitions > 1_000
    assert template_variables(context, config)["visits"] == []
