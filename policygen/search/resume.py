"""Resume an interrupted run, with the result of an uninterrupted one, or go on with a finished one; preview prompts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import make_episodes
from policygen.episodes.exact import exact_score
from policygen.errors import EnvironmentFault, LogbookError, PathError, UsageError
from policygen.files import damaged, find_run
from policygen.llm import Provider, connect, read_spec
from policygen.llm.base import cost
from policygen.llm.messages import Exchange, FailedExchange, Prompt
from policygen.llm.store import REMEDY, Cache
from policygen.prompts.render import render_prompt
from policygen.prompts.templates import improve_template, own_templates
from policygen.proposers.builtin import Builtin
from policygen.proposers.proposer import Proposer
from policygen.runs.attempt import Attempt, Counts
from policygen.runs.budget import Ledger
from policygen.runs.config import BUDGETS, RunConfig, changed_config, effective_config, load_limits
from policygen.runs.logbook import Logbook
from policygen.runs.notes import REPEATS, STOPPED
from policygen.runs.request_log import Comments, conversation_turn
from policygen.runs.state import Search
from policygen.runs.tuning import most_compared
from policygen.search.assess import assess_random_actions
from policygen.search.loop import new_search
from policygen.search.prepare import prepared
from policygen.search.run import Run
from policygen.search.runner import EpisodeRunner
from policygen.tasks.environments import with_user_env
from policygen.tasks.load import load_task


def resume(
    folder: Path,
    provider: Provider | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    trust: bool = False,
    env: Any = None,
    cache: Path | None = None,
) -> Run:
    """Load a run to continue it: an interrupted one as if it had not been interrupted.

    Args:
        changes: changed settings: those that change no score (`config.CHANGEABLE`), and larger budgets
            (`config.BUDGETS`), with which a finished run goes on from where it stands.
        trust: whether the user trusts the folder. If not, a key is sent only to a server that the changes name, and the
            task may name no module to import and no path to read.
        env: the environment or its factory, if a program passed one.
        cache: folder of cached replies.

    Raises:
        LogbookError: the folder is no run or is damaged, or the run is finished and gets no larger budget.
        UsageError: a setting cannot be changed, or only the untrusted folder names the server of a key.
    """
    logbook = Logbook(folder)
    before = logbook.config()  # raises if it is not a run folder
    replies = Cache(cache) if cache is not None else None
    logbook.lock()
    try:
        config = changed_config(logbook.task(), before, changes) if changes else before
        more = any(getattr(before, name) != getattr(config, name) for name in BUDGETS)
        if logbook.summary() is not None and not more:
            command = logbook.resume_command("--iterations", str(2 * before.iterations))
            raise PathError(
                f"{folder} is finished; see it with: policygen show {shlex.quote(str(folder))}, or go on with more, "
                f"as in: {command}"
            )
        if provider is None and read_spec(config.llm).name == "mcp":
            raise UsageError(
                f"an assistant proposes the policies of {folder}: continue it with {logbook.resume_command()}"
            )
        # A provider that cannot be used raises here, before anything is played or written.
        provider = provider or connect(config.llm, config.trusted() if trust else config)
        attempts = logbook.attempts()
        # An attempt that a budget cut short is assessed again with the larger one.
        cut = next((attempt.number for attempt in attempts if STOPPED.of(attempt)), None) if more else None
        run = _read(logbook, config, provider, attempts, cut, trust=trust, env=env)
        run.cache = replies
        if changes:
            logbook.write_settings(config)
        logbook.clear_up(run.search.attempts)
        if run.search.best is not None:
            logbook.save_best(run.search.best)
        return run
    except BaseException:
        logbook.release()
        raise


def load_run(folder: Path, *, trust: bool = False) -> Run:
    """Load a run as it was after its last attempt, without changing a file; its provider is `builtin`.

    Episodes missing from the saved buffer are replayed from their seeds.

    Args:
        trust: let the task name modules to import and paths to read.

    Raises:
        LogbookError: the folder is no run, or is damaged.
        TaskError: the untrusted task names a module or a path.
    """
    logbook = Logbook(folder)
    return _read(logbook, logbook.config(), Builtin(), logbook.attempts(), trust=trust)


def _read(
    logbook: Logbook,
    config: RunConfig,
    provider: Provider,
    attempts: Sequence[Attempt],
    cut: int | None = None,
    *,
    trust: bool,
    env: Any = None,
) -> Run:
    """Return the run as it was after these attempts, or the first `cut` of them; all their episodes stay counted."""
    task = logbook.task().trusted() if trust else logbook.task()
    task = task if env is None else with_user_env(task, env)
    spent = attempts[-1].counts if attempts else Counts(env_steps=task.steps_taken)
    ledger = Ledger(config, episodes=spent.episodes, env_steps=spent.env_steps, tuning_steps=spent.tuning_steps)
    search, attempts = new_search(task), attempts[:cut]
    used: list[Exchange] = []
    answers: list[Exchange | FailedExchange] = []
    commented: list[str] = []
    for exchange in logbook.transcript.exchanges():
        if isinstance(exchange, Exchange):
            commented += exchange.prompt.comments
        if exchange.attempt >= max(1, len(attempts)):
            answers.append(exchange)
            continue
        ledger.calls += exchange.requests
        if isinstance(exchange, Exchange):
            ledger.charge_reply(exchange.prompt, exchange.reply)
            used += [exchange] * (config.conversation == "continued")  # otherwise no prompt contains earlier turns
    if ledger.calls < (known := sum(attempt.requests.calls for attempt in attempts)):
        raise LogbookError(
            f"{logbook.folder / 'transcript.jsonl'} is missing or damaged: it has {ledger.calls} of the {known} "
            f"requests of {len(attempts) - 1} attempts; {REMEDY}"
        )
    for number in sorted({exchange.attempt for exchange in used}):
        search.turns += conversation_turn([exchange for exchange in used if exchange.attempt == number])
    for attempt in attempts:
        search.add(attempt)
    if attempts:
        _restore(search, logbook, config)
    return Run(config, Proposer(provider, config), logbook, search, ledger, tuple(answers), tuple(commented))


def _restore(search: Search, logbook: Logbook, config: RunConfig) -> None:
    """Restore the buffer and the best policy's scores; replay the episodes that were not saved."""
    attempts, standing = search.attempts, search.attempts[-1].standing
    most = max(standing.best_episodes, standing.validated_episodes)
    if most > most_compared(config.episodes):
        raise damaged(
            logbook.folder / "attempts.jsonl",
            f"the best score at attempt {attempts[-1].number} has {most:,} episodes, too many",
            "restore it from a copy, or begin a new run",
        )
    buffer = logbook.buffer()
    if any(e.trajectory.observations.shape[1:] != (search.task.width,) for e in buffer):
        raise LogbookError(
            f"{logbook.folder / 'episodes.npz'} holds episodes of another task; delete it, and this run's episodes "
            "are replayed"
        )
    last_saved = max((episode.attempt for episode in buffer), default=-1)
    if last_saved >= len(attempts):  # the buffer holds episodes of an attempt that will be assessed again
        earlier, buffer, last_saved = buffer, ReplayBuffer(), -1
        if config.keeps_every_episode:  # otherwise these may have evicted earlier ones
            buffer.add(episode for episode in earlier if episode.attempt < len(attempts))
            last_saved = len(attempts) - 1
    search.buffer = buffer
    unlimited = Ledger(RunConfig(task=config.task))  # these episodes are already charged
    with EpisodeRunner(search, config, unlimited) as runner:
        for attempt in attempts[last_saved + 1 :]:
            if attempt.score is not None and not REPEATS.of(attempt):
                with suppress(EnvironmentFault):  # leave out episodes that can no longer be played
                    for some in runner.replayed(attempt):
                        buffer.add(make_episodes(attempt.number, some, search.task))
        best, policy = search.best, search.incumbent
        if best is None or policy is None:
            return
        search.best_score = exact_score(policy, search.mdp) if search.mdp is not None else None
        if search.best_score is not None:
            return
        try:
            search.best_score = runner.extended("search", policy, None, standing.best_episodes)
            if standing.validated_episodes:
                search.validation = runner.extended("validation", policy, None, standing.validated_episodes)
        except EnvironmentFault:
            search.best_score = search.best_score or best.score


def preview(
    name: str, config_file: Path | None, assignments: Sequence[str], options: Mapping[str, Any], *, trust: bool = False
) -> tuple[Prompt, str]:
    """Render the first prompt of a task, or the next prompt of a run, exactly as a model would get it.

    Args:
        trust: let the task name modules to import and paths to read.

    Returns:
        The prompt, and a line about its size, cost and templates.

    Raises PolicygenError for invalid input and for a broken template.
    """
    folder = find_run(name)
    changes: dict[str, Any] = {"file": config_file, "assignments": assignments, "options": options}
    comments: tuple[str, ...] = ()
    if (folder / "config.toml").is_file():
        loaded = load_run(folder, trust=trust)
        search = loaded.search
        config = effective_config(search.task, loaded.config.task, base=loaded.config, **changes)
        if config.ablate != loaded.config.ablate:
            raise UsageError(
                f"{folder} was run with --ablate {loaded.config.ablate}, and its policies use those names; preview the "
                "task itself to see another --ablate"
            )
        comments = Comments(folder, loaded.commented).new()
    else:
        task = load_task(name, trust=trust, **load_limits(config_file, assignments, options))
        task, config = prepared(task, effective_config(task, name, **changes))
        search = new_search(task)
        with EpisodeRunner(search, config, Ledger(config, env_steps=task.steps_taken)) as runner:
            search.keep(assess_random_actions(runner))
    prompt = render_prompt(replace(search.context(config), comments=comments), config, search.turns)
    asked = read_spec(config.llm)
    price = ""
    if asked.entry is None or asked.entry.is_language_model:
        usd = cost(config, config.llm, asked.argument, prompt.estimated_tokens, 0)
        price = ", cost unknown" if usd is None else f", about ${usd:.5f} to send"
    own = ", ".join(own_templates(config))
    remark = (
        f"--- {prompt.characters:,} characters, about {prompt.estimated_tokens:,} tokens{price}; "
        f"template {improve_template(config)}{f'; not shipped: {own}' if own else ''} ---"
    )
    return prompt, remark
