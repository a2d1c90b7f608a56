"""`n_NAME`: the definitions that `builtin` writes, and that tuning leaves alone."""

from __future__ import annotations

import numpy as np

from policygen.policies.normalise import definition, definitions, is_definition
from policygen.policies.parse import parse
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Node
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task

CARTPOLE = load_task("cartpole")
PENDULUM = load_task("pendulum")


def node(text: str) -> Node:
    return parse_expression(text, CARTPOLE.observation_names)


def test_means_and_spreads_are_those_of_all_observations_and_features() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    cos, _, rate = rows.T
    found = definitions(PENDULUM, [rows[:20], rows[20:]], ("cos", "energy"))
    assert dict(PENDULUM.features)["energy"] == "0.5*rate^2 + 15*(cos - 1)", "the test computes it itself"
    for name, values in {"cos": cos, "energy": 0.5 * rate**2 + 15 * (cos - 1)}.items():
        expected = definition(name, float(f"{values.mean():.4g}"), float(f"{values.std():.4g}"))
        assert found[f"n_{name}"] == expected


def test_a_definition_is_what_a_person_would_have_written() -> None:
    for mean, text in ((0.0123, "(angle - 0.0123)/0.456"), (-2.0, "(angle + 2)/0.456"), (-0.0, "(angle - 0)/0.456")):
        written = definition("angle", mean, 0.456)
        assert to_text(written) == text
        assert node(text) == written
        assert is_definition("n_angle", written)
    for name, text in (("n_spin", "(angle - 1)/2"), ("lean", "(angle - 1)/2"), ("n_angle", "angle/2")):
        assert not is_definition(name, node(text))


def test_what_hardly_varies_is_only_centred_and_nothing_is_divided_by_what_is_not_a_number() -> None:
    rows = np.full((5, 4), 2.5)
    rows[:, 1] += 1e-9 * np.arange(5)
    rows[2, 2], rows[3, 2] = np.nan, np.inf
    rows[:, 3] = [1e300, -1e300, 1e300, 0, 0]
    names = CARTPOLE.observation_names
    found = [to_text(one) for one in definitions(CARTPOLE, [rows[:2], rows[2:]], names).values()]
    assert found[:2] == [f"({name} - 2.5)/1" for name in names[:2]]
    assert not [text for text in found if "nan" in text or "inf" in text]
    nothing = definitions(CARTPOLE, [], names)
    assert [to_text(one) for one in nothing.values()] == [f"({name} - 0)/1" for name in names]


def test_refinement_leaves_definitions_alone_and_moves_everything_else() -> None:
    lets = "let n_angle = (angle - 1)/2\nlet n_spin = (spin + 3)/4\n"
    policy = parse(f"{lets}let lean = n_angle + 0.5*n_spin\nleft = 0\nright = 2*lean", CARTPOLE).policy
    assert policy is not None
    moved = Tunable(policy).at(np.array([1.0, 1.0])).to_text()
    assert moved == f"{lets}let lean = n_angle + 1*n_spin\nleft = 0\nright = 4*lean"
