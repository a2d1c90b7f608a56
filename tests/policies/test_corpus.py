"""Recorded replies, and mutations of them: each is read as the policy that its author meant, or has a problem.

The policy that is meant comes from the reply as it was written, never from a reading of its mutation.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import policygen
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

TRANSCRIPTS = Path(policygen.__file__).parents[1] / "results" / "transcripts"
IDS = {
    **{"ant": "Ant-v5", "halfcheetah": "HalfCheetah-v5", "hopper": "Hopper-v5", "humanoid": "Humanoid-v5"},
    **{"pusher": "Pusher-v5", "walker2d": "Walker2d-v5", "bipedalwalker": "bipedalwalker", "cartpole": "cartpole"},
    **{"mountaincar-continuous": "mountaincar-continuous", "frozenlake": "frozenlake", "taxi": "taxi", "nim": "nim"},
    **{"reacher": "reacher", "inverted-double-pendulum": "inverted-double-pendulum", "cliffwalking": "cliffwalking"},
}

Reply = tuple[Task, str, Policy, Policy | None]  # the text, the policy that it is, and the best policy before it
Mutation = Callable[[list[str], random.Random], list[str]]
"""A change of the lines of the policy's block."""


def replies() -> Iterator[Reply]:
    """Yield recorded replies that are policies."""
    for folder in sorted(TRANSCRIPTS.iterdir()):
        name = next((name for name in sorted(IDS, key=len, reverse=True) if folder.name.startswith(name)), None)
        if name is None:
            continue
        task, before = policygen.load_task(IDS[name]), None
        for line in (folder / "transcript.jsonl").read_text().splitlines():
            text = (json.loads(line).get("reply") or {}).get("text")
            policy = parse(text, task, None, before).policy if text else None
            if policy is not None and "```" in text:
                yield task, text, policy, before
                before = policy


def at_one(change: Callable[[str, random.Random], str]) -> Mutation:
    """Return the mutation of one line `NAME = EXPRESSION`, with or without `let`, by `change`."""

    def mutation(lines: list[str], rng: random.Random) -> list[str]:
        found = [i for i, line in enumerate(lines) if re.match(r"\s*(let )?\w+ = [^|]*$", line)]
        if not found:
            return lines
        i = rng.choice(found)
        return [*lines[:i], *change(lines[i], rng).splitlines(), *lines[i + 1 :]]

    return mutation


def at_all(change: Callable[[str], str]) -> Mutation:
    return lambda lines, rng: [change(line) for line in lines]


def wrapped(before: bool) -> Callable[[str, random.Random], str]:
    """Return a change that breaks a line before or after an operator."""

    def change(line: str, rng: random.Random) -> str:
        code = line.partition("  #")[0]
        places = [found.start() for found in re.finditer(r" [-+*/] ", code) if found.start() > code.index("=")]
        if not places:
            return line
        at = rng.choice(places) + (0 if before else 2)
        return f"{line[:at]}\n    {line[at:].lstrip()}"

    return change


def full_width(line: str) -> str:
    code, hash_, comment = line.partition("  #")
    signs = (chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and not c.isalpha() and c != "_" else c for c in code)
    return "".join(signs) + hash_ + comment


def formula(line: str, rng: random.Random) -> str:
    code = line.partition("  #")[0]
    left, _, right = code.partition(" = ")
    right = right.replace("*", r" \cdot ")
    return line if left.startswith("let") else rf"$\text{{{left}}} = {right}$"


UNDERSTOOD: dict[str, Mutation] = {
    "as it is": lambda lines, rng: lines,
    "broken before an operator": at_one(wrapped(before=True)),
    "broken after an operator": at_one(wrapped(before=False)),
    "broken with a backslash": at_one(lambda line, rng: wrapped(before=True)(line, rng).replace("\n", " \\\n", 1)),
    "an arrow": at_all(lambda line: re.sub(r"^(let )?(\w+) = ", r"\1\2 <- ", line)),
    "colon and equals": at_all(lambda line: re.sub(r"^(let )?(\w+) = ", r"\1\2 := ", line)),
    "bullets": at_all(lambda line: f"- {line}" if re.match(r"(let )?\w+ = ", line) else line),
    "emphasis": at_all(lambda line: re.sub(r"^(\w+) = ", r"**\1** = ", line)),
    "semicolons": at_all(lambda line: line + ";" if re.match(r"(let )?\w+ = [^#]*$", line) else line),
    "full width": at_all(full_width),
    "formulas": at_one(formula),
    "empty lines": lambda lines, rng: [one for line in lines for one in (line, "")],
}
REFUSED: dict[str, Mutation] = {
    "decimal comma": at_one(lambda line, rng: re.sub(r"= .*", "= 0,5", line)),
    "per cent": at_one(lambda line, rng: re.sub(r"( = .*?)(  #|$)", r"\1 * 50%\2", line)),
    "units": at_one(lambda line, rng: re.sub(r"( = .*?)(  #|$)", r"\1 N*m rad\2", line)),
    "strings": at_one(lambda line, rng: re.sub(r"^(let )?(\w+) = (.*)", r'"\2": "\3",', line)),
    "an equation that ends in an operator": at_one(lambda line, rng: f"{line.partition('  #')[0]} +"),
    "an arrow that points to the right": at_one(lambda line, rng: re.sub(r"^(?:let )?(\w+) = (.*)", r"\2 -> \1", line)),
    "prose": lambda lines, rng: [*lines, "This keeps the pole upright for longer."],
    "lists in place of a table": at_all(lambda line: re.sub(r"^\| *(.*?) *\| *$", r"* \1", line).replace(" | ", ", ")),
}


def block_of(text: str) -> tuple[list[str], int, int]:
    """Return the lines of a text, and where its last block begins and ends."""
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line.lstrip().startswith("```")]
    return lines, fences[-2] + 1, fences[-1]


@pytest.fixture(scope="module")
def recorded() -> list[Reply]:
    found = list(replies())
    assert len(found) > 100
    return random.Random(0).sample(found, 60)


def outcomes(recorded: list[Reply], mutation: Mutation) -> tuple[Counter[str], list[str]]:
    """Return how often a mutation was read as meant, had a problem, or did not change its text; and all other texts."""
    counts: Counter[str] = Counter()
    wrong = []
    for number, (task, text, meant, before) in enumerate(recorded):
        lines, start, end = block_of(text)
        mutated = [*lines[:start], *mutation(lines[start:end], random.Random(number)), *lines[end:]]
        if mutated == lines:
            counts["unchanged"] += 1
            continue
        got = parse("\n".join(mutated), task, None, before)
        if got.policy is None:
            counts["problem"] += bool(got.problems)
        elif got.policy.to_text(plain=True) == meant.to_text(plain=True):
            counts["as meant"] += 1
        else:
            wrong.append("\n".join(mutated))
    return counts, wrong


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_another_notation_is_read_as_intended(recorded: list[Reply], name: str) -> None:
    counts, wrong = outcomes(recorded, UNDERSTOOD[name])
    assert wrong == []
    assert counts["problem"] <= 0.1 * len(recorded), counts


@pytest.mark.parametrize("name", REFUSED)
def test_an_unreadable_mutation_is_a_problem(recorded: list[Reply], name: str) -> None:
    counts, wrong = outcomes(recorded, REFUSED[name])
    assert wrong == []
    assert counts["problem"] + counts["unchanged"] == len(recorded), counts


def test_a_reply_that_is_cut_anywhere_is_never_another_policy(
    recorded: list[Reply],
) -> None:
    rng = random.Random(1)
    for task, text, meant, before in recorded:
        for _ in range(5):
            lines, start, _ = block_of(text)
            first = len("\n".join(lines[:start]))
            got = parse(text[: rng.randrange(first, len(text))], task, None, before)
            if got.policy is not None:
                assert got.policy.to_text(plain=True) == meant.to_text(plain=True)
            else:
                assert got.problems
