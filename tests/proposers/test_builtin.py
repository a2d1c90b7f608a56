"""The search `builtin`: its replies, its scores, its memory, and the settings that it refuses.

It tests `proposers.builtin_linear`, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from searched import POLE, searched
from support import Written, attempts_of, discovered, fenced, figure, transcript_of

import policygen
from policygen.errors import ProviderError, UsageError
from policygen.llm.messages import Message, Prompt
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.prompts.render import render_prompt
from policygen.proposers.builtin import Builtin
from policygen.runs.notes import IDEA
from policygen.search.resume import load_run

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module", autouse=True)
def unsimplified() -> Iterator[None]:
    """Leave out the simplification at the end of a run, which takes longer than the search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("policygen.search.loop.CLOSINGS", {})
        yield


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> policygen.RunResult:
    out = tmp_path_factory.mktemp("cartpole")
    return policygen.run("cartpole", iterations=20, seed=0, final_episodes=30, fragility=False, out=out)


def test_cartpole_is_solved_within_twenty_iterations_without_a_repeated_table(balanced: policygen.RunResult) -> None:
    assert balanced.final.mean >= 475
    assert figure(balanced, "solved") is True
    tables = [attempt.policy.to_text() for attempt in balanced.attempts[1:]]
    assert 5 < len(tables) == len(set(tables)) <= 20


def test_the_frozen_lake_is_solved_within_twenty_iterations(tmp_path: Path) -> None:
    crossed = policygen.run("frozenlake", iterations=20, seed=0, fragility=False, out=tmp_path)
    assert crossed.final.exact
    assert crossed.final.mean >= 0.70


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("Pendulum-v1", "linear"),
        ("Pendulum-v1", "table"),
        ("Blackjack-v1", "table"),
    ],
)
def test_its_replies_are_policies_in_the_policy_language(task: str, kind: str) -> None:
    short = replace(discovered(task), max_steps=100)
    result = policygen.run(short, policy=kind, iterations=2, episodes=4, warmup_episodes=4, final_episodes=4)
    assert sum(one.failed for one in result.attempts) == 0
    read = load_run(result.folder)
    asked = [attempt for attempt in read.search.attempts[1:] if attempt.kind == "proposal"]
    for line, attempt in zip(transcript_of(result.folder), asked, strict=True):
        parsed = parse(line["reply"]["text"], read.task, read.config.policy)
        assert parsed.problems == ()
        assert attempt.policy.kind == kind


def test_it_refuses_a_prompt_that_does_not_come_from_a_run() -> None:
    with pytest.raises(ProviderError, match=r"^builtin is a search, not a language model"):
        Builtin().complete(Prompt((Message("user", "hello"),)), 100)


SHORT: dict[str, Any] = {
    **{"policy": "linear", "iterations": 5, "seed": 1},
    **{"episodes": 4, "warmup_episodes": 4, "final_episodes": 4, "fragility": False},
}


@pytest.mark.parametrize("refine", ["none", "cma:80"])
def test_with_memory_its_policies_weigh_a_clock_and_integrals(refine: str) -> None:
    result = policygen.run(POLE, memory=True, refine=refine, **SHORT)
    assert sum(one.failed for one in result.attempts) == 0
    policies = [attempt.policy for attempt in load_run(result.folder).search.attempts[1:]]
    for policy in policies:
        assert {"clock", "sum_angle", "sum_spin"} <= set(policy.remembers)
    texts = [policy.to_text() for policy in policies if policy is not None]
    weights = texts[-1].splitlines()[-1]
    assert all(f"*{name}" in weights for name in ("n_angle", "clock_sin1", "clock_cos2", "sum_position"))
    clocks = {text.split("let clock = ")[1].splitlines()[0] for text in texts}
    assert len(clocks) > 1  # the rate is searched, too


def test_a_run_that_stalls_tries_its_best_with_two_labels_exchanged_and_so_does_one_that_goes_on() -> None:
    stalling = {**SHORT, "refine": "cma:60", "warmup_episodes": 20, "jobs": 1}
    whole = policygen.run("mountaincar", **{**stalling, "iterations": 9})
    exchanged = [attempt for attempt in whole.attempts if "two labels exchanged" in (IDEA.of(attempt) or "")]
    assert exchanged
    best = next(one for one in reversed(whole.attempts) if one.accepted and one.number < exchanged[0].number).policy
    assert isinstance(best, policygen.LinearPolicy)
    for attempt in exchanged:
        proposed = attempt.proposed
        assert isinstance(proposed, policygen.LinearPolicy)
        theirs, ours = ([str(node) for _, node in one.equations] for one in (proposed, best))
        assert theirs != ours
        assert sorted(theirs) == sorted(ours)
    part = policygen.run("mountaincar", **{**stalling, "iterations": exchanged[0].number - 1})
    gone_on = policygen.resume(part.folder, iterations=9)
    assert [attempt.digests for attempt in gone_on.attempts] == [attempt.digests for attempt in whole.attempts]


def test_names_that_memory_needs_must_be_free(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "envs" / "cartpole.toml").read_text()
    (tmp_path / "clocked.toml").write_text(
        text.replace('name = "cartpole"', 'name = "clocked"').replace("spin", "clock")
    )
    with pytest.raises(UsageError, match=r"^--memory defines `clock`, which task clocked has already; rename it"):
        policygen.run(str(tmp_path / "clocked.toml"), memory=True, **SHORT)


def test_more_quantities_than_an_equation_may_have_are_refused_beforehand(tmp_path: Path) -> None:
    seen = "".join(f'[[observations]]\nname = "seen{i}"\n' for i in range(4))
    lets = "[features]\n" + "".join(f'much_of_{i} = "{i + 1}*seen0"\n' for i in range(98))
    inputs = ", ".join(f'"much_of_{i}"' for i in range(98))
    (tmp_path / "many.toml").write_text(f'name = "many"\ngym_id = "CartPole-v1"\ninputs = [{inputs}]\n{seen}{lets}')
    with pytest.raises(UsageError, match="builtin would weigh 98 quantities in each equation, more than can be read"):
        policygen.run(str(tmp_path / "many.toml"), policy="linear", iterations=1, episodes=2)


def test_a_table_over_features_of_its_own_is_planned_on() -> None:
    reply = fenced("let lean = angle + 0.3*spin", "bins lean: 0", "| lean | action |", "| 0 | left |", "| * | right |")
    context, config = searched("cartpole", "table", Written([reply]), iterations=1)
    answer = Builtin().complete(render_prompt(context, config), 1_000)
    policy = parse(answer.text, context.task, "table", context.incumbent).policy
    assert isinstance(policy, TablePolicy)
    assert policy.grid.names == ("lean",)
    assert [name for name, _ in policy.lets] == ["lean"]


# --- the provider `random` --------------------------------------------------------------------------------------------


DRAWN = {"episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "fragility": False}


def proposals(out: Path, **settings: object) -> list[Policy]:
    result = policygen.run("mountaincar", llm="random", out=out, **{**DRAWN, "iterations": 3, **settings})
    assert {one["requests"]["model"] for one in attempts_of(result.folder)[1:]} == {"random"}
    return [one.proposed for one in result.attempts[1:] if one.proposed is not None]


@pytest.mark.parametrize("kind", ["table", "equations"])
def test_policies_are_drawn_from_the_seed_alone(kind: str, tmp_path: Path) -> None:
    first = proposals(tmp_path / "a", policy=kind, seed=300)
    assert len({policy.to_text() for policy in first}) == 3
    # Other scores, by other numbers of episodes, change nothing.
    assert proposals(tmp_path / "b", policy=kind, seed=300, episodes=6) == first
    assert proposals(tmp_path / "c", policy=kind, seed=301) != first
