"""The command `mediate`: mediators that decide when to ask a model for a plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli.options import PATH, say
from policygen.cli.seats import carried_out, check_settings, requests_in_words, seat_options, tell_key

if TYPE_CHECKING:
    from policygen.extensions.seats.mediate import Mediation, MediationResult, MediatorRow
    from policygen.extensions.seats.mediator import Mediator

DEFAULT = ("always", "never", "random", "hard-coded", "learned")


@click.command()
@click.argument("rooms", metavar="[TASK]...", nargs=-1)
@click.option(
    "--llm",
    required=True,
    metavar="SPEC",
    help="Planner: provider and model, planner (rules, no key), or replay:DIR.",
)
@click.option(
    "--mediator",
    "names",
    multiple=True,
    metavar="NAME|FILE",
    help="always, never, random, hard-coded, learned, or a policy for when-to-ask; may be repeated (default: all).",
)
@click.option(
    "--episodes", type=click.IntRange(1, 10_000), default=100, help="Episodes for each mediator (default 100)."
)
@click.option("--train", type=click.IntRange(100), help="Episodes to learn a mediator from (default 3000).")
@click.option("--cost", type=click.FloatRange(0, 1), help="Cost of a question while learning (default 0.01).")
@seat_options(
    "Template of the question: a name in templates/ or a path (default: mediate).",
    "Determines the episodes, and those to learn from (default 0).",
)
@click.option("-o", "--output", type=PATH, help="Also write the table to this file, as Markdown.")
def mediate(
    rooms: tuple[str, ...],
    *,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    out: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Let a robot in a room with a locked door ask a model for plans, and compare when to ask it.

    TASK is SimpleDoorKey, KeyInBox, RandomBoxKey or ColoredDoorKey (default: all four); they need the package minigrid:
    pip install "policygen[minigrid]". The model reads a report of what the robot saw, and answers with options such as
    `go to key, pick up key`, which code carries out. The same report is asked only once. An answer without a plan gets
    one repair; then the robot explores, and that is counted. A learned mediator is a table, tuned with the rule-based
    planner; `show` prints its file, TASK.json in the folder. The same command with the same --out continues from the
    answers stored there; budgets apply per command.
    """
    from policygen.extensions.seats.mediate import Mediation, MediationSettings
    from policygen.extensions.seats.mediating_table import page
    from policygen.extensions.seats.mediator import LEARNED, mediator_of
    from policygen.extensions.seats.on_call import COST, EPISODES, TASK, learned_mediator, named_mediators, rooms_of
    from policygen.extensions.seats.session import default_folder
    from policygen.files import write_named
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task

    check_settings(assignments, without=("ablate", "step_timeout"))
    episodes, concurrency, template = (options.pop(name) for name in ("episodes", "concurrency", "template"))
    train = options.pop("train") or EPISODES
    cost = options.pop("cost")
    cost = COST if cost is None else cost
    chosen, names = rooms_of(rooms), names or DEFAULT
    task = load_task(TASK)
    config = effective_config(task, TASK, assignments=assignments, options=options)
    named = named_mediators(names)

    def mediators(room: str) -> Iterator[Mediator]:
        for mediator in named.values():
            if mediator is None:
                say(f"{room}: learning when to ask from {train:,} episodes with the rule-based planner", err=True)
                learned = learned_mediator(room, seed=config.seed, episodes=train, cost=cost)
                mediator = mediator_of(learned, task, LEARNED)
            yield mediator

    begun = Mediation(
        task,
        config,
        MediationSettings(chosen, mediators, episodes, concurrency, template),
        out or default_folder("on-call", config),
        on_row=lambda row: say(_line(row)),
        tell=lambda wait: say(f"  {wait}", err=True),
    )
    _introduce(begun)
    outcome = carried_out(begun)
    for line in _report(outcome):
        say(line)
    if output is not None:
        words = ["policygen", "mediate", *rooms, "--llm", config.llm, "--seed", str(config.seed)]
        words += [] if names == DEFAULT else [word for name in names for word in ("--mediator", name)]
        command = shlex.join([*words, "--episodes", str(episodes), "-o", str(output)])
        write_named(output, page(outcome, command))
        say(f"table: {output}")
    say(f"results: {begun.folder}")


def _introduce(begun: Mediation) -> None:
    provider, plan = begun.provider, begun.plan
    who = provider.spec if provider.is_language_model else f"{provider.spec}: rules, not a language model"
    say(f"planner: {who}; {plan.episodes} episodes for each mediator, the same for all")
    tell_key(provider)
    say(f"{'room':16}{'mediator':12}{'doors opened':20}{'return':17}{'steps':14}questions")


def _line(row: MediatorRow) -> str:
    """Describe a mediator's result in one line."""
    from policygen.extensions.seats.mediating_table import row_in_words

    success, returned, steps, questions = row_in_words(row)
    return f"{row.room:16}{row.mediator:11} {success:20}{returned:17}{steps:14}{questions}"


def _report(outcome: MediationResult) -> Iterator[str]:
    """Yield the lines of the final report."""
    from policygen.extensions.seats.mediating_table import aim

    for room, text in outcome.tables:
        yield f"\n{room}, learned:\n{text}"
    yield ""
    yield from filter(None, (aim(outcome, room) for room, _ in outcome.tables))
    if outcome.stopped:
        yield f"stopped: {outcome.stopped}; a mediator whose episodes were not all played is left out"
    counts = outcome.counts
    yield f"{counts.asked} different reports were planned for: {requests_in_words(outcome)}"
    yield (
        f"{counts.repairs} answers had to be repaired; {counts.fallbacks} reports fell back to exploring, "
        f"{counts.fallback_uses} times"
    )
    if outcome.is_language_model:
        usd = "cost unknown" if outcome.usd is None else f"${outcome.usd:.4f}"
        yield f"{outcome.tokens_in + outcome.tokens_out:,} tokens, {usd}"
