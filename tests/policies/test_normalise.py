"""`n_NAME`: what it stands for, when its definition changes and when it stays, and that a policy carries it along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searched import attempts_of
from support import Written

import policygen
from policygen.policies.linear import LinearPolicy
from policygen.policies.normalise import Definition, definitions, is_definition, normalisable
from policygen.policies.parse import parse
from policygen.policies.parts import MOST_FEATURES
from policygen.policies.policy import Policy
from policygen.prompts.render import render_prompt
from policygen.proposers.proposer import Proposer
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Node
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.request_log import RequestLog
from policygen.runs.state import Search
from policygen.search.loop import new_search
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")

CARTPOLE = load_task("cartpole")
PENDULUM = load_task("pendulum")
QUICK: dict[str, Any] = {"policy": "linear", "normalise": True, "episodes": 3, "warmup_episodes": 3}


def node(text: str, *names: str) -> Node:
    return parse_expression(text, names or CARTPOLE.observation_names)


OLD = {"n_angle": node("(angle - 1)/2"), "n_spin": node("(spin + 3)/4")}
NEW = {"n_angle": node("(angle - 5)/6"), "n_spin": node("(spin + 7)/8"), "n_position": node("(position - 9)/10")}


def read(text: str, given: dict[str, Node], incumbent: Policy | None = None) -> LinearPolicy:
    parsed = parse(text, CARTPOLE, "linear", incumbent, definitions=given)
    assert parsed.problems == ()
    assert isinstance(parsed.policy, LinearPolicy)
    return parsed.policy


def searched(task: Task, *replies: str, **more: Any) -> tuple[Search, RunConfig, Written]:
    """A search after so many replies; nothing is asked without any."""
    provider = Written(replies)
    config = effective_config(task, task.name, options={**QUICK, "iterations": max(1, len(replies)), **more})
    search = new_search(task, config)
    attempts = attempts_of(search, config, provider)
    for _ in range(len(replies) + 1):
        next(attempts)
    attempts.close()
    return search, config, provider


# --- what it stands for ----------------------------------------------------------------------------------------------


def test_means_and_spreads_are_those_of_all_observations_and_features_in_the_buffer() -> None:
    search, config, _ = searched(PENDULUM, "torque = 2*rate", "torque = -rate + n_sin")
    assert {episode.attempt for episode in search.buffer} == {0, 1, 2}
    rows = np.concatenate([e.trajectory.observations for e in search.buffer]).astype(np.float64)
    cos, _, rate = rows.T
    found = {d.quantity: d for d in search.context(3, config).definitions}
    assert tuple(found) == PENDULUM.quantity_names
    assert dict(PENDULUM.features)["energy"] == "0.5*rate^2 + 15*(cos - 1)", "the test computes it itself"
    for name, values in {"cos": cos, "rate": rate, "energy": 0.5 * rate**2 + 15 * (cos - 1)}.items():
        assert found[name].mean == float(f"{found[name].mean:.4g}") == pytest.approx(values.mean(), rel=6e-4)
        assert found[name].spread == float(f"{found[name].spread:.4g}") == pytest.approx(values.std(), rel=6e-4)


def test_a_definition_is_what_a_reply_would_have_written() -> None:
    for mean, text in ((0.0123, "(angle - 0.0123)/0.456"), (-2.0, "(angle + 2)/0.456"), (-0.0, "(angle - 0)/0.456")):
        definition = Definition("angle", mean, 0.456)
        assert (definition.name, to_text(definition.node)) == ("n_angle", text)
        assert node(text) == definition.node
        assert is_definition("n_angle", definition.node)
    for name, text in (("n_spin", "(angle - 1)/2"), ("lean", "(angle - 1)/2"), ("n_angle", "angle/2")):
        assert not is_definition(name, node(text))


def test_what_hardly_varies_is_only_centred_and_nothing_is_divided_by_what_is_not_a_number() -> None:
    rows = np.full((5, 4), 2.5)
    rows[:, 1] += 1e-9 * np.arange(5)
    rows[2, 2], rows[3, 2] = np.nan, np.inf
    rows[:, 3] = [1e300, -1e300, 1e300, 0, 0]
    found = definitions(CARTPOLE, [rows[:2], rows[2:]], CARTPOLE.observation_names)
    assert [(d.mean, d.spread) for d in found[:2]] == [(2.5, 1.0), (2.5, 1.0)]
    assert all(np.isfinite([d.mean, d.spread]).all() and d.spread > 0 for d in found)
    nothing = definitions(CARTPOLE, [], CARTPOLE.observation_names)
    assert [(d.mean, d.spread) for d in nothing] == [(0.0, 1.0)] * 4
    assert definitions(CARTPOLE, [rows], ()) == ()


def test_a_name_that_is_taken_is_not_offered() -> None:
    observed = tuple(map(Observation, ("x", "N_X", "y", "z" * 59, "push")))
    task = Task("odd", "Odd-v0", observed, (Actuator("go", ("n_y", "other")),), "discrete", 5)
    assert normalisable(task) == ("N_X", "push")


# --- reading ---------------------------------------------------------------------------------------------------------


LEAN = "let lean = n_angle + 0.2*n_spin\nleft = 0\nright = lean"
OWN, BOTH = node("angle/3"), "left = n_angle\nright = n_spin"


@pytest.mark.parametrize(
    ("before", "reply", "expected"),
    [
        # A definition in the reply comes first.
        ("", "let n_angle = angle/3\nleft = 0\nright = n_angle + n_spin", {"n_angle": OWN, "n_spin": NEW["n_spin"]}),
        ("", "n_angle = angle/3\nleft = 0\nright = n_angle + n_spin", {"n_angle": OWN, "n_spin": NEW["n_spin"]}),
        (BOTH, "n_angle = angle/3\nright = n_angle + n_spin", {"n_angle": OWN, "n_spin": OLD["n_spin"]}),
        # Fresh definitions where every equation is rewritten, old ones where some are kept; others are new.
        (BOTH, "left = n_angle\nright = n_angle", {"n_angle": NEW["n_angle"]}),
        (BOTH, "right = n_position", {"n_angle": OLD["n_angle"], "n_position": NEW["n_position"]}),
        ("left = 0.5\nright = n_angle", "right = 2*n_angle", {"n_angle": NEW["n_angle"]}),
        # A kept feature keeps them too.
        (LEAN, "left = 0\nright = 3*lean", {**OLD, "lean": node("n_angle + 0.2*n_spin", *OLD)}),
        (LEAN, LEAN.replace("0.2", "0.3"), {**{n: NEW[n] for n in OLD}, "lean": node("n_angle + 0.3*n_spin", *OLD)}),
    ],
)  # fmt: skip
def test_definitions_are_fresh_unless_something_kept_reads_them(
    before: str, reply: str, expected: dict[str, Node]
) -> None:
    assert dict(read(reply, NEW, read(before, OLD) if before else None).lets) == expected


def test_an_unknown_name_is_answered_with_the_nearest_of_them() -> None:
    (problem,) = parse("left = 0\nright = n_angel", CARTPOLE, definitions=NEW).problems
    assert str(problem).startswith("line 2: unknown name `n_angel`; known are n_angle")
    (without,) = parse("left = 0\nright = n_angle", CARTPOLE).problems
    assert "unknown name `n_angle`; known are angle" in str(without)


def test_the_text_of_a_policy_always_reads_back_so_that_it_may_not_use_too_many() -> None:
    names = [f"q{i}" for i in range(MOST_FEATURES + 1)]
    many = 2 * len(names)  # as many as there may be
    wide = Task("wide", "Wide-v0", tuple(map(Observation, names)), (Actuator("go", (), -1.0, 1.0),), "box", 5)
    offered = {d.name: d.node for d in definitions(wide, [], names)}
    sums = "".join(f"let s_{name} = prev(s_{name}) + n_{name}\n" for name in names)
    all_of_them = sums + "go = " + " + ".join(f"s_{name}" for name in names)
    most = parse(all_of_them, wide, definitions=offered).policy
    assert most is not None
    assert parse(most.to_text(), wide).policy == most
    assert len(most.lets) == many
    (problem,) = parse("let one = 1\n" + all_of_them + " + one", wide, definitions=offered).problems
    assert str(problem) == f"the policy has {many + 1} features; use at most {many}"


LINES = [
    *("left = n_angle", "right = 2*n_spin", "left = lean", "let lean = n_angle + n_spin", "let n_angle = lean"),
    *("let n_angle = 2*angle", "n_spin = spin"),
    *("bins n_angle: 0", "| n_angle | action |", "| 0 | left |", "| * | right |"),
]


@given(st.lists(st.sampled_from(LINES), max_size=6), st.lists(st.sampled_from(LINES), max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_kept_and_rewritten_the_policy_reads_back_from_its_text(first: list[str], then: list[str]) -> None:
    incumbent = parse("\n".join(first), CARTPOLE, definitions=OLD).policy
    parsed = parse("\n".join(then), CARTPOLE, incumbent=incumbent, definitions=NEW)
    assert (parsed.policy is None) == bool(parsed.problems)
    if parsed.policy is not None:
        assert parse(parsed.policy.to_text(), CARTPOLE).policy == parsed.policy


# --- in a run --------------------------------------------------------------------------------------------------------


def test_a_run_gives_fresh_definitions_to_each_round_and_the_same_to_all_its_candidates() -> None:
    search, config, provider = searched(PENDULUM, *["torque = 2*n_rate"] * 2, iterations=1, candidates=2)
    one, other = (attempt.policy for attempt in search.attempts[1:3])
    assert one is not None
    assert one == other
    assert len(provider.prompts) == 2
    rate = next(d for d in search.context(3, config).definitions if d.quantity == "rate")
    assert dict(one.lets)["n_rate"] != rate.node


def test_refinement_leaves_definitions_alone_and_moves_everything_else() -> None:
    tunable = Tunable(read("let lean = n_angle + 0.5*n_spin\nleft = 0\nright = 2*lean", OLD))
    definitions = "let n_angle = (angle - 1)/2\nlet n_spin = (spin + 3)/4\n"
    moved = tunable.at(np.array([1.0, 1.0])).to_text()
    assert moved == f"{definitions}let lean = n_angle + 1*n_spin\nleft = 0\nright = 4*lean"


# --- what the model is told ------------------------------------------------------------------------------------------


def test_the_prompt_tells_what_they_are_only_when_they_are_offered() -> None:
    search, config, _ = searched(CARTPOLE, "left = 0\nright = n_angle")
    context = search.context(2, config)
    system, request = (message.content for message in render_prompt(context, config).messages)
    assert "n_NAME, such as n_position: minus its mean" in system
    (line,) = re.findall(r"^Mean and standard deviation .*$", request, re.MULTILINE)
    for definition in context.definitions:
        assert f"{definition.quantity} {definition.mean:.4g} {definition.spread:.4g}" in line
    assert "let n_angle = " in request
    plain = config.model_copy(update={"normalise": False})
    off = "".join(message.content for message in render_prompt(search.context(2, plain), plain).messages)
    assert "n_NAME" not in off
    assert "Mean and standard deviation" not in off


def test_a_repair_prompt_names_them_and_what_it_repairs_is_read_with_them() -> None:
    search, config, _ = searched(CARTPOLE)
    context = search.context(1, config)
    provider = Written(["left = 0\nright = n_angel", "left = 0\nright = n_angle"])
    prompt = render_prompt(context, config)
    proposal = Proposer(provider, config).propose(prompt, context, RequestLog(Ledger(config)))
    repair = provider.prompts[1].messages[-1].content
    assert "unknown name `n_angel`; known are n_angle" in repair
    assert "position, velocity, angle, spin, n_position, n_velocity, n_angle, n_spin and your own features" in repair
    assert proposal.parsed.policy is not None
    assert dict(proposal.parsed.policy.lets)["n_angle"] == {d.name: d.node for d in context.definitions}["n_angle"]


def test_builtin_keeps_its_own_definitions(tmp_path: Path) -> None:
    options: dict[str, Any] = {**QUICK, "out": tmp_path, "iterations": 2, "final_episodes": 3}
    runs = [policygen.run("cartpole", **{**options, "normalise": on}) for on in (True, False)]
    first, second = ([attempt.policy for attempt in run.attempts[1:]] for run in runs)
    assert first == second
