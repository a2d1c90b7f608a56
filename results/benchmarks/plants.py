"""Measures what stands in plants.md: real episodes that tuning in a plant takes where the plant is none of Gymnasium's.

python results/benchmarks/plants.py [cma] [model] [page] [--tasks TASK ...] [--seeds SEED ...] [--anew]

No language model: proposals are `builtin`'s. Set OMP_NUM_THREADS=1. Every run is a row of plants.csv and is not made
again unless `--anew` forgets them all. `page` writes the table of plants.md from the rows, and leaves the text around
it.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from measurements import Measurements, parser_of

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import evaluate
from policygen.episodes.vector import Array, Dynamics, DynamicsEnv, StepResult

COLUMNS = ("task", "method", "seed", "episodes", "steps", "all_episodes", "all_steps", "score", "seconds")
MEASURED = Measurements("plants", COLUMNS)
CMA, MODEL = "cma", "model"
EPISODES, STEPS = 8_000, {"pendulum-torque": 20_000, "tank": 3_000}
FRESH = episode_seeds(23_000, "evaluation", 100)  # the same for every policy
SHARE = 0.05
DELAY, NOISE = 4, 0.03  # of the tank: seconds; m
TASK_FILE = """
name = "tank"
gym_id = "Tank-v0"
about = "Water flows into a tank after the valve's setting has travelled through a pipe, and out by its own weight."
reward = "-(level - wanted)^2"
max_steps = 100

[[observations]]
name = "level"
unit = "m"
[[observations]]
name = "wanted"
unit = "m"

[[actions]]
name = "valve"
"""


class Flow(Dynamics):
    """A tank whose inlet valve acts `DELAY` steps late and whose level is read with noise.

    A step lasts 1 s. The inflow raises the level by 0.15*valve, the outflow lowers it by 0.075*sqrt(level). A step pays
    minus the square of the distance between the true level and the wanted one. The state is the level, the wanted
    level, and the settings of the valve that are on their way, the oldest first.
    """

    observation_space = spaces.Box(np.array([-1, 0.5], np.float32), np.array([4, 1.5], np.float32))
    actions = 1  # a number
    noise_width = 1

    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Draw a level and a wanted one; the valve was closed."""
        level, wanted = random.uniform(0.2, 1.8), random.uniform(0.5, 1.5)
        read = level + NOISE * random.standard_normal()
        return np.array([level, wanted, *[0.0] * DELAY]), np.array([read, wanted])

    def advance(self, state: Array, actions: npt.NDArray[Any], noise: Array) -> StepResult:
        """Let a second pass."""
        level, wanted, *pipe = state
        pipe.append(np.clip(actions[:, 0], 0, 1))
        after = np.clip(level + 0.15 * pipe[0] - 0.075 * np.sqrt(level), 0, 2.5)
        read = np.stack([after + NOISE * noise[:, 0], wanted], axis=1)
        never = np.zeros(len(level), np.bool_)
        return StepResult(np.stack([after, wanted, *pipe[1:]]), read, -((level - wanted) ** 2), never)


class Tank(DynamicsEnv):
    """A single tank."""

    dynamics = Flow()

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        after = self.dynamics.advance(self.state[:, None], np.asarray(action)[None], self.np_random.normal(size=(1, 1)))
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), False, False, {}


gym.register("Tank-v0", Tank, max_episode_steps=100)


def measured(name: str, method: str, seed: int, folder: str) -> Iterator[dict[str, Any]]:
    """Run one search; yield a row for each attempt that became the best, and one for the end."""
    file = Path(folder) / "tank.toml"
    file.write_text(TASK_FILE)
    task = policygen.load_task(str(file) if name == "tank" else name, trust=True)
    settings: dict[str, Any] = {"policy": "linear", "jobs": 1, "final_episodes": 2, "iterations": 20}
    settings |= {"refine": "cma", "max_episodes": EPISODES} if method == CMA else {"refine": "model"}
    settings |= {"max_steps": STEPS[name]} if method == MODEL else {}
    found: list[Any] = []
    began = time.process_time()
    policygen.run(task, seed=seed, out=folder, on_attempt=found.append, **settings)
    seconds = round(time.process_time() - began, 1)
    last = found[-1].counts
    everything = {"all_episodes": last.episodes, "all_steps": last.env_steps, "seconds": seconds}
    best = [attempt for attempt in found if attempt.accepted and attempt.policy is not None]
    for attempt in best if method == MODEL else best[-1:]:
        counts = attempt.counts
        score = round(evaluate(attempt.policy, FRESH).mean, 4)
        yield {"episodes": counts.episodes, "steps": counts.env_steps, "score": score, **everything}


def record(task: str, method: str, seed: int) -> None:
    """Measure one search, unless it was measured before."""
    with tempfile.TemporaryDirectory() as folder:
        MEASURED.once((task, method, seed), lambda: measured(task, method, seed, folder))


def runs_of(task: str, method: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each run, in the order of seeds."""
    rows = itertools.groupby(MEASURED.rows(task, method), key=lambda row: row["seed"])
    return [list(of_seed) for _, of_seed in rows]


def lines() -> Iterator[str]:
    """Yield the table of plants.md."""
    yield "| task | method | score: median | score of each seed | episodes to the target: median | of each seed |"
    yield "| --- | --- | ---: | --- | ---: | --- |"
    for task in STEPS:
        if not (peers := runs_of(task, CMA)):
            continue
        scores = [run[-1]["score"] for run in peers]
        target = statistics.median(scores) - SHARE * abs(statistics.median(scores))
        yield line(task, f"--refine cma, {EPISODES:,} episodes", scores, "-", f"target: {target:.4g}")
        if not (runs := runs_of(task, MODEL)):
            continue
        reached = [next((row for row in run if row["score"] >= target), None) for run in runs]
        episodes = [np.inf if row is None else row["episodes"] for row in reached]
        each = " / ".join(
            f"> {run[-1]['all_episodes']:,.0f}"
            if row is None
            else f"{row['episodes']:,.0f} ({row['steps']:,.0f} steps)"
            for run, row in zip(runs, reached, strict=True)
        )
        median = f"{statistics.median(episodes):,.0f}".replace("inf", "-")
        yield line(task, f"--refine model, {STEPS[task]:,} steps", [run[-1]["score"] for run in runs], median, each)


def line(task: str, method: str, scores: list[float], episodes: str, each: str) -> str:
    """Return a row of the table."""
    all_scores = " / ".join(f"{score:.4g}" for score in scores)
    median = f"{statistics.median(scores):.4g}"
    return f"| {task} | {method} | {median} | {all_scores} | {episodes} | {each} |"


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's table."""
    asked = MEASURED.asked(parser_of(__doc__, range(230, 235)), STEPS, CMA, MODEL, "page")
    for method, seed, task in itertools.product((CMA, MODEL), asked.seeds, asked.tasks):
        if method in asked.what:
            record(task, method, seed)
    if "page" in asked.what:
        MEASURED.write_table(lines())


if __name__ == "__main__":
    main()
