"""A run from start to finish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from policygen.episodes.score import Score
from policygen.errors import PolicygenError, UsageError
from policygen.files import find_run
from policygen.llm import Provider, connect, reads_prompts
from policygen.llm.messages import Exchange, FailedExchange
from policygen.llm.store import Cache, Replay
from policygen.prompts.templates import texts_used
from policygen.proposers.proposer import Proposer
from policygen.runs import facts
from policygen.runs.attempt import Attempt, costs_of
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity, Listener, notify
from policygen.runs.logbook import Logbook, Summary
from policygen.runs.request_log import Comments, RequestLog
from policygen.runs.state import Search
from policygen.search.loop import new_search, optimize
from policygen.search.prepare import prepared
from policygen.search.runner import EpisodeRunner, final_scores
from policygen.tasks.task import KIND_WORDS, Task
from policygen.tasks.warmup import warn_if_unseeded


@dataclass
class Run:
    """A run: iterate over `attempts()`, then call `finish()`."""

    config: RunConfig
    proposer: Proposer
    logbook: Logbook
    search: Search
    ledger: Ledger
    answers: tuple[Exchange | FailedExchange, ...] = ()  # recorded exchanges that no recorded attempt used
    commented: tuple[str, ...] = ()  # the user's comments in prompts that were answered
    final: Score | None = None
    cache: Cache | None = None
    tell: Callable[[Activity | None], None] = lambda activity: None
    on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.logbook.folder

    @property
    def provider(self) -> Provider:
        """The provider of replies."""
        return self.proposer.provider

    @property
    def llm_calls(self) -> int:
        """Number of requests to a language model, including retries."""
        return self.ledger.calls if self.proposer.is_language_model else 0

    @property
    def task(self) -> Task:
        """The run's task."""
        return self.search.task

    def attempts(self) -> Iterator[Attempt]:
        """Run the loop; every attempt is saved before it is yielded."""

        def record(exchange: Exchange | FailedExchange) -> None:
            self.logbook.transcript.record(exchange)
            self.on_exchange(exchange)

        comments = Comments(self.folder, self.commented, self.tell)
        request_log = RequestLog(
            self.ledger,
            recorded=self.answers,
            on_exchange=record,
            on_sent=self.logbook.transcript.record_sent,
            tell=self.tell,
            cache=self.cache,
            comments=comments if reads_prompts(self.config.llm) else None,
        )
        recorded = self.search.attempts[-1] if self.search.attempts else None
        try:
            with EpisodeRunner(self.search, self.config, self.ledger, self.tell) as runner:
                for attempt in optimize(self.search, self.proposer, request_log, runner):
                    if self.config.keeps_every_episode:
                        self.logbook.save_buffer(self.search.buffer)
                    self.logbook.record_attempt(attempt, self.search.buffer)
                    recorded = attempt
                    yield attempt
            if recorded is not None and self.search.attempts[-1] is not recorded:
                self.logbook.rewrite_attempts(self.search.attempts)
        except BaseException:
            self.logbook.release()  # so that another process can continue the run
            raise

    def finish(self) -> Summary:
        """Score the best policy on fresh seeds, write the remaining files, and return the run's summary."""
        started = time.perf_counter()
        self.final, perturbed, by = final_scores(self.search, self.config)
        self.logbook.save_buffer(self.search.buffer)
        self.logbook.write_curve(facts.curve_csv(self.search.attempts))
        summary = Summary(
            final=self.final,
            perturbed=perturbed,
            perturbed_by=tuple(one.in_words for one in by),
            stopped=self.search.stopped,
            seconds=time.perf_counter() - started,
            asks_a_model=self.proposer.is_language_model,
            spent=replace(
                costs_of(self.search.attempts),
                requests=self.ledger.calls,
                llm_calls=self.llm_calls,
                tokens_in=self.ledger.tokens_in,
                tokens_out=self.ledger.tokens_out,
                usd=self.ledger.usd,
                llm_seconds=self.ledger.llm_seconds,
                cached=self.ledger.cached,
            ),
        )
        self.logbook.write_summary(summary)
        self.logbook.release()
        return summary

    def break_off(self) -> None:
        """Save the episodes so far, and allow other processes to continue the run."""
        with suppress(PolicygenError):
            if self.logbook.summary() is None:
                self.logbook.save_buffer(self.search.buffer)
        self.logbook.release()


def start(
    task: Task,
    config: RunConfig,
    out: Path,
    provider: Provider | None = None,
    *,
    name: str = "",
    cache: str | Path | None = None,
) -> Run:
    """Begin a new run in a new folder under `out`.

    Args:
        name: name of the folder; by default made of task, provider, time and seed.
        cache: folder of cached replies.

    Raises:
        UsageError: the provider cannot be used as given, or a template is missing or malformed.
        LogbookError: the folder cannot be written.
    """
    if config.llm == "replay:latest":  # `latest` would mean this run once its folder exists
        config = config.model_copy(update={"llm": f"replay:{find_run('latest')}"})
    replies = Cache(Path(cache)) if cache is not None else None  # fails before the run begins
    provider = provider or connect(config.llm, config)
    task, config = prepared(task, config)
    warn_if_unseeded(task)
    proposer = Proposer(provider, config)
    proposer.check(task)
    _check_replay(proposer, task, config)
    search = new_search(task)
    logbook = Logbook.create(out, task, config, texts_used(config), name=name)
    return Run(config, proposer, logbook, search, Ledger(config, env_steps=task.steps_taken), cache=replies)


def _check_replay(proposer: Proposer, task: Task, config: RunConfig) -> None:
    """Raise UsageError if the replies to replay are of a run of another task or kind of policy."""
    if not isinstance(proposer.provider, Replay):
        return
    folder: Path = proposer.provider.folder
    if not (folder / "config.toml").is_file():
        return  # a transcript alone does not say which task it is of
    logbook = Logbook(folder)
    recorded, replayed = logbook.config(), logbook.task()
    if (replayed.name, replayed.gym_id) != (task.name, task.gym_id):
        raise UsageError(
            f"{folder} is a run of {replayed.name} ({replayed.gym_id}); its replies cannot be replayed on {task.name}"
        )
    if recorded.policy != config.policy:
        raise UsageError(
            f"{folder} holds replies of another kind; replay them with --policy {KIND_WORDS[recorded.policy]}"
        )


def carry_out(
    run: Run, listeners: Sequence[Listener] = (), on_attempt: Callable[[Attempt], None] = lambda attempt: None
) -> Summary:
    """Carry out a run to its end and notify the listeners.

    Args:
        on_attempt: called after every attempt; unlike a listener's, its exceptions end the run.
    """
    active = list(listeners)
    run.on_exchange = lambda exchange: notify(active, lambda listener: listener.exchanged(exchange))
    run.tell = lambda activity: notify(active, lambda listener: listener.doing(activity))
    notify(active, lambda listener: listener.started(run))
    try:
        for attempt in run.attempts():
            notify(active, lambda listener, attempt=attempt: listener.attempted(attempt))  # type: ignore[misc]
            on_attempt(attempt)
        summary = run.finish()
        notify(active, lambda listener: listener.finished(summary))
    except BaseException:
        run.break_off()
        raise
    finally:
        run.logbook.release()
        notify(active, lambda listener: listener.ended())
    return summary
