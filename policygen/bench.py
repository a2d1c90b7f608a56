"""Speed, side by side in one process: every row compares what policygen does with another way of doing the same.

Peers that are not installed are left out and named.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.buffer import ReplayBuffer
from policygen.discovery import load_task
from policygen.evaluate import episode_seeds, exact_score, finite_mdp
from policygen.language import parse
from policygen.policies import LinearPolicy, Policy, TablePolicy
from policygen.ratios import Missing, Row, absolute, compared, scaled, timed
from policygen.rollout import Simulator, Trajectory
from policygen.spaces import flatten
from policygen.tasks import Task, make_env
from policygen.workers import Players

REPEATS = 7
QUICK_REPEATS = 3


def run_all(*, quick: bool = False) -> Iterator[Row | Missing]:
    """Every comparison, one after the other; `quick` takes fewer and smaller repeats."""
    repeats = QUICK_REPEATS if quick else REPEATS
    for section in (
        _lookup,
        _one_at_a_time,
        _linear,
        _cartpole,
        _frozenlake,
        _hopper,
        _buffer,
        _prompt,
        _overhead,
        _help,
    ):
        yield from section(repeats, quick)


# --- lookup ----------------------------------------------------------------------------------------------------------


def _cartpole_table() -> TablePolicy:
    task = load_task("cartpole")
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.random.default_rng(0).integers(0, 2, task.grid.size))


def _observations(rows: int, columns: int = 4) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).normal(0, 0.5, size=(rows, columns)).astype(np.float32)


def _fused_kernel(policy: TablePolicy) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]]:
    """A compiled loop over rows that bins and looks up at once: what a hand-written extension would do.

    Each bin is a sum of comparisons, without branches, and the compiler knows the number of columns and can unroll
    the loops; without `fastmath`, which would be free to get NaN wrong.
    """
    import numba

    edges = [np.array(d.cuts, np.float32) for d in policy.grid.dimensions]
    first, second, third, fourth = edges
    strides = [int(np.prod(policy.grid.shape[i + 1 :])) for i in range(len(edges))]
    a, b, c, _ = strides
    table = policy.actions

    @numba.njit(nogil=True)
    def above(value, cuts):  # type: ignore[no-untyped-def]
        count = np.int32(len(cuts))
        for cut in cuts:
            count -= np.int32(value < cut)
        return count

    @numba.njit(nogil=True)
    def kernel(x, first, second, third, fourth, table):  # type: ignore[no-untyped-def]
        out = np.empty(x.shape[0], np.int64)
        for i in range(x.shape[0]):
            cell = a * above(x[i, 0], first) + b * above(x[i, 1], second)
            cell += c * above(x[i, 2], third) + above(x[i, 3], fourth)
            out[i] = table[cell]
        return out

    return lambda x: kernel(x, first, second, third, fourth, table)


def _literal_kernel(policy: TablePolicy) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]]:
    """The same with every edge a constant of the compiled code: the fastest form, compiled anew for every policy."""
    import numba

    first, second, third, fourth = (tuple(np.float32(cut) for cut in d.cuts) for d in policy.grid.dimensions)
    a, b, c = (int(np.prod(policy.grid.shape[i + 1 :])) for i in range(3))
    table = policy.actions

    @numba.njit(nogil=True)
    def above(value, cuts):  # type: ignore[no-untyped-def]
        count = np.int32(len(cuts))
        for cut in cuts:
            count -= np.int32(value < cut)
        return count

    @numba.njit(nogil=True)
    def kernel(x, table):  # type: ignore[no-untyped-def]
        out = np.empty(x.shape[0], np.int64)
        for i in range(x.shape[0]):
            cell = a * above(x[i, 0], first) + b * above(x[i, 1], second)
            cell += c * above(x[i, 2], third) + above(x[i, 3], fourth)
            out[i] = table[cell]
        return out

    return lambda x: kernel(x, table)


def _lookup(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    policy = _cartpole_table()
    rows = _observations(100_000 if quick else 1_000_000)
    columns = [np.ascontiguousarray(column) for column in rows.T]
    count = f"{len(rows):,} rows"
    if _installed("numba"):
        for fused, what, barred in (
            (_literal_kernel(policy), "numba kernel, edges compiled in", True),
            (_fused_kernel(policy), "numba kernel, edges in arrays", False),
        ):
            assert np.array_equal(fused(rows), policy.act(rows))
            for name, act, most in (
                (f"act, {count}", lambda: policy.act(rows), 2.5),
                (f"act on columns, {count}", lambda: policy.act_columns(columns), 1.6),
            ):
                kernel = functools.partial(fused, rows)
                yield compared(name, act, kernel, what, repeats, most=most if barred else None)
    else:
        yield Missing("act against a fused kernel", 'numba is not installed; pip install "policygen[bench]"')
    edges = [np.array(d.cuts) for d in policy.grid.dimensions]
    shape = policy.grid.shape

    def digitize() -> npt.NDArray[Any]:
        bins = [np.digitize(rows[:, j], edges[j]) for j in range(4)]
        return policy.actions[np.ravel_multi_index(tuple(bins), shape)]

    yield compared(f"act, {count}", lambda: policy.act(rows), digitize, "np.digitize per column", repeats, least=8)
    some = rows[: 2_000 if quick else 10_000]
    table = {tuple(policy.grid.bins_of(c).tolist()): int(a) for c, a in enumerate(policy.actions)}

    def dictionary() -> list[int]:
        return [table[tuple(int(np.digitize(v, e)) for v, e in zip(row, edges, strict=True))] for row in some]

    factor = len(rows) / len(some)
    row = compared(f"act, {count}", lambda: policy.act(rows), dictionary, "a dictionary per row", repeats, least=300)
    yield scaled(row, factor, f"{len(some):,} rows", 300)


def _one_at_a_time(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    policy = _cartpole_table()
    observation = _observations(1)[0]
    batch = observation.reshape(1, -1)
    env = gym.make("CartPole-v1")
    env.reset(seed=0)

    def step() -> None:
        if env.step(0)[2]:
            env.reset()

    calls = 2_000 if quick else 20_000
    row = compared(
        "act_one, one observation",
        lambda: policy.act_one(observation),
        step,
        "one CartPole-v1 step",
        repeats,
        most=0.12,
        inner=(calls, calls),
    )
    yield row
    yield absolute(row.name, [row.ours * 1e6], 1.0, "1 microsecond", "us")
    yield compared(
        "act_one, one observation",
        lambda: policy.act_one(observation),
        lambda: policy.act(batch),
        "a batch of one row",
        repeats,
        least=3,
        inner=(calls, calls // 4),
    )


def _linear(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    task = load_task("Hopper-v5") if _installed("mujoco") else None
    if task is None:
        yield Missing("linear act, 11 to 3", 'MuJoCo is not installed; pip install "policygen[mujoco]"')
        return
    rng = np.random.default_rng(0)
    lines = [
        f"action{i} = "
        + " + ".join(f"{w:.3f}*{n}" for w, n in zip(rng.normal(size=11), task.observation_names, strict=True))
        for i in range(3)
    ]
    policy = parse("\n".join(lines).replace("+ -", "- "), task, "linear").policy
    assert isinstance(policy, LinearPolicy)
    rows = _observations(100_000 if quick else 1_000_000, 11)
    weights = policy.weights.astype(np.float32)
    low, high = np.float32(-1), np.float32(1)
    yield compared(
        f"linear act, {len(rows):,} x 11 to 3",
        lambda: policy.act(rows),
        lambda: np.clip(rows @ weights, low, high),
        "bare matrix product and clip",
        repeats,
        most=1.3,
    )


# --- episodes --------------------------------------------------------------------------------------------------------


def plain_loop(task: Task, policy: Policy, seeds: Sequence[int]) -> list[float]:
    """What one would write first: one environment, one observation at a time."""
    env = make_env(task)
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=int(seed))
        total, done = 0.0, False
        while not done:
            action = policy.act_one(flatten(env.observation_space, observation))
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


def _cartpole(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    task = load_task("cartpole")
    policy = parse(_LEAN, task).policy
    assert policy is not None
    episodes, few = (200, 4) if quick else (1_000, 20)
    seeds = episode_seeds(0, "bench", episodes)
    repeats = min(repeats, 5) if quick else repeats
    with Simulator(task) as simulator:
        assert all(t.length == task.max_steps for t in simulator.play(policy, seeds[:20]))

        def ours() -> list[Trajectory]:
            return simulator.play(policy, seeds)

        row = compared(
            f"CartPole, {episodes:,} episodes of 500 steps",
            ours,
            lambda: plain_loop(task, policy, seeds[:few]),
            "a plain loop",
            repeats,
            least=40,
        )
        yield scaled(row, episodes / few, f"{few} episodes, per step", 40)
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
            repeats,
            least=150,
        )
        yield scaled(row, episodes * 500 / float(np.median(lengths)), f"{few * 10} episodes, per step", 150)


def _frozenlake(repeats: int, quick: bool) -> Iterator[Row | Missing]:
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
            repeats,
            least=20 if quick else 200,
            inner=(10, 1),
        )
    yield row
    yield absolute(row.name, [row.ours * 1e3], 1.0, "1 millisecond", "ms")


def _hopper(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    if not _installed("mujoco"):
        yield Missing("Hopper-v5, 64 episodes", 'MuJoCo is not installed; pip install "policygen[mujoco]"')
        return
    task = load_task("Hopper-v5")
    names = task.observation_names
    text = "\n".join(f"action{i} = -0.5*{names[2 + i]} - 0.1*{names[8 + i]}" for i in range(3))
    policy = parse(text, task, "linear").policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 16 if quick else 64)
    yield _hopper_row(task, policy, seeds, repeats, use_pool=False, least=1.6)
    if _installed("envpool"):
        yield _hopper_row(task, policy, seeds, repeats, use_pool=True, least=2.2)
    else:
        yield Missing("Hopper-v5 with EnvPool", 'it is not installed; pip install "policygen[envpool]"')


def _hopper_row(task: Task, policy: Policy, seeds: Sequence[int], repeats: int, *, use_pool: bool, least: float) -> Row:
    with Players(task, use_pool=use_pool) as players:
        how = "EnvPool's threads" if use_pool else f"{players.jobs} processes"
        for _ in range(2):  # the first call learns how long an episode takes, the second starts the processes
            players.play(policy, episode_seeds(0, "warm-up", 64))
        return compared(
            f"Hopper-v5, {len(seeds)} episodes, {how}",
            lambda: players.play(policy, seeds),
            lambda: plain_loop(task, policy, seeds),
            "a plain loop",
            repeats,
            least=least,
        )


# --- memory, prompts, overhead ---------------------------------------------------------------------------------------


def _buffer(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    rng = np.random.default_rng(0)
    steps, count = 100, 1_000 if quick else 10_000

    def trajectory(i: int) -> Trajectory:
        observations = rng.normal(size=(steps + 1, 4)).astype(np.float32)
        return Trajectory(
            observations, np.zeros(steps, np.int16), np.ones(steps, np.float32), float(rng.normal()), i, True, False
        )

    buffer = ReplayBuffer(capacity=10**9)
    buffer.add(1, [trajectory(i) for i in range(count)])
    one = next(iter(buffer)).trajectory
    size = (one.observations.nbytes + one.actions.nbytes + one.rewards.nbytes) / steps
    yield absolute("replay buffer, a CartPole transition", [size], 32, "32 bytes", "bytes")
    seconds = [timed(lambda: (buffer.best(4), buffer.worst(4)), 1) for _ in range(repeats)]
    yield absolute(f"best and worst of {count:,} episodes", seconds, 5e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.npz"

        def both() -> None:
            buffer.save(path)
            ReplayBuffer.load(path, 10**9)

        seconds = [timed(both, 1) for _ in range(repeats)]
    yield absolute(f"{buffer.transitions:,} transitions saved and loaded", seconds, 1.0)


def _prompt(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    yield absolute(
        "prompt: four 500-step episodes, a failed one, the best policy, 20 attempts",
        [long_prompt_characters()],
        9_000,
        "9,000 characters",
        "characters",
    )


# Keeps the pole up for 500 steps from 19 of the 20 starts.
_NEARLY_PERFECT = """
| 2 | 1 | 1 | 2 | right |
| * | * | 4,5 | 2-5 | right |
| * | * | 2,3 | 3-5 | right |
| * | * | * | * | left |
"""


def long_prompt_characters() -> int:
    """Characters of the prompt after 20 attempts at CartPole, one of them no policy, with an incumbent that fails once.

    It shows four episodes of 500 steps and the failed one.
    """
    from policygen.config import effective_config
    from policygen.evaluate import sampled_score
    from policygen.loop import new_search
    from policygen.prompts import render_prompt
    from policygen.search import Attempt, Played

    task = load_task("cartpole")
    assert task.grid is not None
    config = effective_config(task, "cartpole")
    search = new_search(task, config)
    rng = np.random.default_rng(0)
    best = parse(_NEARLY_PERFECT, task).policy
    assert isinstance(best, TablePolicy)
    seeds = episode_seeds(0, "bench", 20)
    with Simulator(task) as simulator:
        for number in range(1, 21):
            if number == 10:
                search.attempts.append(Attempt(number, None, None, problems=parse("go left", task).problems))
                continue
            actions = best.actions.copy()
            changed = rng.integers(task.grid.size, size=12)
            actions[changed] = 1 - actions[changed]
            policy = best if number == 15 else TablePolicy.from_actions(task, actions)
            trajectories = simulator.play(policy, seeds)
            search.buffer.add(number, trajectories)
            short = tuple(
                Played(t.episode_return, t.length, "terminated" if t.terminated else "cut", t.terms)
                for t in trajectories
            )
            score = sampled_score(trajectories, simulator.engine)
            search.attempts.append(Attempt(number, policy, score, short, accepted=number in (1, 15)))
        search.best = search.attempts[14]
        search.best_score = search.best.score
    return render_prompt(search.context(21, config), config).characters


def _overhead(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    own_share(0)  # templates and modules are loaded once a process, not once a run
    runs = [own_share(seed) for seed in range(1, 2 if quick else repeats + 1)]
    what = "CartPole run of 20 iterations, 100 episodes a score: neither stepping nor proposing"
    shares = [share.complete for share in runs]
    yield absolute(what, shares, 0.10, "10% of the wall time, builtin proposing", "share", bar="at most 10%")
    for name, some in (
        (f"{what}; the search alone", [share.search for share in runs]),
        (f"{what}; replies cost no time", [share.without_waiting for share in runs]),
    ):
        row = absolute(name, some, 1.0, "the whole, without a bar", "share")
        yield replace(row, bar="", met=None)


@dataclass(frozen=True, slots=True)
class OwnShare:
    """The share of a run's wall time that is neither environment stepping nor waiting for proposals.

    `complete` is from the start to the last file and picture; `search` leaves out the final score, the saved buffer
    and the picture; `without_waiting` is what is left of a complete run where proposals cost no time at all.
    """

    complete: float
    search: float
    without_waiting: float


def own_share(seed: int) -> OwnShare:
    """Measure one run in which `builtin` proposes."""
    from policygen.config import effective_config
    from policygen.runner import start

    task = load_task("cartpole")
    config = effective_config(
        task, "cartpole", options={"seed": seed, "episodes": 100, "iterations": 20, "stop_at": 1e9}
    )
    stepping = 0.0
    original = Simulator.play

    def clocked(self: Simulator, *arguments: Any) -> list[Trajectory]:
        nonlocal stepping
        started = time.perf_counter()
        try:
            return original(self, *arguments)
        finally:
            stepping += time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        Simulator.play = clocked  # type: ignore[method-assign, assignment]
        try:
            started = time.perf_counter()
            run = start(task, config, Path(folder))
            for _ in run.attempts():
                pass
            search, stepped = time.perf_counter() - started, stepping
            run.finish()
            whole = time.perf_counter() - started
        finally:
            Simulator.play = original  # type: ignore[method-assign]
    waiting = run.ledger.llm_seconds
    own = whole - stepping - waiting
    return OwnShare(own / whole, (search - stepped - waiting) / search, own / (whole - waiting))


def _help(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    def command(*arguments: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    yield compared(
        "policygen --help",
        command("-m", "policygen", "--help"),
        command("-c", "import numpy"),
        "import numpy",
        repeats,
        most=3,
    )


def _installed(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None
