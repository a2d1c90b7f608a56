"""The search `builtin` over equations: units, constant actions, standardised quantities, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import policygen
from policygen.episodes.score import Score
from policygen.policies.policy import Policy
from policygen.proposers.builtin_linear import (
    MAX_FAILED_EXCHANGES,
    definitions,
    next_to_tune,
)
from policygen.runs.attempt import Attempt, Tuned, saved
from policygen.search.runner import EpisodeRunner
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")


class Dosed(gym.Env[Any, Any]):
    """A dose should follow the first observation; its range and the unit of the observations differ."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(
        self, low: float = -1.0, high: float = 1.0, unit: float = 1.0, wanted: float = 0.0, gain: float = 0.5
    ) -> None:
        self.action_space = gym.spaces.Box(low, high, (1,), np.float64)
        self.middle, self.half, self.unit = (low + high) / 2, (high - low) / 2, unit
        self.wanted, self.gain = wanted, gain

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.x = 0, self.np_random.uniform(-1, 1, 2)
        return self.x * self.unit, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        missed = abs((action[0] - self.middle) / self.half - self.wanted - self.gain * self.x[0])
        self.x = np.clip(self.x + self.np_random.normal(0, 0.1, 2), -1, 1)
        return self.x * self.unit, -missed, False, self.steps >= 10, {}


gym.register("Dosed-v0", Dosed, max_episode_steps=10)
UNITS: list[dict[str, float]] = [{"low": 0.0, "high": 3200.0}, {"low": -2e-6, "high": 2e-6}, {"unit": 1e-10}]


@pytest.mark.parametrize(("refine", "iterations"), [("none", 4), ("cma:100", 2)])
def test_the_search_is_the_same_in_all_units(refine: str, iterations: int) -> None:
    def scores(units: dict[str, float]) -> list[float]:
        settings: Any = {"iterations": iterations, "episodes": 8, "refine": refine, "final_episodes": 8}
        settings["policy"] = "linear"
        found = policygen.run(lambda: gym.make("Dosed-v0", **units), **settings, fragility=False)
        return [one.score.mean for one in found.attempts if one.score is not None]

    plain = scores({})
    for units in UNITS:
        assert scores(units) == pytest.approx(plain, rel=1e-3), units


SOME: dict[str, Any] = {"episodes": 8, "final_episodes": 40, "policy": "linear", "fragility": False}


@pytest.mark.parametrize("kind", ["linear", "table"])
@pytest.mark.parametrize("wanted", [-1.0, 1.0, 0.5])
def test_a_run_begins_with_the_best_of_a_handful_of_constant_actions(wanted: float, kind: Any) -> None:
    units = {"low": 0.0, "high": 200.0, "wanted": wanted, "gain": 0.1}
    settings = {**SOME, "policy": kind, "iterations": 1, "refine": "none"}
    found = policygen.run(lambda: gym.make("Dosed-v0", **units), **settings)
    assert found.policy is not None
    assert found.policy.act_one([0.0, 0.0]).tolist() == [100 + 100 * wanted]


def test_a_share_of_episodes_that_cannot_tune_all_proposals_tunes_fewer() -> None:
    few = {"iterations": 6, "max_episodes": 500, "refine": "auto", **SOME}
    found = policygen.run(lambda: gym.make("Dosed-v0", low=0.0, high=200.0), **few)
    proposals = found.attempts[1:7]
    assert [bool(one.tuned.refinement) for one in proposals] == [True, False, False, False, False, False]
    assert len({one.policy.to_text() for one in proposals if one.policy is not None}) == 6
    assert found.final.mean > found.attempts[0].score.mean


# --- standardised quantities -----------------------------------------------------------------------------------------

CARTPOLE = load_task("cartpole")


def test_means_and_spreads_are_those_of_all_observations_and_features() -> None:
    pendulum, rows = load_task("pendulum"), np.random.default_rng(0).normal(size=(50, 3))
    cos, _, rate = rows.T
    assert dict(pendulum.features)["energy"] == "0.5*rate^2 + 15*(cos - 1)", "the test computes it itself"
    expected = []
    for name, values in {"cos": cos, "energy": 0.5 * rate**2 + 15 * (cos - 1)}.items():
        sign, mean = "+" if values.mean() < 0 else "-", abs(values.mean())
        expected.append(f"let n_{name} = ({name} {sign} {mean:.4g})/{values.std():.4g}")
    assert definitions(pendulum, [rows[:20], rows[20:]], ("cos", "energy")) == expected


def test_what_hardly_varies_is_only_centred_and_nothing_is_divided_by_what_is_not_a_number() -> None:
    rows = np.full((5, 4), 2.5)
    rows[:, 1] += 1e-9 * np.arange(5)
    rows[2, 2], rows[3, 2] = np.nan, np.inf
    rows[:, 3] = [1e300, -1e300, 1e300, 0, 0]
    names = CARTPOLE.observation_names
    found = definitions(CARTPOLE, [rows[:2], rows[2:]], names)
    assert found[:2] == [f"let n_{name} = ({name} - 2.5)/1" for name in names[:2]]
    assert not [text for text in found if "= nan" in text or "inf" in text or "nan)" in text]
    assert definitions(CARTPOLE, [], names) == [f"let n_{name} = ({name} - 0)/1" for name in names]


# --- restarts --------------------------------------------------------------------------------------------------------

RANDOM = -10.0


def attempted(task: str, random: float, *steps: tuple[str, str | None, float]) -> list[Attempt]:
    """Return attempts after random actions; a step is a policy as proposed, as tuned (None: not tuned), and a score."""
    attempts = [Attempt(0, None, Score(random, 0.0, (random, random), False, "copies"))]
    for number, (before, after, mean) in enumerate(steps, start=1):
        proposed = saved(policygen.parse(before, task))
        policy = proposed if after is None else saved(policygen.parse(after, task))
        best = mean > max((one.score.mean for one in attempts if one.score is not None), default=-np.inf)
        score, changed = Score(mean, 0.0, (mean, mean), False, "copies"), Tuned(proposed=proposed if after else None)
        attempts.append(Attempt(number, policy, score, tuned=changed, accepted=best))
    return attempts


def tuned(*steps: tuple[float, float | None, float]) -> list[Attempt]:
    """Return attempts; a step is a weight as proposed (0 starts a search), as tuned, and a score."""

    def text(weight: float) -> str:
        return f"force = {weight:g}*velocity"

    written = [(text(before), None if after is None else text(after), mean) for before, after, mean in steps]
    return attempted("mountaincar-continuous", RANDOM, *written)


def to_tune(attempts: Sequence[Attempt]) -> tuple[Policy | None, bool]:
    """Return what to tune next; the best policy is the one accepted last."""
    best = next((one.policy for one in reversed(attempts) if one.accepted), None)
    return next_to_tune(attempts, best, np.random.default_rng(0))


def push(attempts: Sequence[Attempt]) -> str | None:
    """Return the policy to continue, as text."""
    policy, exchanged = to_tune(attempts)
    return None if policy is None or exchanged else policy.to_text()


FIRST, SECOND = (0.0, 1.0, 5.0), (0.0, 2.0, 30.0)


CLIMBING = (FIRST, SECOND, (2.0, 3.0, 40.0), (3.0, 4.0, 42.0), (4.0, 5.0, 44.0))
STILL = (0.0, None, RANDOM)
SLOW = (FIRST, SECOND, (2.0, 3.0, 30.2), (3.0, 4.0, 30.4), (4.0, 5.0, 30.6))


@pytest.mark.parametrize(
    ("steps", "weight"),
    [
        # Two searches begin, and the better one goes on.
        ((), None),
        ((FIRST,), None),
        ((FIRST, SECOND), 2),
        ((SECOND, (0.0, 3.0, 5.0)), 2),
        # It goes on with the result of tuning while it climbs; a step that did not help changes nothing.
        (CLIMBING, 5),
        ((FIRST, SECOND, (2.0, 3.0, 40.0), (3.0, None, 40.0)), 3),
        # After one that stalls, another begins, and goes on though it is behind.
        (SLOW, None),
        ((*SLOW, (0.0, 7.0, 12.0)), 7),
        ((*SLOW, (0.0, 7.0, 12.0), (7.0, 8.0, 25.0)), 8),
        # Where tuning moves nothing, it begins again and again.
        ((STILL,), None),
        ((STILL,) * 4, 0),
    ],
)
def test_the_search_to_continue(steps: tuple[Any, ...], weight: int | None) -> None:
    assert push(tuned(*steps)) == (None if weight is None else f"force = {weight}*velocity")


STEEPEST = "left = {0}*velocity\nnone = 0\nright = {1}*velocity"


def chosen(*steps: tuple[str, str, float]) -> list[Attempt]:
    """Return attempts for a task with a choice among three labels."""
    return attempted("mountaincar", -200.0, *steps)


def of_right(rise: float) -> str:
    return STEEPEST.format(-rise, rise)


NOTHING = "left = 0\nnone = 0\nright = 0"
STALLED = (
    (NOTHING, of_right(1), -180.0),
    (NOTHING, of_right(2), -150.0),
    *((of_right(rise), of_right(rise + 1), -149.0) for rise in (2, 3, 4)),
)


def exchanged_in(attempts: list[Attempt]) -> str | None:
    """Return the policy with exchanged labels after these attempts."""
    policy, exchanged = to_tune(attempts)
    return policy.to_text() if policy is not None and exchanged else None


def test_after_a_stall_each_pair_of_labels_is_exchanged_once() -> None:
    steps = list(STALLED)
    tried = []
    for _ in range(MAX_FAILED_EXCHANGES):
        attempts = chosen(*steps)
        exchanged = exchanged_in(attempts)
        tried.append(exchanged)
        steps.append((exchanged, exchanged.replace("3", "6"), -190.0))
    assert len({*tried, policygen.parse(of_right(3), "mountaincar").to_text()}) == MAX_FAILED_EXCHANGES + 1
    assert sorted(policygen.parse(text, "mountaincar").act(np.array([-0.5, 0.05])) for text in tried) == [0, 1, 2]
    # Then another search begins from nothing.
    assert to_tune(chosen(*steps))[0] is None


def test_a_search_continues_from_an_exchange_only_if_it_is_a_new_best() -> None:
    exchanged = exchanged_in(chosen(*STALLED))
    after = exchanged.replace("3", "6")
    assert push(chosen(*STALLED, (exchanged, after, -149.0))) is None
    # What was proposed beside it does not matter.
    for beside in ((), ((of_right(-3), of_right(-6), -190.0),)):
        assert (
            push(chosen(*STALLED, (exchanged, after, -148.0), *beside))
            == policygen.parse(after, "mountaincar").to_text()
        )


def test_a_search_from_nothing_goes_on_though_it_is_behind_and_exchanges_failed_before_it() -> None:
    exchanged = exchanged_in(chosen(*STALLED))
    behind = (exchanged, exchanged.replace("3", "6"), -190.0), (NOTHING, of_right(7), -170.0)
    assert push(chosen(*STALLED, *behind)) == policygen.parse(of_right(7), "mountaincar").to_text()


@pytest.mark.parametrize(
    ("task", "text"), [("mountaincar-continuous", "force = 5*velocity"), ("cartpole", "left = -angle\nright = angle")]
)
def test_numbers_and_choices_of_two_labels_are_not_exchanged(task: str, text: str) -> None:
    assert next_to_tune(tuned(*SLOW), policygen.parse(text, task), np.random.default_rng(0)) == (None, False)


class Ordered(gym.Env[Any, Any]):
    """Two orders of up to 3,000: a large one is right, and one of about 9, where a mistake costs more."""

    observation_space = gym.spaces.Box(0, 1, (100,), np.float64)
    action_space = gym.spaces.Box(0, 3_000, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen(), {}

    def seen(self) -> Any:
        """Observe 80 quantities, of which all but the first ten move; 20 more are copies of the last ones."""
        drawn = self.np_random.random(80)
        drawn[:10] = 0.5
        return np.append(drawn, drawn[60:])

    def step(self, action: Any) -> Any:
        large, small = action
        return self.seen(), -abs(large - 2_900) / 10 - 30 * abs(small - 9), False, False, {}


gym.register("Ordered-v0", Ordered, max_episode_steps=5)


@pytest.mark.parametrize(("limit", "most"), [(300, 30), (1_000, 98), (None, 72 + 8 * 12)])
def test_constant_actions_take_a_tenth_of_the_episodes_and_the_best_is_found_with_few(
    limit: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = list[int]()
    best_start = EpisodeRunner.best_start

    def counted(runner: EpisodeRunner, policies: Sequence[Policy]) -> Policy:
        before = runner.ledger.episodes
        found = best_start(runner, policies)
        played.append(runner.ledger.episodes - before)
        return found

    monkeypatch.setattr(EpisodeRunner, "best_start", counted)
    task = load_task("Ordered-v0")
    assert task.inputs == tuple(f"obs{i}" for i in range(10, 70))  # only quantities that move are weighed
    run = policygen.run(task, policy="linear", iterations=1, episodes=4, seed=3, max_episodes=limit)
    assert played[0] <= most
    large, small = run.policy.act(np.full(100, 0.5))
    assert large > (1_000 if limit is None else 0)
    if limit != 300:  # enough for all of them
        assert 1 < small < 30
