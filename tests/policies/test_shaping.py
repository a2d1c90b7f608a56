"""Objectives and potentials: read from beside a policy, written again, computed, and refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest
from refining import policy_of
from support import ARM

from policygen.episodes.simulator import Simulator
from policygen.errors import PolicyError
from policygen.extensions.objectives import summands
from policygen.policies.parse import ParseResult, parse
from policygen.policies.shaping import Measure, Shaping
from policygen.quantities.text import to_text
from policygen.tasks.load import load_task

CARTPOLE = load_task("cartpole")
POLE = "let lean = angle + 0.1*spin\nleft = 0\nright = lean"
TAUGHT = f"""{POLE}
let away = abs(position)
objective = reward - 2*away - (0.1*(right - prev(right))^2 - lean)
potential = -abs(angle)"""


def read(*lines: str, learner: bool = False) -> ParseResult:
    return parse("\n".join([POLE, *lines]), CARTPOLE, learner=learner)


def test_they_are_read_from_beside_a_policy_and_are_no_part_of_it() -> None:
    parsed = parse(TAUGHT, CARTPOLE)
    assert parsed.policy == policy_of(POLE)
    shaping = parsed.notes.get("objective")
    assert shaping is not None
    assert (shaping.potential, dict(shaping.lets)["away"]) == ("-abs(angle)", "abs(position)")
    again = parse(f"{POLE}\n{shaping.to_text()}", CARTPOLE)
    assert (again.policy, again.notes.get("objective")) == (parsed.policy, shaping)
    terms = list(map(to_text, summands(Measure(CARTPOLE, shaping).objective)))
    assert terms == ["reward", "-2*away", "-0.1*(right - prev(right))^2", "lean"]
    assert read().notes.get("objective") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("objective = 2*lane", "line 4: unknown name `lane`; known: lean, "),
        ("objective = reward +", "line 4: cannot read `reward +` as arithmetic"),
        ("objective = prev(reward)", "line 4: `prev(reward)` is not remembered; use `reward`"),
        ("potential = 1 - reward", "line 4: the potential reads `reward`; a potential depends only on the state"),
        ("potential = angle*left", "line 4: the potential reads `left`; a potential depends only on the state"),
        ("potential = prev(angle)", "line 4: the potential remembers `angle`; a potential depends only on the state"),
        ("let old = prev(spin)\npotential = old", "line 5: the potential remembers `spin`"),
        ("let a = b\nlet b = a\nobjective = a", "`a` depends on itself (a -> b -> a)"),
    ],
)
def test_an_invalid_objective_is_refused_with_its_line(line: str, problem: str) -> None:
    parsed = read(line)
    assert parsed.policy is None
    assert any(str(found).startswith(problem) for found in parsed.problems), [str(p) for p in parsed.problems]


def test_an_objective_of_a_learner_cannot_remember_and_a_feature_of_such_a_name_stays_one() -> None:
    (problem,) = read("objective = reward - abs(prev(angle))", learner=True).problems
    assert str(problem).startswith("line 4: the objective remembers `angle`; a learner of table entries sees one step")
    assert read("objective = reward - abs(angle)", learner=True).policy is not None
    parsed = parse("let potential = 3*angle\npotential = 3*angle\nleft = 0\nright = potential", CARTPOLE)
    assert parsed.notes.get("objective") is None
    assert parsed.policy is not None
    assert parsed.policy.to_text() == "let potential = 3*angle\nleft = 0\nright = potential"


def test_an_objective_alone_means_the_best_policy_as_it_is() -> None:
    incumbent = policy_of(POLE)
    parsed = parse("let near = 1 - abs(position)\nobjective = reward + near", CARTPOLE, "linear", incumbent)
    assert parsed.policy is incumbent
    assert parsed.notes.get("objective") == Shaping((("near", "1 - abs(position)"),), "reward + near")
    revised = parse("let lean = angle\nobjective = reward", CARTPOLE, "linear", incumbent).policy
    assert revised == policy_of(POLE.replace(" + 0.1*spin", ""))
    assert parse("objective = reward", CARTPOLE, "linear").policy is None
    table = policy_of("| angle | action |\n| * | left |")
    assert parse("potential = angle", CARTPOLE, "table", table).policy is table


def test_the_sums_are_those_of_the_steps_as_they_were_played() -> None:
    parsed = parse(TAUGHT, CARTPOLE)
    assert parsed.policy is not None
    assert parsed.notes.get("objective") is not None
    measure = Measure(CARTPOLE, parsed.notes.get("objective"))
    assert measure.remembers == ("right",)
    with Simulator(CARTPOLE) as simulator:
        played = simulator.play(parsed.policy, [1, 2, 3])
    expected = []
    for t in played:
        position, _, angle, spin = t.observations[:-1].astype(float).T
        right = (t.actions == 1) * 1.0
        jerk = right - np.array([0.0, *right[:-1]])
        expected.append(np.sum(t.rewards - 2 * np.abs(position) - 0.1 * jerk**2 + angle + 0.1 * spin))
        assert measure.potentials(t.observations) == pytest.approx(-np.abs(t.observations[:, 2]))
    assert measure.sums(played) == pytest.approx(expected)


def test_numbers_that_are_acted_have_their_own_names_and_strange_values_count_as_those_of_features() -> None:
    measure = Measure(ARM, Shaping((), "x - shoulder^2 + 2*elbow + 1/y - log(y - 1)"))
    steps = measure.objectives(np.array([[1.0, 0.0], [3.0, 2.0]]), np.array([[2.0, 0.5], [1.0, -1.0]]), np.zeros(2))
    assert steps == pytest.approx([0.0, 3 - 1 - 2 + 0.5], abs=1e-12)
    assert Measure(ARM, Shaping(potential="x")).potentials(np.array([[7.0, 1.0]])) == pytest.approx([7.0])
    assert Measure(ARM, Shaping(objective="x")).potentials(np.ones((2, 2))).tolist() == [0.0, 0.0]


def test_a_damaged_one_is_refused() -> None:
    damaged = [Shaping(objective=text) for text in ("__import__('os')", "prev(reward)")]
    for shaping in (*damaged, Shaping(potential="prev(angle)"), Shaping((("angle", "1"),), "angle")):
        with pytest.raises(PolicyError, match="damaged objective: "):
            Measure(CARTPOLE, shaping)
