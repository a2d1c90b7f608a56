"""A policy's comments stay with their lines, also when numbers are tuned; its text reads back as the same policy."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from support import fenced

from policygen.policies.lines import MAX_CHARACTERS
from policygen.policies.parse import parse
from policygen.policies.policy import Policy, from_record
from policygen.runs.attempt import text_digest
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task

ROOT = Path(__file__).parents[2]
REPLIES = [("cartpole", ROOT / f"tests/data/replies/{name}.md") for name in ("cartpole-feature", "model_cartpole_lean")]
TRANSCRIPTS = ("cartpole", "cliffwalking", "mountaincar", "mountaincar-continuous", "maze", "nim", "pong")
REPLIES += [(name, ROOT / f"results/transcripts/{name}/transcript.jsonl") for name in TRANSCRIPTS]
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


def read(text: str, task: str = "cartpole", incumbent: Policy | None = None) -> Policy:
    parsed = parse(text, load_task(task), incumbent=incumbent)
    assert parsed.policy is not None, parsed.problems
    return parsed.policy


def block_of(path: Path) -> list[str]:
    """The last block of a real reply."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        replies = [json.loads(line).get("reply") for line in text.splitlines()]
        text = [reply["text"] for reply in replies if reply][-1]
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)[-1].strip().splitlines()


def name_of(line: str) -> str:
    found = re.match(r"(?:let |bins )?(\w+)\s*[=:]", line)
    return found[1] if found else ""


@pytest.mark.parametrize(("task", "path"), REPLIES, ids=lambda value: getattr(value, "stem", value))
def test_a_models_comments_stay_with_their_lines_also_tuned_and_saved(task: str, path: Path) -> None:
    lines = [line.partition("#")[0].rstrip() for line in block_of(path)]
    shown = [f"# above {i}\n{line}  # beside {i}" for i, line in enumerate(lines)]
    policy = read(fenced(*shown), task)
    text = policy.to_text()
    assert policy == read(fenced(*lines), task)
    for i, line in enumerate(lines):
        if (name := name_of(line)) and re.search(rf"^(let |bins )?{name}\b", text, re.MULTILINE):
            own = next(row for row in text.splitlines() if row.endswith(f"# beside {i}"))
            assert name_of(own) == name
            assert f"# above {i}\n{own}" in text
    tunable = Tunable(policy)
    tuned = tunable.at(np.random.default_rng(1).normal(size=tunable.size) * 0.1)
    assert re.findall("#.*", tuned.to_text()) == re.findall("#.*", text)
    for one in (policy, tuned):
        saved = json.loads(json.dumps(one.to_record()))
        for again in (read(one.to_text(), task), from_record(saved), pickle.loads(pickle.dumps(one))):
            assert (again, again.to_text(), text_digest(again)) == (one, one.to_text(), text_digest(one))


def test_comments_are_the_authors_and_the_rest_has_one_form() -> None:
    policy = read(fenced(*WRITTEN.splitlines()))
    assert policy.to_text() == SHOWN
    assert policy.to_text(plain=True) == re.sub(r"^#.*\n?|  #.*", "", SHOWN, flags=re.MULTILINE).rstrip()
    plain = read(policy.to_text(plain=True))
    assert (plain, plain.comments, text_digest(plain)) == (policy, {}, text_digest(policy))
    assert SHOWN in policy.to_text(whole=True)


def test_comments_stay_with_their_lines_also_tuned_and_saved() -> None:
    policy = read(WRITTEN)
    tunable = Tunable(policy)
    tuned = tunable.at(np.random.default_rng(1).normal(size=tunable.size) * 0.1)
    assert tuned.to_text() != policy.to_text()
    assert [line.partition("#")[2] for line in tuned.to_text().splitlines()] == [
        line.partition("#")[2] for line in SHOWN.splitlines()
    ]
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
    table = ("| row | column | action |", "|---|---|---|", "# the hole", "| 1 | any | left |")
    policy = read(fenced(*table, "| * | * | right |  # go on", "# done"), "frozenlake")
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
