"""An estimate of what a sweep takes, before it begins: runs, episodes, requests, dollars, time."""

from __future__ import annotations

import time
from collections import Counter

from policygen.extensions.sweeps.plan import SweepPlan, cells_of
from policygen.extensions.sweeps.worker import config_of
from policygen.llm import read_spec
from policygen.llm.prices import cost
from policygen.progress import duration
from policygen.runs.config import RunConfig
from policygen.runs.request_log import llm_options
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task

MEASURED = 0.5  # seconds of random actions in each task
REPLY_TOKENS = 2_000  # assumed of a reply, thinking included
TUNING = 500  # episodes of a proposal's tuning, unless `--refine METHOD:EPISODES` or a limit says otherwise


def estimate(plan: SweepPlan, overrides: tuple[str, ...], workers: int, *, trust: bool) -> list[str]:
    """Describe what a sweep takes at most, a line each, with the basis of each figure.

    Args:
        workers: number of runs at a time.

    Raises:
        UsageError: a task cannot be loaded, or a setting is wrong.
    """
    episodes, seconds, usd, unpriced = 0, 0.0, 0.0, set[str]()
    requests: Counter[str] = Counter()
    speeds: dict[str, float] = {}
    cells = cells_of(plan)
    for cell in cells:
        task, config = config_of(cell, (*plan.settings, *overrides), trust=trust)
        most = _most_episodes(config)
        episodes += most
        speed = speeds.get(task.name) or speeds.setdefault(task.name, _steps_a_second(task))
        seconds += most * task.max_steps / speed
        entry = read_spec(cell.llm).entry
        if entry is None or entry.is_language_model:
            asked = config.iterations * config.candidates
            asked = asked if config.max_calls is None else min(asked, config.max_calls)
            requests[cell.llm] += asked
            model = cell.llm.partition(":")[2]
            price = cost(llm_options(config), cell.llm, model, config.prompt_tokens, REPLY_TOKENS)
            usd += asked * (price or 0.0)
            unpriced |= {cell.llm} if price is None else set()
    lines = [f"{len(cells)} runs, at most {episodes:,} episodes (warm-up, scores, tuning, final scores)"]
    lines += [f"  {name}: a run for each of {len(seeds)} seeds" for name, seeds in _by_row(plan).items()]
    for llm, count in requests.items():
        lines.append(f"{count:,} requests to {llm}, and repairs of malformed replies")
    if requests:
        basis = f"{REPLY_TOKENS:,} tokens a reply, and as many a prompt as `prompt_tokens` allows"
        left_out = f", without {', '.join(sorted(unpriced))}, whose price is unknown" if unpriced else ""
        lines.append(f"about ${usd:,.2f} with {basis}{left_out}")
    told = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    lines.append(
        f"at most about {duration(seconds / workers)} of playing with {workers} worker{'s' * (workers > 1)}, if every "
        f"episode lasted to its step limit and one environment played at a time (steps a second measured now: {told})"
    )
    return lines


def _by_row(plan: SweepPlan) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for cell in cells_of(plan):
        rows.setdefault(cell.row, []).append(cell.seed)
    return rows


def _most_episodes(config: RunConfig) -> int:
    """Return the episodes of a run at most, without those that settle close comparisons."""
    proposals = config.iterations * config.candidates
    tuning = 0 if config.refine.method is None else config.refine.episodes or TUNING
    searching = config.warmup_episodes + proposals * (2 * config.episodes + tuning)
    if config.max_episodes is not None:
        searching = min(searching, config.max_episodes)
    return searching + config.final_episodes


def _steps_a_second(task: Task) -> float:
    env = make_env(task)
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        steps, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < MEASURED:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            steps += 1
            if terminated or truncated:
                env.reset()
        return steps / spent
    finally:
        close(env)
