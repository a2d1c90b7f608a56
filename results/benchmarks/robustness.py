"""Measures what stands in robustness.md: policies searched with and without perturbations of the environment.

python results/benchmarks/robustness.py [run] [page] [--tasks TASK ...] [--seeds SEED ...] [--anew]

No language model: proposals are `builtin`'s. Set OMP_NUM_THREADS=1. Every score is a row of robustness.csv and is not
made again unless `--anew` forgets them all. `page` draws robustness.png and writes the table of robustness.md.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from measurements import Measurements, parser_of

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import evaluate
from policygen.extensions.plots.style import OKABE_ITO, save, style
from policygen.tasks.task import Perturbation, perturbation

MEASURED = Measurements("robustness", ("task", "trained", "seed", "scale", "score", "episodes"))
RANGES = {
    "cartpole": {"action_delay": (0, 2), "sensor_noise": (0, 0.1)},
    "pendulum": {"action_delay": (0, 3), "sensor_noise": (0, 0.1), "actuator_gain": (0.7, 1.3)},
    "inverted-pendulum": {"sensor_noise": (0, 0.1), "mass": (0.6, 1.4), "motor": (0.6, 1.4)},
}
SCALES = (0, 0.5, 1, 1.5, 2)  # of the deviations from nominal; 1 is what the randomised searches saw
TRAININGS = ("nominal", "randomised")
FRESH = episode_seeds(26_000, "evaluation", 100)  # the same for every policy


def scaled(task: str, scale: float) -> tuple[Perturbation, ...]:
    """Return the task's perturbations with deviations from nominal that are `scale` times as large."""
    found = []
    for name, (low, high) in RANGES[task].items():
        if name == "action_delay":
            found.append(perturbation(name, 0, round(high * scale)))
        elif name == "sensor_noise":
            found.append(perturbation(name, 0, high * scale))
        else:
            found.append(perturbation(name, 1 - (1 - low) * scale, 1 + (high - 1) * scale))
    return tuple(found) if scale else ()


def measured(name: str, trained: str, seed: int) -> list[dict[str, Any]]:
    """Run one search; return the scores of its policy at each scale."""
    task = policygen.load_task(name)
    trial = replace(task, perturb=scaled(name, 1)) if trained == "randomised" else task
    with tempfile.TemporaryDirectory() as folder:
        run = policygen.run(
            trial,
            **{"policy": "linear", "refine": "cma", "iterations": 3, "jobs": 1, "final_episodes": 2, "seed": seed},
            out=folder,
        )
    rows = []
    for scale in SCALES:
        score = evaluate(run.policy, FRESH, task=replace(task, perturb=scaled(name, scale)))
        rows.append({"scale": scale, "score": round(score.mean, 4), "episodes": score.episodes})
    return rows


def scores(task: str, trained: str, scale: float) -> list[float]:
    """Return the scores of all seeds, in their order."""
    return [row["score"] for row in MEASURED.rows(task, trained) if row["scale"] == scale]


def lines() -> Iterator[str]:
    """Yield the table of robustness.md."""
    yield "| task | search | nominal | half | as drawn in randomised searches | 1.5 times | twice |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for task, trained in itertools.product(RANGES, TRAININGS):
        cells = []
        for scale in SCALES:
            found = scores(task, trained, scale)
            cells.append(f"{statistics.median(found):.4g} ({min(found):.4g} to {max(found):.4g})")
        yield f"| {task} | {trained} | {' | '.join(cells)} |"


def picture() -> Figure:
    """Draw the median score over the scale of the perturbations, with each seed as a thin line."""
    with style():
        figure = Figure(figsize=(9, 3), layout="constrained")
        for panel, task in zip(figure.subplots(1, len(RANGES)), RANGES, strict=True):
            for trained, colour in zip(TRAININGS, OKABE_ITO, strict=False):
                found = [scores(task, trained, scale) for scale in SCALES]
                panel.plot(SCALES, found, color=colour, alpha=0.3, linewidth=0.8)
                panel.plot(SCALES, [statistics.median(some) for some in found], "o-", color=colour, label=trained)
            panel.set_title(task)
            panel.set_xlabel("size of the perturbations")
        figure.axes[0].set_ylabel("mean return")
        figure.axes[0].legend(title="environment of the search")
    return figure


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's table and picture."""
    asked = MEASURED.asked(parser_of(__doc__, range(260, 265)), RANGES, "run", "page")
    if "run" in asked.what:
        for seed, task, trained in itertools.product(asked.seeds, asked.tasks, TRAININGS):
            MEASURED.once((task, trained, seed), functools.partial(measured, task, trained, seed))
    if "page" in asked.what:
        MEASURED.write_table(lines())
        save(picture(), MEASURED.page.with_suffix(".png"))


if __name__ == "__main__":
    main()
