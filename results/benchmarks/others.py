"""Measures what stands in others.md: environments of twelve packages that nobody here prepared for.

python results/benchmarks/others.py [random] [constant] [own] [ppo] [builtin] [chat] [page]
    [--tasks PACKAGE ...] [--seeds SEED ...] [--anew]

No language model is asked: `chat` replays the replies of results/transcripts/others-PACKAGE, where there are any.
Install the packages first: `pip install -r results/benchmarks/others.txt`. Set OMP_NUM_THREADS=1 and
SDL_VIDEODRIVER=dummy.
Every result is a row of others.csv and is not made again unless `--anew` forgets them all. `page` writes the table of
others.md; policies go to results/policies/others-PACKAGE.txt (chat) and others-PACKAGE-builtin.txt.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import statistics
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FlattenObservation, RescaleAction
from measurements import HERE, Measurements, parser_of

import policygen
from policygen.episodes.score import score_of_returns
from policygen.episodes.simulator import evaluate
from policygen.errors import UsageError
from policygen.llm.messages import Exchange
from policygen.llm.store import Transcript
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

COLUMNS = ("package", "method", "seed", "mean", "low", "high", "episodes", "steps", "seconds", "note")
MEASURED = Measurements("others", COLUMNS)
BETWEEN = "<!-- table -->"
RESULTS = HERE.parent
FRESH = range(400, 500)  # seeds of the episodes that score everything; no search draws one so small
TRY, AGAIN, FINALISTS = 3, 20, 5  # episodes of each constant action, then of the best few
DRAWN = 30  # constant actions drawn of a continuous space, besides a grid
GRID = 27  # no grid of a continuous space has more points
LOOK = 20  # episodes that decide whether a learner's actions are sampled
LONGEST = 2_000  # steps of an episode where the package sets no limit
PPO_STEPS = 100_000
SEEDS = (1, 2, 3)
CHAT_SEED, REPLIES = 400, 4
EPISODES = {"builtin": 3_000, "chat": 1_000}
NONE, REFUSED = "no policy", "refused"  # notes of rows without a score
METHODS = ("random", "constant", "own", "ppo", "builtin", "chat")

Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Package:
    """A package and its environment, as others.toml has them.

    Attributes:
        own: name of the function below that makes the package's own controller; empty if it has none.
        development: whether prompts and program were mended by what was seen on it.
    """

    name: str
    version: str
    env: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    max_steps: int | None = None
    own: str = ""
    development: bool = False

    def check(self) -> None:
        """Exit unless the version that the page is about is installed."""
        if (installed := metadata.version(self.name)) != self.version:
            raise SystemExit(f"{self.name} {installed} is installed, and others.csv is about {self.version}")

    def made(self) -> gym.Env[Any, Any]:
        """Return a new environment with a limit of steps."""
        importlib.import_module(self.env.partition(":")[0])
        limit = {} if self.max_steps is None else {"max_episode_steps": self.max_steps}
        env = gym.make(self.env, **self.kwargs, **limit)
        has_limit = env.spec is not None and env.spec.max_episode_steps is not None
        return env if has_limit else gym.wrappers.TimeLimit(env, LONGEST)

    def task(self, folder: str) -> Task:
        """Return what `policygen run` takes: the id alone, or a task file with arguments and a limit."""
        if not self.kwargs and self.max_steps is None:
            return policygen.load_task(self.env, trust=True)
        lines = [f'name = "{self.name}"', f'gym_id = "{self.env}"']
        lines += [f"max_steps = {self.max_steps}"] if self.max_steps is not None else []
        lines += ["[kwargs]", *(f'{name} = "{value}"' for name, value in self.kwargs.items())] if self.kwargs else []
        file = Path(folder) / f"{self.name}.toml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return policygen.load_task(str(file), trust=True)


def packages() -> dict[str, Package]:
    """Return the packages by name."""
    listed = tomllib.loads((HERE / "others.toml").read_text(encoding="utf-8"))["packages"]
    return {one["name"]: Package(**one) for one in listed}


def cpu_seconds() -> float:
    """Return the CPU time so far, that of ended child processes included."""
    return sum(os.times()[:4])


def play(env: gym.Env[Any, Any], act: Act, seeds: Sequence[int]) -> tuple[list[float], int]:
    """Play an episode for each seed; return the returns, and the number of steps."""
    returns, steps = [], 0
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        rewards, ended = [], False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            rewards.append(float(reward))
            ended = terminated or truncated
        returns.append(sum(rewards))
        steps += len(rewards)
    return returns, steps


def row(returns: Sequence[float], episodes: float = 0, steps: float = 0, seconds: float = 0, note: str = "") -> Any:
    """Return a row of the scores; episodes, steps and seconds are those of the search."""
    score = score_of_returns(np.array(returns), (), "")
    low, high = score.ci95 or (score.mean, score.mean)
    bounds = {"low": round(low, 6), "high": round(high, 6)}
    search = {"episodes": episodes, "steps": steps, "seconds": round(seconds, 1), "note": note}
    return [{"mean": round(score.mean, 6), **bounds, **search}]


def random_actions(package: Package, seed: int) -> Any:
    """Score random actions."""
    env = package.made()
    return row(play(env, lambda _: env.action_space.sample(), FRESH)[0])


def constants_of(space: gym.Space[Any]) -> list[Any]:
    """Return the constant actions that are tried: all, or a grid and some drawn ones."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.start) + choice for choice in range(int(space.n))]
    assert isinstance(space, gym.spaces.Box)
    size = int(np.prod(space.shape))
    points = max(count for count in (1, 2, 3, 5, 9, 27) if count**size <= GRID or count == 1)
    levels = np.linspace(space.low.ravel(), space.high.ravel(), points).T if points > 1 else [[0.0]] * size
    grid = [np.array(one, space.dtype).reshape(space.shape) for one in itertools.product(*levels)]
    space.seed(0)
    return grid + [space.sample() for _ in range(DRAWN)]


def constant(package: Package, seed: int) -> Any:
    """Score the best constant action: a few episodes of each, more of the best few, fresh ones of the best."""
    env, began = package.made(), cpu_seconds()
    episodes = steps = 0

    def mean_of(action: Any, seeds: Sequence[int]) -> float:
        nonlocal episodes, steps
        returns, count = play(env, lambda _: action, seeds)
        episodes, steps = episodes + len(returns), steps + count
        return statistics.fmean(returns)

    tried = sorted(constants_of(env.action_space), key=lambda one: -mean_of(one, range(TRY)))
    best = max(tried[:FINALISTS], key=lambda one: mean_of(one, range(TRY, TRY + AGAIN)))
    seconds = cpu_seconds() - began
    note = " ".join(f"{value:.4g}" for value in np.ravel(best))
    return row(play(env, lambda _: best, FRESH)[0], episodes, steps, seconds, note)


def warfarin_baseline(env: gym.Env[Any, Any]) -> Act:
    """Return hemosim's clinical baseline."""
    baselines: Any = importlib.import_module("hemosim.agents.baselines")
    act: Act = baselines.WarfarinClinicalBaseline(seed=0).predict
    return act


def grower(env: gym.Env[Any, Any]) -> Act:
    """Return the grower's rule of lettuce-greenhouse-gym; it needs no memory."""
    baselines: Any = importlib.import_module("lettuce_greenhouse_gym.baselines")
    inner: Any = env.unwrapped
    controller = baselines.GrowerHeuristic()
    controller.reset(inner)
    return lambda observation: inner.encode_control(controller.control(observation, inner))


def q_table(env: gym.Env[Any, Any]) -> Act:
    """Return the table that kraken-crossing's own Q-learning finds in the 100,000 episodes of its page."""
    learning: Any = importlib.import_module("kraken_crossing.q_learning")
    table, _ = learning.train(episodes=100_000, seed=7)
    return lambda observation: int(np.argmax(table[observation]))


OWN = {made.__name__: made for made in (warfarin_baseline, grower, q_table)}


def own(package: Package, seed: int) -> Any:
    """Score the package's own controller."""
    env, began = package.made(), cpu_seconds()
    act = OWN[package.own](env)
    seconds = cpu_seconds() - began
    return row(play(env, act, FRESH)[0], seconds=seconds, note=package.own)


def ppo(package: Package, seed: int) -> Any:
    """Score PPO of Stable-Baselines3 with its defaults, with sampled actions where these did better.

    Observations that are no vector are flattened, and bounded actions rescaled to -1 to 1, as its documentation asks.
    """
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    env = package.made()
    if not isinstance(env.observation_space, gym.spaces.Discrete) and len(env.observation_space.shape or ()) != 1:
        env = FlattenObservation(env)
    if isinstance(env.action_space, gym.spaces.Box):
        env = RescaleAction(env, np.float32(-1), np.float32(1))
    counted = gym.wrappers.RecordEpisodeStatistics(env)
    began = cpu_seconds()
    model = PPO("MlpPolicy", counted, seed=seed, device="cpu")
    model.learn(PPO_STEPS)
    seconds, episodes = cpu_seconds() - began, counted.episode_count

    def act(observation: Any, greedy: bool) -> Any:
        chosen = model.predict(observation, deterministic=greedy)[0]
        return chosen if np.ndim(chosen) else int(chosen)

    means = {
        greedy: statistics.fmean(play(env, functools.partial(act, greedy=greedy), range(LOOK))[0])
        for greedy in (True, False)
    }
    greedy = means[True] >= means[False]
    returns, _ = play(env, functools.partial(act, greedy=greedy), FRESH)
    note = "most likely actions" if greedy else "sampled actions"
    return row(returns, episodes, model.num_timesteps, seconds, note)


def searched(package: Package, seed: int, llm: str, file: Path | None, **settings: Any) -> Any:
    """Score the best policy of a run, and write it as text."""
    attempts: list[policygen.Attempt] = []
    began = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        task = package.task(folder)
        settings |= {"refine": "auto", "seed": seed, "jobs": 1, "final_episodes": 2, "fragility": False}
        run = policygen.run(task, llm=llm, out=folder, on_attempt=attempts.append, **settings)
    seconds = cpu_seconds() - began
    best: Policy | None = run.policy
    counts = attempts[-1].counts
    if best is None:
        return [{"episodes": counts.episodes, "steps": counts.env_steps, "seconds": round(seconds, 1), "note": NONE}]
    score = evaluate(best, FRESH, jobs=1)
    number = max(one.number for one in attempts if one.accepted)
    note = f"proposal {number}"
    if file is not None:
        file.write_text(best.to_text(whole=True).rstrip() + "\n", encoding="utf-8")
    return row(score.returns or [score.mean], counts.episodes, counts.env_steps, seconds, note)


def builtin(package: Package, seed: int) -> Any:
    """Score `policygen run ENV --llm builtin --refine auto`."""
    file = RESULTS / "policies" / f"others-{package.name}-builtin.txt"
    first = file if seed == SEEDS[0] else None
    try:
        return searched(package, seed, "builtin", first, max_episodes=EPISODES["builtin"])
    except UsageError as error:  # a refusal is a result, too
        return [{"note": f"{REFUSED}: {error}"}]


def transcript_of(package: Package) -> Path:
    """Return the folder of the replies that a chat model gave."""
    return RESULTS / "transcripts" / f"others-{package.name}"


def chat(package: Package, seed: int) -> Any:
    """Score the run whose replies were recorded."""
    folder, file = transcript_of(package), RESULTS / "policies" / f"others-{package.name}.txt"
    recorded = Transcript(folder / "transcript.jsonl").exchanges()
    replies = sum(isinstance(one, Exchange) for one in recorded)
    settings = {"max_episodes": EPISODES["chat"], "iterations": REPLIES, "max_calls": replies}
    return searched(package, seed, f"replay:{folder}", file, **settings)


MEASURES = {"random": random_actions, "constant": constant, "own": own, "ppo": ppo, "builtin": builtin, "chat": chat}


def seeds_of(package: Package, method: str, asked: Sequence[int]) -> Sequence[int]:
    """Return the seeds of a method, none where there is nothing to measure."""
    if method == "own":
        return SEEDS[:1] if package.own else ()
    if method == "chat":
        return (CHAT_SEED,) if transcript_of(package).exists() else ()
    return asked if method in ("ppo", "builtin") else SEEDS[:1]


def number(value: float) -> str:
    """Format a score with four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def cell(rows: Sequence[dict[str, Any]]) -> str:
    """Format the median seed's mean with its interval, and the range of the others."""
    if not rows:
        return ""
    if any(str(one["note"]).startswith((NONE, REFUSED)) for one in rows):
        return str(rows[0]["note"]).partition(":")[0]
    middle = sorted(rows, key=lambda one: one["mean"])[(len(rows) - 1) // 2]
    text = f"{number(middle['mean'])} [{number(middle['low'])}, {number(middle['high'])}]"
    means = [one["mean"] for one in rows]
    return text if len(rows) == 1 else f"{text} ({number(min(means))} to {number(max(means))})"


def cost(rows: Sequence[dict[str, Any]]) -> str:
    """Format steps and CPU seconds of the median seed."""
    if not any(one["steps"] for one in rows):
        return ""
    steps, seconds = (statistics.median(one[name] for one in rows) for name in ("steps", "seconds"))
    return f"{steps:,.0f}, {seconds:,.0f} s"


def lines(chosen: Sequence[Package]) -> Iterator[str]:
    """Yield the tables of others.md: scores, then what they cost."""
    yield "| package | random | best constant | own controller | PPO | `builtin` | chat model |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for one in chosen:
        name = f"{one.name} (development)" if one.development else one.name
        yield f"| {' | '.join((name, *(cell(MEASURED.rows(one.name, method)) for method in METHODS)))} |"
    yield ""
    yield "| steps and CPU time of the median seed | PPO | `builtin` | chat model |"
    yield "| --- | ---: | ---: | ---: |"
    for one in chosen:
        costs = (cost(MEASURED.rows(one.name, method)) for method in ("ppo", "builtin", "chat"))
        yield f"| {' | '.join((one.name, *costs))} |"


def write_page(chosen: Sequence[Package]) -> None:
    """Write the tables between the marks of the page."""
    before, _, after = MEASURED.page.read_text(encoding="utf-8").split(BETWEEN)
    text = "\n".join([BETWEEN, "", *lines(chosen), "", BETWEEN])
    MEASURED.page.write_text(before + text + after, encoding="utf-8")


def main() -> None:
    """Measure what is asked for, and write the page's tables."""
    known = packages()
    asked = MEASURED.asked(parser_of(__doc__, SEEDS), known, *METHODS, "page")
    for method, name in itertools.product(METHODS, asked.tasks):
        package = known[name]
        for seed in seeds_of(package, method, asked.seeds) if method in asked.what else ():
            package.check()
            MEASURED.once((name, method, seed), functools.partial(MEASURES[method], package, seed))
    if "page" in asked.what:
        write_page(list(known.values()))


if __name__ == "__main__":
    main()
