"""What advice is worth to a learner: `python -m policygen.reports.adviser` measures it and writes a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import finite_mdp
from policygen.episodes.optimum import expected_return
from policygen.episodes.sampled import Sampler
from policygen.episodes.score import episode_seeds, half_interval
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Actor
from policygen.files import write_atomically
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.search.refine.lessons import Board, board_of, with_entries
from policygen.search.refine.q import Course, discount_of, learnt
from policygen.tasks.load import load_task

SEEDS = range(100, 110)
WITHIN = 0.02  # of the optimum
HELD = 5  # checks in a row that a table must be within it
SCORED_ON = 20  # episodes, where the return is not exact; a check every fifth batch
Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """A task, whose words the advice is written in, how many episodes a learner has, and where the advice is from."""

    task: str
    written_for: str
    file: str
    episodes: int
    source: str


CHAT = "the table of a chat model's one-reply run ({}), its actions put into the cells of the task's grid"
CASES = (
    Case("taxi", "Taxi-v4", "taxi.txt", 1_500, CHAT),
    Case("cliffwalking", "CliffWalkingSlippery-v1", "cliffwalking-slippery.txt", 1_500, CHAT),
    Case("frozenlake8x8", "FrozenLake8x8-v1", "frozenlake8x8.txt", 2_000, CHAT),
    Case(
        "cartpole", "cartpole", "cartpole-first-of-builtin.txt", 400, "`builtin`'s first table ({}), no language model"
    ),
)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One learner's way: the first of `HELD` checks within the optimum (None: not so soon), and what it ended at."""

    reached: int | None
    first: float
    last: float


class Field:
    """Where the learners of one task play, and what their tables are worth."""

    def __init__(self, case: Case) -> None:
        self.case, self.task, self.mdp = case, load_task(case.task), finite_mdp(load_task(case.task))
        assert self.task.optimum is not None
        assert self.task.grid is not None
        self.enough = self.task.optimum.value - WITHIN * abs(self.task.optimum.value)
        self.blank = TablePolicy.from_actions(self.task, np.zeros(self.task.grid.size))
        self.board: Board = board_of(self.blank, len(self.mdp.start) if self.mdp is not None else None)
        self._sampler = Sampler(self.mdp, self.task.max_steps) if self.mdp is not None else None
        self._simulator = Simulator(self.task)

    def practice(self, actor: Actor, seeds: Sequence[int]) -> None:
        """Play, one episode for each seed."""
        if self._sampler is not None:
            self._sampler.play(actor, seeds)
        else:
            self._simulator.play(actor, seeds)

    def value(self, table: Table, seed: int) -> float:
        """The expected return, exact where the MDP is known, else on episodes of the seed's own."""
        if self.mdp is not None:
            states = np.arange(len(self.mdp.start)).reshape(-1, 1)
            return expected_return(self.mdp, table[self.board.read(states)], self.task.max_steps)
        played = self._simulator.play(with_entries(self.blank, table), episode_seeds(seed, "check", SCORED_ON))
        return float(np.mean([trajectory.episode_return for trajectory in played]))

    def advice(self, folder: Path) -> Table:
        """The advice of the case, by cells of the task's own grid."""
        policy = parse((folder / self.case.file).read_text(encoding="utf-8"), load_task(self.case.written_for)).policy
        assert isinstance(policy, TablePolicy)
        if self.mdp is None:
            assert policy.grid == self.task.grid
            return np.asarray(policy.actions, np.int64)
        states = np.arange(len(self.mdp.start)).reshape(-1, 1)
        table = np.zeros(self.board.cells, np.int64)
        table[self.board.read(states)] = policy.act(states)
        return table

    def learn(self, advice: Table | None, seed: int) -> Lesson:
        """One learner's way; it ends early where the optimum is held."""
        course = Course(self.practice, partial(_seeds, seed), self.case.episodes, discount_of(self.task))
        checks: list[tuple[int, float]] = []
        rng = np.random.default_rng([seed, 1])
        for number, (played, table) in enumerate(learnt(self.board, course, rng, advice=advice)):
            if self.mdp is None and number % 5 and played < self.case.episodes:
                continue
            checks.append((played, self.value(table, seed)))
            if len(checks) >= HELD and all(value >= self.enough for _, value in checks[-HELD:]):
                return Lesson(checks[-HELD][0], checks[0][1], checks[-1][1])
        return Lesson(None, checks[0][1], checks[-1][1])


def _seeds(seed: int, first: int, count: int) -> tuple[int, ...]:
    return episode_seeds(seed, "learn", count, first)


def bad(kind: str, good: Table, actions: int, rng: np.random.Generator) -> Table:
    """Advice that is drawn at random, or names in every cell an action other than the good one."""
    if kind == "random":
        return rng.integers(actions, size=len(good))
    return (good + rng.integers(1, actions, size=len(good))) % actions


def measured(case: Case, folder: Path, seeds: Sequence[int] = SEEDS) -> Iterator[str]:
    """The rows of one task, as Markdown."""
    field = Field(case)
    good = field.advice(folder)
    source = case.source.format(f"`results/policies/{case.file}`")
    kinds: dict[str, Callable[[int], Table | None]] = {
        "none": lambda seed: None,
        source: lambda seed: good,
        "random": lambda seed: bad("random", good, field.board.actions, np.random.default_rng([seed, 2])),
        "inverted": lambda seed: bad("inverted", good, field.board.actions, np.random.default_rng([seed, 3])),
    }
    for name, table_of in kinds.items():
        started = time.process_time()
        lessons = [field.learn(table_of(seed), seed) for seed in seeds]
        seconds = time.process_time() - started
        worth = f"{field.value(good, 0):.4g}" if name == source else ""
        yield (
            f"| {case.task} | {name} | {worth} | {reached_in_words(lessons, case.episodes)} | "
            f"{with_interval([lesson.first for lesson in lessons])} | "
            f"{with_interval([lesson.last for lesson in lessons])} | {seconds:.0f} |"
        )


def reached_in_words(lessons: Sequence[Lesson], episodes: int) -> str:
    """How many learners reached the optimum, and after how many episodes: median, least and most."""
    soon = sorted(lesson.reached if lesson.reached is not None else episodes + 1 for lesson in lessons)
    count = sum(lesson.reached is not None for lesson in lessons)

    def shown(value: float) -> str:
        return f"{value:,.0f}" if value <= episodes else f"more than {episodes:,}"

    if not count:
        return f"0 of {len(soon)}; {shown(soon[-1])}"
    return f"{count} of {len(soon)}; {shown(float(np.median(soon)))} ({shown(soon[0])} to {shown(soon[-1])})"


def with_interval(values: Sequence[float]) -> str:
    """The mean with Student's 95% interval."""
    return f"{np.mean(values):.4g} ± {half_interval(values):.2g}"


HEADER = f"""# What advice is worth to a learner

Q-learning (`--refine q`) from nothing, from a good table, from a random one and from one that names another action in
every cell. Seeds {SEEDS[0]} to {SEEDS[-1]}, one learner each; intervals are 95%. An optimum counts as reached with the
first of {HELD} checks in a row within {100 * WITHIN:g}% of it: exact returns after every batch (about 1% of the
episodes), on CartPole {SCORED_ON} episodes after every fifth batch. Episodes that first try the advice and random
actions are counted. A learner that reached the optimum stops there, which is where its return "at the end" is from.
Made with `make adviser`.

| task | advice | its own return | learners that reach the optimum; episodes | first check | at the end | CPU s |
| --- | --- | ---: | --- | ---: | ---: | ---: |
"""


def main(folder: Path = Path("results")) -> None:
    """Measure all tasks and write `benchmarks/adviser.md`, after each task anew."""
    rows: list[str] = []
    for case in CASES:
        for row in measured(case, folder / "policies"):
            print(row, flush=True)
            rows.append(row)
        write_atomically(folder / "benchmarks" / "adviser.md", HEADER + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
