"""The history in prompts: the attempts with their changes, and the best policy so far."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from searched import searched, texts
from support import ALWAYS_LEFT, LEANING, Written, fenced

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import arrived
from policygen.episodes.score import Score
from policygen.episodes.trajectory import Trajectory
from policygen.errors import TemplateError
from policygen.policies.parse import parse
from policygen.prompts.history import MOST_ATTEMPTS, attempt_views, best_view, refused_view, shortened
from policygen.prompts.render import render_prompt, template_variables
from policygen.runs.attempt import Attempt, Played, saved
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.notes import IDEA
from policygen.runs.state import Context
from policygen.runs.tuning import LAST_SIGNIFICANCE, PROLONGATIONS
from policygen.search.loop import new_search

pytestmark = pytest.mark.usefixtures("workplace")


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
    assert "; proposed as in 1" in request


def test_the_history_says_how_each_proposal_was_decided_and_what_its_idea_was() -> None:
    worse = "**Idea:** lean less. Then more.\n" + ALWAYS_LEFT
    context, config = searched("cartpole", "table", Written([LEANING, worse]), iterations=2)
    first, second = context.attempts[1:]
    assert (first.comparison.gain, first.comparison.p, first.accepted) == (None, None, True)
    assert second.comparison.gain == pytest.approx(second.score.mean - first.score.mean)
    assert (second.comparison.paired_episodes, second.accepted, IDEA.of(second)) == (4, False, "Idea: lean less.")
    _, request = texts(render_prompt(context, config))
    history = request.split("## Attempts so far\n")[1].split("\n## ")[0]
    assert f"refused: {second.comparison.gain:.3g} against 1 on 4 paired episodes" in history
    assert "; idea: Idea: lean less." in history
    assert f"over the same {config.episodes} episodes" in " ".join(history.split())
    assert f"up to {PROLONGATIONS[-1]} times the episodes, where p <= {LAST_SIGNIFICANCE} is enough" in " ".join(
        history.split()
    )
    assert "Its lines that differ from 1: `| * | * | * | * | left |`" in history
    assert "It lost most in steps " in history


# --- long runs -------------------------------------------------------------------------------------------------------


def long_run(kind: str, attempts: int) -> Context:
    """Return a context after `attempts` attempts with random policies; every seventh repeats an earlier one."""
    task = policygen.load_task("cartpole")
    config = effective_config(task, "cartpole", options={"policy": kind})
    search = new_search(task)
    rng = np.random.default_rng(0)
    policies: list[Any] = []
    for number in range(1, attempts + 1):
        weight, cells = rng.normal(), rng.integers(0, 2, task.grid.size if task.grid else 0)
        if number % 7 == 0:
            policies.append(parse(policies[rng.integers(len(policies))].to_text(), task, config.policy).policy)
        elif kind == "linear":
            policies.append(parse(f"left = 0\nright = {weight:.6f}*angle", task, "linear").policy)
        else:
            policies.append(policygen.TablePolicy.from_actions(task, cells))
        score = Score(float(rng.normal()), 1.0, None, False, "test", (1.0,), (1,))
        search.add(Attempt(number, saved(policies[-1]), score, accepted=number in (1, 30, attempts // 2)))
    return search.context(config)


def test_templates_get_the_last_attempts_with_what_they_repeat_and_revise_of_all() -> None:
    context = long_run("linear", 300)
    texts_before = [a.policy.to_text() for a in context.attempts if a.policy is not None]
    plain = [a.policy.to_text(plain=True) for a in context.attempts if a.policy is not None]
    views = attempt_views(context)
    assert [view["number"] for view in views] == list(range(300 - MOST_ATTEMPTS + 1, 301))
    for view in views:
        first = texts_before.index(texts_before[view["number"] - 1]) + 1
        assert view["same_as"] == (first if first != view["number"] else None)
        assert view["parent"] == 150
        assert view["changed"] == f"`{plain[view['number'] - 1].splitlines()[1]}`"
    assert any(view["same_as"] is not None and view["same_as"] < 200 for view in views)


def test_a_table_is_compared_with_the_best_the_most_visited_cells_first() -> None:
    context = long_run("table", 32)
    best = context.incumbent
    assert isinstance(best, policygen.TablePolicy)
    visits = np.arange(best.grid.size, dtype=float)
    for view in attempt_views(context, visits):
        policy = context.attempts[view["number"] - 1].policy
        assert isinstance(policy, policygen.TablePolicy)
        differing = np.flatnonzero(policy.actions != best.actions)
        if view["is_best"]:
            assert view["changed"] == ""
        elif not len(differing):
            assert view["changed"] == "the same table"
        else:
            assert view["changed"].startswith(f"{len(differing)} cells: ")
            assert ",".join(map(str, best.grid.bins_of(differing[-1]))) in view["changed"]


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
    assert "left out here" in request or "more rows are not shown" in request
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
        buffer.add(arrived(number, trajectories, task))
        policy = saved(parse(reply, task, "table").policy)
        attempts.append(Attempt(number, policy, None, Played.of(trajectories)))
    context = replace(new_search(task).context(RunConfig(task="cartpole")), buffer=buffer)
    view = refused_view(attempts[1], attempts[0], context)
    assert view["lines"] == ["| * | * | 0-2 | * | left |", "| * | * | * | * | right |"]
    return view["lost"]


def test_the_fifth_in_which_a_proposal_lost_is_found_with_its_worst_step() -> None:
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


def test_what_chance_explains_is_not_told() -> None:
    rng = np.random.default_rng(0)
    assert lost([rng.normal(size=100) for _ in range(4)], [rng.normal(size=100) for _ in range(4)]) is None
    assert lost([np.zeros(100)], [np.ones(100)]) is None  # a single episode shows nothing


def test_an_episode_that_ends_early_loses_what_would_have_followed() -> None:
    found = lost([np.ones(50 + i) for i in range(5)], [np.ones(100)] * 5, ended=True)
    assert found["first"] >= 60
    assert found["row"]["step"] in range(49, 54)
    assert not lost([np.zeros(50)] * 5, [np.ones(50)] * 5, first_seed=100)["paired"]


def test_what_is_remembered_of_proposals_is_the_same_however_it_was_gathered() -> None:
    context = long_run("linear", 120)
    whole = attempt_views(replace(context, buffer=ReplayBuffer()))
    for count in (1, 2, 50, 120, 70, 120):  # a prompt each; then an earlier state of the same run, and on again
        part = replace(context, attempts=context.attempts[:count])
        alone = replace(part, buffer=ReplayBuffer())
        assert attempt_views(part) == attempt_views(alone)
    assert attempt_views(context) == whole
