"""Measure first_steps.md: recorded replies of a chat model, tuned with larger and smaller first steps.

python results/benchmarks/first_steps.py [tune] [page] [--tasks CASE ...] [--seeds SEED ...] [--anew]

No language model is asked: first replies are those of results/transcripts; later ones, with the tuned policy that each
revises, are in first_steps_replies.json. Set OMP_NUM_THREADS=1. Needs `policygen[mujoco,box2d]`. Every result
is a row of first_steps.csv and is not made again unless `--anew` forgets them all; `page` writes the table.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from measurements import HERE, Measurements, parser_of

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator
from policygen.llm.messages import Exchange
from policygen.llm.store import Transcript
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.attempt import TuningState
from policygen.runs.tuning import CAREFUL_STEP, FIRST_STEP
from policygen.search.refine import cma
from policygen.search.refine.tunable import Trials, Vector
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

MEASURED = Measurements("first_steps", ("case", "steps", "seed", "constants", "as written", "tuned", "episodes"))
RESULTS = HERE.parent
REVISIONS: dict[str, dict[str, Any]] = json.loads((HERE / "first_steps_replies.json").read_text())
FIRST_REPLIES = {"halfcheetah": "HalfCheetah-v5", "bipedalwalker-235": "BipedalWalker-v3"}
CASES = (*REVISIONS, *FIRST_REPLIES)
STEPS = {"usual": FIRST_STEP, "careful": CAREFUL_STEP}
EPISODES = 800  # of tuning: about the share of one reply of eight
FRESH = 100  # episodes that score the tuned policy


def read(text: str, task: Task) -> Policy:
    """Return the policy in a text."""
    policy = parse(text, task, "linear").policy
    assert policy is not None
    return policy


def recorded(case: str) -> tuple[Task, Policy, Policy | None, TuningState | None]:
    """Return the task of a case, its policy as the model wrote it, the policy that it revises, and its last tuning."""
    if case in REVISIONS:
        found = REVISIONS[case]
        task = load_task(found["task"])
        state = TuningState(tuple(found["deviations"]), tuple(found["correlations"]))
        return task, read(found["revision"], task), read(found["parent"], task), state
    task = load_task(FIRST_REPLIES[case])
    exchanges = Transcript(RESULTS / "transcripts" / case / "transcript.jsonl").exchanges()
    first = next(one for one in exchanges if isinstance(one, Exchange))
    return task, read(first.reply.text, task), None, None


@contextlib.contextmanager
def trials_of(task: Task, seed: int, episodes: int, first_step: float = FIRST_STEP) -> Iterator[Trials]:
    """Within it, the episodes that a search may play, with a stream of seeds of its own."""
    with ParallelSimulator(task, 1) as players:

        def returns(policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
            played = players.play_many(policies, seeds)
            return np.array([np.mean([one.episode_return for one in some]) for some in played])

        def seeds(first: int, count: int) -> Sequence[int]:
            return episode_seeds(seed, "refine", count, first)

        yield Trials(returns, seeds, episodes, first_step=first_step)


def tuned(case: str, step: str, seed: int) -> list[dict[str, Any]]:
    """Tune a recorded reply once; return its scores on fresh episodes before and after."""
    task, policy, parent, state = recorded(case)
    if parent is not None and state is not None:
        state = cma.carry_over(policy, parent, state, STEPS[step])
    with trials_of(task, seed, EPISODES, STEPS[step]) as trials:
        refined = cma.tune(policy, replace(trials, state=state), seed)
        assert refined is not None
        before, after = trials.returns([policy, refined.policy], episode_seeds(seed, "evaluation", FRESH)).tolist()
    row = {"constants": refined.constants, "as written": round(before, 1), "tuned": round(after, 1)}
    return [{**row, "episodes": refined.episodes}]


def lines() -> Iterator[str]:
    """Yield the table of first_steps.md."""
    tunings = " | ".join(f"tuned, first step {share:.0%}" for share in STEPS.values())
    yield f"| reply | number of constants | as written | {tunings} |"
    yield f"| --- | ---: | ---: |{' --- |' * len(STEPS)}"
    for case in CASES:
        found = {step: MEASURED.rows(case, step) for step in STEPS}
        if not all(found.values()):
            continue
        written = statistics.median(row["as written"] for rows in found.values() for row in rows)
        cells = [", ".join(f"{row['tuned']:,.0f}" for row in rows) for rows in found.values()]
        yield f"| {case} | {found['usual'][0]['constants']:.0f} | {written:,.0f} | {' | '.join(cells)} |"


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's table."""
    asked = MEASURED.asked(parser_of(__doc__, range(243, 246)), CASES, "tune", "page")
    if "tune" in asked.what:
        for seed, case, step in itertools.product(asked.seeds, asked.tasks, STEPS):
            MEASURED.once((case, step, seed), functools.partial(tuned, case, step, seed))
    if "page" in asked.what:
        MEASURED.write_table(lines())


if __name__ == "__main__":
    main()
