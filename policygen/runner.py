"""A run from start to finish: the loop, its logbook, the final score and the summary; started anew or resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policygen.ablation import without_knowledge
from policygen.budget import Ledger
from policygen.buffer import ReplayBuffer
from policygen.config import RunConfig, changed_config
from policygen.discovery import load_task
from policygen.errors import LogbookError, PolicyError, UsageError
from policygen.evaluate import Score, episode_seeds, exact_score, sampled_score
from policygen.example import Example, Worth, example_of
from policygen.language import parse
from policygen.llm import Provider, connect
from policygen.llm.base import Ordered
from policygen.llm.builtin import Builtin
from policygen.llm.prices import cost
from policygen.logbook import Logbook
from policygen.loop import final_score, new_search, optimize, seeds_of_attempt
from policygen.messages import Message
from policygen.plots import plot_runs
from policygen.policies import Policy
from policygen.prompts import check_templates
from policygen.propose import Correspondent, Exchange, FailedExchange, llm_options
from policygen.resources import find_run
from policygen.rollout import RandomActor
from policygen.search import Attempt, Search
from policygen.tasks import Task
from policygen.workers import Players


@dataclass
class Run:
    """One run: iterate over `attempts()`, then `finish()`."""

    config: RunConfig
    provider: Provider
    logbook: Logbook
    search: Search
    ledger: Ledger
    unused: tuple[Exchange | FailedExchange, ...] = ()
    final: Score | None = None

    @property
    def folder(self) -> Path:
        """Where the run's files are."""
        return self.logbook.folder

    @property
    def task(self) -> Task:
        """What is being controlled."""
        return self.search.task

    def attempts(self) -> Iterator[Attempt]:
        """Go on with the loop; every attempt is on the disk before it is yielded."""
        correspondent = Correspondent(
            self.provider, self.ledger, recorded=self.unused, on_exchange=self.logbook.record_exchange
        )
        for attempt in optimize(self.search, self.config, correspondent):
            self.logbook.record_attempt(attempt, self.search.buffer)
            yield attempt

    def finish(self) -> dict[str, Any]:
        """Score the best policy on fresh seeds, write the remaining files, and return the summary."""
        started = time.perf_counter()
        self.final = final_score(self.search, self.config)
        self.logbook.save_buffer(self.search.buffer)
        self.logbook.write_curve(self.search.attempts)
        summary = summarise(self, time.perf_counter() - started)
        self.logbook.write_summary(summary)
        if self.search.attempts:
            plot_runs([self.folder], self.folder / "learning_curve.png")
        return summary


def start(task: Task, config: RunConfig, out: Path, provider: Provider | None = None) -> Run:
    """A new run in a new folder under `out`.

    Raises:
        UsageError: the provider cannot be used as given, or a template is missing or malformed.
        PolicyError: the example cannot be read.
        LogbookError: the folder cannot be written.
    """
    if config.llm == "replay:latest":  # tomorrow `latest` is another run
        config = config.model_copy(update={"llm": f"replay:{find_run('latest')}"})
    provider = provider or connect(config.llm, llm_options(config))
    if config.ablate == "knowledge":
        task = without_knowledge(task)
    _check_usable(task, config, provider)
    check_templates(config)
    example = None
    if config.example:
        source = find_run(config.example)
        example = read_example(source)
        config = config.model_copy(update={"example": str(source)})
    search = new_search(task, config, example)
    return Run(config, provider, Logbook.create(out, task, config, example), search, Ledger(config))


def _check_usable(task: Task, config: RunConfig, provider: Provider) -> None:
    """Refuse what could only fail later, after episodes were played and a folder made."""
    if config.policy == "table" and task.grid is None and not provider.is_language_model:
        raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy linear or add one")
    if config.max_usd is None or not provider.is_language_model:
        return
    if cost(llm_options(config), config.llm.partition(":")[0], (provider.model,), 1, 1) is None:
        raise UsageError(
            f"--max-usd cannot be held because the price of {config.llm} is unknown; "
            "state it with --set price_in=USD --set price_out=USD, per million tokens"
        )


def resume(folder: Path, provider: Provider | None = None, assignments: Sequence[str] = ()) -> Run:
    """An interrupted run, ready to go on as if it had not been.

    Args:
        assignments: settings to go on with, `NAME=VALUE`, of those that change no score (`config.CHANGEABLE`).

    Raises:
        LogbookError: it is not a run folder, it is damaged, or the run is finished.
        UsageError: a setting that cannot be changed.
    """
    loaded = load_run(folder)
    if loaded.logbook.summary() is not None:
        raise LogbookError(f"{folder} is finished; see it with: policygen show {folder}")
    if assignments:
        loaded.config = changed_config(loaded.task, loaded.config, assignments)
        loaded.logbook.write_settings(loaded.config)
    loaded.provider = provider or connect(loaded.config.llm, llm_options(loaded.config))
    if isinstance(loaded.provider, Ordered):
        loaded.provider.skip(sum(isinstance(exchange, Exchange) for exchange in loaded.logbook.exchanges()))
    loaded.logbook.keep_only(loaded.search.attempts)
    if loaded.search.best is not None:
        loaded.logbook.save_best(loaded.search.best)
    return loaded


def load_run(folder: Path) -> Run:
    """A run as it stood after its last whole round, with `builtin` in the place of its provider; changes no file.

    Attempts of an unfinished round are left out: they are assessed again, from their recorded replies (`unused`).
    Episodes that the saved buffer lacks are played again from their seeds.

    Raises:
        LogbookError: it is not a run folder, or it is damaged.
    """
    logbook = Logbook(folder)
    config = logbook.config()
    search = new_search(logbook.task(), config, logbook.example())
    recorded = logbook.attempts()
    left_over = (len(recorded) - 1) % config.candidates if recorded and logbook.summary() is None else 0
    attempts = recorded[: len(recorded) - left_over]
    exchanges = logbook.exchanges()
    used = [exchange for exchange in exchanges if exchange.attempt < max(1, len(attempts))]
    unused = tuple(exchange for exchange in exchanges if exchange.attempt >= max(1, len(attempts)))
    ledger = Ledger(config)
    for exchange in used:
        ledger.calls += exchange.requests
        if isinstance(exchange, Exchange):
            ledger.charge_reply(exchange.prompt, exchange.reply)
    if attempts:
        ledger.episodes, ledger.env_steps = attempts[-1].episodes, attempts[-1].env_steps
        _restore(search, attempts, logbook, config)
    search.turns = _turns(used, config)
    return Run(config, Builtin(), logbook, search, ledger, unused)


def _restore(search: Search, attempts: Sequence[Attempt], logbook: Logbook, config: RunConfig) -> None:
    """Bring back the buffer and the best score, playing again from the seeds what the disk does not hold."""
    search.attempts = list(attempts)
    saved = logbook.buffer(config.buffer_steps)
    last_saved = max((episode.attempt for episode in saved), default=-1)
    if last_saved >= len(attempts):
        # It holds episodes of a round that is assessed again, and may have dropped others for them.
        saved, last_saved = ReplayBuffer(config.buffer_steps), -1
    search.buffer = saved
    with Players(search.task, config.jobs) as players:
        for attempt in attempts[last_saved + 1 :]:
            if attempt.number == 0 and config.warmup_episodes:
                seeds = episode_seeds(config.seed, "warm-up", config.warmup_episodes)
                search.buffer.add(0, players.play(RandomActor(search.task, config.seed), seeds))
            elif attempt.policy is not None and attempt.score is not None:
                seeds = seeds_of_attempt(attempt.number, config, exact=search.mdp is not None)
                search.buffer.add(attempt.number, players.play(attempt.policy, seeds))
        search.best = next((attempt for attempt in reversed(attempts) if attempt.accepted), None)
        if search.best is not None and search.best.policy is not None:
            if search.mdp is not None:
                search.best_score = exact_score(search.best.policy, search.mdp)
            else:
                seeds = episode_seeds(config.seed, "search", attempts[-1].best_episodes)
                search.best_score = sampled_score(players.play(search.best.policy, seeds), players.engine)


def _turns(exchanges: Sequence[Exchange | FailedExchange], config: RunConfig) -> list[Message]:
    """What a continued conversation remembers: of each round's first candidate the request and the last reply."""
    turns: list[Message] = []
    for number in sorted({e.attempt for e in exchanges}):
        own = [e for e in exchanges if isinstance(e, Exchange) and e.attempt == number]
        if own and (number - 1) % config.candidates == 0:
            turns += [own[0].prompt.messages[-1], Message("assistant", own[-1].reply.text or "(empty)")]
    return turns


def summarise(run: Run, seconds: float) -> dict[str, Any]:
    """The record of a finished run, as JSON values."""
    search, config, ledger, final = run.search, run.config, run.ledger, run.final
    asked = [attempt for attempt in search.attempts if attempt.number > 0]
    task = search.task
    return {
        "task": task.name,
        "gym_id": task.gym_id,
        "policy_kind": config.policy,
        "llm": config.llm,
        "is_language_model": run.provider.is_language_model,
        "seed": config.seed,
        "iterations": -(-len(asked) // config.candidates),
        "attempts": len(asked),
        "llm_calls": ledger.calls if run.provider.is_language_model else 0,
        "requests": ledger.calls,
        "repairs": sum(attempt.repairs for attempt in asked),
        "failed_attempts": sum(attempt.policy is None for attempt in asked),
        "tokens_in": ledger.tokens_in,
        "tokens_out": ledger.tokens_out,
        "usd": ledger.usd,
        "episodes": ledger.episodes,
        "env_steps": ledger.env_steps,
        "best_attempt": search.best.number if search.best is not None else None,
        "best_score": search.best_score.mean if search.best_score is not None else None,
        "final": score_record(final) if final is not None else None,
        "solved": bool(final is not None and task.solved is not None and final.mean >= task.solved)
        if task.solved is not None
        else None,
        "stopped": search.stopped,
        "assumed": list(task.assumed),
        "wall_seconds": round((search.attempts[-1].wall_seconds if search.attempts else 0.0) + seconds, 3),
        "llm_seconds": round(ledger.llm_seconds, 3),
    }


def score_record(score: Score) -> dict[str, Any]:
    """A score as JSON values."""
    return {
        "mean": score.mean,
        "std": score.std,
        "ci95": list(score.ci95) if score.ci95 is not None else None,
        "episodes": score.episodes,
        "exact": score.exact,
        "engine": score.engine,
        "seeds": list(score.seeds),
    }


def best_policy(path: Path) -> Policy:
    """The policy of a run folder or of a saved file.

    Raises:
        PolicyError: there is none.
    """
    if path.is_dir():
        if not (path / "best.json").exists():
            raise PolicyError(f"{path} has no best.json: it is not a run folder, or no policy has been found yet")
        path = path / "best.json"
    return Policy.load(path)


def read_example(path: Path) -> Example:
    """The policy of a run folder or of a saved file as a worked example, with its score where a run says it.

    Raises:
        PolicyError: there is no such policy.
        LogbookError: the run is damaged.
    """
    try:
        policy = best_policy(path)
    except PolicyError as error:
        raise PolicyError(f"there is no example to show: {error}") from None
    folder = path if path.is_dir() else path.parent  # a run's own best.json is worth what the run says
    known = path.is_dir() or (path.name == "best.json" and (folder / "config.toml").exists())
    return example_of(policy, _worth(folder) if known else None)


def _worth(folder: Path) -> Worth | None:
    """What the best policy of a run scored: on fresh seeds once the run is finished, until then on its search's own."""
    logbook = Logbook(folder)
    summary = logbook.summary()
    if summary is not None:
        try:
            final = summary["final"]
            interval = (final["ci95"][0], final["ci95"][1]) if final["ci95"] is not None else None
            return Worth(final["mean"], interval, final["episodes"], final["exact"], fresh=True)
        except (KeyError, IndexError, TypeError) as error:
            raise LogbookError(f"{folder / 'summary.json'} is damaged: it has no final score ({error})") from None
    if not (folder / "attempts.jsonl").exists():
        return None
    best = next((attempt for attempt in reversed(logbook.attempts()) if attempt.accepted), None)
    if best is None or best.score is None:
        return None
    return Worth(best.score.mean, best.score.ci95, best.score.episodes, best.score.exact, fresh=False)


def read_policy(path: Path, task_name: str | None = None) -> Policy:
    """The policy of a run folder, of a saved file, or of a text file in the policy language.

    Args:
        task_name: the task of a text file; another task than its own for a saved policy.

    Raises:
        PolicyError: there is none, or the text has problems; all are listed with their lines.
        UsageError: a text file without a task.
    """
    if not path.exists():
        raise PolicyError(f"cannot read {path}: there is no such file or folder")
    saved = path.is_dir() or path.suffix == ".json"
    if saved and task_name is None:
        return best_policy(path)
    if task_name is None:
        raise UsageError(f"{path.name} does not say which task it is for; add --task TASK")
    task = load_task(task_name)
    if saved:
        text = best_policy(path).to_text()
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    parsed = parse(text, task)
    if parsed.policy is None:
        raise PolicyError(
            f"{path.name} is not a policy for {task.name}:\n" + "\n".join(f"  {p}" for p in parsed.problems)
        )
    return parsed.policy
