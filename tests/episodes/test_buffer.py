from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from played import assert_same
from support import PAIR

from policygen.episodes.buffer import EPISODE_OVERHEAD, KEPT_EXTREMES, ReplayBuffer, count_visits
from policygen.episodes.evidence import Episode, make_episodes
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import LogbookError
from policygen.policies.features import cell_reader
from policygen.prompts.evidence import visit_views
from policygen.tasks.load import load_task


def episode(value: float, length: int = 3, seed: int = 0, attempt: int = 0) -> Episode:
    seen, paid = np.full((length + 1, 2), value, np.float32), np.full(length, value / length, np.float32)
    return Episode(attempt, Trajectory(seen, np.zeros(length, np.int16), paid, value, seed, True, False))


def filled(returns: list[float], capacity: int = 1_000_000, length: int = 3) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity)
    for attempt, value in enumerate(returns):
        buffer.add([episode(value, length, attempt, attempt)])
    return buffer


def seeds(episodes) -> list[int]:
    return [e.trajectory.seed for e in episodes]


def test_episodes_are_ordered_by_return_the_later_of_equals_first_and_found_by_attempt():
    buffer = filled([1, 3, 2, 3, 1])
    assert [seeds(buffer.best(n)) for n in (0, 4, 99)] == [[], [3, 1, 2, 4], [3, 1, 2, 4, 0]]
    assert ReplayBuffer().best(3) == []
    buffer.add([episode(5, seed=7), episode(4, seed=8)])
    assert [seeds(buffer.of_attempt(0, last)) for last in (None, 0, 1, 9)] == [[0, 7, 8], [], [8], [0, 7, 8]]
    assert (seeds(buffer.of_attempt(4)), buffer.of_attempt(9)) == ([4], [])
    assert (len(buffer), buffer.transitions, buffer.returns.tolist()) == (7, 21, [1, 3, 2, 3, 1, 5, 4])


@pytest.mark.parametrize("capacity", [1, 1_800, 4_000])
@pytest.mark.parametrize("order", ["drawn", "rising", "falling"])
def test_a_full_buffer_keeps_the_extremes_and_its_bound(capacity, order):
    rng = np.random.default_rng(capacity)
    values = {"drawn": rng.integers(-9, 9, 150), "rising": np.arange(150), "falling": np.arange(150)[::-1]}[order]
    buffer = ReplayBuffer(capacity)
    for i, value in enumerate(values.tolist()):
        buffer.add([episode(value, int(rng.integers(1, 8)), i, i)])
        assert buffer.transitions == sum(e.trajectory.length for e in buffer)
        # Only what is spared may exceed the bound: the extremes and the latest.
        size = buffer.transitions + EPISODE_OVERHEAD * len(buffer)
        assert size <= capacity or len(buffer) <= 2 * KEPT_EXTREMES + 1
        assert seeds(buffer) == sorted(seeds(buffer))
        assert seeds(buffer)[-1] == i
    left = sorted(buffer.returns.tolist())
    assert left[:KEPT_EXTREMES] == sorted(values)[:KEPT_EXTREMES]
    assert left[-KEPT_EXTREMES:] == sorted(values)[-KEPT_EXTREMES:]


@pytest.mark.parametrize("length", [1, 100])
def test_a_full_buffer_takes_so_many_bytes_a_step_however_short_its_episodes_are(length):
    capacity = 10_000
    tracemalloc.start()
    try:
        buffer = ReplayBuffer(capacity)
        for attempt in range(20):
            buffer.add([episode(1.0, length, i, attempt) for i in range(1_000 // length)])
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(buffer) < 20 * (1_000 // length)
    assert used < 40 * capacity


@pytest.mark.parametrize("name", ["frozenlake", "pendulum", "hopper"])
def test_a_saved_buffer_is_loaded_equal(tmp_path, name):
    task = load_task(name)
    buffer = ReplayBuffer()
    with Simulator(task) as simulator:
        buffer.add(make_episodes(0, simulator.play(RandomActor(task, 0), range(5)), task))
        buffer.add(make_episodes(3, simulator.play(RandomActor(task, 1), range(7, 9)), task))
    buffer.save(tmp_path / "buffer.npz")
    loaded = ReplayBuffer.load(tmp_path / "buffer.npz")
    assert (len(loaded), loaded.transitions) == (len(buffer), buffer.transitions)
    assert seeds(loaded.best(3)) == seeds(buffer.best(3))
    assert seeds(loaded.of_attempt(3)) == [7, 8]
    for mine, theirs in zip(buffer, loaded, strict=True):
        assert (mine.attempt, mine.reached) == (theirs.attempt, theirs.reached)
        assert len(theirs.unobserved) == (name == "hopper")
        for (named, values), (same, read) in zip(mine.unobserved, theirs.unobserved, strict=True):
            assert named == same
            assert np.array_equal(values, read)
        assert_same(mine.trajectory, theirs.trajectory)
        arrays = theirs.trajectory.observations, theirs.trajectory.actions, theirs.trajectory.rewards
        assert all(array.base is None for array in arrays), "a view would keep evicted episodes in memory"
    ReplayBuffer().save(tmp_path / "empty.npz")
    assert len(ReplayBuffer.load(tmp_path / "empty.npz")) == 0


def saved(folder: Path) -> bytes:
    filled([1.0, 2.0, 3.0]).save(folder / "good.npz")
    return (folder / "good.npz").read_bytes()


def with_arrays(folder: Path, **changes) -> bytes:
    with np.load(io.BytesIO(saved(folder))) as stored:
        arrays = {name: stored[name] for name in stored.files} | changes
    np.savez(folder / "changed.npz", **{name: value for name, value in arrays.items() if value is not None})
    return (folder / "changed.npz").read_bytes()


DAMAGED = {
    "text": lambda folder: b"not an archive at all",
    "cut short": lambda folder: saved(folder)[:-60],
    "flipped bits": lambda folder: bytes(b ^ 255 if 200 < i < 260 else b for i, b in enumerate(saved(folder))),
    **{
        name: lambda folder, changes=changes: with_arrays(folder, **changes)
        for name, changes in {
            "an array missing": {"rewards": None},
            "steps missing": {"rewards": np.zeros(5, np.float32)},
            "seeds missing": {"seeds": np.zeros(1, np.int64)},
            "no whole numbers": {"attempts": np.full(3, np.nan)},
            "lengths below 0": {"lengths": np.array([12, -6, 3])},
            "ends that are numbers": {"terminated": np.ones(3, np.int64)},
            "flat observations": {"observations": np.zeros(12, np.float32)},
            "heights of other steps": {"unobserved": np.zeros((5, 0), np.float32)},
            "another mark": {"format": np.array("something/1")},
            "no mark": {"format": None},
            "objects": {"seeds": np.array([{}, {}, {}], object)},
        }.items()
    },
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_buffer_is_refused_in_one_sentence(tmp_path, damage):
    path = tmp_path / "buffer.npz"
    path.write_bytes(damage(tmp_path))
    with pytest.raises(LogbookError, match=r"buffer\.npz is damaged") as refusal:
        ReplayBuffer.load(path)
    assert "\n" not in str(refusal.value)


def test_the_form_of_a_buffer_is_marked_and_a_later_one_is_refused(tmp_path):
    with np.load(io.BytesIO(saved(tmp_path))) as stored:
        assert str(stored["format"]) == "policygen-episodes/1"
    (tmp_path / "later.npz").write_bytes(with_arrays(tmp_path, format=np.array("policygen-episodes/2")))
    with pytest.raises(LogbookError, match=r"later\.npz was written by a later version of policygen"):
        ReplayBuffer.load(tmp_path / "later.npz")
    with pytest.raises(LogbookError, match=r"there is no replay buffer .*none\.npz"):
        ReplayBuffer.load(tmp_path / "none.npz")


@pytest.mark.parametrize("name", ["Pendulum-v1", "pair"])
def test_visits_are_the_same_counted_at_once_or_prompt_by_prompt(name: str) -> None:
    task = PAIR if name == "pair" else load_task(name)
    rng = np.random.default_rng(0)
    reader = cell_reader(task, task.grid)
    buffer = ReplayBuffer(2_000)
    values = np.array([[-2.0], [0.0], [0.5], [2.0]]) if name != "pair" else np.array([[0, 0], [0, 1], [1, 0], [2, 1]])
    for attempt in range(40):
        played = []
        for seed in range(2):
            length = int(rng.integers(5, 20))
            chosen = values[rng.integers(0, 1 + min(3, attempt // 8), length)]
            observations = rng.normal(size=(length + 1, len(task.observations))).astype(np.float32)
            actions = chosen.astype(np.float32 if task.action_space == "box" else np.int16)
            rewards = np.ones(length, np.float32)
            played.append(Trajectory(observations, actions, rewards, float(length), seed, bool(seed), not seed))
        buffer.add(make_episodes(attempt, played, task))
        fresh = ReplayBuffer()
        fresh.add(buffer)
        mine, theirs = count_visits(buffer, reader), count_visits(fresh, reader)
        assert np.array_equal(mine[0], theirs[0])
        assert np.allclose(mine[1], theirs[1])
        assert mine[1][0].sum() == buffer.transitions
        views = visit_views(reader, *mine, 8)
        assert [view["visits"] for view in views] == [view["visits"] for view in visit_views(reader, *theirs, 8)]
    assert len(buffer) < 80
    assert len(mine[0]) == 4
