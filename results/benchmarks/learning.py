"""Measures what stands in learning.md: steps and CPU time until a task's threshold, here and by gradient learners.

python results/benchmarks/learning.py [ours] [plant] [withheld] [peers] [page] [--tasks TASK ...] [--seeds SEED ...]
    [--minutes N] [--anew]

`peers` needs `pip install "policygen[bench,mujoco]"`. Set OMP_NUM_THREADS=1: times are those of one core. Every
measurement is a row of learning.csv and is not made again unless `--anew` forgets them all, as `make learning` does.
`page` writes the table of learning.md from the rows, and leaves the text around it.
"""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from measurements import Measurements, parser_of

import policygen
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import evaluate
from policygen.extensions.plants.plant import FITTED_PLANT

HERE = Path(__file__).parent
COLUMNS = ("task", "method", "seed", "ended", "steps", "seconds", "mean", "best", "checks", "played")
MEASURED = Measurements("learning", COLUMNS)
OURS, WITHHELD = "policygen", "policygen, knowledge withheld"
PLANT = "policygen --refine model"
PLANT_WITHHELD = f"{PLANT}, knowledge withheld"
PLANT_STEPS = 5_000  # of a whole run with PLANT, judging included
LOOK, CONFIRM = 20, 100  # episodes of a check, and of the one that decides
FACTOR = 10  # a peer stops at so many times our steps


@dataclass(frozen=True)
class Case:
    """A task, its threshold of Gymnasium, how it is run here, and how many steps lie between two checks of a peer.

    `in_plant` and `withheld` are the seeds of runs with PLANT, and with PLANT_WITHHELD.
    """

    gym_id: str
    threshold: float
    every: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    # A recorded run of a chat model without a task file; where there is none, `builtin` proposes, no language model.
    transcript: str = ""
    features: bool = False  # whether it tunes over quantities that the task file derives, which `ablate` withholds
    in_plant: Sequence[int] = ()
    withheld: Sequence[int] = ()


SEEDS, PEER_SEEDS = range(400, 403), range(100, 103)
FRESH = range(400, 410)  # seeds that nothing was developed on
CASES = {
    "cartpole": Case("CartPole-v1", 475, 1_000, in_plant=FRESH),
    "acrobot": Case("Acrobot-v1", -100, 5_000, in_plant=FRESH),
    "mountaincar": Case("MountainCar-v0", -110, 5_000, features=True, in_plant=FRESH, withheld=FRESH[:5]),
    "mountaincar-continuous": Case("MountainCarContinuous-v0", 90, 5_000, in_plant=FRESH),
    "pendulum": Case("Pendulum-v1", -200, 5_000, in_plant=FRESH),
    "inverted-pendulum": Case("InvertedPendulum-v5", 950, 5_000, in_plant=FRESH[:5]),
    "inverted-double-pendulum": Case("InvertedDoublePendulum-v5", 9_100, 5_000),
    "reacher": Case("Reacher-v5", -3.75, 5_000),
    "swimmer": Case("Swimmer-v5", 360, 20_000, {"iterations": 2}, transcript="transcripts/swimmer"),
}

# rl-baselines3-zoo, hyperparams/{ppo,sac,ars}.yml. `zoo_steps`: over which a schedule falls to 0. `normalize`: of
# observations and rewards, or of observations alone.
_ARS = {
    "policy": "MlpPolicy", "learning_rate": 0.018, "n_delta": 4, "n_top": 1, "delta_std": 0.1, "zero_policy": False,
    "policy_kwargs": {"net_arch": [16]}, "normalize": "observations",
}  # fmt: skip
PEERS: dict[str, dict[str, dict[str, Any]]] = {
    "cartpole": {
        "PPO": {
            "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
            "ent_coef": 0.0, "learning_rate": 0.001, "clip_range": 0.2, "zoo_steps": 100_000,
        },
        "ARS": {"policy": "LinearPolicy", "n_delta": 2},
    },
    "acrobot": {
        "PPO": {
            "normalize": "both", "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4,
            "ent_coef": 0.0,
        },
        "ARS": _ARS,
    },
    "mountaincar": {
        "PPO": {
            "normalize": "both", "n_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4,
            "ent_coef": 0.0,
        },
        "ARS": {**_ARS, "n_delta": 8},
    },
    "mountaincar-continuous": {
        "PPO": {
            "normalize": "both", "batch_size": 256, "n_steps": 8, "gamma": 0.9999, "learning_rate": 7.77e-5,
            "ent_coef": 0.00429, "clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9, "max_grad_norm": 5,
            "vf_coef": 0.19, "use_sde": True, "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
        },
        "SAC": {
            "learning_rate": 3e-4, "buffer_size": 50_000, "batch_size": 512, "ent_coef": 0.1, "train_freq": 32,
            "gradient_steps": 32, "gamma": 0.9999, "tau": 0.01, "learning_starts": 0, "use_sde": True,
            "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
        },
        "ARS": {**_ARS, "delta_std": 0.2},
    },
    "swimmer": {
        "PPO": {
            "normalize": "both", "gamma": 0.9999, "n_envs": 4, "n_steps": 1024, "batch_size": 256,
            "learning_rate": 6e-4, "gae_lambda": 0.98,
        },
        "SAC": {"learning_starts": 10_000, "gamma": 0.999},
        "ARS": {
            "policy": "LinearPolicy", "learning_rate": 0.02, "delta_std": 0.01, "n_delta": 1, "n_top": 1,
            "alive_bonus_offset": 0,
        },
    },
}  # fmt: skip


class Ended(Exception):
    """Why a measurement is over; what it raises ends a run here, and the learners there."""


class Watch:
    """Checks who learns, and says when it is over; what the checks play and take is not counted.

    Reached is the threshold where the mean of 20 episodes is at it or above, and then that of 100 others. No two checks
    play the same episodes, and nothing learns from them.
    """

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.seed = case, seed
        self.checks, self.best, self.mean = 0, -np.inf, -np.inf
        self.steps, self.spent, self.since = 0, 0.0, time.process_time()

    def check(self, steps: int, play: Callable[[Sequence[int]], float]) -> None:
        """Play; `play` answers with the mean return of one episode for each seed. Raises Ended where it is reached."""
        self.pause(steps)
        self.checks += 1
        looked = play(episode_seeds(10_000 * self.seed + self.checks, "evaluation", LOOK))
        self.best = max(self.best, looked)
        if looked >= self.case.threshold:
            self.decide(play)
            if self.mean >= self.case.threshold:
                raise Ended("reached")
        self.since = time.process_time()

    def decide(self, play: Callable[[Sequence[int]], float]) -> None:
        """The mean of 100 other episodes."""
        self.mean = play(episode_seeds(10_000 * self.seed + 5_000 + self.checks, "evaluation", CONFIRM))

    def pause(self, steps: int) -> None:
        """Count what has been used up to now."""
        self.steps, self.spent, self.since = steps, self.seconds, time.process_time()

    @property
    def seconds(self) -> float:
        """CPU seconds without those of the checks, while none is being made."""
        return self.spent + time.process_time() - self.since

    def found(self, ended: str) -> dict[str, Any]:
        """Return the record of the learner: how it ended, steps, CPU seconds, returns, checks."""
        return {
            "ended": ended, "steps": self.steps, "seconds": round(self.spent, 2), "mean": round(self.mean, 2),
            "best": round(self.best, 2), "checks": self.checks,
        }  # fmt: skip


def ours(task: str, method: str, seed: int) -> dict[str, Any]:
    """Run policygen and return its record; each attempt that finds a better policy is checked."""
    case = CASES[task]
    watch = Watch(case, seed)

    def after(attempt: Any) -> None:
        watch.pause(attempt.counts.env_steps)
        if attempt.accepted and attempt.policy is not None:
            watch.check(attempt.counts.env_steps, lambda seeds: evaluate(attempt.policy, seeds).mean)

    settings = {
        "iterations": 20,
        "refine": "auto",
        "max_episodes": 8_000,
        "jobs": 1,
        "final_episodes": 2,
        **case.settings,
    }
    if method == WITHHELD:
        settings["ablate"] = "knowledge"
    if case.transcript:
        settings["llm"] = f"replay:{HERE.parent / case.transcript}"
    else:
        settings["policy"] = "linear"
    with tempfile.TemporaryDirectory() as folder:
        named = case.gym_id if case.transcript else task
        try:
            result = policygen.run(named, seed=seed, out=folder, on_attempt=after, **settings)
        except Ended as end:
            return watch.found(str(end))
    if (policy := result.policy) is not None:
        watch.decide(lambda seeds: evaluate(policy, seeds).mean)
    return watch.found("the run's end")


def tune_in_plant(task: str, seed: int, most: int, **more: Any) -> dict[str, Any]:
    """Run policygen with `--refine model --max-steps` and `more` settings to its end, and return its record.

    `steps` are those that the plant was fitted to when the threshold was reached: the policy rests on no others.
    `played` are all that were played until then, those that judged it included. `mean` is the run's final score.
    """
    watch, played = Watch(CASES[task], seed), 0

    def after(attempt: Any) -> None:
        nonlocal played
        fitted = FITTED_PLANT.of(attempt)
        if played or not attempt.accepted or fitted is None:
            return
        try:
            watch.check(fitted.steps, lambda seeds: evaluate(attempt.policy, seeds).mean)
        except Ended:
            played = attempt.counts.env_steps

    settings = {"policy": "linear", "refine": "model", "max_steps": most, "jobs": 1, **more}
    with tempfile.TemporaryDirectory() as folder:
        result = policygen.run(task, seed=seed, out=folder, on_attempt=after, **settings)
    mean = result.final.mean if result.final is not None else -np.inf
    if not played:
        watch.pause(most)
    return {**watch.found("reached" if played else "the run's end"), "mean": round(mean, 2), "played": played}


def peer(task: str, method: str, seed: int, minutes: float) -> dict[str, Any]:
    """Train a Stable-Baselines3 learner until it reaches the threshold or a limit, and return its record."""
    import sb3_contrib
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    case, settings, most = CASES[task], dict(PEERS[task][method]), allowed(task)
    train = make_vec_env(case.gym_id, n_envs=settings.pop("n_envs", 1), seed=seed)
    if normalize := settings.pop("normalize", ""):
        train = VecNormalize(train, norm_reward=normalize == "both", gamma=settings.get("gamma", 0.99))
    zoo_steps = settings.pop("zoo_steps", None)
    if zoo_steps is not None:
        for name in ("learning_rate", "clip_range"):
            settings[name] = lambda left, first=settings[name]: first * left
    kind = getattr(sb3_contrib if method == "ARS" else stable_baselines3, method)
    model = kind(settings.pop("policy", "MlpPolicy"), train, seed=seed, device="cpu", **settings)
    tests = [gym.make(case.gym_id) for _ in range(CONFIRM)]

    def act(observations: np.ndarray) -> np.ndarray:
        seen = train.normalize_obs(observations) if normalize else observations
        return np.asarray(model.predict(seen, deterministic=True)[0])

    def play(seeds: Sequence[int]) -> float:
        return mean_return(act, tests[: len(seeds)], seeds)

    watch = Watch(case, seed)

    class Checks(BaseCallback):
        """Ends by what it raises: ARS does not heed what a callback returns."""

        next = case.every

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.next:
                self.next += case.every
                watch.check(self.num_timesteps, play)
            if self.num_timesteps >= most:
                raise Ended(f"{FACTOR} times our steps")
            if watch.seconds > 60 * minutes:
                raise Ended(f"{minutes:g} min of CPU")
            return True

    watch.since = time.process_time()
    ended = "the end of its schedule"
    try:
        model.learn(zoo_steps if zoo_steps is not None else most + case.every, callback=Checks())
    except Ended as end:
        ended = str(end)
    if ended != "reached":
        watch.pause(model.num_timesteps)
        watch.decide(play)
    return watch.found(ended)


def mean_return(act: Callable[[np.ndarray], np.ndarray], envs: Sequence[gym.Env], seeds: Sequence[int]) -> float:
    """The mean return of one episode for each seed, played side by side so that a network is asked once a step."""
    seen = np.array([env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)])
    returns, playing = np.zeros(len(envs)), np.arange(len(envs))
    while playing.size:
        still = []
        for i, action in zip(playing.tolist(), act(seen[playing]), strict=True):
            seen[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if not (terminated or truncated):
                still.append(i)
        playing = np.array(still, int)
    return float(returns.mean())


def record(task: str, method: str, seed: int, measure: Callable[..., dict[str, Any]], *given: Any, **more: Any) -> None:
    """Measure what was not measured before."""
    MEASURED.once((task, method, seed), lambda: [measure(*given, **more)])


def allowed(task: str) -> int:
    """Steps at which a peer is cut off: ten times the median of ours."""
    mine = [row["steps"] for row in MEASURED.rows(task, OURS)]
    if not mine:
        raise SystemExit(f"Measure {task} here first: python results/benchmarks/learning.py ours --tasks {task}")
    return FACTOR * int(statistics.median(mine))


def lines() -> Iterator[str]:
    """The table of learning.md."""
    yield "| task | threshold | method | reached | steps: median | steps of each seed | CPU: median | notes |"
    yield "| --- | ---: | --- | ---: | ---: | --- | ---: | --- |"
    for task, case in CASES.items():
        for method in (PLANT, PLANT_WITHHELD, OURS, WITHHELD, *PEERS.get(task, ())):
            if not (rows := MEASURED.rows(task, method)):
                continue
            each = [f"{'' if at(row) else '> '}{row['steps']:,.0f}" for row in rows]
            ends = "; ".join(f"{row['mean']:.4g} at {row['ended']}" for row in rows if not at(row))
            if method in (PLANT, PLANT_WITHHELD):
                scored = sum(row["mean"] >= case.threshold for row in rows)
                judged = f"; {median(rows, 'played'):,.0f} steps with judging" if any(map(at, rows)) else ""
                finals = ", ".join(f"{row['mean']:.4g}" for row in rows if row["mean"] < case.threshold)
                missed = f" (the others: {finals})" if finals else ""
                ends = f"{scored} of {len(rows)} final scores reach it{missed}{judged}"
            yield (
                (
                    f"| {task} | {case.threshold:g} | {method} | {sum(map(at, rows))} of {len(rows)} "
                    f"| {median(rows, 'steps'):,.0f} | {' / '.join(each)} | {median(rows, 'seconds'):,.1f} s | {ends} |"
                )
                .replace(" inf s |", " - |")
                .replace(" inf |", " - |")
            )


def at(row: Mapping[str, Any]) -> bool:
    """Whether a measurement ended at the threshold."""
    return bool(row["ended"] == "reached")


def median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """The median over seeds, where what was not reached counts as infinite."""
    return statistics.median(row[name] if at(row) else np.inf for row in rows)


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's table."""
    parser = parser_of(__doc__)
    parser.add_argument("--methods", nargs="+", help="PPO, SAC, ARS; all by default")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument(
        "--max-steps", type=int, default=PLANT_STEPS, help="of a whole run in a plant, judging included"
    )
    asked = MEASURED.asked(parser, CASES, "ours", "plant", "withheld", "peers", "page")
    what = asked.what
    if "peers" in what and not importlib.util.find_spec("sb3_contrib"):
        parser.error('the peers are not installed; pip install "policygen[bench,mujoco]"')
    for seed, task in itertools.product(asked.seeds or SEEDS, asked.tasks):
        for method in (OURS, WITHHELD) if CASES[task].features else (OURS,):
            if "ours" in what:
                record(task, method, seed, ours, task, method, seed)
    for task in asked.tasks:
        for seed in (asked.seeds or CASES[task].in_plant) if "plant" in what else ():
            record(task, PLANT, seed, tune_in_plant, task, seed, asked.max_steps)
        for seed in (asked.seeds or CASES[task].withheld) if "withheld" in what else ():
            record(task, PLANT_WITHHELD, seed, tune_in_plant, task, seed, asked.max_steps, ablate="knowledge")
    for seed, task in itertools.product(asked.seeds or PEER_SEEDS, asked.tasks):
        for method in PEERS.get(task, ()):
            if "peers" in what and method in (asked.methods or PEERS[task]):
                record(task, method, seed, peer, task, method, seed, asked.minutes)
    if "page" in what:
        MEASURED.write_table(lines())


if __name__ == "__main__":
    main()
