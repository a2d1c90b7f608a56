"""The command `drive`: a model decides every step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli.options import say, trust_option
from policygen.cli.seats import carried_out, check_settings, requests_in_words, seat_options, tell_key

if TYPE_CHECKING:
    from policygen.extensions.seats.drive import Drive, DriveResult


@click.command()
@click.argument("task")
@click.option(
    "--llm",
    required=True,
    metavar="SPEC",
    help="Who drives: provider and model, policy:RUN|best.json, or replay:DRIVE.",
)
@click.option("--episodes", type=click.IntRange(1), default=10, help="Episodes to play (default 10).")
@click.option(
    "--memory",
    type=click.IntRange(0, 100),
    default=0,
    help="Number of previous steps shown (default 0).",
)
@seat_options(
    "Template of the question: a name in templates/ or a path (default: drive).",
    "Determines the episodes (default 0).",
)
@trust_option
def drive(
    task: str,
    *,
    assignments: tuple[str, ...],
    out: Path | None,
    trust: bool,
    episodes: int,
    memory: int,
    **options: Any,
) -> None:
    """Let a model decide every step of some episodes of TASK, and turn its decisions into a table.

    The model sees bins if the task has a grid. A situation seen before is not asked again; with --memory, a situation
    includes the previous steps. An answer without an action gets one repair; then the action chosen most often so far
    is taken, and counted. The folder holds best.json, a table of the most frequent choice per cell, for `eval`, `show`
    and `film`. The same command with the same --out continues from the answers stored there; budgets apply per command.
    """
    from policygen.extensions.seats.drive import Drive, DriveSettings
    from policygen.extensions.seats.session import default_folder
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task
    from policygen.tasks.spaces import slug

    check_settings(assignments)
    concurrency, template = options.pop("concurrency"), options.pop("template")
    loaded = load_task(task, trust=trust)
    config = effective_config(loaded, task, assignments=assignments, options=options)
    plan = DriveSettings(episodes, memory, concurrency, template)
    begun = Drive(
        loaded,
        config.trusted() if trust else config,
        plan,
        out or default_folder(f"{slug(loaded.name)}-driven", config),
        on_episode=lambda trajectory: say(_episode(begun)),
        tell=lambda wait: say(f"  {wait}", err=True),
    )
    _introduce(begun)
    for line in _report(begun, carried_out(begun)):
        say(line)


def _introduce(drive: Drive) -> None:
    task, plan, provider = drive.task, drive.plan, drive.provider
    who = provider.spec if provider.is_language_model else f"{provider.spec}, which is not a language model"
    side = drive.asker.concurrency
    say(f"{task.name} ({task.gym_id}), {plan.episodes} episodes, decided by: {who}")
    if task.texts:
        beside = ", numbers in bins" if task.observations and task.grid is not None else ""
        seen = f"{', '.join(task.text_names)} as read{beside}"
    elif task.grid is not None:
        seen = f"bins of {', '.join(task.grid.names)} ({task.grid.size:,} cells)"
    else:
        seen = "numbers of three digits (without bins, situations rarely repeat)"
    steps = f", and the previous {'step' if plan.memory == 1 else f'{plan.memory} steps'}" if plan.memory else ""
    say(f"  shown: {seen}{steps}; {'one question' if side == 1 else f'up to {side} questions'} at a time")
    for sentence in task.assumed:
        say(f"  assumed: {sentence}")
    tell_key(provider)


def _episode(drive: Drive) -> str:
    """Describe the last episode in one line."""
    ended, counts, ledger = drive.driver.ended, drive.driver.counts, drive.asker.ledger
    last = ended[-1]
    cost = "" if ledger.usd is None or not drive.provider.is_language_model else f", ${ledger.usd:.4f}"
    return (
        f"{len(ended):4d}  return {last.episode_return:.6g} in {last.length} steps"
        f"  [{ledger.calls} requests, {counts.hits} hits{cost}]"
    )


def _report(drive: Drive, outcome: DriveResult) -> Iterator[str]:
    """Yield the lines of the final report."""
    from policygen.episodes.score import engine_words, sampled_score

    yield ""
    if outcome.stopped:
        lost = outcome.planned - outcome.episodes
        yield f"stopped: {outcome.stopped}; {lost} of {outcome.planned} episodes were not played to their end"
    if drive.driver.ended:
        yield f"driven: {sampled_score(drive.driver.ended, engine_words('copies', drive.task))}"
    if drive.score is not None:
        yield f"score of the table of choices: {drive.score}{'' if drive.score.exact else ' the model did not play'}"
        unseen = outcome.cells - outcome.cells_seen
        rest = f"; the other {unseen:,} take {outcome.most_chosen}, the action chosen most often" if unseen else ""
        yield f"  {outcome.cells_seen:,} of {outcome.cells:,} cells were seen{rest}"
    elif drive.task.grid is None:
        name = shlex.quote(drive.config.task)
        yield f"no table: the task has no bins; give it a [grid] in a task file (policygen tasks {name} --draft)"
    else:
        yield "no table: no answer held an action"
    counts = outcome.counts
    share = counts.hits / counts.steps if counts.steps else 0.0
    yield (
        f"{counts.steps:,} decisions, {counts.hits:,} of them ({share:.0%}) in situations seen before; "
        f"{counts.asked:,} situations, {requests_in_words(outcome)}"
    )
    yield (
        f"{counts.repairs} answers had to be repaired; {counts.fallbacks} situations fell back to another action, "
        f"in {counts.fallback_uses} decisions"
    )
    if outcome.is_language_model:
        tokens = "unknown" if outcome.tokens_per_episode is None else f"{outcome.tokens_per_episode:,.0f}"
        usd = "cost unknown" if outcome.usd_per_episode is None else f"${outcome.usd_per_episode:.4f}"
        yield (
            f"{outcome.decision_seconds:.2g} s a decision, {outcome.answer_seconds:.2g} s an answer; "
            f"{tokens} tokens and {usd} an episode"
        )
    yield f"results: {drive.folder}"
