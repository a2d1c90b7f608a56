"""Episodes inside a fitted plant, and a plant as a Gymnasium environment: of a run, and of equations for the test."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from planted import LINE, PENDULUM, driven, equations, policy
from searched import made

import policygen
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import LogbookError, PolicyError, TaskError, UsageError
from policygen.plants.fit import FittedPlant, with_errors
from policygen.plants.record import PlantRecord, equations_of
from policygen.plants.simulate import PlantCopies, PlantEnv, play_in_plant
from policygen.plants.transitions import Transitions
from policygen.policies.plant import Equations
from policygen.runs.reading import kept_episodes
from policygen.tasks.trust import check_id


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


def test_seeds_decide_on_starts_and_noise_whatever_is_played_beside() -> None:
    text = "next x = 0.5*x + 0.1*u + prev(u)*0\nstart x = uniform(-1, 1)\nnoise x = 0.1\nends = x > 0.3"
    inside = line_plant(text, factors=(1, 1.05))
    actors = [policy("u = 0.1*x", LINE), policy("u = -x", LINE)]
    together = play_in_plant(inside, actors, (3, 4, 5, 9))
    for actor, episodes in zip(actors, together, strict=True):
        for seed, found in zip((3, 4, 5, 9), episodes, strict=True):
            ((alone,),) = play_in_plant(inside, [actor], (seed,))
            assert np.array_equal(alone.observations, found.observations)
    assert len({float(one.observations[0, 0]) for one in together[0]}) == 4
    assert np.ptp(together[0][0].observations[-5:]) > 0


def test_copies_that_are_kept_go_on_as_before() -> None:
    inside = line_plant("next x = 0.9*x + 0.5*prev(u)\nnoise x = 0.1", factors=(1, 0.9, 0.8))
    which = np.array([False, True, False, True])
    whole, fewer = PlantCopies(inside, (1, 2, 3, 4)), PlantCopies(inside, (1, 2, 3, 4))
    actions = np.linspace(-1, 1, 4)[:, None]
    whole.step(actions), fewer.step(actions)
    fewer.keep(which)
    for _ in range(3):
        seen, rewards, *_ = whole.step(actions)
        kept_seen, kept_rewards, *_ = fewer.step(actions[which])
        assert np.array_equal(seen[which], kept_seen)
        assert np.array_equal(rewards[which], kept_rewards)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "text", ["start x = normal(0, 1e300)\nnext x = x", "noise x = 1e300\nnext x = x", "next x = 1/0"]
)
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


CARTPOLE = policygen.load_task("cartpole")
# Gymnasium's own equations of the pole, simplified; `right` is 1 where that is chosen.
POLE = """
let push = 20*right - 10
next position = position + 0.02*velocity
next velocity = velocity + 0.02*push
next angle = angle + 0.02*spin
next spin = spin + 0.02*(15*sin(angle) - 1.5*push)
reward = 1
ends = abs(angle) > 0.2095 or abs(position) > 2.4
start angle = uniform(0.01, 0.02)
noise position = 0.001
"""


def pole(text: str = POLE) -> PlantEnv:
    with Simulator(CARTPOLE) as simulator:
        episodes = simulator.play(RandomActor(CARTPOLE, 0), range(20))
    return PlantEnv(equations_of(PlantRecord(text, 1), CARTPOLE), episodes)


# What Gymnasium advises against is Pendulum's own space of actions, -2 to 2.
@pytest.mark.filterwarnings("error", "ignore:.*symmetric and normalized")
def test_the_plant_of_a_run_is_a_gymnasium_environment(plant_run: Path) -> None:
    env = policygen.plant(plant_run)
    check_env(env.unwrapped)
    with policygen.make_env("pendulum") as real:
        assert (env.observation_space, env.action_space) == (real.observation_space, real.action_space)
    assert gym.make("policygen.api:policygen/Plant-v0", run=plant_run).observation_space == env.observation_space


@pytest.mark.filterwarnings("error", "ignore:.*symmetric and normalized", "ignore:.*is -?infinity")
def test_the_plant_of_a_pole_is_one_too() -> None:
    env = pole()
    env.spec = gym.envs.registration.EnvSpec("policygen-tests/Pole-v0", entry_point=pole)
    check_env(env)
    with policygen.make_env("cartpole") as real:
        assert (env.observation_space, env.action_space) == (real.observation_space, real.action_space)
    starts = np.array([env.reset(seed=seed)[0] for seed in range(50)])
    assert ((starts[:, 2] >= 0.01) & (starts[:, 2] <= 0.02)).all()


def test_a_run_s_plant_moves_as_the_environment_does(plant_run: Path) -> None:
    plant, episodes = policygen.plant(plant_run).unwrapped, kept_episodes(plant_run)
    assert isinstance(plant, PlantEnv)
    real, episode = plant.plant.equations, episodes[-1]
    assert real.plant.starts == (("rate", "uniform(-1, 1)"),)
    seen_starts = replace(real.plant, starts=())
    env = TimeLimit(PlantEnv(Equations(real.task, seen_starts), episodes), 200)
    first, _ = env.reset(seed=1)
    assert any(np.array_equal(first, seen.observations[0]) for seen in kept_episodes(plant_run))
    while not np.array_equal(first, episode.observations[0]):
        first, _ = env.reset()
    steps = [env.step(action) for action in episode.actions]
    # Later the pendulum stands upright, where errors grow without feedback.
    assert np.abs(np.array([step[0] for step in steps[:40]]) - episode.observations[1:41]).max() < 0.01
    assert [step[1] for step in steps[:40]] == pytest.approx(episode.rewards[:40], abs=0.01)
    assert [step[3] for step in steps] == [False] * 199 + [True], "truncated at the task's limit"
    assert not any(step[2] for step in steps)


@pytest.mark.parametrize("law", ["velocity*1e30 + 1e30", "velocity/0 - velocity/0", "log(0 - 1 - velocity^2)"])
def test_what_leaves_the_data_or_breaks_down_ends_the_episode(law: str) -> None:
    env = pole(POLE.replace("velocity + 0.02*push", law))
    env.reset(seed=0)
    steps = [env.step(0), env.step(0)]
    assert any(step[2] for step in steps)
    assert all(env.observation_space.contains(step[0]) and np.isfinite(step[1]) for step in steps)


def test_actions_are_clipped_or_refused(plant_run: Path) -> None:
    env = pole()
    with pytest.raises(UsageError, match=r"call reset\(\)"):
        env.step(1)
    env.reset()
    with pytest.raises(UsageError, match=r"7 is not in the action space Discrete\(2\)"):
        env.step(7)
    one, other = policygen.plant(plant_run).unwrapped, policygen.plant(plant_run).unwrapped
    one.reset(seed=0), other.reset(seed=0)
    assert np.array_equal(one.step(np.float32([9.0]))[0], other.step(np.float32([2.0]))[0])


def test_a_damaged_or_missing_plant_is_refused_and_runs_no_code(plant_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plant_run, tmp_path / "run")
    log = folder / "attempts.jsonl"
    log.write_text(log.read_text().replace("next rate = later_rate", "next rate = __import__('os').abort()"))
    with pytest.raises(PolicyError, match="damaged plant"):
        policygen.plant(folder)
    (folder / "episodes.npz").unlink()
    shutil.copy(plant_run / "attempts.jsonl", log)
    with pytest.raises(PolicyError, match="without any real episode"):
        policygen.plant(folder)
    (folder / "episodes.npz").write_bytes(b"PK")
    with pytest.raises(LogbookError, match="damaged"):
        policygen.plant(folder)
    with pytest.raises(PolicyError, match="damaged plant"):
        equations_of(PlantRecord("next nothing = 1", 1), PENDULUM)
    with pytest.raises(PolicyError, match=r"has no plant: .*--refine model"):
        policygen.plant(made("frozenlake", tmp_path, iterations=1))
    with pytest.raises(TaskError, match="untrusted file may only name"):
        check_id("policygen/Plant-v0", "task.toml")
