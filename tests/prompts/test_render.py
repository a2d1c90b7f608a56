"""Rendered prompts: their content, their budget of tokens, and repairs."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from searched import attempts_of, searched, texts
from support import ALWAYS_DOWN, ALWAYS_RIGHT, LEANING, Written, fenced

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import make_episodes
from policygen.episodes.score import episode_seeds, sampled_score
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import TemplateError
from policygen.llm.messages import CHARACTERS_PER_TOKEN, Message
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.prompts.evidence import best_view
from policygen.prompts.render import render_prompt, render_repair, template_variables
from policygen.quantities.operations import FUNCTION_NAMES
from policygen.runs.attempt import Attempt, Played, saved
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.notes import IDEA
from policygen.runs.state import Context
from policygen.search.loop import new_search
from policygen.tasks.task import without_knowledge

pytestmark = pytest.mark.usefixtures("workplace")

CASES = [
    ("cartpole", "table"),
    ("cartpole", "linear"),
    ("Pendulum-v1", "linear"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def later(request: pytest.FixtureRequest) -> tuple[Context, RunConfig]:
    return searched(*request.param, iterations=3, prompt_tokens=100_000)


# --- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_first_prompt_states_the_task_the_language_and_what_random_actions_do(name: str, kind: str) -> None:
    context, config = searched(name, kind, iterations=1)
    system, request = texts(render_prompt(context, config))
    task = context.task
    assert "## How to write a policy" in system
    assert task.about.strip().splitlines()[0] in request
    for observation in task.observations:
        assert f"- {observation.name}" in request
    for actuator in task.actuators:
        assert all(label in request for label in actuator.labels)
    for hint in task.hints:
        assert hint in request
    assert f"at most {task.max_steps} steps" in request
    assert f"Random actions score {context.attempts[0].score} (95% interval)." in request
    assert "## No policy yet" in request
    assert "## Worst episode" in request
    assert "This is attempt 1 of 1." in request
    if kind == "table":
        for dimension in task.grid.dimensions:
            assert f"- {dimension.name}: " in request
        assert "Table columns, unless you write `bins` lines: | " in request
        assert "## Bins" in request
    else:
        assert "## Bins" not in request
        assert "Outputs, one equation each: " in request


def test_a_later_prompt_holds_the_best_policy_word_for_word_and_it_reads_back(
    later: tuple[Context, RunConfig],
) -> None:
    context, config = later
    _, request = texts(render_prompt(context, config))
    block = re.search(r"## Best policy so far \(attempt (\d+)\)\n```\n(.*?)\n```", request, re.DOTALL)
    assert int(block[1]) == context.best.number
    words = [line.split() for line in context.incumbent.to_text().splitlines() if "| --" not in line]
    assert [line.split() for line in block[2].splitlines() if "|--" not in line] == words
    again = parse(block[2], context.task, context.kind).policy
    observations = np.concatenate([episode.trajectory.observations for episode in context.buffer])
    assert np.array_equal(again.act(observations), context.incumbent.act(observations))


def test_a_later_prompt_tells_of_scores_episodes_visits_and_every_attempt(later: tuple[Context, RunConfig]) -> None:
    context, config = later
    _, request = texts(render_prompt(context, config))
    assert f"Score {context.reported_score}" in request
    assert "## Worst episode of the best policy" in request
    assert "## Best episode so far" in request
    history = request.split("## Attempts so far\n")[1].split("\n## ")[0]
    assert [int(n) for n in re.findall(r"^- (\d+):", history, re.MULTILINE)][:3] == [1, 2, 3]
    assert history.count("the best") >= 1
    best = max(context.buffer.returns)
    shown = [float(value) for value in re.findall(r"^(?:.*: r|R)eturn ([^\s,]+)", request, re.MULTILINE)]
    assert any(value == pytest.approx(best, rel=1e-3) for value in shown)
    if context.kind == "table":
        assert "## Where the reward comes from" in request
        assert ("## What actions led to" in request) == bool(template_variables(context, config)["visits"])
    for attempt in context.attempts[1:]:
        entry = history.split(f"- {attempt.number}: ")[1].split("\n- ")[0]
        assert ("; idea: " in entry) == (IDEA.of(attempt) is not None)


@pytest.mark.parametrize(("name", "kind", "more"), [(*CASES[0], {}), (*CASES[1], {"shape": True, "refine": "cma:8"})])
def test_without_episodes_a_prompt_shows_only_policies_and_scores(
    name: str, kind: str, more: dict[str, object]
) -> None:
    context, config = searched(name, kind, iterations=3, prompt_tokens=100_000, **more)
    _, request = texts(render_prompt(context, config.model_copy(update={"episodes_shown": False})))
    headings = re.findall(r"^## (.*)$", request, re.MULTILINE)
    assert not [heading for heading in headings if re.search("episode|Episode|points|Lowest", heading)]
    assert {"Best policy so far", "Attempts so far"} <= {heading.partition(" (")[0] for heading in headings}
    assert f"Score {context.reported_score}" in request
    assert not re.search(
        r"^(Return|\d+-\d+ |end )|Its episodes|lost most|visited|Sums per|worst episode", request, re.MULTILINE
    )
    context, config = searched(name, kind, iterations=1, warmup_episodes=0)
    first = texts(render_prompt(context, config))[1]
    assert not re.search("None|Random actions|## Worst", first)


@pytest.fixture(scope="module")
def small() -> tuple[Context, RunConfig]:
    return searched("frozenlake", "table", Written([ALWAYS_DOWN, ALWAYS_RIGHT]), iterations=2)


# --- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES[:2], ids="-".join)
def test_a_smaller_budget_gives_a_shorter_prompt_that_keeps_policy_and_instructions(case: tuple[str, str]) -> None:
    context, config = searched(*case, iterations=3, prompt_tokens=100_000)
    assert context.incumbent is not None
    full = render_prompt(context, config.model_copy(update={"prompt_tokens": 100_000})).estimated_tokens
    sizes = []
    for share in (1.0, 0.985, 0.97, 0.955):
        tokens = round(share * full)
        prompt = render_prompt(context, config.model_copy(update={"prompt_tokens": tokens}))
        system, request = texts(prompt)
        assert prompt.estimated_tokens <= tokens
        sizes.append(prompt.estimated_tokens)
        assert "## How to write a policy" in system
        assert "## Your turn" in request
        assert best_view(context.best, context.reported_score)["text"] in request
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_a_continued_conversation_leaves_out_its_oldest_turns_first(small: tuple[Context, RunConfig]) -> None:
    context, config = small
    turns = [
        message
        for number in range(40)
        for message in (Message("user", f"ask {number} " * 100), Message("assistant", f"answer {number} " * 100))
    ]
    prompt = render_prompt(context, config.model_copy(update={"prompt_tokens": 4000}), turns)
    carried = list(prompt.messages[1:-1])
    assert 0 < len(carried) < len(turns)
    assert carried == turns[-len(carried) :]
    assert [message.role for message in carried] == ["user", "assistant"] * (len(carried) // 2)
    assert prompt.estimated_tokens <= 4000


# --- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "linear"])
def test_a_repair_continues_the_conversation_with_every_problem(kind: str) -> None:
    context, config = searched("cartpole", kind, iterations=1)
    prompt = render_prompt(context, config)
    reply = fenced("| a | b |", "left = 3*angel", "right = spin +", "let x = 1/")
    problems = parse(reply, context.task, context.kind).problems
    assert problems
    repair = render_repair(prompt, reply, problems, context, config)
    assert repair.messages[: len(prompt.messages)] == prompt.messages
    assert repair.messages[-2] == Message("assistant", reply)
    for problem in problems:
        assert str(problem) in repair.messages[-1].content
        if problem.line is not None:
            assert f"line {problem.line} was: `{reply.splitlines()[problem.line - 1]}`" in repair.messages[-1].content
    problems = parse("", context.task, context.kind).problems
    assert render_repair(prompt, "", problems, context, config).messages[-2].content == "(empty)"


def test_a_repair_asks_for_what_is_wrong_and_knows_the_columns_and_features_of_the_reply() -> None:
    context, config = searched("cartpole", "table", Written([LEANING]), iterations=1, grid="free")
    reply = fenced(
        "let lead = angle + 0.3*spin", "bins lead: -0.1, 0.1", "| lead | action |", "|---|---|", "| 0 | lft |"
    )
    problems = parse(reply, context.task, context.kind, context.incumbent).problems
    repair = render_repair(render_prompt(context, config), reply, problems, context, config).messages[-1].content
    assert "Table columns: | lead | action |." in repair
    assert "Correct this and nothing else" in repair
    assert "Whatever you leave out still stays as in the best policy." in repair
    assert "whole policy" not in repair
    context, config = searched("cartpole", "linear", iterations=1)
    reply = fenced("let lead = angle + 0.3*spin", "left = 0", "right = led")
    problems = parse(reply, context.task, context.kind).problems
    repair = render_repair(render_prompt(context, config), reply, problems, context, config).messages[-1].content
    assert "; features: lead." in repair
    assert "best policy" not in repair


@pytest.mark.parametrize("kind", ["table", "linear"])
def test_every_function_of_the_language_is_told(kind: str) -> None:
    system, _ = texts(render_prompt(*searched("cartpole", kind, iterations=1, grid="free")))
    told = set(re.search(r"(abs [a-z0-9 ]+) \(min and max", system)[1].split())  # type: ignore[index]
    assert told == {*FUNCTION_NAMES} - {"fixed", "where"}
    if kind == "table":
        context, config = searched("cartpole", kind, iterations=1)
        assert "a value equal to an edge belongs to the bin after it" in texts(render_prompt(context, config))[1]


# --- long and strange policies ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quickly_discovered")
@pytest.mark.parametrize(("name", "most"), [("cartpole", 100), ("Ant-v5", 210)])
def test_the_model_is_told_how_many_features_there_may_be(name: str, most: int) -> None:
    context, config = searched(name, "linear", iterations=1, warmup_episodes=1)
    assert f"at most {most} of them, in any order" in texts(render_prompt(context, config))[0]
    lets = "\n".join(f"let quantity_{i} = {i}" for i in range(most + 1))
    problem = parse(lets, context.task, "linear").problems[0]
    assert f"at most {most}" in str(problem)


def test_a_long_policy_is_shown_whole_and_the_traces_keep_what_it_observes_and_what_decides() -> None:
    features = [f"let f{i} = f{i - 1} + sin({i + 1}*spin - position)^2/7" for i in range(1, 60)]
    reply = "\n".join(["let f0 = 2*angle", *features, "left = 0", "right = f59 + angle - 30"])
    context, config = searched("cartpole", "linear", Written([reply]), iterations=1, prompt_tokens=100_000)
    roomy = render_prompt(context, config)
    long = len(context.incumbent.to_text())
    tight = config.model_copy(update={"prompt_tokens": long // CHARACTERS_PER_TOKEN + 1_350})
    assert roomy.estimated_tokens > tight.prompt_tokens
    _, request = texts(render_prompt(context, tight))
    assert context.incumbent.to_text() in request
    names = re.search(r"^A line holds: (.*?)\.", request, re.MULTILINE)[1].split()
    assert len(names) < 40
    assert {"angle", "f59", "action", "reward"} <= set(names)
    with pytest.raises(TemplateError, match="at its shortest"):
        render_prompt(context, config.model_copy(update={"prompt_tokens": long // CHARACTERS_PER_TOKEN}))


def test_the_names_of_reward_terms_are_knowledge() -> None:
    pytest.importorskip("mujoco")
    reply = "a0 = 0.1*x6\na1 = -0.2*x7"
    told, told_config = searched(
        "reacher", "linear", Written(["torque1 = 0.1*rate1\ntorque2 = 0.1*rate2"]), iterations=1
    )
    assert "dist " in texts(render_prompt(told, told_config))[1]
    task = without_knowledge(policygen.load_task("reacher"))
    options = {"policy": "linear", "episodes": 4, "warmup_episodes": 4, "iterations": 1, "ablate": "knowledge"}
    config = effective_config(task, "reacher", options=options)
    search = new_search(task)
    list(attempts_of(search, config, Written([reply])))
    request = texts(render_prompt(search.context(config), config))[1]
    assert not re.search(r"\bdist\b|\bctrl\b", request)


# --- what is said of numbers -----------------------------------------------------------------------------------------


def test_worst_episodes_hold_a_won_one_only_if_all_were_won() -> None:
    context, config = searched("frozenlake", "table", Written([ALWAYS_RIGHT]), iterations=1, episodes=5)
    best = context.best

    def shown(*returns: float) -> tuple[list[float], str]:
        buffer, task = ReplayBuffer(), replace(context.task, solved=None, optimum=None)
        for seed, value in enumerate(returns):
            rewards = np.zeros(4 + seed, np.float32)
            rewards[-1] = value
            rows, actions = np.zeros((len(rewards) + 1, 1), np.float32), np.zeros(len(rewards), np.int16)
            buffer.add(make_episodes(best.number, [Trajectory(rows, actions, rewards, value, seed, True, False)], task))
        some = dataclasses.replace(context, buffer=buffer, task=task)
        worst = [view.episode_return for view in template_variables(some, config)["worst_episodes"]]
        return worst, texts(render_prompt(some, config))[1]

    worst, request = shown(0.0, 3.0, 0.5, 1.0, 2.0)  # the two highest are the best episodes
    assert worst == [0.0]
    assert "## Worst episode of the best policy" in request
    worst, request = shown(0.25, 3.0, 0.5, 1.0, 2.0)
    assert worst == [0.25, 0.5, 1.0]
    assert "## Lowest return of the best policy" in request
    assert "Worst episode" not in request


def test_a_prompt_after_twenty_attempts_and_episodes_of_500_steps_is_short() -> None:
    task = policygen.load_task("cartpole")
    assert task.grid is not None
    config, search, rng = effective_config(task, "cartpole"), new_search(task), np.random.default_rng(0)
    # Keeps the pole up for 500 steps from 19 of the 20 starts.
    rows = ("| 2 | 1 | 1 | 2 | right |", "| * | * | 4,5 | 2-5 | right |", "| * | * | 2,3 | 3-5 | right |")
    best = parse("\n".join([*rows, "| * | * | * | * | left |"]), task).policy
    assert isinstance(best, TablePolicy)
    with Simulator(task) as simulator:
        for number in range(1, 21):
            if number == 10:
                search.add(Attempt(number, None, None, problems=parse("go left", task).problems))
                continue
            actions = best.actions.copy()
            changed = rng.integers(task.grid.size, size=12)
            actions[changed] = 1 - actions[changed]
            policy = best if number == 15 else TablePolicy.from_actions(task, actions)
            trajectories = simulator.play(policy, episode_seeds(0, "bench", 20))
            search.buffer.add(make_episodes(number, trajectories, task))
            score = sampled_score(trajectories, simulator.engine)
            search.add(Attempt(number, saved(policy), score, Played.of(trajectories), accepted=number in (1, 15)))
    search.best = search.attempts[14]
    search.best_score = search.best.score
    prompt = render_prompt(replace(search.context(config), number=21), config)
    assert "500 steps" in texts(prompt)[1]
    assert prompt.characters <= 9_000


def test_a_first_prompt_is_short() -> None:
    context, config = searched("CartPole-v1", "table", iterations=1)
    assert render_prompt(context, config).characters <= 5_250


class Dose(gym.Env[Any, Any]):
    """Observes what stays the same in an episode of twenty steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(0, 100, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.wanted = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.wanted, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.wanted, -abs(float(action[0]) / 50 - 1 - float(self.wanted[0])), False, False, {}


@pytest.mark.usefixtures("quickly_discovered")
def test_the_first_prompt_shows_the_steps_of_short_episodes_and_no_heading_over_nothing() -> None:
    gym.register("Dose-v0", Dose, max_episode_steps=20)
    context, config = searched("Dose-v0", "linear", iterations=1)
    request = texts(render_prompt(context, config))[1]
    rows = re.search(
        r"A line holds: step action reward\.(?:.*\n)*All its steps, 0 to 19:\n((?:[-\d]+ [-\d.]+ [-\d.]+\n)+)",
        request,
    )
    assert rows is not None, request
    assert rows[1].splitlines()[-1].split()[0].endswith("19")
    assert not re.search(r"highest:\n(?!- )", request)
