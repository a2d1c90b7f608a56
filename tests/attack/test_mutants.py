"""Mutated replies: whatever is not refused in a sentence acts validly, and reads back from its text and its record."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from attacks import Tallies, amount
from support import ARM, BEST_LAKE, FALLING, LEANING, MALFORMED_LAKE, PAIR, fenced

from policygen.policies.parse import parse
from policygen.policies.policy import Policy, from_record
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

REPLIES = Path(__file__).parents[1] / "data" / "replies"
CARTPOLE, LAKE = load_task("cartpole"), load_task("frozenlake")
LEAN = fenced("let lean = angle + 0.25*spin\nbins lean: -0.1, 0, 3e38\n| lean | action |\n| 0 | left |\n| * | right |")
WEIGHTS = fenced("let far = clip(position, -1, 1)^2", "left = 0", "right = -10*angle - 2*spin + 0.5*far")
REMEMBERED = fenced(
    "let slow = 0.9*prev(slow, 1) + 0.1*angle\nleft = prev(angle)\nright = slow + where(spin > 0, 1, -1)"
)
REACH = fenced("shoulder = -3*x + fixed(0.5)", "elbow = tanh(y)*2 + prev(shoulder)")
RANGED = fenced(
    "let far = tune(0.5, 0.1, 2)*angle + prev(far, tune(0, -1, 1))",
    "left = -tune(2, 0, 10)*far^tune(2, 1, 3)",
    "right = tune(0, -pi, pi)*spin - tune(-1, -2, 2)*far + fixed(tune(1, 0, 2))",
)
ARM_ROWS = fenced(
    "| x | y | shoulder | elbow |\n| 0 | 0 | left | -0.5 |\n| 1-2 | * | 0.25 | 0 |\n| * | 1 | off | 0.5 |"
)
PAIR_ROWS = fenced("| total | y | gear | horn |", "| 0 | 0,2 | low | 1 |", "| * | * | reverse | 0 |")
GOOD: list[tuple[Task, str]] = [
    *((CARTPOLE, text) for text in (LEANING, FALLING, LEAN, WEIGHTS, REMEMBERED, RANGED)),
    *((LAKE, text) for text in (BEST_LAKE, MALFORMED_LAKE)),
    *((ARM, text) for text in (REACH, ARM_ROWS)),
    (PAIR, PAIR_ROWS),
    (CARTPOLE, (REPLIES / "model_cartpole_lean.md").read_text(encoding="utf-8")),
    (LAKE, (REPLIES / "model_frozenlake_first.md").read_text(encoding="utf-8")),
]
NASTY = r"""
0 -0 1 1e308 -1.79e308 1e999 5e-324 3e38 3.5e38 nan inf 1_0 0x1f 99999999999999999999 1e-400 .5 5. 1j 0b1
+ - * / ^ ** // % == = := < >= | || |||| *** ( ) (( [ ] { } , ,, ; : ` ``` ~~~ # \ " ' // .. @ ! ~ & << lambda:0
let bins prev(angle) prev(spin,1) prev(lean,-1e308) prev(nothing) fixed(2) where(1,2,3) min() sqrt(-1) log(0) mod(1,0)
angle spin x y lean left right action row column shoulder import __class__ pi e True None exp(1e5) abs(x)(1) x[0] x.y
tune(2,0,9) tune(0,-1,1) tune(-5,-5,1e308) tune(0,1,2) tune(nan,0,1) tune(1,2 tune( tune tune(tune(1,0,2),0,3)
any >1 <=0 0-2 5-1 0- 0,0,0 [run] """.split()  # noqa: SIM905
NASTY += [*"\0\u202e\ufeff\t\u00a0\u2028\u0663\u2212\U0001f600\r", "\x1b[2J", "let\tq=1"]


def mutated(rng: random.Random, text: str) -> str:
    """The text after one to five accidents."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        lines = text.split("\n")
        i, at = rng.randrange(len(lines)), rng.randrange(len(text) + 1)
        match rng.randrange(11):
            case 0:
                del lines[i]
            case 1:
                lines.insert(i, rng.choice(lines))
            case 2:
                lines.insert(i, rng.choice(rng.choice(GOOD)[1].split("\n")))
            case 3:
                j = rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
            case 4:
                lines[i] = rng.choice(NASTY).join(lines[i].split(" ", rng.randrange(1, 4)))
            case 5:
                words = lines[i].split(" ")
                words[rng.randrange(len(words))] = rng.choice(NASTY)
                lines[i] = " ".join(words)
            case 6:
                lines[i] += " " + rng.choice(NASTY) * rng.choice((1, 1, 3, 60, 3_000))
            case 7:
                lines = (text[:at] + rng.choice(NASTY) + text[at:]).split("\n")
            case 8:
                lines = (text[:at] + text[at + rng.randrange(1, 6) :]).split("\n")
            case 9:
                character = chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x3000))))
                lines = (text[:at] + character + text[at + 1 :]).split("\n")
            case _:
                lines = [*lines[:i], f"bins {rng.choice(('angle', 'x', 'lean', 'y'))}: " + edges(rng), *lines[i:]]
        text = "\n".join(lines) or "left = 0"
    return text


def edges(rng: random.Random) -> str:
    return ", ".join(map(repr, sorted(rng.uniform(-5, 5) for _ in range(rng.choice((0, 1, 3, 3, 40, 400, 900))))))


def assert_sound(policy: Policy, observations: np.ndarray) -> None:
    """It acts inside the action space, one by one as side by side, and reads back."""
    task = policy.task
    side_by_side = np.asarray(policy.begin(len(observations)).decide(observations, np.arange(len(observations))))
    for row, actions in zip(observations, side_by_side, strict=True):
        alone = policy.begin(1).decide([row], np.arange(1))[0]
        assert np.array_equal(np.asarray(alone), actions)
        for actuator, action in zip(task.actuators, np.ravel(actions), strict=True):
            if actuator.is_choice:
                assert int(action) in range(len(actuator.labels))
            else:
                assert np.float32(actuator.low) <= action <= np.float32(actuator.high)
    again = parse(policy.to_text(), task, policy.kind)
    assert again.policy == policy, again.problems
    assert from_record(json.loads(json.dumps(policy.to_record(), allow_nan=False))) == policy


def observations_for(task: Task, rng: np.random.Generator) -> np.ndarray:
    rows = rng.normal(size=(4, len(task.observations))) * [[0.1], [1.0], [100.0], [1e30]]
    rows[3, 0] = rng.choice([np.inf, -np.inf, np.nan, 0.0])
    integer = [i for i, observation in enumerate(task.observations) if observation.integer]
    rows[:, integer] = rng.integers(0, 16, (4, len(integer)))
    return rows.astype(np.float32)


@pytest.mark.parametrize("part", range(4))
def test_a_mutated_reply_is_refused_in_sentences_or_is_a_sound_policy(part: int, tally: Tallies) -> None:
    held = tally("a mutated reply is refused in sentences or is a sound policy")
    rng, numbers = random.Random(part), np.random.default_rng(part)
    incumbents: dict[str, Policy] = {}
    accepted = 0
    for _ in range(amount(600, 200_000) // 4):
        task, good = rng.choice(GOOD)
        text = mutated(rng, good)
        incumbent = incumbents.get(task.name) if rng.random() < 0.2 else None
        with held.one(), warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                parsed = parse(text, task, rng.choice((None, None, "table", "linear")), incumbent)
                assert (parsed.policy is None) == bool(parsed.problems) or parsed.resigned
                assert all("\n" not in str(problem) for problem in parsed.problems)
                if parsed.policy is not None:
                    accepted += 1
                    assert_sound(parsed.policy, observations_for(task, numbers))
                    if rng.random() < 0.1:  # tuned far, which a range survives, else its text is refused
                        tunable = Tunable(parsed.policy)
                        moved = tunable.at(numbers.normal(scale=3, size=tunable.size))
                        assert_sound(moved, observations_for(task, numbers))
            except BaseException:
                print(f"--- the reply, for {task.name}:\n{text!r}")
                raise
        if parsed.policy is not None and rng.random() < 0.05:
            incumbents[task.name] = parsed.policy
    assert accepted > amount(600, 200_000) // 40  # the mutants are not all nonsense
