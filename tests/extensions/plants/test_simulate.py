"""Episodes inside a fitted plant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from planted import LINE, driven, equations, policy

from policygen.extensions.plants.fit import FittedPlant, Transitions, with_errors
from policygen.extensions.plants.tuning import play_in_plant


def line_plant(text: str, data: Transitions | None = None, factors: Sequence[float] = (1.0,)) -> FittedPlant:
    """A plant whose members have the numbers of the text, each times a factor."""
    own = equations(text, LINE)
    return with_errors(own, np.outer(factors, own.values), data or driven(50))


def test_what_leaves_the_region_of_the_data_fails_and_pays_the_worst_for_the_rest() -> None:
    inside = line_plant("next x = x + 1\nreward = 5")
    assert inside.reward_outside < 0
    ((found,),) = play_in_plant(inside, [policy("u = 0", LINE)], (0,))
    assert found.terminated
    assert found.length < LINE.max_steps
    assert found.rewards[-1] == pytest.approx(inside.reward_outside * (LINE.max_steps - found.length + 1), rel=1e-5)
    assert (found.rewards[:-1] == 5).all()
    unpaid = line_plant("next x = 0.9*x\nreward = log(-1 - x^2)")
    ((found,),) = play_in_plant(unpaid, [policy("u = 0", LINE)], (0,))
    assert found.length == 1, "a reward that is no number fails at once"
    assert found.rewards[0] == pytest.approx(unpaid.reward_outside * LINE.max_steps, rel=1e-5)
    ending = line_plant("next x = x + 0.1\nreward = 1 + 10*ends\nends = x > 0.45")
    ((found,),) = play_in_plant(ending, [policy("u = 0", LINE)], (0,), np.zeros((1, 1)))
    assert (found.terminated, found.rewards.tolist()) == (True, [1, 1, 1, 1, 11]), "it ends where the plant says"


def test_leaving_the_region_costs_nothing_more_where_steps_pay() -> None:
    data = driven(50)
    ended = np.arange(50) == 49
    paid = np.where(ended, -2.0, 9.0)  # the last step of a fall pays less than none
    costs = np.where(ended, 100.0, -0.1)  # the goal pays
    for rewards, worst in ((paid, 0), (costs, -0.1)):
        assert line_plant("next x = x + 1", replace(data, rewards=rewards, ended=ended)).reward_outside == worst


def test_seeds_decide_on_members_and_starts_whatever_is_played_beside() -> None:
    text = "next x = 0.5*x + 0.1*u + 0.1*prev(u)\nstart x = uniform(-1, 1)\nends = x > 0.3"
    inside = line_plant(text, factors=(1, 1.05))
    actors = [policy("u = 0.1*x", LINE), policy("u = -x", LINE)]
    together = play_in_plant(inside, actors, (3, 4, 5, 9))
    for actor, episodes in zip(actors, together, strict=True):
        for seed, found in zip((3, 4, 5, 9), episodes, strict=True):
            ((alone,),) = play_in_plant(inside, [actor], (seed,))
            assert np.array_equal(alone.observations, found.observations)
    assert len({float(one.observations[0, 0]) for one in together[0]}) == 4
    ((stated,),) = play_in_plant(line_plant("start x = normal(5, 0)\nnext x = x"), actors[:1], (0,))
    assert stated.observations[0, 0] == 5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["start x = normal(0, 1e300)\nnext x = x", "next x = 1/0"])
def test_absurd_numbers_are_played_without_a_word(text: str) -> None:
    ((found,),) = play_in_plant(line_plant(f"{text}\nreward = 1"), [policy("u = 0.1*x", LINE)], (0,))
    assert 1 <= found.length <= LINE.max_steps


def test_hidden_states_are_drawn_for_an_episode_and_may_move() -> None:
    text = "hidden load\nnext x = x + load\nnext load = 0.5*load\nreward = load\nends = load < 0"
    inside = replace(line_plant(text), starts=np.array([[0.0, 0.4], [0.1, -0.4]]))
    for found in play_in_plant(inside, [policy("u = 0", LINE)], range(20))[0]:
        load = 0.4 if found.observations[0, 0] == 0 else -0.4
        assert found.observations[1, 0] == pytest.approx(found.observations[0, 0] + load)
        assert found.rewards[0] == pytest.approx(load)
        assert found.length == (1 if load < 0 else LINE.max_steps)
        if load > 0:
            assert np.diff(found.observations[:, 0])[:4] == pytest.approx(load * 0.5 ** np.arange(4), rel=1e-4)
    drawn = replace(inside, equations=equations("hidden load\nstart load = uniform(1, 2)\nreward = load", LINE))
    paid = [episode.rewards[0] for episode in play_in_plant(drawn, [policy("u = 0", LINE)], range(20))[0]]
    assert min(paid) >= 1
    assert 1.3 < np.mean(paid) < 1.7
    assert len(set(paid)) == 20
