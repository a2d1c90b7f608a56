from __future__ import annotations

import contextlib
import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generators import linear_policies, nasty_floats, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import ARM, CHECKOUT, PAIR, discovered, environment

from policygen.errors import LogbookError, PolicyError, TaskError
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy, from_record
from policygen.policies.table import Rule, TablePolicy
from policygen.quantities.grid import Grid, integer_dimension
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Number
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

CARTPOLE = load_task("cartpole")
LAKE = load_task("frozenlake")
PENDULUM = discovered("Pendulum-v1")
TASKS = {"discrete": CARTPOLE, "with features": LAKE, "one number": PENDULUM, "numbers": ARM, "choices": PAIR}
EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def observations(task: Task, n: int, seed: int, dtype=np.float32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    texts = rng.integers(0, 2**24, (n, task.width - len(task.observations)))
    return np.hstack([rng.normal(scale=2, size=(n, len(task.observations))), texts]).astype(dtype)


def assert_action_like(task: Task, batch: np.ndarray, n: int) -> None:
    if task.action_space == "discrete":
        assert (batch.dtype, batch.shape) == (np.int64, (n,))
        assert ((batch >= 0) & (batch < len(task.actuators[0].labels))).all()
        return
    assert batch.shape == (n, len(task.actuators))
    assert batch.dtype == (np.float32 if task.action_space == "box" else np.int64)
    for column, actuator in zip(batch.T, task.actuators, strict=True):
        low, high = (0, len(actuator.labels) - 1) if actuator.is_choice else (actuator.low, actuator.high)
        assert ((column >= np.float32(low)) & (column <= np.float32(high))).all()


# --- acting ----------------------------------------------------------------------------------------------------------


@EVERY_TASK
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]), seed=st.integers(0, 1000))
@QUICK
def test_a_policy_acts_alike_on_a_batch_and_one_by_one(task, data, dtype, seed):
    rows = observations(task, 40, seed, dtype)
    table, linear = data.draw(tables(task)), data.draw(linear_policies(task))
    strange = data.draw(st.lists(nasty_floats(), min_size=task.width, max_size=task.width))
    assert np.array_equal(table.actions[table.cells(rows)], table.act(rows))
    for policy in (table, linear):
        batch = policy.act(rows)
        assert_action_like(task, batch, 40)
        assert_action_like(task, policy.act(np.array([strange, [0.0] * task.width])), 2)
        assert_action_like(task, np.array([policy.act_one(strange)]), 1)
        one_by_one = np.array([policy.act_one(row) for row in rows])
        # A feature may fall on an edge, and two scores may be equal, to the last bit.
        off = 1e-4 * (policy is linear)
        same = np.isclose(batch, one_by_one, rtol=off, atol=off).all(axis=tuple(range(1, batch.ndim)))
        least = 0.97 if policy is linear else 0.9 if policy.reader.features else 1
        assert same.mean() >= least


@given(data=st.data(), power=st.integers(0, 63), dtype=st.sampled_from("efdgbBhHiIqQ?O"))
@settings(max_examples=80, deadline=None)
def test_numbers_that_floats_cannot_hold_meet_edges_alike_by_row_and_in_a_batch(data, power, dtype):
    task = load_task("cartpole")
    edge = float(np.float32(data.draw(st.sampled_from((1.0, -1.0, 1.5, 1.1))) * 2.0**power))
    value = int(edge) + data.draw(st.integers(-200, 200))
    if dtype in "bBhHiIqQ":  # as near as the type allows
        value = min(max(value, np.iinfo(dtype).min), np.iinfo(dtype).max)
    remembered = data.draw(st.booleans())
    read = "let q = prev(angle, 0) + spin\nbins q: 0.5" if remembered else "bins spin: 0.5"
    header = f"| position | {'q' if remembered else 'spin'} | action |"
    text = f"{read}\nbins position: {edge!r}\n{header}\n| 0 | * | left |\n| * | * | right |"
    policy = parse(text, task).policy
    assert policy is not None
    with np.errstate(all="ignore"):
        row = np.array([value, 0, 0, 0], object).astype(dtype)

    def act(n: int) -> int:
        rows = np.tile(row, (n, 1))
        return int(policy.act(rows, policy.start(n))[0] if remembered else policy.act(rows)[0])

    quantities = dict(
        zip(policy.reader.names, policy.reader.row([*row.tolist(), 0.0] if remembered else row), strict=True)
    )
    (cell,) = policy.grid.cells([np.array([quantities[name]]) for name in policy.grid.names])
    decisions = {act(1), act(3), act(100), int(policy.actions[cell])}
    if not remembered:
        decisions |= {policy.act_one(row), policy.act_one(row.tolist())}
    assert len(decisions) == 1
    if dtype != "O":
        with np.errstate(all="ignore"):
            single = row.astype(np.float32)
        assert policy.controller()(row) == policy.controller()(single), "as in the episodes of its score"


def constant_policies(task: Task) -> tuple[Policy, ...]:
    equations = tuple((name, Number(0.25)) for name in task.output_names)
    table = TablePolicy.from_actions(task, [[0.0] * len(task.actuators)] * task.grid.size)
    return table, LinearPolicy(task, (), equations)


@EVERY_TASK
def test_shapes_are_those_of_the_documentation(task):
    n = len(task.observations)
    for policy in constant_policies(task):
        assert_action_like(task, policy.act(np.zeros((7, n), np.float32)), 7)
        assert_action_like(task, policy.act(np.zeros((0, n), np.float32)), 0)
        single = policy.act(np.zeros(n))
        assert single.shape == (() if task.action_space == "discrete" else (len(task.actuators),))
        assert policy.act([[0.0] * n] * 2).shape[0] == 2
        assert isinstance(policy.act_one([0.0] * n), int) == (task.action_space == "discrete")
        assert np.array_equal(policy.act(np.zeros((1, n)))[0], policy.act_one(np.zeros(n)))
        for wrong in (np.zeros(n + 1), np.zeros((2, n + 1)), np.zeros((1, 1, n)), 3.0):
            with pytest.raises(PolicyError, match=rf"expected observations of shape \(n, {n}\)"):
                policy.act(wrong)


@pytest.mark.parametrize(("value", "torque"), [(math.nan, 0.5), (math.inf, 2.0), (-math.inf, -2.0), (-1.0, -2.0)])
def test_a_linear_policy_reads_nan_as_zero_infinity_as_a_large_number_and_nothing_else(value, torque):
    name, other, _ = PENDULUM.observation_names
    policy = parse(f"torque = 3*{name} + 0.5", PENDULUM).policy
    for dtype in (np.float32, np.float64, *([np.int64] if math.isfinite(value) else [])):
        observation = np.array([value, 0, 0], dtype)
        assert policy.act_one(observation) == policy.act_one(observation.tolist()) == pytest.approx([torque])
        for times in (1, 20_000):  # short and long batches are computed in different ways
            assert np.allclose(policy.act(np.array([observation] * times)), [[torque]] * times)
    of_other = parse(f"torque = 0.5*{other}", PENDULUM).policy
    rows = np.array([[value, 0.8, value], [0, 0.8, 0]])
    assert np.array([of_other.act_one(row) for row in rows]) == pytest.approx(0.4)
    assert np.allclose(of_other.act(np.tile(rows, (10_000, 1))), 0.4)


def test_numbers_are_clipped_to_the_action_space_and_of_equal_scores_the_first_wins():
    policy = parse("shoulder = 100*x\nelbow = 100*x", ARM).policy
    assert policy.act(np.array([[1.0, 0], [-1.0, 0]])).tolist() == [[1.0, 0.5], [-1.0, -2.0]]
    assert policy.act_one([1.0, 0.0]).tolist() == [1.0, 0.5]
    even = parse("left = position\nright = position", CARTPOLE).policy
    assert (even.act(np.ones((3, 4))).tolist(), even.act_one([1.0] * 4)) == ([0, 0, 0], 0)


def test_a_handed_out_action_cannot_change_the_table():
    policy = TablePolicy.from_actions(ARM, [[0.5, 0.0]] * 6)
    with pytest.raises(ValueError, match="read-only"):
        policy.act_one([0.0, 0.0])[0] = 9
    batch = policy.act(np.zeros((2, 2)))
    batch[:] = 9
    assert policy.act_one([0.0, 0.0]).tolist() == [0.5, 0.0]


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_policy_that_does_not_fit_its_task_is_never_made():
    with pytest.raises(PolicyError, match="unknown name `depth`; known: square"):
        TablePolicy(LAKE, (), Grid((integer_dimension("depth", 2),)), (Rule(((0, 1),), (0.0,)),))
    with pytest.raises(PolicyError, match=r"row 1: elbow lies in -2 to 0\.5, here 0\.75"):
        TablePolicy.from_actions(ARM, [[0.0, 0.75]] * 6)
    with pytest.raises(PolicyError, match="has no grid"):
        TablePolicy.from_actions(Task("t", "x", ARM.observations, ARM.actuators, "box", 5), [[0.0, 0.0]])
    with pytest.raises(PolicyError, match="one equation each for left, right"):
        LinearPolicy(CARTPOLE, (), (("right", Number(1.0)), ("left", Number(0.0))))
    assert PAIR.output_names == ("gear_low", "gear_high", "gear_reverse", "horn_0", "horn_1")
    assert discovered("Acrobot-v1").output_names == ("torque_minus_1", "torque_0", "torque_1")


# --- saved form ------------------------------------------------------------------------------------------------------


@EVERY_TASK
@given(data=st.data())
@QUICK
def test_a_saved_policy_is_loaded_exactly(task, data, tmp_path_factory):
    policy = data.draw(st.one_of(tables(task), linear_policies(task)))
    path = tmp_path_factory.getbasetemp() / "policy.json"
    policy.save(path)
    loaded = Policy.load(path)
    assert loaded == policy
    assert loaded.to_text() == policy.to_text()
    rows = observations(task, 20, 0)
    assert np.array_equal(loaded.act(rows), policy.act(rows))
    assert from_record(policy.to_record(), task) == policy


def test_a_file_or_a_run_folder_is_loaded_and_a_missing_file_is_named(tmp_path):
    policy = from_record(record_of("table"))
    with pytest.raises(LogbookError, match="cannot write"):
        policy.save(tmp_path / "missing" / "best.json")
    assert list(tmp_path.iterdir()) == []
    for path, name in ((tmp_path / "nothing.json", "nothing"), (tmp_path, "best")):
        with pytest.raises(PolicyError, match=rf"cannot read .*{name}\.json: there is no such file"):
            Policy.load(path)
    policy.save(tmp_path / "best.json")
    assert Policy.load(tmp_path) == Policy.load(str(tmp_path)) == policy
    assert "| far | action |" in json.loads((tmp_path / "best.json").read_text())["text"]


def record_of(kind: str) -> dict:
    text = {
        "table": "let far = row + column\nbins far: 3\n| far | action |\n| 1 | down |\n| * | right |",
        "linear": "left = row\ndown = 0\nright = column\nup = 1",
    }
    return parse(text[kind], LAKE).policy.to_record()


DAMAGED = [
    ("format", "policygen-policy/9", r"not a saved policy of format .* \(it says policygen-policy/9\)"),
    ("kind", "neural", "there is no kind `neural`; known: linear, table"),
    ("rules", KeyError, "the key `rules` is missing"),
    ("lets.far", 3, "`lets.far`: input should be a valid string"),
    ("lets.far", "open('x')", "damaged policy: unknown function `open`"),
    ("lets.row", "1", "`row` cannot name a feature"),
    ("grid", {}, "damaged grid: a grid bins 1 to 32 quantities"),
    ("grid.far", [3, 1], "damaged grid: the bin edges of far must increase"),
    ("grid.far", [math.nan], "damaged grid: the bin edges of far must be finite"),
    ("rules.0", [], "row 1 does not have one entry per quantity and actuator"),
    ("rules.0", [[2], [0.0]], "row 1: the bins of far are 0 to 1"),
    ("rules.0", [[0.5], [0.0]], "row 1: the bins of far"),
    ("rules.0", [[1, 0], [0.0]], "row 1: the bins of far"),
    ("rules.0", [[0], [0.5]], "row 1: action is 0 to 3, here 0.5"),
    ("rules.1", [[1], [0]], r"1 of 2 cells have no row \(the first is far 0\)"),
    ("equations.left", "row.real", "damaged policy: `row.real` is not arithmetic"),
    ("equations.left", KeyError, "needs one equation each"),
    ("task.actuators", [], "`actuators`: list should have at least 1"),
    ("task.action_space", "text", "`action_space`: input should be 'discrete'"),
    ("task.observations", [[3]], "damaged task: .*observations.0.name"),
    ("task.features.row", "sqare", "feature row: unknown name `sqare`"),
]


@pytest.mark.parametrize(("place", "value", "sentence"), DAMAGED)
def test_a_damaged_policy_is_refused_in_one_sentence(tmp_path, place, value, sentence):
    record = inner = record_of("linear" if place.startswith("equations") else "table")
    *path, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    for key in path:
        inner = inner[key]
    inner[last] = value
    if value is KeyError:
        del inner[last]
    path = tmp_path / "best.json"
    path.write_text(json.dumps(record))
    with pytest.raises(PolicyError, match=sentence) as refusal:
        Policy.load(path)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_file_loads_and_acts_or_is_refused(data):
    """One value of a saved policy, at any depth, replaced by any other JSON."""
    record = record_of(data.draw(st.sampled_from(["table", "linear"])))
    inner: Any = record
    while True:
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if not (isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans())):
            break
        inner = inner[key]
    texts = st.text(max_size=5)
    leaves = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | texts
    grown = st.recursive(leaves, lambda some: st.lists(some, max_size=3) | st.dictionaries(texts, some, max_size=3))
    inner[key] = data.draw(grown)
    with contextlib.suppress(PolicyError):
        policy = from_record(json.loads(json.dumps(record)))
        policy.act(np.zeros((2, len(policy.task.observations))))


LIGHT = """
import sys
from policygen import Policy
for path in sys.argv[1:]:
    policy = Policy.load(path)
    policy.act_one([0.0] * len(policy.task.observations))
    policy.act([[0.0] * len(policy.task.observations)] * 3)
    policy.to_text()
for name in ("gymnasium", "pydantic", "pandas", "jinja2", "scipy", "matplotlib", "openai"):
    assert name not in sys.modules, name
"""


def test_acting_imports_little_more_than_numpy(tmp_path):
    for kind in ("table", "linear"):
        from_record(record_of(kind)).save(tmp_path / kind)
    paths = [str(tmp_path / "table"), str(tmp_path / "linear")]
    done = subprocess.run([sys.executable, "-c", LIGHT, *paths], env=environment(), capture_output=True, text=True)
    assert not done.stderr


# --- one observation, in whatever form -------------------------------------------------------------------------------


def test_an_input_that_is_not_one_row_of_numbers_is_refused():
    table, linear = constant_policies(CARTPOLE)[0], parse("left = position\nright = angle", CARTPOLE).policy
    n = 4
    row, expected = [0.0] * n, rf"expected one observation of {n} numbers, .*`policy.controller\(\)`"
    refused = {
        "got 5 numbers": [*row, 0.0],
        "got ndarray": np.zeros((n, 2)),
        "got int": 3,
        "got dict": dict.fromkeys("abcd", 0.0),
        "values that are not all numbers": [None] * n,
        "got tuple": tuple(np.zeros(2) for _ in range(n)),
    }
    for policy, (found, wrong) in itertools.product((table, linear), refused.items()):
        with pytest.raises(PolicyError, match=expected) as refusal:
            policy.act_one(wrong)
        assert found in str(refusal.value)


# --- the whole text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [path.stem for path in sorted((CHECKOUT / "envs").glob("*.toml"))])
def test_the_whole_text_needs_neither_features_nor_grid_of_the_task_file(name):
    try:
        task = load_task(name)
    except TaskError:
        pytest.skip("its simulator is not installed")
    rng = np.random.default_rng(3)
    terms = (f"{w:.2f}*{q}" for w, q in zip(rng.normal(size=99), task.quantity_names, strict=False))
    everything = parse_expression(" + ".join(terms).replace("+ -", "- "), task.quantity_names)
    equations = tuple((output, everything) for output in task.output_names)
    policies: list[Policy] = [LinearPolicy(task, (), equations)]
    if task.grid is not None:
        levels = [len(a.labels) - 1.0 if a.is_choice else a.high for a in task.actuators]
        policies.append(TablePolicy.from_actions(task, np.tile(levels, (task.grid.size, 1))))
    bare = replace(task, features=(), grid=None, inputs=())
    for policy in policies:
        whole = policy.to_text(whole=True)
        assert policy.to_text() in whole or task.grid is not None
        again = parse(whole, bare, policy.kind)
        assert again.problems == ()
        rows = observations(task, 50, 4, np.float64)
        assert again.policy.act(rows) == pytest.approx(policy.act(rows), rel=1e-6)
        assert parse(whole, task, policy.kind).policy == policy
        assert all(f"let {name} =" in whole for name, _ in policy.reader.needed)


def test_features_that_nothing_needs_are_neither_written_nor_computed():
    task = replace(LAKE, features=(*LAKE.features, ("unused", "square/0")))
    policy = parse("| * | * | down |", task).policy
    assert "unused" not in policy.to_text(whole=True)
    assert "let row = " in policy.to_text(whole=True)
    assert "let" not in policy.to_text()
    assert policy.reader.names == ("square", "row", "column")
    assert policy.act(np.arange(3).reshape(-1, 1)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("task", "text", "size"),
    [
        (CARTPOLE, "left = 0  # steady\nright = fixed(1e-3)*angle + 0.25*tanh(spin) + tune(1, -2, 3)*position", 10),
        (CARTPOLE, "let far = abs(position) > 2 and not spin < 0\nleft = 0\nright = where(far, -1, angle)", 13),
        (LAKE, "| row | column | action |\n| 0-1 | * | left |\n| 2,3 | 1 | right |\n| * | * | down |", 11),
        (CARTPOLE, "bins angle: -0.1, 0\n| angle | action |\n| 0 | left |\n| * | right |", 8),
    ],
    ids=["marks of tuning", "functions", "table", "bins"],
)
def test_size_counts_the_numbers_and_names_of_the_text(task: Task, text: str, size: int) -> None:
    policy = parse(text, task).policy
    assert policy is not None
    assert policy.size == size
    assert from_record(policy.to_record(), task).size == size
