"""Measure the figures of adviser.md: the effect of advice on Q-learning.

python results/benchmarks/adviser.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import Sampler, expected_return, finite_mdp
from policygen.episodes.score import episode_seeds, half_interval
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Actor
from policygen.extensions.learners.q import CellView, Vector, learn_tables
from policygen.files import write_atomically
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.runs.facts import plus_minus
from policygen.search.refine.tables import with_entries
from policygen.tasks.load import load_task

HERE = Path(__file__).parent
SEEDS = range(100, 110)
WITHIN = 0.02  # of the optimum
HELD = 5  # checks in a row that a table must be within it
SCORED_ON = 20  # episodes, where the return is not exact; a check every other batch
Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """A task, the file of the good advice, and how many episodes a learner has."""

    task: str
    file: str
    episodes: int


CASES = (
    Case("taxi", "taxi-first-reply.txt", 4_000),
    Case("cliffwalking", "cliffwalking-first-reply.txt", 4_000),
    Case("frozenlake8x8", "frozenlake8x8-first-reply.txt", 6_000),
    Case("cartpole", "cartpole-first-reply.txt", 5_000),
)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One learner's way: the first of `HELD` checks within the optimum (None: not so soon), and what it ended at."""

    reached: int | None
    last: float


class Field:
    """A task for learners: it plays their episodes and scores their tables."""

    def __init__(self, case: Case) -> None:
        self.case, self.task, self.mdp = case, load_task(case.task), finite_mdp(load_task(case.task))
        assert self.task.optimum is not None
        assert self.task.grid is not None
        self.enough = self.task.optimum.value - WITHIN * abs(self.task.optimum.value)
        self.blank = TablePolicy.from_actions(self.task, np.zeros(self.task.grid.size))
        self.states = len(self.mdp.start) if self.mdp is not None else None
        self.view = CellView(self.blank, self.states)
        self._sampler = Sampler(self.mdp, self.task.max_steps) if self.mdp is not None else None
        self._simulator = Simulator(self.task)

    def practice(self, actor: Actor, seeds: Sequence[int]) -> Vector:
        """Play one episode for each seed, and return their returns."""
        if self._sampler is not None:
            return self._sampler.play(actor, seeds)[0]
        return np.array([trajectory.episode_return for trajectory in self._simulator.play(actor, seeds)])

    def value(self, table: Table, seed: int) -> float:
        """The expected return, exact where the MDP is known, else on episodes of the seed's own."""
        if self.mdp is not None:
            states = np.arange(len(self.mdp.start)).reshape(-1, 1)
            return expected_return(self.mdp, table[self.view.read(states)], self.task.max_steps)
        played = self._simulator.play(with_entries(self.blank, table), episode_seeds(seed, "check", SCORED_ON))
        return float(np.mean([trajectory.episode_return for trajectory in played]))

    def advice(self, folder: Path) -> Table:
        """The advice of the case, by cells of the task's own grid."""
        policy = parse((folder / self.case.file).read_text(encoding="utf-8"), self.task).policy
        assert policy is not None
        if self.mdp is None:
            return np.asarray(policy.act(middles(self.blank.grid)), np.int64)
        states = np.arange(len(self.mdp.start)).reshape(-1, 1)
        table = np.zeros(self.view.cells, np.int64)
        table[self.view.read(states)] = policy.act(states)
        return table

    def learn(self, advice: Table | None, seed: int) -> Lesson:
        """One learner's way; it ends early where the optimum is held."""
        checks: list[tuple[int, float]] = []
        seeds, rng = partial(_seeds, seed), np.random.default_rng([seed, 1])
        tables = learn_tables(self.view, self.practice, seeds, self.case.episodes, rng, advice=advice)
        for number, (played, table) in enumerate(tables):
            if self.mdp is None and number % 2 and played < self.case.episodes:
                continue
            checks.append((played, self.value(table, seed)))
            if len(checks) >= HELD and all(value >= self.enough for _, value in checks[-HELD:]):
                return Lesson(checks[-HELD][0], checks[-1][1])
        return Lesson(None, checks[-1][1])


def _seeds(seed: int, first: int, count: int) -> tuple[int, ...]:
    return episode_seeds(seed, "learn", count, first)


def middles(grid: Grid) -> npt.NDArray[np.float64]:
    """The middle of every cell, shape (cells, dimensions); an outermost bin counts as wide as the others on average."""
    points = []
    for dimension in grid.dimensions:
        edges = np.array(dimension.edges)
        half = (edges[-1] - edges[0]) / max(len(edges) - 1, 1) / 2 or 0.5
        points.append(np.concatenate([[edges[0] - half], (edges[1:] + edges[:-1]) / 2, [edges[-1] + half]]))
    return np.stack([column.ravel() for column in np.meshgrid(*points, indexing="ij")], axis=1)


def bad(kind: str, good: Table, actions: int, rng: np.random.Generator) -> Table:
    """Advice that is drawn at random, or names in every cell an action other than the good one."""
    if kind == "random":
        return rng.integers(actions, size=len(good))
    return (good + rng.integers(1, actions, size=len(good))) % actions


def measured(case: Case, folder: Path, seeds: Sequence[int] = SEEDS) -> Iterator[str]:
    """The rows of one task, as Markdown."""
    field = Field(case)
    good = field.advice(folder)
    kinds: dict[str, Callable[[int], Table | None]] = {
        "none": lambda seed: None,
        "a chat model's": lambda seed: good,
        "random": lambda seed: bad("random", good, field.view.actions, np.random.default_rng([seed, 2])),
        "inverted": lambda seed: bad("inverted", good, field.view.actions, np.random.default_rng([seed, 3])),
    }
    alone: list[Lesson] = []
    for name, table_of in kinds.items():
        started = time.process_time()
        tables = [table_of(seed) for seed in seeds]
        lessons = [field.learn(table, seed) for table, seed in zip(tables, seeds, strict=True)]
        seconds = time.process_time() - started
        alone = alone or lessons
        worth = [field.value(table, seed) for table, seed in zip(tables, seeds, strict=True) if table is not None]
        cells = (
            case.task,
            name,
            f"{np.mean(worth):.4g}" if worth else "",
            *reached_in_words(lessons, case.episodes),
            with_interval([episodes_of(lesson, case.episodes) for lesson in lessons]),
            times_in_words(lessons, alone, case.episodes) if lessons is not alone else "1",
            with_interval([lesson.last for lesson in lessons]),
            f"{seconds:.0f}",
        )
        yield f"| {' | '.join(cells)} |"


def episodes_of(lesson: Lesson, budget: int) -> int:
    """Until the optimum; the whole budget where it was not reached."""
    return budget if lesson.reached is None else lesson.reached


def reached_in_words(lessons: Sequence[Lesson], budget: int) -> tuple[str, str]:
    """Return the number of learners that reached the optimum, and their episodes: median (least to most)."""
    soon = sorted(lesson.reached if lesson.reached is not None else budget + 1 for lesson in lessons)
    count = sum(lesson.reached is not None for lesson in lessons)

    def shown(value: float) -> str:
        return f"{value:,.0f}" if value <= budget else f"more than {budget:,}"

    return f"{count} of {len(soon)}", f"{shown(float(np.median(soon)))} ({shown(soon[0])} to {shown(soon[-1])})"


def times_in_words(lessons: Sequence[Lesson], others: Sequence[Lesson], budget: int) -> str:
    """Return the ratio of episodes needed to those of `others`: geometric mean over seeds (95% interval)."""
    pairs = [[episodes_of(one, budget) for one in pair] for pair in zip(lessons, others, strict=True)]
    logs = [float(np.log(one / other)) for one, other in pairs]
    mean, half = float(np.mean(logs)), half_interval(logs)
    return f"{np.exp(mean):.2f} ({np.exp(mean - half):.2f} to {np.exp(mean + half):.2f})"


def with_interval(values: Sequence[float]) -> str:
    """The mean with Student's 95% interval."""
    return plus_minus(values, ".4g", ".2g")


HEADER = f"""# Advice for Q-learning

A tabular Q-learner (`--refine q`) has to find a table of actions whose return is within {100 * WITHIN:g}% of the
optimum. It starts with no advice, or with a table as advice: the first reply of a chat model to policygen's prompt
(`results/policies/TASK-first-reply.txt`), a random table, or a table that is wrong in every cell ("inverted": any
action except the chat model's).

Each row is for ten learners, seeds {SEEDS[0]} to {SEEDS[-1]}; nothing was tuned on these seeds. All episodes count,
including up to 64 at the beginning that try the advice and random actions, so that no learner with advice needs fewer.
A learner has reached the optimum at the first of {HELD} consecutive checks within {100 * WITHIN:g}% of it. A check
computes the exact return after each batch of episodes (1% of the budget, later a sixteenth of the episodes so far); on
CartPole it plays {SCORED_ON} episodes, after every other batch. Intervals are 95%, Student's t. "Times none" is the
ratio to the episodes without advice on the same seed, as a geometric mean. A learner that does not reach the optimum
counts with its whole budget, so its row understates means and ratios. Made with `make adviser`.

CartPole is learned over the 324 cells of the task. The chat model's rule (a weighted sum of the four quantities, which
scores 500 of 500) is rounded to its action in the middle of each cell. Tables within {100 * WITHIN:g}% of the optimum
come and go there: a learner that ends with such a table, but without {HELD} consecutive checks, does not count.

| task | advice | its return | optimum reached | episodes: median (range) | mean | times none | final return | CPU s |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def options_of(page: str, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """`--quick` and `--out` of a script that writes a page."""
    parser = argparse.ArgumentParser(description=f"Measure the figures of {page}, and write it anew after each row.")
    parser.add_argument("--quick", action="store_true", help="two seeds, a tenth of the episodes; nothing is written")
    parser.add_argument("--out", type=Path, default=HERE, help=f"folder of {page} (default: beside this script)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all tasks and write the page, after each task anew."""
    options = options_of("adviser.md", arguments)
    rows: list[str] = []
    for case in CASES:
        some = (replace(case, episodes=case.episodes // 10), SEEDS[:2]) if options.quick else (case, SEEDS)
        for row in measured(some[0], HERE.parent / "policies", some[1]):
            print(row, flush=True)
            rows.append(row)
        if not options.quick:
            write_atomically(options.out / "adviser.md", HEADER + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
