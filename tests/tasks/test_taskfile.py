"""Task files: what is read, what the environment adds, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from policygen.cli.preparing import describe_task
from policygen.errors import TaskError
from policygen.extensions.export.formats import exported
from policygen.policies.parse import parse
from policygen.quantities.grid import Dimension
from policygen.search.resume import preview
from policygen.tasks.environments import make_env
from policygen.tasks.load import task_from_file
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Requirement, Task
from policygen.tasks.taskfile import draft_of

LAKE = """
name = "lake"
about = "A lake."
gym_id = "FrozenLake-v1"
kwargs = { is_slippery = false }
[[observations]]
name = "square"
[[actions]]
labels = ["left", "down", "right", "up"]
[features]
row = "floor(square / 4)"
[grid]
row = 4
square = [3.5, 8.25]
"""


PENDULUM = """
name = "swing"
about = "A pendulum."
gym_id = "Pendulum-v1"
[[observations]]
name = "c"
[[observations]]
name = "s"
[[observations]]
name = "w"
[[actions]]
name = "torque"
levels = { hard = 2.0, none = 0.0 }
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_task_file_is_read_with_what_the_environment_knows(tmp_path):
    task = task_from_file(written(tmp_path, LAKE))
    assert task.max_steps == 100
    assert task.solved == 0.70  # the environment's own threshold
    assert (task.observations[0].low, task.observations[0].high, task.observations[0].integer) == (0, 15, True)
    assert task.actuators[0].labels == ("left", "down", "right", "up")
    assert task.grid is not None
    assert task.grid.names == ("row", "square")
    assert task.grid.dimensions[1] == Dimension("square", (3.5, 8.25))
    assert task.quantity_names == ("square", "row")
    assert task.default_policy == "table"
    env = make_env(task)
    assert env.unwrapped.P[0][1] == [(1.0, 4, 0, False)]  # kwargs reach the environment: down is down
    env.close()


def test_an_action_s_levels_unit_and_bounds_are_read_and_policies_are_clipped_there(tmp_path):
    task = task_from_file(written(tmp_path, PENDULUM))
    assert task.actuators[0].levels == (("hard", 2.0), ("none", 0.0))
    assert (task.actuators[0].low, task.actuators[0].high) == (-2.0, 2.0)
    assert task.default_policy == "linear"
    stated = changed(PENDULUM, ("hard = 2.0, ", ""), ("[[actions]]", '[[actions]]\nunit = "N m"\nlow = -0.5\nhigh = 1'))
    task = task_from_file(written(tmp_path, stated))
    assert (task.actuators[0].low, task.actuators[0].high) == (-0.5, 1.0)
    assert task_from_record(json.loads(json.dumps(task_to_record(task)))).actuators == task.actuators
    policy = parse("torque = 9*w", task).policy
    assert policy is not None
    assert policy.act(np.array([[0, 0, 1.0], [0, 0, -1.0]])).tolist() == [[1.0], [-0.5]]
    names: dict = {}
    exec(exported(policy, "python"), names)
    assert [names["act"]((0, 0, w)) for w in (1.0, -1.0, 0.01)] == [(1.0,), (-0.5,), (np.float32(0.09),)]
    assert "-0.5 to 1 N m" in exported(policy, "c")
    assert "action torque [N m]: -0.5 to 1" in describe_task(str(tmp_path / "mine.toml"))
    assert (
        "- torque [N m]: a number from -0.5 to 1"
        in preview(str(tmp_path / "mine.toml"), None, (), {})[0].messages[-1].content
    )
    assert 'unit = "N m"' in draft_of(task)
    assert task_from_file(written(tmp_path, draft_of(task))) == task


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "old", "new", "sentence"),
    [
        (LAKE, 'name = "lake"', "name = 'lake'\ncolour = 1", "unknown key `colour`"),
        (LAKE, "[features]", "[feature]", "unknown key `feature` .did you mean `features`.*"),
        (LAKE, 'name = "square"', 'name = "square"\nunits = "m"', "unknown key `observations.0.units`"),
        (LAKE, 'gym_id = "FrozenLake-v1"', "", "the key `gym_id` is missing"),
        (LAKE, "row = 4", 'row = "four"', "`grid.row`: input should be a valid integer"),
        (LAKE, "kwargs", "discount = 1.5\nkwargs", "`discount`: input should be less than or equal to 1"),
        (LAKE, ', "up"', "", "action action has 3 labels for 4 choices"),
        (LAKE, "[features]", '[[actions]]\nname = "more"\n[features]', "`actions` has 2 entries"),
        (LAKE, "[[a", '[[observations]]\nname = "more"\n[[a', "`observations` names 2 numbers; FrozenLake-v1 has 1"),
        (LAKE, "row = 4", "rwo = 4", "`grid.rwo`: there is no such .* name one of square, row"),
        (LAKE, "[3.5, 8.25]", "[8.25, 3.5]", "bin edges of square must increase"),
        (LAKE, "row = 4", "row = 0", "`grid.row` has 0 bins"),
        (LAKE, "row = 4", "row = 400000", "1,200,000 cells; the limit is 1,000,000"),
        (LAKE, "row = 4", "row = 2000000000", "has 2,000,000,000 bins; give 1 to 1,000,000"),
        (LAKE, "floor(square / 4)", "floor(sqare / 4)", "feature row: unknown name `sqare`; known: square"),
        (LAKE, 'row = "', 'late = "row + 1"\nrow = "', "feature late: unknown name `row`"),
        (LAKE, 'name = "square"', 'name = "the square"', "`the square` is not a name"),
        (LAKE, "[grid]", 'Square = "square"\n[grid]', "the name `Square` is used twice"),
        (PENDULUM, '"torque"', '"W"', "the name `W` is used twice"),
        (LAKE, '"up"', '"left"', "the name `left` is used twice"),
        (LAKE, '"up"', '"go up"', "the label `go up` is not one word"),
        (LAKE, "labels =", "levels = { up = 1.0 }\nlabels =", "is a choice; give `labels`"),
        (PENDULUM, "levels = { hard = 2.0, none = 0.0 }", 'labels = ["a"]', "is a number; give `levels`"),
        (PENDULUM, "hard = 2.0", "hard = 3.0", "level hard of torque is outside -2 to 2"),
        (PENDULUM, "levels =", "high = 2.5\nlevels =", "torque goes from -2 to 2 in the environment; state `low`"),
        (PENDULUM, "levels =", "low = 1.0\nhigh = 0.5\nlevels =", "goes from 1 to 0.5: state a `low` below its `high`"),
        (LAKE, "labels =", "low = 0\nlabels =", "`low` and `high` are for numbers"),
        (LAKE, "FrozenLake-v1", "FrozenLike-v1", "Gymnasium cannot make FrozenLike-v1"),
        (LAKE, "is_slippery", "slippery", "does not take these kwargs .*'slippery'.*; correct `kwargs`"),
        (LAKE, "is_slippery = false", 'map_name = "9x9"', "does not take these kwargs .* correct `kwargs`"),
        ("name = lake", "lake", "lake", "mine.toml is not valid TOML"),
    ],
)
def test_a_malformed_task_file_is_refused_in_one_sentence(tmp_path, text, old, new, sentence):
    with pytest.raises(TaskError, match=sentence) as refusal:
        task_from_file(written(tmp_path, changed(text, (old, new))))
    assert "\n" not in str(refusal.value)


def test_a_task_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"mine\.toml is not a UTF-8 text file"):
        task_from_file(written(tmp_path, b"name = '\xff'"))
    with pytest.raises(TaskError, match=r"cannot read .*absent\.toml: there is no such file"):
        task_from_file(tmp_path / "absent.toml")


def with_requirement(folder: Path, lines: str, gym_id: str = "Pendulum-v1", more: str = "") -> Task:
    head = f'name = "mine"\nabout = "x"\ngym_id = "{gym_id}"\n{more}\n'
    return task_from_file(written(folder, f'{head}[[requirements]]\nname = "r"\n{lines}\n'))


def test_all_keys_of_a_requirement_are_read_and_survive_saving(tmp_path: Path) -> None:
    timed = 'always = "abs(obs2) < 1"\nafter = "action changes"\nwithin = "0.4 s"\nhard = false\nallowed = 0.2'
    first, last = with_requirement(tmp_path, timed), with_requirement(tmp_path, 'finally = "obs0 > 0.9"')
    expected = Requirement("r", "abs(obs2) < 1", "", first.requirements[0].after, 8, False, 0.2)
    assert first.requirements == (expected,)
    assert str(expected) == "always abs(obs2) < 1, from 8 steps after action changes on"
    assert (str(last.requirements[0]), last.requirements[0].allowed) == ("finally obs0 > 0.9", 0.01)
    for task in (first, last):
        assert task_from_record(task_to_record(task)).requirements == task.requirements
        assert task_from_file(written(tmp_path, draft_of(task))) == task


@pytest.mark.parametrize(
    ("gym_id", "more", "steps"),
    [
        ("Pendulum-v1", "", 8),  # `dt`, 0.05 s
        ("CartPole-v1", "", 20),  # `tau`, 0.02 s
        ("Pendulum-v1", "step_seconds = 0.1", 4),
    ],
)
def test_seconds_become_steps(tmp_path: Path, gym_id: str, more: str, steps: int) -> None:
    (requirement,) = with_requirement(tmp_path, 'always = "1 > 0"\nwithin = "400 ms"', gym_id, more).requirements
    assert requirement.within == steps


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('always = "speed < 1"', "requirement `r`: unknown name `speed`"),
        ('always = "obs0 < 1"\nfinally = "obs0 < 1"', "requirement `r` needs one condition: `always` or `finally`"),
        ("hard = true", "requirement `r` needs one condition"),
        ('finally = "obs0 < 1"\nwithin = "2 steps"', "requirement `r`: `after` and `within` are for `always`"),
        ('always = "1 > 0"\nwithin = "0.4 s"', "the length of a step is unknown; write `step_seconds"),
        ('always = "obs0 < 1"\nwithin = "soon"', "`within = 'soon'` is not a duration; write `20 steps` or `0.4 s`"),
        ('always = "obs0 < 1"\nafter = "speed changes"', "requirement `r`: "),
        ('always = "obs0 < 1"\nallowed = 2', "allowed"),
        ('always = "obs0 < 1"\n[[requirements]]\nname = "r"\nalways = "obs0 < 2"', "two requirements are called `r`"),
    ],
)
def test_mistakes_in_requirements_are_named_in_a_sentence(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(TaskError, match=r"^mine.toml: .*") as error:
        with_requirement(tmp_path, lines, "MountainCar-v0")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
