"""Speed of acting: table lookups, one observation at a time, linear maps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task
from speed_parts.rows import Missing, Row, absolute, compared, faster, installed, scaled, within


def cartpole_table() -> TablePolicy:
    """A table over the task's own grid, its actions drawn at random."""
    task = load_task("cartpole")
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.random.default_rng(0).integers(0, 2, task.grid.size))


def some_observations(rows: int, columns: int = 4) -> npt.NDArray[np.float32]:
    """Normal numbers, shape (rows, columns)."""
    return np.random.default_rng(1).normal(0, 0.5, size=(rows, columns)).astype(np.float32)


def _fused_kernel(
    policy: TablePolicy, *, compiled_in: bool
) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]]:
    """A compiled loop over rows that bins and looks up at once: what a hand-written extension would do.

    Each bin is a sum of comparisons, without branches, and the compiler knows the number of columns and can unroll
    the loops; without `fastmath`, which would be free to get NaN wrong.

    Args:
        compiled_in: make every edge a constant of the compiled code: the fastest form, compiled anew for every policy.
    """
    import numba

    a, b, c = (int(np.prod(policy.grid.shape[i + 1 :])) for i in range(3))
    table = policy.actions

    @numba.njit(nogil=True)
    def above(value, cuts):  # type: ignore[no-untyped-def]
        count = np.int32(len(cuts))
        for cut in cuts:
            count -= np.int32(value < cut)
        return count

    @numba.njit(nogil=True)
    def kernel(x, edges, table):  # type: ignore[no-untyped-def]
        first, second, third, fourth = edges
        out = np.empty(x.shape[0], np.int64)
        for i in range(x.shape[0]):
            cell = a * above(x[i, 0], first) + b * above(x[i, 1], second)
            cell += c * above(x[i, 2], third) + above(x[i, 3], fourth)
            out[i] = table[cell]
        return out

    edges = tuple(np.array(d.rounded_edges, np.float32) for d in policy.grid.dimensions)
    if not compiled_in:
        return lambda x: kernel(x, edges, table)
    constants = tuple(tuple(cuts) for cuts in edges)
    with_constants = numba.njit(lambda x, table: kernel(x, constants, table), nogil=True)
    return lambda x: with_constants(x, table)


def lookup(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """`act` on a million rows."""
    policy = cartpole_table()
    rows = some_observations(100_000 if quick else 1_000_000)
    columns = [np.ascontiguousarray(column) for column in rows.T]
    count = f"{len(rows):,} rows"
    by_rows = f"act, {count}"
    if installed("numba"):
        for compiled_in, what in ((True, "numba kernel, edges compiled in"), (False, "numba kernel, edges in arrays")):
            fused = _fused_kernel(policy, compiled_in=compiled_in)
            assert np.array_equal(fused(rows), policy.act(rows))
            kernel = functools.partial(fused, rows)
            for how, act, bar in (
                (by_rows, lambda: policy.act(rows), within(2.5)),
                (f"act on columns, {count}", lambda: policy.act_columns(columns), within(1.6)),
            ):
                yield compared(how, act, kernel, what, repeats=repeats, bar=bar if compiled_in else None)
    else:
        yield Missing("act against a fused kernel", 'numba is not installed; pip install "policygen[bench]"')
    edges = [np.array(d.rounded_edges) for d in policy.grid.dimensions]
    shape = policy.grid.shape

    def digitize() -> npt.NDArray[Any]:
        bins = [np.digitize(rows[:, j], edges[j]) for j in range(4)]
        return policy.actions[np.ravel_multi_index(tuple(bins), shape)]

    yield compared(
        by_rows, lambda: policy.act(rows), digitize, "np.digitize per column", repeats=repeats, bar=faster(8)
    )
    some = rows[: 2_000 if quick else 10_000]
    table = {tuple(policy.grid.bins_of(c).tolist()): int(a) for c, a in enumerate(policy.actions)}

    def dictionary() -> list[int]:
        return [table[tuple(int(np.digitize(v, e)) for v, e in zip(row, edges, strict=True))] for row in some]

    factor = len(rows) / len(some)
    row = compared(
        by_rows, lambda: policy.act(rows), dictionary, "a dictionary per row", repeats=repeats, bar=faster(300)
    )
    yield scaled(row, factor, f"{len(some):,} rows")


def one_at_a_time(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """`act_one`."""
    policy = cartpole_table()
    observation = some_observations(1)[0]
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
        repeats=repeats,
        bar=within(0.12),
        inner=(calls, calls),
    )
    yield row
    yield absolute(row.name, [row.ours * 1e6], 1.0, "1 microsecond", unit="us")
    yield compared(
        "act_one, one observation",
        lambda: policy.act_one(observation),
        lambda: policy.act(batch),
        "a batch of one row",
        repeats=repeats,
        bar=faster(3),
        inner=(calls, calls // 4),
    )


def linear(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """`act` of a linear policy on a million rows."""
    task = load_task("Hopper-v5") if installed("mujoco") else None
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
    rows = some_observations(100_000 if quick else 1_000_000, 11)
    weights = policy.weights.astype(np.float32)
    low, high = np.float32(-1), np.float32(1)
    yield compared(
        f"linear act, {len(rows):,} x 11 to 3",
        lambda: policy.act(rows),
        lambda: np.clip(rows @ weights, low, high),
        "bare matrix product and clip",
        repeats=repeats,
        bar=within(1.3),
    )
