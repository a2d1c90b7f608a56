"""A policy's comments stay with their lines, also when numbers are tuned; its text reads back as the same policy."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pytest
from support import fenced

from policygen.policies.lines import MAX_CHARACTERS
from policygen.policies.parse import parse
from policygen.policies.policy import Policy, from_record
from policygen.runs.attempt import text_digest
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task

WRITTEN = """# The pole first, the cart second.

let zeta = 0.50*(angle + (spin))  # where the |pole| goes
# as fast as it turns
let alpha = spin^2 + zeta

right = (2.0*zeta) + alpha - (0.5*position)
left = 0  # never pays
# That is all."""
SHOWN = """# The pole first, the cart second.
let zeta = 0.5*(angle + spin)  # where the |pole| goes
# as fast as it turns
let alpha = spin^2 + zeta
left = 0  # never pays
right = 2*zeta + alpha - 0.5*position
# That is all."""

TABLE = """# Leaning counts.
let lean = angle + 0.25*spin  # with a guess of the future
bins lean: -0.1, 0.1  # close to upright
| lean | action |  # two columns
|------|--------|
# falls left
| 0 | left |
| * | right |  # else"""


def read(text: str, task: str = "cartpole", incumbent: Policy | None = None) -> Policy:
    parsed = parse(text, load_task(task), incumbent=incumbent)
    assert parsed.policy is not None, parsed.problems
    return parsed.policy


def test_comments_are_the_authors_and_the_rest_has_one_form() -> None:
    policy = read(fenced(*WRITTEN.splitlines()))
    assert policy.to_text() == SHOWN
    assert policy.to_text(plain=True) == re.sub(r"^#.*\n?|  #.*", "", SHOWN, flags=re.MULTILINE).rstrip()
    plain = read(policy.to_text(plain=True))
    assert (plain, plain.comments, text_digest(plain)) == (policy, {}, text_digest(policy))
    assert SHOWN in policy.to_text(whole=True)


@pytest.mark.parametrize("text", [SHOWN, TABLE], ids=["equations", "table"])
def test_comments_stay_with_their_lines_also_tuned_and_saved(text: str) -> None:
    policy = read(text)
    assert re.findall("#.*", policy.to_text()) == re.findall("#.*", text)
    tunable = Tunable(policy)
    tuned = tunable.at(np.random.default_rng(1).normal(size=tunable.size) * 0.1)
    assert tuned.to_text(plain=True) != policy.to_text(plain=True)
    assert re.findall("#.*", tuned.to_text()) == re.findall("#.*", policy.to_text())
    for one in (policy, tuned):
        saved = json.loads(json.dumps(one.to_record()))
        for again in (read(one.to_text()), from_record(saved), pickle.loads(pickle.dumps(one))):
            assert (again, again.to_text(), text_digest(again)) == (one, one.to_text(), text_digest(one))


def test_a_revision_keeps_the_comments_of_the_lines_that_it_leaves_out() -> None:
    revised = read("right = 3*zeta + mid\n# new\nlet mid = (zeta)*2\n", incumbent=read(WRITTEN)).to_text()
    gone = "# as fast as it turns\nlet alpha = spin^2 + zeta\n"
    now = SHOWN.replace(gone, "# new\nlet mid = zeta*2\n").replace("2*zeta + alpha - 0.5*position", "3*zeta + mid")
    assert revised == now
    stated = read(fenced("left = 0", "right = spin"), incumbent=read(WRITTEN)).to_text()
    assert stated == "left = 0\nright = spin\n# That is all."


def test_rows_keep_their_comments_as_long_as_they_say_the_same() -> None:
    table = ("| row | column | action | why |", "|---|---|---|---|", "# the hole", "| 1 | any | left |  |")
    policy = read(fenced(*table, "| * | * | right | go on |", "# done"), "frozenlake")
    rows = ["# the hole", "| 1   | *      | left   |", "| *   | *      | right  |  # go on", "# done"]
    assert policy.to_text().splitlines()[2:] == rows
    revised = read("| 1 | * | down |", "frozenlake", incumbent=policy).to_text()
    assert ("# the hole" in revised, "# go on" in revised) == (False, True)


def test_a_strangers_comments_are_short_visible_and_decide_nothing() -> None:
    record = read(WRITTEN).to_record()
    comments = ["# " + "y" * 150] * 500
    record["text"] = ["left = 9  # \x1b[31m" + "x" * 500, "let evil = 1", "# a\nright = 7*spin", *comments]
    policy = from_record(record)
    assert policy == read(WRITTEN)
    assert policy.to_text(plain=True) == read(WRITTEN).to_text(plain=True)
    text = policy.to_text()
    assert "left = 0  # \\x1b[31mxxx" in text
    assert "\x1b" not in text
    assert "evil" not in text
    assert max(map(len, text.splitlines())) < 250
    assert len(text) < 12_000 < MAX_CHARACTERS
    assert read(text) == policy
