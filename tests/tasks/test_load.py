"""Loading a task by name or id, and discovering one: from an environment without a task file, or of this program."""

from __future__ import annotations

import json
import re
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import policygen
from policygen.episodes.simulator import evaluate
from policygen.errors import EnvironmentFault, PolicyError, TaskError
from policygen.extensions.export.formats import exported
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import from_record
from policygen.policies.table import TablePolicy
from policygen.quantities.text import to_digits
from policygen.quantities.tree import Number
from policygen.tasks import warmup
from policygen.tasks.load import _edge, load_task, task_from_gym, task_of
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Task
from policygen.tasks.taskfile import draft_of

needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")
needs_box2d = pytest.mark.skipif(find_spec("Box2D") is None, reason="needs box2d")
pytestmark = pytest.mark.usefixtures("quickly_discovered")


def test_a_shipped_task_is_found_by_name_with_suffix_and_by_path(tmp_path, monkeypatch):
    task = load_task("cartpole")
    assert load_task("cartpole.toml") == task
    (tmp_path / "copy.toml").write_text('name = "copy"\ngym_id = "CartPole-v1"\n')
    assert load_task(str(tmp_path / "copy.toml")).name == "copy"
    monkeypatch.chdir(tmp_path)
    assert load_task("cartpole") == task
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "cartpole.toml").write_text('name = "mine"\ngym_id = "CartPole-v1"\n')
    assert load_task("cartpole").name == "mine"  # the working directory comes first


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cartpol", "there is no task `cartpol`; did you mean `cartpole`"),
        ("nowhere/x.toml", "there is no task file nowhere/x.toml"),
        ("CartPoll-v1", "Gymnasium cannot make CartPoll-v1"),
        ("phys2d/CartPole-v1", "needs a package that is not installed; install the package that this error names"),
        ("", "there is no task ``"),
    ],
)
def test_a_task_that_is_not_there_is_answered_with_what_to_do(name, sentence):
    with pytest.raises(TaskError, match=sentence):
        load_task(name)


@pytest.mark.parametrize(
    "name",
    [
        *("Pendulum-v1", "Taxi-v4", "Blackjack-v1", "frozenlake"),
        pytest.param("LunarLander-v3", marks=needs_box2d),
        pytest.param("Ant-v5", marks=needs_mujoco),
    ],
)
def test_a_draft_loads_to_an_equal_task(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(name)
    path = tmp_path / "mine.toml"
    path.write_text(draft_of(task), encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # where MuJoCo may leave a log
    loaded = load_task(str(path))
    assert loaded == task
    assert dict(loaded.run) == dict(task.run)
    assert task_from_record(json.loads(json.dumps(task_to_record(task)))) == task
    assert all(f"# Assumed: {sentence}." in path.read_text(encoding="utf-8") for sentence in task.assumed)


# --- environments without a task file ---------------------------------------------------------------------------------


class Seen(gym.Env[Any, Any]):
    """Observes what `row` makes of the environment, by default a sample of its space."""

    def __init__(self, space: Any = None, actions: Any = None, row: Any = None) -> None:
        self.observation_space = space or spaces.Box(-9, 9, (2,))
        self.action_space = actions or spaces.Discrete(2)
        self.row = row or (lambda env: env.observation_space.sample())

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.row(self), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.row(self), 0.0, False, False, {}


def task_observing(space: Any, row: Any = None) -> Task:
    return task_of(lambda: Seen(space, row=row))


@pytest.mark.parametrize(
    ("gym_id", "names", "kind", "cells"),
    [
        ("CartPole-v1", ["obs0", "obs1", "obs2", "obs3"], "table", 625),
        ("Taxi-v4", ["state"], "table", 500),
        ("Blackjack-v1", ["part0", "part1", "part2"], "table", 704),
        ("Pendulum-v1", None, "linear", 512),
        ("Hopper-v5", None, "linear", None),
    ],
)
def test_an_environment_nobody_described_becomes_a_usable_task(gym_id, names, kind, cells):
    task = task_from_gym(gym_id)
    assert task.gym_id == gym_id
    assert task.assumed
    assert all(sentence and "\n" not in sentence for sentence in task.assumed)
    assert names is None or list(task.observation_names) == names
    assert len(set(task.observation_names)) == len(task.observations)
    assert task.default_policy == kind
    assert task.grid is not None
    assert task.grid.size <= 1_000
    assert cells is None or task.grid.size == cells
    assert set(task.grid.names) <= set(task.observation_names)
    rng = np.random.default_rng(0)
    options = [range(len(a.labels)) if a.is_choice else (a.low, a.high) for a in task.actuators]
    dense = np.stack([rng.choice(list(some), size=task.grid.size) for some in options], axis=1)
    score = evaluate(TablePolicy.from_actions(task, dense), (1, 2))
    assert np.isfinite(score.mean)
    if kind == "linear":
        zero = LinearPolicy(task, (), tuple((name, Number(0.0)) for name in task.output_names))
        assert np.isfinite(evaluate(zero, (1, 2)).mean)


NUMBER = spaces.Box(-1, 1, (1,))


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Dict({"mode": spaces.Discrete(3, start=5), "x": NUMBER}), (3, 8)),
        (spaces.Tuple((spaces.Discrete(5_000), NUMBER)), (8, 8)),  # too many values for one bin each
        (spaces.Box(-3, 4, (2,), np.int64), (8, 8)),
        (spaces.MultiDiscrete([3, 3, 90, 90]), (3, 3, 8, 8)),
        (spaces.MultiDiscrete([9] * 380), (2,) * 8),  # of what moves most
    ],
)
def test_whole_numbers_get_one_bin_a_value_while_there_are_few(space, shape):
    task = task_observing(space)
    assert task.grid is not None
    assert task.grid.shape == shape
    observed = {observation.name: observation for observation in task.observations}
    for dimension in task.grid.dimensions:
        observation = observed[dimension.name]
        values = np.arange(observation.low, observation.high + 1) if observation.integer else ()
        if len(values) == len(dimension.edges) + 1:
            assert np.digitize(values, dimension.edges).tolist() == list(range(len(values)))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((8, 8, 3), r"observes an image \(8 x 8"),
        ((10, 10), r"observes an image \(10 x 10"),
        ((0,), "observes 0 numbers; policies read 1 to 400"),
        ((401,), "observes 401 numbers"),
    ],
)
def test_pictures_and_too_few_or_too_many_numbers_are_refused(shape, sentence):
    with pytest.raises(TaskError, match=sentence):
        task_observing(spaces.Box(0, 1, shape))


def columns(env: Seen) -> Any:
    """x, 3, x, x - 2, a whole number, and what leaves its bounds."""
    x = float(env.np_random.uniform(-1, 1))
    return np.array([x, 3, x, x - 2, env.steps % 8, 1000 * x], np.float32)


@pytest.mark.filterwarnings("ignore:obs5 went from")
def test_copies_constants_and_values_beyond_the_bounds_are_said_and_no_columns_of_a_table() -> None:
    task = task_observing(spaces.Box(-9, 9, (6,)), columns)
    seen = [o.seen for o in task.observations]
    assert seen[1].startswith("always 3, whole")
    assert seen[2:4] == ["always obs0", "always obs0 - 2"]
    assert ", whole" in seen[4]
    assert "beyond" not in "".join(seen[:5])
    assert re.search(r", sd \d{3}, .*beyond its bounds$", seen[5])
    assert task.grid is not None
    assert task.grid.names == ("obs0", "obs4", "obs5")


class Unbounded(Seen):
    def __init__(self) -> None:
        super().__init__(NUMBER, spaces.Box(np.array([-np.inf, 2], np.float32), np.float32(np.inf)))


def test_bounds_that_an_action_does_not_have_are_assumed_and_can_be_stated(tmp_path):
    task = task_of(Unbounded)
    assert [(a.low, a.high) for a in task.actuators] == [(-1, 1), (2, 3)]
    assert "action0 goes from -1 to 1, because the environment states no bounds; give its `low`" in str(task.assumed)
    path = tmp_path / "own.toml"
    path.write_text(draft_of(task).replace("high = 3.0", "high = 50.0"))
    stated = load_task(str(path), trust=True)
    assert [(a.low, a.high) for a in stated.actuators] == [(-1, 1), (2, 50)]
    assert stated.assumed == ()


def test_an_environment_where_nothing_moves_gets_a_linear_policy_and_no_grid():
    task = task_observing(spaces.Box(3, 3, (1,)))
    assert (task.grid, task.default_policy) == (None, "linear")
    assert any("no observation changed" in sentence for sentence in task.assumed)


def test_a_slow_environment_is_looked_at_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)
    with pytest.warns(UserWarning, match=r"^CartPole-v1 is slow: its bins come from only 2 steps .* a task file"):
        task = task_from_gym("CartPole-v1")
    assert task.grid is not None
    assert task.observations[0].seen.endswith("in only 2 steps")


class Named(Seen):
    observation_names = ("θ", "ω")

    class Actions(IntEnum):
        wait = 0
        Turn_left = 1


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (lambda: Seen(spaces.Box(-1, 1, (2, 3))), "obs_0_0 obs_0_1 obs_0_2 obs_1_0 obs_1_1 obs_1_2"),
        (lambda: Seen(spaces.Dict({"θ": spaces.Box(-1, 1), "ω": spaces.Box(-1, 1)})), "theta omega"),
        (lambda: Seen(spaces.Dict({"a b": spaces.Box(-1, 1), "a-b": spaces.Box(-1, 1)})), "a_b a_b_2"),
        (lambda: Named(actions=spaces.Discrete(2)), "theta omega"),
    ],
)
def test_only_certain_names_are_used(env: Any, names: str) -> None:
    assert " ".join(task_of(env).observation_names) == names


def test_labels_that_the_environment_states_are_used_if_their_number_fits() -> None:
    assert task_of(lambda: Named(actions=spaces.Discrete(2))).actuators[0].labels == ("wait", "turn_left")
    assert task_of(lambda: Named(actions=spaces.Discrete(3))).actuators[0].labels == ("0", "1", "2")


class Day(Seen):
    """Ends by its own clock; fails early if it is pushed."""

    long, cut = 250, False

    def __init__(self) -> None:
        super().__init__(actions=spaces.Box(-1, 1, (1,)))

    def step(self, action: Any) -> Any:
        self.steps += 1
        failed = self.steps > 3 and float(np.ravel(action)[0]) > 0.95
        over = self.steps >= self.long
        return self.row(self), 0.0, failed or (over and not self.cut), over and self.cut, {}


class CutDay(Day):
    cut = True


@pytest.mark.parametrize(("kind", "limit"), [(Day, 250), (CutDay, 250), (Seen, 1_000)])
def test_the_length_of_an_episode_is_found_by_playing_or_said_to_be_unknown(
    kind: type[Seen], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "LONGEST", 3_000)
    task = task_of(kind)
    assert task.max_steps == limit
    unknown = "episodes are cut at 1,000 steps: the environment sets no limit"
    assert task.assumed[0].startswith(unknown if limit == 1_000 else "episodes have 250 steps")


# --- texts -----------------------------------------------------------------------------------------------------------


class Doors(gym.Env[Any, Any]):
    """Says which of two doors is open, and how far it is; the right one pays 1."""

    def __init__(self, longest: int = 40) -> None:
        self.observation_space = spaces.Dict(
            said=spaces.Text(longest, charset="abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ."),
            distance=spaces.Box(0, 1, (1,), np.float32),
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observed(), {}

    def _observed(self) -> Any:
        self.right = int(self.np_random.integers(2))
        said = f"The {'left' if self.right == 0 else 'right'} door is open."
        return {"said": said, "distance": self.np_random.random(1, np.float32)}

    def step(self, action: Any) -> Any:
        paid = float(action == self.right)
        return self._observed(), paid, False, False, {}


def make_doors() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Doors(), 10)


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(make_doors)


def test_texts_are_read_by_the_features_of_a_policy(task):
    assert (task.text_names, task.observation_names, task.width) == (("said",), ("distance",), 1 + 14)
    assert task_from_record(task_to_record(task)).layout == task.layout
    text = 'let left = contains(said, "left")\nbins left: 0.5\n| left | action |\n| 1 | 0 |\n| * | 1 |'
    policy = parse(text, task, kind="table").policy
    assert policy is not None, parse(text, task, kind="table").problems
    assert policygen.score(policy, make_doors, episodes=20).mean == 10
    equations = parse('action_0 = contains(said, "left")\naction_1 = 0.5', task, kind="linear").policy
    assert equations is not None
    assert policygen.score(equations, make_doors, episodes=5).mean == 10
    assert from_record(equations.to_record()) == equations
    with pytest.raises(PolicyError, match="a policy that reads texts cannot be exported"):
        exported(equations, "c")


def test_a_text_that_its_space_does_not_allow_for_is_the_environments_fault():
    with pytest.raises(EnvironmentFault, match="a text has 23 bytes; the observation space has room for 21"):
        task_of(lambda: Doors(20))


@pytest.mark.parametrize("columns", [0, -1, 10**9])
def test_a_saved_task_cannot_ask_for_texts_without_end(columns, task):
    record = json.loads(json.dumps(task_to_record(task)))
    record["texts"][0]["columns"] = columns
    record["layout"]["parts"][1] = {"columns": columns}
    with pytest.raises(PolicyError, match="its texts do not fit its layout"):
        task_from_record(record)


def test_an_edge_lies_between_values_that_recur_and_not_within_their_rounding_errors() -> None:
    rng = np.random.default_rng(0)
    steps = (0.2 * rng.integers(0, 10, 4_000)).astype(np.float64)
    noisy = steps + 1.5e-7 * rng.choice([-1.0, 0.0, 1.0], 4_000)  # as a countdown in single precision
    edges = [_edge(float(np.quantile(noisy, k / 4)), noisy) for k in (1, 2, 3)]
    assert all(np.abs(np.abs(edge - steps).min() - 0.1) < 0.01 for edge in edges)  # in the middle of two values
    smooth = rng.normal(size=4_000)
    median = float(np.median(smooth))
    assert _edge(median, smooth) == to_digits(median, 3)
