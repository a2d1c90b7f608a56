"""Measures what stands in distill.md: readable policies from neural ones.

python results/benchmarks/distill.py [train] [distill] [page] [--tasks TASK ...] [--seeds SEED ...] [--anew]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODELS = Path("build/distill")


@dataclass(frozen=True)
class Teacher:
    """A model of Stable-Baselines3: its algorithm, its hyperparameters (rl-baselines3-zoo) and its steps."""

    gym_id: str
    algorithm: str
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: float = 0.0  # a learning rate that falls to 0
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
    "pendulum": Teacher(
        "Pendulum-v1", "sac", 8_000, {"learning_rate": 0.001, "policy_kwargs": {"net_arch": [64, 64]}}
    ),
}


def model_of(task: str, seed: int) -> Path:
    """Return the file of a teacher; train it if there is none."""
    teacher = TEACHERS[task]
    path = MODELS / f"{task}-{teacher.algorithm}-{seed}.zip"
    if path.is_file():
        return path
    import stable_baselines3  # an extra, and only for the training
    from stable_baselines3.common.env_util import make_vec_env

    settings = dict(teacher.settings)
    if teacher.schedule:
        settings["learning_rate"] = lambda left: left * teacher.schedule
    env = make_vec_env(teacher.gym_id, n_envs=teacher.envs, seed=seed)
    model = getattr(stable_baselines3, teacher.algorithm.upper())("MlpPolicy", env, seed=seed, device="cpu", **settings)
    model.learn(teacher.steps)
    model.save(path)
    return path


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="train|distill|page", help="all by default")
    parser.add_argument("--tasks", nargs="+", choices=list(TEACHERS), default=list(TEACHERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(282, 287)))
    asked = parser.parse_args()
    for seed, task in itertools.product(asked.seeds, asked.tasks):
        print(model_of(task, seed), flush=True)


if __name__ == "__main__":
    main()
