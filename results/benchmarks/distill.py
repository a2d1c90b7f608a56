"""Measures what stands in distill.md: readable policies from two models of Stable-Baselines3.

python results/benchmarks/distill.py [run] [page] [--tasks TASK ...] [--kinds KIND ...] [--seeds SEED ...] [--anew]

Needs `pip install "policygen[bench]"`. Set OMP_NUM_THREADS=1. The teachers are trained if build/distill has none. Every
student is a row of distill.csv and is not made again unless `--anew` forgets them all. `page` writes the table of
distill.md.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measurements import Measurements, parser_of

import policygen
from policygen.episodes.score import difference
from policygen.extensions import distill
from policygen.runs.config import effective_config
from policygen.runs.reading import read_agent
from policygen.search.run import carry_out, start

MODELS = Path("build/distill")
COLUMNS = (
    *("task", "kind", "seed", "teacher", "teacher_half", "before", "before_half", "after", "after_half"),
    *("difference", "difference_half", "share", "numbers", "steps"),
)
MEASURED = Measurements("distill", COLUMNS)
TRAINED_WITH = 300  # seed of both trainings
ROUNDS = 6


@dataclass(frozen=True)
class Teacher:
    """A model of Stable-Baselines3: its algorithm, its hyperparameters and its steps.

    `schedule` is a learning rate that falls to 0, as rl-baselines3-zoo has it for CartPole.
    """

    gym_id: str
    algorithm: str
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: float = 0.0
    envs: int = 1


TEACHERS = {
    "cartpole": Teacher(
        "CartPole-v1",
        "ppo",
        100_000,
        {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "clip_range": 0.2},
        schedule=0.001,
        envs=8,
    ),
    "pendulum": Teacher("Pendulum-v1", "sac", 8_000, {"learning_rate": 0.001, "policy_kwargs": {"net_arch": [64, 64]}}),
}
KINDS = ("equations", "table")


def model_of(task: str) -> str:
    """Return the teacher as `policygen distill` takes it; train it if there is none."""
    teacher = TEACHERS[task]
    path = MODELS / f"{task}-{teacher.algorithm}-{TRAINED_WITH}.zip"
    if not path.is_file():
        import stable_baselines3  # only the training needs it here
        from stable_baselines3.common.env_util import make_vec_env

        settings = dict(teacher.settings)
        if teacher.schedule:
            settings["learning_rate"] = lambda left: left * teacher.schedule
        env = make_vec_env(teacher.gym_id, n_envs=teacher.envs, seed=TRAINED_WITH)
        algorithm = getattr(stable_baselines3, teacher.algorithm.upper())
        model = algorithm("MlpPolicy", env, seed=TRAINED_WITH, device="cpu", **settings)
        model.learn(teacher.steps)
        MODELS.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return f"{teacher.algorithm}:{path}"


def measured(name: str, kind: str, seed: int) -> list[dict[str, Any]]:
    """Distil a teacher with the defaults of `policygen distill` except for the rounds; return a row."""
    task, model = policygen.load_task(name), model_of(name)
    teacher = read_agent(model, task, trust=True)
    options: dict[str, Any] = {"policy": kind, "seed": seed, "jobs": 1, "fragility": False}
    config = effective_config(task, name, suite=distill.DEFAULTS, options=options)
    best = distill.distilled(teacher, task, config, rounds=ROUNDS)
    options["start"] = distill.text_of(best.policy, model)
    with tempfile.TemporaryDirectory() as folder:
        run = start(task, effective_config(task, name, suite=distill.DEFAULTS, options=options), Path(folder))
        carry_out(run)
    kept = distill.compare_with_teacher(teacher, best.policy, run)
    gain = difference(kept.after, kept.teacher)
    row = {"share": kept.share, "difference": gain.gain, "difference_half": gain.half}
    for column, score in (("teacher", kept.teacher), ("before", kept.before), ("after", kept.after)):
        assert score.ci95 is not None
        row |= {column: score.mean, f"{column}_half": (score.ci95[1] - score.ci95[0]) / 2}
    figures = {name: None if value is None else f"{value:.6g}" for name, value in row.items()}
    return [{**figures, "numbers": kept.numbers, "steps": best.steps}]


def lines() -> Iterator[str]:
    """Yield the table of distill.md."""
    yield "| task | student | seed | teacher | student before tuning | student | difference | kept | numbers |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, kind in itertools.product(TEACHERS, KINDS):
        rows = MEASURED.rows(name, kind)
        for row in rows:
            scores = [f"{row[one]:.4g} ± {row[f'{one}_half']:.2g}" for one in ("teacher", "before", "after")]
            gain = f"{row['difference']:+.4g} ± {row['difference_half']:.2g}"
            cells = [name, kind, f"{row['seed']:.0f}", *scores, gain, f"{row['share']:.1%}", f"{row['numbers']:.0f}"]
            yield f"| {' | '.join(cells)} |"
        if rows:
            middle = [statistics.median(row[one] for row in rows) for one in ("teacher", "before", "after")]
            share, size = (statistics.median(row[one] for row in rows) for one in ("share", "numbers"))
            cells = [*(f"{one:.4g}" for one in middle), "", f"{share:.1%}", f"{size:g}"]
            yield f"| {name} | {kind} | median | {' | '.join(cells)} |"


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's table."""
    parser = parser_of(__doc__, range(282, 287))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = MEASURED.asked(parser, TEACHERS, "run", "page")
    if "run" in asked.what:
        for seed, name, kind in itertools.product(asked.seeds, asked.tasks, asked.kinds):
            MEASURED.once((name, kind, seed), functools.partial(measured, name, kind, seed))
    if "page" in asked.what:
        MEASURED.write_table(lines())


if __name__ == "__main__":
    main()
