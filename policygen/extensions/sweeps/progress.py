"""Terminal output of a sweep: an estimate before it, a live table or a line per finished run, a closing summary."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Collection

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from policygen.extensions.sweeps.conduct import Sweep
from policygen.extensions.sweeps.plan import SweepPlan, by_configuration, cells_of
from policygen.extensions.sweeps.shared_budget import spent_so_far
from policygen.extensions.sweeps.worker import CellResult, Event, Progress, config_of
from policygen.llm import prompt_folders, read_spec
from policygen.llm.prices import cost, dollars
from policygen.outgoing import shown
from policygen.progress import Panel, duration, is_terminal
from policygen.runs.config import RunConfig
from policygen.runs.request_log import llm_options
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task

MOST_ROWS = 40  # of the live table; rows with running cells come first
_MOST_CHARACTERS = 200  # of a result's sentence
SECONDS_OF_A_TRIAL = 0.5  # how long the speed of each task is measured with random actions
REPLY_TOKENS = 2_000  # assumed tokens of a reply, thinking included
TUNING = 500  # assumed episodes of tuning a proposal, unless `--refine METHOD:EPISODES` states them


class SweepTerminal:
    """The terminal output of a sweep: `tell` takes every event; inside `with`, a terminal shows a live table."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._started = time.monotonic()
        self._panel: Panel | None = None

    def __enter__(self) -> None:
        if is_terminal():
            self._panel = Panel(self._table, 2)
            self._panel.start(refresh=True)

    def __exit__(self, *error: object) -> None:
        if self._panel is not None:
            self._panel.stop()
            self._panel = None

    def tell(self, event: Event) -> None:
        """Print a line for a run that has ended, and for a warning."""
        if isinstance(event, Progress):
            return
        line = shown(self._line(event) if isinstance(event, CellResult) else f"{event.key}: {event.sentence}")
        if self._panel is not None:
            self._panel.print(line)
        else:
            with contextlib.suppress(BrokenPipeError):
                click.echo(line)

    def _line(self, outcome: CellResult) -> str:
        sweep = self._sweep
        number = len(sweep.skipped) + len(sweep.outcomes)
        words = f"{outcome.score:.6g}" if outcome.score is not None else outcome.state
        if outcome.sentence:
            words += f": {outcome.sentence[:_MOST_CHARACTERS]}"
        took = f"  ({duration(outcome.seconds)})" if outcome.seconds is not None else ""
        return f"{number:>4}/{len(sweep.cells)}  {outcome.key}: {words}{took}{self._time_left()}"

    def _time_left(self) -> str:
        """Return an estimate of the remaining time, from the runs done so far; empty before the first."""
        sweep = self._sweep
        done = len(sweep.of_state("finished")) + len(sweep.of_state("failed"))
        if not done or not sweep.unfinished:
            return ""
        elapsed = time.monotonic() - self._started
        # Running cells count by the share of their attempts.
        partly_done = sum(min(1.0, run.attempt / max(1, run.planned)) for run in sweep.running.values())
        return f", about {duration(max(0.0, sweep.unfinished - partly_done) * elapsed / (done + partly_done))} left"

    def _table(self) -> Table:
        """Return a row for each configuration with its seeds that are running, and a row for all cells."""
        sweep = self._sweep
        scores = sweep.skipped | {key: outcome.score for key, outcome in sweep.outcomes.items()}
        failed = {outcome.key for outcome in sweep.of_state("failed")}

        def counted(done: int, keys: Collection[str]) -> str:
            number_failed = len(failed.intersection(keys))
            return f"{done}/{len(keys)}" + (f", {number_failed} failed" if number_failed else "")

        rows = {name: [cell.key for cell in cells] for name, cells in by_configuration(sweep.cells).items()}
        chosen = list(rows)
        if len(rows) > MOST_ROWS:
            chosen = sorted(rows, key=lambda name: sweep.running.keys().isdisjoint(rows[name]))[:MOST_ROWS]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("configuration", "done", "mean so far", "running"):
            table.add_column(heading, no_wrap=True, overflow="ellipsis")
        for name in chosen:
            known = [score for key in rows[name] if (score := scores.get(key)) is not None]
            seeds = []
            for run in (sweep.running[key] for key in rows[name] if key in sweep.running):
                best = "" if run.best is None else f", {run.best:.4g}"
                seeds.append(f"seed {run.key.rpartition('-s')[2]}: {run.attempt}/{run.planned}{best}")
            mean = f"{np.mean(known):.5g}" if known else ""
            table.add_row(*map(Text, (shown(name), counted(len(known), rows[name]), mean, "  ".join(seeds))))
        table.add_section()
        total = counted(len(sweep.skipped) + len(sweep.of_state("finished")), [cell.key for cell in sweep.cells])
        elapsed = duration(time.monotonic() - self._started)
        table.add_row("all", total, "", f"{elapsed}{self._time_left()}", style="bold")
        return table


def resume_command(sweep: Sweep) -> str:
    """Return the command that continues a sweep, with all its options that the manifest does not hold."""
    words = ["policygen", "resume", str(sweep.folder)]
    for text in sweep.overrides:  # not in the manifest, because only the user may choose which server gets a key
        name, _, value = text.partition("=")
        words += ["--base-url", value.strip()] if name.strip() == "base_url" else ["--set", text]
    words += [word for llm in sweep.typed_models.values() if "@http" in llm for word in ("--llm", llm)]
    # By naming a module, or a folder for prompts, the user trusted them.
    named = any(":" in cell.entry.task or prompt_folders(cell.llm) for cell in sweep.cells)
    words += ["--trust"] * (sweep.trust or named)
    words += ["--cache", str(sweep.cache)] if sweep.cache is not None else []
    words += [word for name in sweep.track for word in ("--track", name)]
    return " ".join(filter(None, (shlex.join(words), sweep.executor_options)))


def closing_words(sweep: Sweep) -> list[str]:
    """Return the lines that sum up a sweep: its results, its costs, and the command to use next."""
    failed, refused = sweep.of_state("failed"), sweep.of_state("out of budget")
    counts = {
        "were finished before": len(sweep.skipped),
        "failed": len(failed),
        "are not finished": sweep.unfinished,
    }
    parts = [f"{len(sweep.of_state('finished'))} of {len(sweep.cells)} runs finished"]
    parts += [f"{count} {words}" for words, count in counts.items() if count]
    spent = ""
    if amounts := spent_so_far(sweep.folder).values():
        calls, tokens, usd = (list(column) for column in zip(*amounts, strict=True))
        spent = f"; {sum(calls):,} calls, {sum(tokens):,} tokens, {dollars(None if None in usd else sum(usd))}"
    lines = [", ".join(parts) + spent]
    lines += [f"failed: {outcome.key}: {outcome.sentence}" for outcome in failed]
    if refused:
        reason = next((outcome.sentence for outcome in refused if not outcome.sentence.startswith("not begun")), "")
        limits = sweep.plan.limits.model_dump(exclude_none=True)
        options = {f"--{name.replace('_', '-')}": max(1, 2 * value) for name, value in limits.items()}
        used = [f"{option} {value}" for option, value in options.items() if option in reason or not reason]
        lines.append(
            f"{reason or 'the budget is used up'}; "
            f"continue with a larger budget: {' '.join([resume_command(sweep), *used])}"
        )
    elif sweep.unfinished or failed:
        lines.append(f"continue with: {resume_command(sweep)}")
    if sweep.complete:
        lines.append(f"compare them with: policygen compare {shlex.quote(str(sweep.folder))}")
    return lines


# --- before it begins ------------------------------------------------------------------------------------------------


def estimate(plan: SweepPlan, overrides: tuple[str, ...], workers: int, *, trust: bool) -> list[str]:
    """Return the lines of an estimate: the most episodes, requests, USD and time that a sweep takes, and their basis.

    `workers` is the number of runs at a time. Raises UsageError if a task cannot be loaded, or a setting is wrong.
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
            asked = config.iterations if config.max_calls is None else min(config.iterations, config.max_calls)
            requests[cell.llm] += asked
            model = cell.llm.partition(":")[2]
            price = cost(llm_options(config), cell.llm, model, config.prompt_tokens, REPLY_TOKENS)
            usd += asked * (price or 0.0)
            unpriced |= {cell.llm} if price is None else set()
    kinds = "warm-up, scores, tuning and final scores; without those that decide close comparisons"
    lines = [f"{len(cells)} runs, at most {episodes:,} episodes ({kinds})"]
    lines += [f"  {name}: a run for each of {len(own)} seeds" for name, own in by_configuration(cells).items()]
    lines += [f"{count:,} requests to {llm}, and repairs of malformed replies" for llm, count in requests.items()]
    if requests:
        basis = f"prompts of `prompt_tokens` tokens and replies of {REPLY_TOKENS:,} tokens"
        left_out = f", without {', '.join(sorted(unpriced))}, whose price is unknown" if unpriced else ""
        lines.append(f"about ${usd:,.2f} with {basis}{left_out}")
    told = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    lines.append(
        f"at most about {duration(seconds / workers)} of playing with {workers} worker{'s' * (workers > 1)}, if every "
        "episode lasts to its step limit and each worker plays one environment at a time "
        f"(steps a second measured now: {told})"
    )
    return lines


def _most_episodes(config: RunConfig) -> int:
    """Return the most episodes that a run can play, without those that decide close comparisons."""
    tuning = 0 if config.refine.method is None else config.refine.episodes or TUNING
    searching = config.warmup_episodes + config.iterations * (2 * config.episodes + tuning)
    if config.max_episodes is not None:
        searching = min(searching, config.max_episodes)
    return searching + config.final_episodes


def _steps_a_second(task: Task) -> float:
    """Measure how many steps a second an environment takes with random actions."""
    env = make_env(task)
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        steps, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < SECONDS_OF_A_TRIAL:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            steps += 1
            if terminated or truncated:
                env.reset()
        return steps / spent
    finally:
        close(env)
