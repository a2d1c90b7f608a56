"""Measure the figures of shaping.md: the effect of potentials on Q-learning and of objectives on CMA-ES.

python results/benchmarks/shaping.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from adviser import Case, Field, options_of, with_interval

from policygen.episodes.score import episode_seeds
from policygen.extensions.learners.q import CellView, learn_tables
from policygen.files import write_atomically
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Prompt, Reply
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.config import effective_config
from policygen.search.run import start
from policygen.tasks.load import load_task

FIRST_SEED = 100


@dataclass(frozen=True, slots=True)
class Taught:
    """Tables of a task that Q-learning begins from nothing, with each of some potentials ("" is none)."""

    task: str
    episodes: int
    potentials: tuple[str, ...]
    checks: tuple[int, ...]  # episodes, after which the table is scored
    seeds: int = 10


@dataclass(frozen=True, slots=True)
class Tuned:
    """A linear policy that CMA-ES tunes, for the return ("") and for an objective."""

    task: str
    episodes: int
    policy: tuple[str, ...]
    objectives: tuple[str, ...]
    seeds: int


TAUGHT = (
    Taught("frozenlake8x8", 4_000, ("", "(row + column)/14", "-(row + column)/14"), (500, 1_000, 2_000, 4_000)),
    Taught(
        "mountaincar",
        2_000,
        ("", "60000*min(energy, 0.0017) - 200", "60000*min(energy, 0.0017)"),
        (250, 500, 1_000, 2_000),
    ),
)
TUNED = (
    Tuned(
        "bipedalwalker",
        500,
        (
            "let apart = hip1 - hip2",
            "hip1_drive = 0.3*lean + 0.3*lean_rate - 0.5*apart*contact1 + 0.5*contact2 - 0.2*hip1_rate - 0.2*contact1",
            "knee1_drive = 0.3*contact1 - 0.5*contact2 - 0.5*knee1 - 0.2*knee1_rate + 0.1",
            "hip2_drive = 0.3*lean + 0.3*lean_rate + 0.5*apart*contact2 + 0.5*contact1 - 0.2*hip2_rate - 0.2*contact2",
            "knee2_drive = 0.3*contact2 - 0.5*contact1 - 0.5*knee2 - 0.2*knee2_rate + 0.1",
        ),
        ("", "max(reward, -1) + 0.1*vx"),
        5,
    ),
    Tuned(
        "hopper",
        500,
        (
            "hip_torque = 0.5*lean + 0.2*lean_rate - 0.3*hip - 0.05*hip_rate - 0.1*vx + 0.1",
            "knee_torque = -0.3*knee - 0.05*knee_rate + 0.2*vz + 0.1*vx + 0.5*(height - 1.2)",
            "ankle_torque = -0.3*ankle - 0.05*ankle_rate + 0.3*vz + 0.3*lean - 0.1*vx + 0.1*vz*hip",
        ),
        ("", "reward + 2*vx"),
        3,
    ),
)


def learnt_rows(case: Taught) -> Iterator[str]:
    """A row of Markdown for each potential: mean returns of the tables after numbers of episodes."""
    place = Field(Case(case.task, "", case.episodes))
    for potential in case.potentials:
        started = time.process_time()
        measure = Measure(place.task, Shaping(potential=potential)) if potential else None
        seeds = range(FIRST_SEED, FIRST_SEED + case.seeds)
        values = np.array([_checked(place, case, measure, seed) for seed in seeds])
        cells = " | ".join(with_interval(column) for column in values.T.tolist())
        seconds = time.process_time() - started
        yield f"| {case.task} | {_code(potential)} | {cells} | {seconds:.0f} |"


def _checked(place: Field, case: Taught, measure: Measure | None, seed: int) -> list[float]:
    """Return the mean return of the learner's table at each check, exact or over 20 episodes."""

    def seeds(first: int, count: int) -> Sequence[int]:
        return episode_seeds(seed, "learn", count, first)

    values: list[float] = []
    view, rng = CellView(place.blank, place.states, measure), np.random.default_rng([seed, 1])
    for played, table in learn_tables(view, place.practice, seeds, case.episodes, rng):
        while len(values) < len(case.checks) and played >= case.checks[len(values)]:
            values.append(place.value(table, seed))
    return values


@dataclass
class OneReply:
    """Answers with the one text that it is given: the policy to tune, and what it is to be tuned for."""

    text: str
    spec: str = "given:policy"
    model: str = "given"
    is_language_model: bool = True
    asked: list[Prompt] = field(default_factory=list)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The text."""
        return Reply(self.text, self.model, 0, 0)

    def diagnose(self) -> Diagnosis:
        """Nothing to check."""
        return Diagnosis(True, ())


def tuned_rows(case: Tuned) -> Iterator[str]:
    """A row of Markdown for each objective: what the tuned policies return."""
    for objective in case.objectives:
        started = time.process_time()
        runs = [_tuned(case, objective, seed) for seed in range(FIRST_SEED, FIRST_SEED + case.seeds)]
        before, after = (with_interval(values) for values in zip(*runs, strict=True))
        singles = ", ".join(f"{value:.4g}" for _, value in runs)
        seconds = time.process_time() - started
        yield f"| {case.task} | {_code(objective)} | {before} | {after} | {singles} | {seconds:.0f} |"


def _tuned(case: Tuned, objective: str, seed: int) -> tuple[float, float]:
    """Return the policy's mean scores on fresh episodes, as given and after tuning."""
    lines = [*case.policy, *([f"objective = {objective}"] if objective else [])]
    settings = {"policy": "linear", "iterations": 1, "refine": f"cma:{case.episodes}", "seed": seed, "jobs": 1}
    settings |= {"episodes": 10, "warmup_episodes": 2}
    task = load_task(case.task)
    with tempfile.TemporaryDirectory() as folder:
        begun = start(
            task, effective_config(task, case.task, options=settings), Path(folder), OneReply("\n".join(lines))
        )
        attempts = list(begun.attempts())
        summary = begun.finish()
    first = attempts[1].tuned.proposed_score or attempts[1].score
    assert first is not None
    assert summary.final is not None
    return first.mean, summary.final.mean


def _code(expression: str) -> str:
    return f"`{expression}`" if expression else "none"


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    line = " | ".join("---" if i < 2 else "---:" for i in range(len(head)))
    return "\n".join([f"| {' | '.join(head)} |", f"| {line} |", *rows])


ABOUT = """# Objectives and potentials

Made with `make shaping`. The expressions were chosen on seeds below 100; the tables use seeds from 100 on. Intervals
are 95% (Student's t over seeds). All scores are returns, without any objective or potential.
"""
LEARNT = """## Q-learning with a potential

`--refine q` without advice on the task's own grid; ten seeds, one learner each. The columns show the return of the
table after so many episodes: exact for frozenlake8x8, over 20 fresh episodes for mountaincar.
"""
TUNED_ABOUT = """## CMA-ES with an objective

A poor hand-written policy, tuned by `--refine cma:500` for the return or for an objective. Scores before and after are
means over 100 fresh episodes per seed.
"""


def page(learnt_tables: Sequence[str], tuned: Sequence[str]) -> str:
    """The whole page."""
    found = _table(("task", "objective", "before", "after", "after, seed by seed", "CPU s"), tuned)
    return "\n\n".join([ABOUT.rstrip(), LEARNT.rstrip(), *learnt_tables, TUNED_ABOUT.rstrip(), found]) + "\n"


def shortened(case: Taught) -> Taught:
    """Two seeds and a tenth of the episodes, checked as often."""
    return replace(case, episodes=case.episodes // 10, checks=tuple(count // 10 for count in case.checks), seeds=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all tasks and write the page, after each row anew."""
    options = options_of("shaping.md", arguments)
    learnt_tables: list[str] = []
    tuned: list[str] = []

    def write() -> None:
        if not options.quick:
            write_atomically(options.out / "shaping.md", page(learnt_tables, tuned))

    for taught in TAUGHT:
        head = ("task", "potential", *(f"{count:,} episodes" for count in taught.checks), "CPU s")
        rows: list[str] = []
        learnt_tables.append("")
        for row in learnt_rows(shortened(taught) if options.quick else taught):
            print(row, flush=True)
            rows.append(row)
            learnt_tables[-1] = _table(head, rows)
            write()
    for case in TUNED:
        for row in tuned_rows(replace(case, episodes=case.episodes // 10, seeds=2) if options.quick else case):
            print(row, flush=True)
            tuned.append(row)
            write()


if __name__ == "__main__":
    main()
