"""Rewards: what a completion earns, whatever it holds, and on which episodes."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import BEST_LAKE, LEANING, NO_POLICY, fenced

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import evaluate
from policygen.errors import EnvironmentFault, UsageError
from policygen.extensions.training.reward import Reward, reply_text
from policygen.policies.policy import Policy

POLE = replace(policygen.load_task("cartpole"), max_steps=100, optimum=None, solved=100.0)
BALANCING = fenced("left = 0", "right = 0.3*position + 0.9*velocity + 5*angle + 3*spin")


@pytest.fixture(scope="module")
def reward() -> Reward:
    return policygen.reward(POLE, 4)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_the_signature_is_that_of_trl(reward: Reward) -> None:
    prompts = [[{"role": "user", "content": "?"}]] * 3
    rewards = reward(
        prompts=prompts,
        completions=[said(BALANCING), said(LEANING), said(NO_POLICY)],
        completion_ids=[[1], [2], [3]],
        task=["cartpole"] * 3,
        trainer_state=object(),
    )
    assert [type(value) for value in rewards] == [float] * 3
    assert rewards[0] == 1.0
    assert 0 < rewards[1] < 1
    assert rewards[2] == -0.1
    assert reward.__name__ == "policygen_cartpole"


def test_policies_and_scores_behind_the_rewards_are_known_and_it_can_be_pickled(reward: Reward) -> None:
    found = reward.scored([LEANING, NO_POLICY, LEANING])
    assert [one.reward for one in found] == reward(None, [LEANING, NO_POLICY, LEANING])
    assert pickle.loads(pickle.dumps(reward)).scored([LEANING])[0].reward == found[0].reward
    assert found[0].policy is not None
    assert found[0].score == evaluate(found[0].policy, reward.seeds) == found[2].score
    assert found[0].policy.to_text() == policygen.parse(LEANING, POLE).to_text()
    assert (found[1].policy, found[1].score) == (None, None)


def test_it_is_linear_between_random_actions_and_the_target(reward: Reward) -> None:
    random, target = reward.scales["cartpole"]
    assert target == 100
    mean = evaluate(policygen.parse(LEANING, POLE), reward.seeds).mean
    assert reward(None, [LEANING]) == [pytest.approx((mean - random) / (100 - random))]
    easier = policygen.reward(replace(POLE, solved=random + (100 - random) / 2), 4)
    assert easier(None, [BALANCING])[0] > 1.9
    # Worse than random actions is 0, so that a readable reply is better than none.
    assert reward(None, [fenced("left = 1", "right = 0")]) == [0.0]


def test_its_episodes_are_those_of_no_run_and_no_score(reward: Reward) -> None:
    streams = ("evaluation", "search", "final", "validation", "warm-up", "refine 1")
    others = {seed for stream in streams for seed in episode_seeds(0, stream, 1000)}
    assert not others & set(reward.seeds)
    assert policygen.reward(POLE, 4, seed=1).seeds != reward.seeds


def test_columns_choose_the_task_the_kind_and_the_policy_to_revise() -> None:
    both = policygen.reward([POLE, "frozenlake"], 2)
    revision = fenced("| 0 | 0 | left |")
    completions = [BALANCING, BEST_LAKE, BALANCING, revision, revision]
    rewards = both(
        None,
        completions,
        task=["cartpole", "frozenlake", "frozenlake", "frozenlake", "frozenlake"],
        kind=["linear", "table", "table", None, "table"],
        incumbent=[None, "", None, BEST_LAKE, None],
    )
    assert rewards == [1.0, pytest.approx(1.0, abs=1e-3), -0.1, rewards[1], -0.1]
    for columns, message in (
        ({}, "the task None and the kind None; the reward knows the tasks cartpole, frozenlake"),
        ({"task": ["/etc/passwd"]}, "the task '/etc/passwd'"),
        ({"task": "cartpole"}, "a column needs a list with one value for each of the 1"),
        ({"kind": None}, "a column needs a list"),
        ({"task": ["cartpole"], "kind": ["tree"]}, "the kind 'tree'; the reward knows"),
        ({"task": ["cartpole"], "incumbent": ["left"]}, "`incumbent` is no policy for cartpole"),
    ):
        with pytest.raises(UsageError, match=message):
            both(None, [BALANCING], **columns)


STRANGE: tuple[Any, ...] = (
    *(None, 7, b"left = 0", {}, [], [[]], [None]),
    *([{"role": "assistant"}], [{"content": 5}], [{"content": [{"text": 1}]}]),
    *("", "\0", "\ud800", "<think>" * 50_000, "no improvement", "objective = reward", "next angle = 0"),
    *("|" * 100_000, "left = " + "(" * 50_000, "left = " + "-" * 15_000 + "1", "bins angle: " + "1," * 100_000),
    *("left = 9^9^9^9^9", "left = 0\nright = exp(exp(exp(1000*angle)))/0", "x" * 5_000_000, "let a = a\n" * 50_000),
    *("right = " + "+".join(["sin(angle)"] * 1_200), "| 0 | left |\n" * 30_000),
)


def test_no_completion_raises_or_costs_more_than_the_limits_of_the_parser(reward: Reward) -> None:
    for completion in STRANGE:
        started = time.process_time()
        (value,) = reward(None, [completion])
        assert value == -0.1 or 0 <= value <= 1
        assert time.process_time() - started < 20, repr(completion)[:60]


def test_a_chat_completion_counts_with_its_last_message_and_without_thoughts(reward: Reward) -> None:
    assert reply_text([*said("first"), {"role": "tool", "content": "x"}, *said("last")]) == "last"
    assert reply_text([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"text": "b"}, "c"]}]) == "ab"
    assert reward(None, [f"<think>{LEANING}</think>{BALANCING}"]) == [1.0]
    assert reward(None, [f"<think>{BALANCING}"]) == [-0.1]


def test_a_policy_that_fails_in_the_environment_fails_alone(reward: Reward, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Policy.begin

    def failing(self: Policy, episodes: int, /) -> Any:
        if "spin" not in self.to_text():
            raise RuntimeError("a fault")
        return begin(self, episodes)

    monkeypatch.setattr(Policy, "begin", failing)
    assert reward(None, [BALANCING, fenced("left = 0", "right = angle"), BALANCING]) == [1.0, -0.1, 1.0]
    assert reward(None, [fenced("left = 0", "right = angle")]) == [-0.1]


def test_a_broken_environment_ends_the_training(reward: Reward, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise EnvironmentFault("the simulator is gone")

    monkeypatch.setattr("policygen.episodes.simulator.play", broken)
    with pytest.raises(EnvironmentFault, match="the simulator is gone"):
        reward(None, [BALANCING])


def test_violating_a_hard_requirement_earns_nothing(tmp_path: Path) -> None:
    text = (Path(policygen.__file__).parents[1] / "envs" / "cartpole.toml").read_text(encoding="utf-8")
    rule = '\n[[requirements]]\nname = "centre"\nalways = "abs(position) < 0.0001"\nhard = {}\n'
    for hard, expected in (("true", 0.0), ("false", 1.0)):
        (tmp_path / "strict.toml").write_text(text + rule.format(hard))
        strict = policygen.reward(str(tmp_path / "strict.toml"), 2)
        assert strict(None, [BALANCING]) == [pytest.approx(expected, abs=0.05)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 0}, "episodes is 1 or more"),
        ({"seed": -1}, "seed 0 or more"),
        ({"task": replace(POLE, solved=1.0)}, "not above .*, the mean of random actions; state it in the task file"),
        ({"task": []}, "name one task, or several"),
        ({"task": [POLE, POLE]}, "name one task, or several different ones"),
        ({"task": replace(POLE, solved=None)}, "the score for a reward of 1 is unknown"),
    ],
)
def test_what_cannot_be_a_reward_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        policygen.reward(**{"task": POLE, **arguments})
