"""A policy's text stays as its author wrote it: order, comments, blank lines and parentheses; only numbers change."""

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


def names(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := re.match(r"(?:let |bins )?(\w+)\s*[=:]", line))]


def masked(text: str) -> str:
    return re.sub(r"(?<!\w)-?[\d.]+(e[-+]?\d+)?|-{3,}| {2,}", "0", text)


@pytest.mark.parametrize(("task", "path"), REPLIES, ids=lambda value: getattr(value, "stem", value))
def test_a_models_reply_is_kept_as_written_also_tuned_and_saved(task: str, path: Path) -> None:
    lines = block_of(path)
    commented = []
    for i, line in enumerate(lines):
        commented += [f"# above {i}", line if not line or "#" in line else f"{line}  # beside {i}"]
    policy = read(fenced(*commented), task)
    text = policy.to_text()
    kept = text.splitlines()
    assert policy == read(fenced(*lines), task)
    assert names(kept) == [name for name in names(lines) if name in names(kept)]
    comments = [f"# beside {i}" for i, line in enumerate(lines) if set(names([line])) & set(names(kept))]
    assert len(comments) == len(names(kept)) or "#" in "".join(lines)
    for comment in comments:
        assert comment in text or "#" in lines[int(comment.split()[-1])]
        assert comment.replace("beside", "above") in text
    tunable = Tunable(policy)
    tuned = tunable.at(np.random.default_rng(1).normal(size=tunable.size) * 0.1)
    assert masked(tuned.to_text()) == masked(text)
    for one in (policy, tuned):
        saved = json.loads(json.dumps(one.to_record()))
        for again in (read(one.to_text(), task), from_record(saved), pickle.loads(pickle.dumps(one))):
            assert (again, again.to_text(), text_digest(again)) == (one, one.to_text(), text_digest(one))


def test_order_comments_blank_lines_and_parentheses_are_the_authors() -> None:
    policy = read(fenced(*WRITTEN.splitlines()))
    assert policy.to_text() == WRITTEN
    assert policy.to_text(plain=True).startswith("let zeta = 0.5*(angle + spin)\nlet alpha")
    plain = read(policy.to_text(plain=True))
    assert (plain, plain.written, text_digest(plain)) == (policy, (), text_digest(policy))
    assert WRITTEN in policy.to_text(whole=True)


def test_a_constant_that_changes_its_sign_leaves_the_rest_as_it_is() -> None:
    turned = Tunable(read(WRITTEN)).at(np.array([0.0, 0.0, -3.0])).to_text()  # 0.5 - 3*0.5
    assert turned == WRITTEN.replace("- (0.5*position)", "+ (1*position)")
    assert read(turned).to_text() == turned


def test_a_tuned_range_is_kept_as_its_author_wrote_it() -> None:
    text = "left = 0  # none\nright = ( tune(0.5, -pi,  +pi)*angle - tune(-1,-2,2) )  # both"
    policy = read(text)
    tunable = Tunable(policy)
    tuned = tunable.at(np.array([0.1, 0.2]))
    assert tuned.to_text() == text.replace("0.5,", "1.1283,").replace("-1,", "-0.2,")
    assert from_record(json.loads(json.dumps(tuned.to_record()))).to_text() == tuned.to_text()


def test_a_revision_keeps_the_incumbents_order_and_comments_and_has_its_new_lines_where_it_wrote_them() -> None:
    revised = read("right = 3*zeta + mid\n# new\nlet mid = (zeta)*2\n", incumbent=read(WRITTEN)).to_text()
    was = "right = (2.0*zeta) + alpha - (0.5*position)"
    gone = "# as fast as it turns\nlet alpha = spin^2 + zeta\n"
    assert revised == WRITTEN.replace(gone, "").replace(was, "right = 3*zeta + mid\n# new\nlet mid = (zeta)*2")
    assert read(fenced("left = 0", "right = spin"), incumbent=read(WRITTEN)).to_text() == "left = 0\nright = spin"


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
    record["text"] = record.pop("plain_text")  # as earlier versions saved it
    assert from_record(record).to_text() == "\n".join(record["text"])
