"""The two sides of each promised ratio: each function prepares both and yields their sample."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.formats import exported
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.search.refine.tunable import Tunable
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.spaces import flatten
from policygen.tasks.task import Task
from speed_parts.by_hand import by_hand, columns_by_hand, start
from speed_parts.measure import Missing, Sample, alternating

POLICIES = Path(__file__).parents[2] / "policies"
TILT = "left = 0\nright = angle + 0.3*spin"
REMEMBERING = """
let smooth = 0.9*prev(smooth) + 0.1*spin
let sum = clip(prev(sum) + 0.02*angle, -1, 1)
left = 0
right = angle + 0.2*smooth + sum
"""
PUMPING = {
    "acrobot": "let pump = rate1 + 0.3*rate2\nminus = -2*pump\nzero = 0.1\nplus = 2*pump",
    "mountaincar": "let slope = cos(3*position)\nleft = -velocity + 0.001*slope\nnone = 0\nright = velocity",
    "pendulum": "let lift = rate^2/6 + 5*(cos - 1)\ntorque = -8*sin - 2*rate - 0.1*lift*rate",
}
ROWS = 32  # observations of a decision, as many as a process steps environments
CANDIDATES, SEEDS = 12, 4  # of a generation of CMA-ES


def equations(task: Task | str, text: str) -> LinearPolicy:
    """Return the policy of a text, or of a file of `POLICIES` of this name."""
    task = _task(task) if isinstance(task, str) else task
    file = POLICIES / f"{text}.txt"
    policy = parse(file.read_text() if "\n" not in text else text, task, "linear").policy
    assert isinstance(policy, LinearPolicy)
    return policy


def _task(name: str) -> Task:
    if name.endswith("-v5"):
        _need("mujoco", 'pip install "policygen[mujoco]"')
    return load_task(name)


def _need(package: str, remedy: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise Missing(f"{package} is not installed; {remedy}")


def observations(policy: Policy, count: int = ROWS) -> list[npt.NDArray[np.float32]]:
    """Return normal numbers as observations."""
    return list(np.random.default_rng(0).normal(0, 0.3, (count, policy.task.width)).astype(np.float32))


def decisions(policy: Policy, rows: Sequence[npt.NDArray[np.float32]]) -> Callable[[], Any]:
    """Return the function that decides for each row as the loop of episodes does."""
    return functools.partial(policy.begin(len(rows)).decide, rows, np.arange(len(rows)))


# --- one decision ----------------------------------------------------------------------------------------------------


@contextmanager
def hand_written(task: str, text: str) -> Iterator[Sample]:
    """A decision, beside straight-line Python over floats."""
    policy = equations(task, text)
    rows, act = observations(policy), by_hand(policy)
    memories = [start(policy)] * len(rows)

    def theirs() -> list[Any]:
        if not policy.remembers:
            return [act(row.tolist()) for row in rows]
        actions = []
        for i, row in enumerate(rows):
            action, memories[i] = act(row.tolist(), memories[i])
            actions.append(action)
        return actions

    ours = decisions(policy, rows)
    assert np.array_equal(ours(), theirs())
    yield per_row(alternating(ours, theirs))


@contextmanager
def exported_python(task: str, text: str) -> Iterator[Sample]:
    """A decision, beside the exported Python file."""
    policy = equations(task, text)
    rows, module = observations(policy), dict[str, Any]()
    exec(compile(exported(policy, "python"), "exported", "exec"), module)
    act = module["act"]
    memories = [[module["start"]()] if policy.remembers else [] for _ in rows]

    def theirs() -> list[Any]:
        return [act(row.tolist(), *memory) for row, memory in zip(rows, memories, strict=True)]

    ours = decisions(policy, rows)
    assert np.array_equal(np.reshape(ours(), -1), np.reshape(theirs(), -1).astype(np.float32))
    yield per_row(alternating(ours, theirs))


@contextmanager
def simulator_step(task: str, text: str) -> Iterator[Sample]:
    """A decision, beside a step of the environment that it plays."""
    policy = equations(task, text)
    env, decide = make_env(policy.task), decisions(policy, observations(policy))
    actions = decide()
    env.reset(seed=0)

    def step() -> None:
        for action in actions:
            if any(env.step(action)[2:4]):
                env.reset()

    yield per_row(alternating(decide, step))
    env.close()


@contextmanager
def numbers_instead_of_memory() -> Iterator[Sample]:
    """A decision of a policy with memory, beside the same with numbers instead of what it remembers."""
    policy = equations("cartpole", REMEMBERING)
    plain = equations("cartpole", REMEMBERING.replace("prev(smooth)", "velocity").replace("prev(sum)", "position"))
    rows = observations(policy)
    yield per_row(alternating(decisions(policy, rows), decisions(plain, rows)))


def per_row(sample: Sample, rows: int = ROWS) -> Sample:
    """Return the sample with the amounts of one row."""

    def divided() -> tuple[float, float]:
        ours, theirs = sample()
        return ours / rows, theirs / rows

    return divided


# --- many decisions --------------------------------------------------------------------------------------------------


@contextmanager
def numpy_by_hand(task: str, text: str) -> Iterator[Sample]:
    """A thousand decisions at once, beside straight-line numpy."""
    policy = equations(task, text)
    rows, act = np.array(observations(policy, 1_000)), columns_by_hand(policy)
    wide = rows.astype(np.float64)
    assert np.allclose(policy.act(rows), act(wide), rtol=1e-6)
    yield alternating(lambda: policy.act(rows), lambda: act(rows.astype(np.float64)))


def cartpole_table() -> TablePolicy:
    """A table over the task's own grid, its actions drawn at random."""
    task = load_task("cartpole")
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.random.default_rng(0).integers(0, 2, task.grid.size))


@contextmanager
def digitized() -> Iterator[Sample]:
    """A table's actions for a million rows, beside `np.digitize` for each column."""
    policy = cartpole_table()
    rows = np.random.default_rng(1).normal(0, 0.5, (1_000_000, 4)).astype(np.float32)
    edges = [np.array(d.rounded_edges) for d in policy.grid.dimensions]

    def theirs() -> Any:
        bins = tuple(np.digitize(column, cuts) for column, cuts in zip(rows.T, edges, strict=True))
        return policy.actions[np.ravel_multi_index(bins, policy.grid.shape)]

    assert np.array_equal(policy.act(rows), theirs())
    yield alternating(lambda: policy.act(rows), theirs)


@contextmanager
def table_in_cartpole() -> Iterator[Sample]:
    """A table's action for one observation, beside a step of CartPole."""
    policy, env = cartpole_table(), make_env(load_task("cartpole"))
    (observation,) = observations(policy, 1)
    env.reset(seed=0)

    def step() -> None:
        if env.step(0)[2]:
            env.reset()

    yield alternating(lambda: policy.act_one(observation), step)
    env.close()


@contextmanager
def exported_c() -> Iterator[Sample]:
    """A decision of the exported C in nanoseconds, beside its limit of 20 ns."""
    if shutil.which("cc") is None:
        raise Missing("there is no C compiler `cc`")
    policy = equations("cartpole", TILT)
    loop = """
long run(const double *rows, long n)
{
    long i, sum = 0;
    for (i = 0; i < n; ++i)
        sum += cartpole_act(rows + 4 * i);
    return sum;
}
"""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "policy.c", Path(folder) / "policy.so"
        source.write_text(exported(policy, "c") + loop)
        subprocess.run(["cc", "-std=c99", "-O2", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        run = ctypes.CDLL(str(library)).run
        run.argtypes = (ctypes.c_void_p, ctypes.c_long)
        rows = np.array(observations(policy, 10_000), np.float64)
        assert run(rows.ctypes.data, len(rows)) == policy.act(rows).sum()

        decide = functools.partial(run, rows.ctypes.data, len(rows))
        sample = per_row(alternating(decide, decide), len(rows))
        yield lambda: (sample()[0], 20e-9)


# --- episodes --------------------------------------------------------------------------------------------------------


def plain_loop(task: Task, act: Callable[[npt.NDArray[Any]], Any], seeds: Sequence[int]) -> list[float]:
    """Play in the simplest way: one environment, one observation at a time; return the returns."""
    env = make_env(task)
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=int(seed))
        total, done = 0.0, False
        while not done:
            action = act(flatten(task.layout, observation))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
        returns.append(total)
    env.close()
    return returns


def _generation(policy: Policy) -> list[Policy]:
    """Return candidates that differ in their constants."""
    tunable, rng = Tunable(policy), np.random.default_rng(0)
    return [tunable.at(0.1 * rng.normal(size=tunable.size)) for _ in range(CANDIDATES)]


@contextmanager
def refinement(name: str) -> Iterator[Sample]:
    """A generation of tuning, beside a plain loop over a third of its candidates."""
    policy = equations(name, PUMPING[name])
    candidates, seeds, few = _generation(policy), episode_seeds(0, "bench", SEEDS), 3

    def theirs() -> None:
        for candidate in candidates[:few]:
            plain_loop(policy.task, candidate.act_one, seeds)

    with ParallelSimulator(policy.task) as players:
        ours = functools.partial(players.play_many, candidates, seeds)
        yield alternating(ours, theirs, CANDIDATES / few)


@contextmanager
def tuning(task: str, text: str) -> Iterator[Sample]:
    """A generation of tuning on all cores, beside a plain loop over a quarter of it with a hand-written decision."""
    policy = equations(replace(_task(task), max_steps=250), text)
    candidates, seeds, few = _generation(policy), episode_seeds(0, "bench", SEEDS), 3

    def theirs() -> None:
        for candidate in candidates[:few]:
            assert isinstance(candidate, LinearPolicy)
            plain_loop(policy.task, _with_memory(candidate), seeds)

    with ParallelSimulator(policy.task) as players:
        players.isolated = True
        ours = functools.partial(players.play_many, candidates, seeds)
        yield alternating(ours, theirs, CANDIDATES / few, time.perf_counter)


def _with_memory(policy: LinearPolicy) -> Callable[[npt.NDArray[Any]], Any]:
    """Return a hand-written policy that keeps its memory, also across episodes."""
    decide, memory = by_hand(policy), start(policy)

    def act(observation: npt.NDArray[Any]) -> Any:
        nonlocal memory
        action, memory = decide(observation.tolist(), memory)
        return action

    return act


@contextmanager
def own_share() -> Iterator[Sample]:
    """A CartPole run of 20 iterations: its time without stepping and proposals by `builtin`, and all of it."""
    from policygen.runs.config import effective_config
    from policygen.search.run import start as start_run

    task = load_task("cartpole")
    seeds = iter(range(1_000))

    def sample() -> tuple[float, float]:
        options = {"seed": next(seeds), "episodes": 100, "iterations": 20, "stop_at": 1e9}
        with tempfile.TemporaryDirectory() as folder, _clocked_episodes() as stepping:
            began = time.perf_counter()
            run = start_run(task, effective_config(task, "cartpole", options=options), Path(folder))
            for _ in run.attempts():
                pass
            run.finish()
            whole = time.perf_counter() - began
        return whole - sum(stepping) - run.ledger.llm_seconds, whole

    sample()  # templates and modules are loaded once a process, not once a run
    yield sample


@contextmanager
def _clocked_episodes() -> Iterator[list[float]]:
    """Yield the list of the seconds that each call of `ParallelSimulator.play` takes, in this process and in others."""
    original, seconds, depth = ParallelSimulator.play, list[float](), 0

    def clocked(self: ParallelSimulator, *arguments: Any) -> list[Trajectory]:
        nonlocal depth
        depth, began = depth + 1, time.perf_counter()
        try:
            return original(self, *arguments)
        finally:
            depth -= 1
            if not depth:
                seconds.append(time.perf_counter() - began)

    ParallelSimulator.play = clocked  # type: ignore[method-assign, assignment]
    try:
        yield seconds
    finally:
        ParallelSimulator.play = original  # type: ignore[method-assign]
