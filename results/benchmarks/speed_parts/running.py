"""Speed of running: what a prompt holds, what policygen itself takes of a run, how soon help is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from policygen.episodes.evidence import arrived
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task
from speed_parts.rows import Missing, Row, absolute, compared, within


def prompt(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """Measure the length of a prompt in characters."""
    yield absolute(
        "prompt: four 500-step episodes, a failed one, the best policy, 20 attempts",
        [long_prompt_characters()],
        9_000,
        "9,000 characters",
        unit="characters",
    )


# Keeps the pole up for 500 steps from 19 of the 20 starts.
_NEARLY_PERFECT = """
| 2 | 1 | 1 | 2 | right |
| * | * | 4,5 | 2-5 | right |
| * | * | 2,3 | 3-5 | right |
| * | * | * | * | left |
"""


def long_prompt_characters() -> int:
    """Characters of the prompt after 20 attempts at CartPole, one of them no policy, with an incumbent that fails once.

    It shows four episodes of 500 steps and the failed one.
    """
    from policygen.episodes.score import sampled_score
    from policygen.prompts.render import render_prompt
    from policygen.runs.attempt import Attempt, Played, saved
    from policygen.runs.config import effective_config
    from policygen.search.loop import new_search

    task = load_task("cartpole")
    assert task.grid is not None
    config = effective_config(task, "cartpole")
    search = new_search(task)
    rng = np.random.default_rng(0)
    best = parse(_NEARLY_PERFECT, task).policy
    assert isinstance(best, TablePolicy)
    seeds = episode_seeds(0, "bench", 20)
    with Simulator(task) as simulator:
        for number in range(1, 21):
            if number == 10:
                search.add(Attempt(number, None, None, problems=parse("go left", task).problems))
                continue
            actions = best.actions.copy()
            changed = rng.integers(task.grid.size, size=12)
            actions[changed] = 1 - actions[changed]
            policy = best if number == 15 else TablePolicy.from_actions(task, actions)
            trajectories = simulator.play(policy, seeds)
            search.buffer.add(arrived(number, trajectories, task))
            short = Played.of(trajectories)
            score = sampled_score(trajectories, simulator.engine)
            search.add(Attempt(number, saved(policy), score, short, accepted=number in (1, 15)))
        search.best = search.attempts[14]
        search.best_score = search.best.score
    return render_prompt(replace(search.context(config), number=21), config).characters


def overhead(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """The share of a run that policygen itself takes."""
    own_share(0)  # templates and modules are loaded once a process, not once a run
    runs = [own_share(seed) for seed in range(1, 2 if quick else repeats + 1)]
    what = "CartPole run of 20 iterations, 100 episodes a score: neither stepping nor proposing"
    shares = [share.complete for share in runs]
    yield absolute(what, shares, 0.10, "10% of the wall time, builtin proposing", unit="share", bar="at most 10%")
    for name, some in (
        (f"{what}; the search alone", [share.search for share in runs]),
        (f"{what}; replies cost no time", [share.without_waiting for share in runs]),
    ):
        yield absolute(name, some, 1.0, "the whole, without a bar", unit="share", bar="")


@dataclass(frozen=True, slots=True)
class OwnShare:
    """The share of a run's wall time that is neither environment stepping nor waiting for proposals.

    `complete` is from the start to the last file and picture; `search` leaves out the final score, the saved buffer
    and the picture; `without_waiting` is what is left of a complete run where proposals cost no time at all.
    """

    complete: float
    search: float
    without_waiting: float


def own_share(seed: int) -> OwnShare:
    """Measure one run in which `builtin` proposes."""
    from policygen.runs.config import effective_config
    from policygen.search.run import start

    task = load_task("cartpole")
    config = effective_config(
        task, "cartpole", options={"seed": seed, "episodes": 100, "iterations": 20, "stop_at": 1e9}
    )
    stepping = 0.0
    original = Simulator.play

    def clocked(self: Simulator, *arguments: Any) -> list[Trajectory]:
        nonlocal stepping
        started = time.perf_counter()
        try:
            return original(self, *arguments)
        finally:
            stepping += time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        Simulator.play = clocked  # type: ignore[method-assign, assignment]
        try:
            started = time.perf_counter()
            run = start(task, config, Path(folder))
            for _ in run.attempts():
                pass
            search, stepped = time.perf_counter() - started, stepping
            run.finish()
            whole = time.perf_counter() - started
        finally:
            Simulator.play = original  # type: ignore[method-assign]
    waiting = run.ledger.llm_seconds
    own = whole - stepping - waiting
    return OwnShare(own / whole, (search - stepped - waiting) / search, own / (whole - waiting))


def help_text(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """Time `policygen --help`, compared with `import numpy`."""

    def command(*arguments: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    yield compared(
        "policygen --help",
        command("-m", "policygen", "--help"),
        command("-c", "import numpy"),
        "import numpy",
        repeats=repeats,
        bar=within(3),
    )
