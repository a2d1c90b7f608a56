"""Numbers that tuning changed in a way that their author may not expect."""

from __future__ import annotations

import pytest
from refining import policy_of

from policygen.policies.surprises import surprises

CAREFUL = "let asked = where(abs(angle) < 0.5, 2*spin, -3*spin)\nleft = -0.5*angle + tune(1, -2, 2)*spin\nright = asked"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"2*": "9*", "0.5*angle": "0.1*angle", "< 0.5": "< 0.9", "tune(1,": "tune(-2,"}, ""),
        ({"-0.5*angle": "0.25*angle"}, "turned the sign of -0.5 to 0.25 in `left`"),
        ({"< 0.5": "< -79.9"}, "moved in a condition 0.5 to -79.9 in `asked`"),
        (
            {"2*": "-2*", "-3*": "3*", "< 0.5": "< 1.2"},
            "turned the sign of 2 to -2 in `asked`, -3 to 3 in `asked` and moved in a condition 0.5 to 1.2 in `asked`",
        ),
    ],
)
def test_signs_that_turn_and_conditions_that_move_far_are_told_and_what_may_move_is_not(
    changes: dict[str, str], words: str
) -> None:
    text = CAREFUL
    for old, new in changes.items():
        text = text.replace(old, new)
    assert surprises(policy_of(CAREFUL), policy_of(text)) == words


def test_many_surprises_are_one_line_that_counts_the_rest() -> None:
    before = "left = 0\nright = " + " + ".join(f"{i}*angle" for i in range(1, 9))
    said = surprises(policy_of(before), policy_of(before.replace(" + ", " - ")))
    assert said == "turned the sign of 2 to -2 in `right`, 3 to -3 in `right`, 4 to -4 in `right` and 4 more"


def test_tables_are_told_by_their_features() -> None:
    table = "let lean = angle + 0.3*spin\nbins lean: 0\n| lean | action |\n| 0 | left |\n| 1 | right |"
    assert surprises(policy_of(table), policy_of(table.replace("+ 0.3", "- 0.3"))) == (
        "turned the sign of 0.3 to -0.3 in `lean`"
    )
