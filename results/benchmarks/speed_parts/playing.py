"""Speed of playing: CartPole, FrozenLake, Hopper, the replay buffer."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np

from policygen.episodes.buffer import KEPT_EXTREMES, ReplayBuffer
from policygen.episodes.evidence import Episode
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.search.refine.tunable import Tunable
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.spaces import flatten
from policygen.tasks.task import Task
from speed_parts.rows import (
    Missing,
    Row,
    absolute,
    compared,
    faster,
    installed,
    scaled,
    timed,
)


def plain_loop(task: Task, policy: Policy, seeds: Sequence[int]) -> list[float]:
    """Play in the simplest way: one environment, one observation at a time."""
    env = make_env(task)
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=int(seed))
        total, done = 0.0, False
        while not done:
            action = policy.act_one(flatten(task.layout, observation))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
        returns.append(total)
    env.close()
    return returns


_LEAN = """
let lean = angle + 0.25*spin + 0.04*position + 0.08*velocity
bins lean: 0
| lean | action |
| 0 | left |
| * | right |
"""


def cartpole(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """A thousand CartPole episodes."""
    task = load_task("cartpole")
    policy = parse(_LEAN, task).policy
    assert policy is not None
    episodes, few = (200, 4) if quick else (1_000, 20)
    seeds = episode_seeds(0, "bench", episodes)
    with Simulator(task) as simulator:
        assert all(t.length == task.max_steps for t in simulator.play(policy, seeds[:20]))

        def ours() -> list[Trajectory]:
            return simulator.play(policy, seeds)

        row = compared(
            f"CartPole, {episodes:,} episodes of 500 steps",
            ours,
            lambda: plain_loop(task, policy, seeds[:few]),
            "a plain loop",
            repeats=repeats,
            bar=faster(40),
        )
        yield scaled(row, episodes / few, f"{few} episodes, per step")
        try:
            from stable_baselines3 import PPO
            from stable_baselines3.common.evaluation import evaluate_policy
        except ImportError:
            yield Missing("CartPole against Stable-Baselines3", 'it is not installed; pip install "policygen[bench]"')
            return
        env = gym.make("CartPole-v1")
        model = PPO("MlpPolicy", env, seed=0, device="cpu")
        # An untrained network falls early; the cost is compared per step, which is what an episode of 500 steps has.
        lengths: list[int] = []

        def theirs() -> None:
            _, steps = evaluate_policy(model, model.get_env(), n_eval_episodes=few * 10, return_episode_rewards=True)
            lengths.append(sum(steps))

        row = compared(
            f"CartPole, {episodes:,} episodes of 500 steps",
            ours,
            theirs,
            "SB3 evaluate_policy, MLP",
            repeats=repeats,
            bar=faster(150),
        )
        yield scaled(row, episodes * 500 / float(np.median(lengths)), f"{few * 10} episodes, per step")


def frozenlake(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """FrozenLake scored exactly."""
    task = load_task("frozenlake")
    assert task.grid is not None
    policy = TablePolicy.from_actions(task, [0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0])
    mdp = finite_mdp(task)
    assert mdp is not None
    seeds = episode_seeds(0, "bench", 100 if quick else 1_000)
    with Simulator(task) as simulator:
        row = compared(
            "FrozenLake, exact score",
            lambda: exact_score(policy, mdp),
            lambda: simulator.play(policy, seeds),
            f"{len(seeds):,} sampled episodes",
            repeats=repeats,
            bar=faster(200),
            inner=(10, 1),
        )
    yield row
    yield absolute(row.name, [row.ours * 1e3], 1.0, "1 millisecond", unit="ms")


_PUMPING = {
    "acrobot": "let pump = rate1 + 0.3*rate2\nminus = -2*pump\nzero = 0.1\nplus = 2*pump",
    "mountaincar": "let slope = cos(3*position)\nleft = -velocity + 0.001*slope\nnone = 0\nright = velocity",
    "mountaincar-continuous": "let slope = cos(3*position)\nforce = 30*velocity + 0.01*slope",
    "pendulum": "let lift = rate^2/6 + 5*(cos - 1)\ntorque = -8*sin - 2*rate - 0.1*lift*rate",
    "lunarlander": "let lean = 0.5*x + vx\nnone = 0.1\nleft = lean - angle - spin\nright = angle + spin - lean\n"
    "main = -y - 2*vy",
    "bipedalwalker": "hip1_drive = 0.9*sin(6*hip2)\nknee1_drive = 0.4 - knee1\nhip2_drive = 0.9*sin(6*hip1)\n"
    "knee2_drive = 0.4 - knee2",
}
_FASTER_HERE = "numpy plays it here {}, and begins as Gymnasium does for each seed"
# What EnvPool has, and does not play.
REFUSED = {
    "Pendulum-v1": "EnvPool turns the rod by the rate before that is cut at 8 rad/s and Gymnasium by the rate after:"
    " angles differ by up to 0.05 rad a step",
    "Acrobot-v1": _FASTER_HERE.format("in as little time"),
    "MountainCar-v0": _FASTER_HERE.format("in less than half the time"),
    "MountainCarContinuous-v0": _FASTER_HERE.format("in less than half the time"),
}
_CANDIDATES, _SEEDS = 12, 4  # of a generation of CMA-ES


def refinement(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """A generation of refinement: candidates that differ in their constants, on the same seeds."""
    for name, text in _PUMPING.items():
        box2d = name in ("lunarlander", "bipedalwalker")
        what = f"{name}, {_CANDIDATES} candidates of a refinement on {_SEEDS} seeds"
        if box2d and not installed("Box2D"):
            yield Missing(what, 'Box2D is not installed; pip install "policygen[box2d]"')
            continue
        task = load_task(name)
        task = replace(task, max_steps=min(task.max_steps, 500))
        policy = parse(text, task, "linear").policy
        assert policy is not None
        tunable = Tunable(policy)
        rng = np.random.default_rng(0)
        candidates = [tunable.at(0.1 * rng.normal(size=tunable.size)) for _ in range(_CANDIDATES)]
        seeds = episode_seeds(0, "bench", _SEEDS)
        few = candidates[: 2 if quick or box2d else 4]
        with Players(task) as players:
            row = compared(
                f"{what}, {players.engine}",
                functools.partial(players.play_many, candidates, seeds),
                functools.partial(_one_after_the_other, task, few, seeds),
                "a plain loop",
                repeats=repeats,
                bar=faster(2.5 if box2d or name == "mountaincar-continuous" else 10),
            )
        yield scaled(row, _CANDIDATES / len(few), f"{len(few)} candidates")
        if task.gym_id in REFUSED and installed("envpool"):
            yield Missing(f"{name} in EnvPool", REFUSED[task.gym_id])


def _one_after_the_other(task: Task, policies: Sequence[Policy], seeds: Sequence[int]) -> None:
    for policy in policies:
        plain_loop(task, policy, seeds)


def hopper(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """Hopper episodes on all cores."""
    if not installed("mujoco"):
        yield Missing("Hopper-v5, 64 episodes", 'MuJoCo is not installed; pip install "policygen[mujoco]"')
        return
    policy = _hopping()
    seeds = episode_seeds(0, "bench", 16 if quick else 64)
    for use_pool, bar in ((False, faster(1.6)), (True, faster(2.2))):
        if use_pool and not installed("envpool"):
            yield Missing("Hopper-v5 with EnvPool", 'it is not installed; pip install "policygen[envpool]"')
            continue
        with Players(policy.task, use_pool=use_pool) as players:
            how = _warmed_up(players, policy)
            yield compared(
                f"Hopper-v5, {len(seeds)} episodes, {how}",
                functools.partial(players.play, policy, seeds),
                lambda: plain_loop(policy.task, policy, seeds),
                "a plain loop",
                repeats=repeats,
                bar=bar,
            )


def _hopping() -> Policy:
    """A Hopper policy: a PD law for each torque."""
    task = load_task("Hopper-v5")
    names = task.observation_names
    torques = "\n".join(f"action{i} = -0.5*{names[2 + i]} - 0.1*{names[8 + i]}" for i in range(3))
    policy = parse(torques, task, "linear").policy
    assert policy is not None
    return policy


def _warmed_up(players: Players, policy: Policy) -> str:
    """Warm up and describe the players: the first call times an episode, the second starts the processes."""
    for _ in range(2):
        players.play(policy, episode_seeds(0, "warm-up", 64))
    return "EnvPool's threads" if players.engine == "envpool" else f"{players.jobs} processes"


def buffer(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """The replay buffer."""
    rng = np.random.default_rng(0)
    steps, count = 100, 1_000 if quick else 10_000

    def trajectory(i: int) -> Trajectory:
        observations = rng.normal(size=(steps + 1, 4)).astype(np.float32)
        return Trajectory(
            observations, np.zeros(steps, np.int16), np.ones(steps, np.float32), float(rng.normal()), i, True, False
        )

    buffer = ReplayBuffer(capacity=10**9)
    buffer.add(Episode(1, trajectory(i)) for i in range(count))
    one = next(iter(buffer)).trajectory
    size = (one.observations.nbytes + one.actions.nbytes + one.rewards.nbytes) / steps
    yield absolute("replay buffer, a CartPole transition", [size], 32, "32 bytes", unit="bytes")
    most = KEPT_EXTREMES
    seconds = [timed(lambda: buffer.best(most), 1) for _ in range(repeats)]
    yield absolute(f"best {most} of {count:,} episodes", seconds, 5e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.npz"

        def both() -> None:
            buffer.save(path)
            ReplayBuffer.load(path)

        seconds = [timed(both, 1) for _ in range(repeats)]
    yield absolute(f"{buffer.transitions:,} transitions saved and loaded", seconds, 1.0)
