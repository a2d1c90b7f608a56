from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from policygen.errors import TaskError
from policygen.quantities.operations import decoded
from policygen.quantities.text import slug
from policygen.tasks.spaces import Layout, TextPart, flatten, layout_of, observed_in

NESTED = spaces.Dict(
    OrderedDict(
        [
            ("Arm Pose", spaces.Box(-1, 1, (2, 2), np.float32)),
            ("mode", spaces.Discrete(3)),
            ("pair", spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))),
            ("counts", spaces.MultiDiscrete([3, 5])),
        ]
    )
)


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (spaces.Discrete(4), "state"),
        (spaces.Box(-1, 1, (1,)), "obs"),
        (spaces.Box(-1, 1, (2,)), "obs0 obs1"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,)))), "part0 part1_0 part1_1"),
        (
            NESTED,
            "arm_pose_0_0 arm_pose_0_1 arm_pose_1_0 arm_pose_1_1 mode pair_0 pair_1_0 pair_1_1 counts_0 counts_1",
        ),
    ],
)
def test_every_number_of_a_space_has_a_name_in_the_order_of_flattening(space, names):
    assert " ".join(o.name for o in observed_in(space)[0]) == names
    space.seed(3)
    for _ in range(5):
        row = flatten(layout_of(space), space.sample())
        assert row.shape == (len(names.split()),)
        for value, observation in zip(row, observed_in(space)[0], strict=True):
            assert observation.low <= value <= observation.high


def test_a_layout_says_how_observations_nest():
    assert layout_of(spaces.Box(-1, 1, (2, 2))) is None
    assert layout_of(NESTED) == Layout((None, None, Layout((None, None)), None), ("Arm Pose", "mode", "pair", "counts"))
    row = {"counts": [4, 3], "pair": (1, [0, 1]), "mode": 2, "Arm Pose": np.eye(2), "unknown": 9}
    assert flatten(layout_of(NESTED), row).tolist() == [1, 0, 0, 1, 2, 1, 0, 1, 4, 3]
    with pytest.raises(TaskError, match="keys of a Dict observation must be text or whole numbers"):
        layout_of(spaces.Dict({("a", 1): spaces.Discrete(2)}))


def test_bounds_and_whole_numbers_are_kept():
    start = observed_in(spaces.Discrete(3, start=5))[0][0]
    assert (start.low, start.high, start.integer) == (5, 7, True)
    box = observed_in(spaces.Box(np.array([-np.inf, 0]), np.array([1, np.inf]), dtype=np.float64))[0]
    assert [(o.low, o.high, o.integer) for o in box] == [(-np.inf, 1, False), (0, np.inf, False)]
    assert observed_in(spaces.Box(0, 255, (1,), np.uint8))[0][0].integer
    assert [(o.low, o.high) for o in observed_in(spaces.MultiDiscrete([3, 2], start=[5, -1]))[0]] == [(5, 7), (-1, 0)]


@pytest.mark.parametrize("kind", [spaces.Sequence, lambda one: spaces.OneOf((one, one))])
def test_observations_that_are_neither_numbers_nor_texts_are_refused(kind):
    with pytest.raises(TaskError, match=r"not supported; wrap the environment in a gymnasium\.ObservationWrapper"):
        observed_in(kind(spaces.Discrete(2)))


def test_texts_stand_behind_the_numbers_of_a_row():
    space = spaces.Dict(note=spaces.Text(4), place=spaces.Box(0, 9, (2,)), said=spaces.Tuple([spaces.Text(7)] * 2))
    observations, texts = observed_in(space)
    assert [o.name for o in observations] == ["place_0", "place_1"]
    assert [(text.name, text.columns) for text in texts] == [("note", 2), ("said_0", 3), ("said_1", 3)]
    row = flatten(layout_of(space), {"note": "abcd", "place": np.array([1, 2], np.float32), "said": ("lamp", "")})
    assert row[:2].tolist() == [1, 2]
    assert [decoded(row[2:4]), decoded(row[4:7]), decoded(row[7:])] == ["abcd", "lamp", ""]
    assert layout_of(spaces.Text(3, charset="aä")) == TextPart(2)
    with pytest.raises(TaskError, match="texts of up to 5,000 characters; the maximum is 4,000"):
        layout_of(spaces.Text(5_000))


def test_a_slug_is_a_name_of_the_policy_language():
    texts = ("Cart Velocity (m/s)", "2nd joint", "not", "lambda", "x" * 60, "Größe")
    assert list(map(slug, texts)) == ["cart_velocity_m_s", "q_2nd_joint", "q_not", "lambda", "x" * 40, "gr_e"]
