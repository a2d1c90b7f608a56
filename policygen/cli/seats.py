"""The commands `drive` and `mediate`: a model decides every step of some episodes, or plans when it is asked."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.errors import PolicygenError, UsageError
from policygen.files import write_named

if TYPE_CHECKING:
    from policygen.extensions.seats import mediate as mediation
    from policygen.extensions.seats.drive import Drive, DriveResult
    from policygen.extensions.seats.session import ModelSession, SessionResult

    ResultT = TypeVar("ResultT", bound=SessionResult)


def shared_options(template: str, seed: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options that `drive` and `mediate` share; `template` and `seed` are the help texts of two of them."""
    return opt.all_of(
        click.option(
            "--concurrency", type=click.IntRange(1, 64), default=4, help="Questions under way at a time (default 4)."
        ),
        click.option("--template", help=template),
        click.option("--seed", type=click.IntRange(0), help=seed),
        opt.BASE_URL,
        opt.MODEL_BUDGETS,
        opt.assignment("A setting such as temperature=0, max_output_tokens=500 or prices=0.25/2; may be repeated."),
        click.option("--out", type=opt.PATH, help="Folder of the results (default: a new one in results/)."),
    )


def _check_settings(assignments: Sequence[str], *, without: Sequence[str] = ()) -> None:
    """Raise UsageError for a setting that has no effect on this command."""
    from policygen.extensions.seats.session import SETTINGS

    known = [name for name in SETTINGS if name not in without]
    for text in assignments:
        if (name := text.partition("=")[0].strip()) not in known:
            raise UsageError(f"--set {name} has no effect here; these settings have one: {', '.join(known)}")


def _carry_out(session: ModelSession[ResultT]) -> ResultT:
    """Carry out a session; after a failure or interruption, print how to continue."""
    try:
        return session.carry_out()
    except (KeyboardInterrupt, PolicygenError):
        say(f"No answer is lost: continue with the same command and --out {shlex.quote(str(session.folder))}", err=True)
        raise


def _requests(outcome: SessionResult) -> str:
    """Return the number of requests, and of answers that an earlier session stored, in words."""
    who = "requests" if outcome.is_language_model else "requests, none to a language model"
    kept = f", {outcome.cached} answers stored by an earlier command" if outcome.cached else ""
    return f"{outcome.requests:,} {who}{kept}"


# --- drive -----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("task")
@click.option(
    "--llm",
    required=True,
    metavar="SPEC",
    help="The driver: provider and model, policy:RUN|best.json, or replay:DRIVE.",
)
@click.option("--episodes", type=click.IntRange(1), default=10, help="Episodes to play (default 10).")
@click.option("--memory", type=click.IntRange(0, 100), default=0, help="Number of previous steps shown (default 0).")
@shared_options(
    "Template of the question: a name in templates/ or a path (default: drive).", "Determines the episodes (default 0)."
)
@opt.TRUST
def drive(task: str, *, assignments: tuple[str, ...], out: Path | None, trust: bool, **options: Any) -> None:
    """Let a model decide every step of some episodes of TASK, and turn its decisions into a table.

    The model sees bins if the task has a grid. A situation seen before is not asked about again; with --memory, a
    situation includes the previous steps. An answer without an action gets one repair request. If that fails, the
    action chosen most often so far is taken; the report counts these fallbacks, and the table leaves them out. The
    folder holds best.json, a table of the most frequent choice per cell, for `eval`, `show` and `film`. The same
    command with the same --out continues from the answers stored there; budgets apply per command.
    """
    from policygen.extensions.seats.drive import Drive, DriveSettings
    from policygen.extensions.seats.session import default_folder
    from policygen.quantities.text import slug
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task

    _check_settings(assignments)
    settings = DriveSettings(*(options.pop(name) for name in ("episodes", "memory", "concurrency", "template")))
    loaded = load_task(task, trust=trust)
    config = effective_config(loaded, task, assignments=assignments, options=options)
    session = Drive(
        loaded,
        config.trusted() if trust else config,
        settings,
        out or default_folder(f"{slug(loaded.name)}-driven", config),
        on_episode=lambda trajectory: say(_episode(session)),
        tell=lambda wait: say(f"  {wait}", err=True),
    )
    _introduce(session)
    _report_drive(session, _carry_out(session))


def _introduce(drive: Drive) -> None:
    """Print the task, the driver, and the quantities that it is shown."""
    task, memory, provider = drive.task, drive.settings.memory, drive.provider
    who = provider.spec if provider.is_language_model else f"{provider.spec}, which is not a language model"
    concurrency = drive.asker.concurrency
    say(f"{task.name} ({task.gym_id}), {drive.settings.episodes} episodes, decided by: {who}")
    if task.texts:
        beside = ", numbers in bins" if task.observations and task.grid is not None else ""
        seen = f"{', '.join(task.text_names)} as read{beside}"
    elif task.grid is not None:
        seen = f"bins of {', '.join(task.grid.names)} ({task.grid.size:,} cells)"
    else:
        seen = "numbers of three digits (without bins, situations rarely repeat)"
    steps = f", and the previous {'step' if memory == 1 else f'{memory} steps'}" if memory else ""
    say(f"  shown: {seen}{steps}; {'one question' if concurrency == 1 else f'up to {concurrency} questions'} at a time")
    for sentence in task.assumed:
        say(f"  assumed: {sentence}")
    opt.say_key(provider)


def _episode(drive: Drive) -> str:
    """Return a line about the last episode."""
    ended, ledger = drive.driver.ended, drive.asker.ledger
    last = ended[-1]
    cost = "" if ledger.usd is None or not drive.provider.is_language_model else f", ${ledger.usd:.4f}"
    return (
        f"{len(ended):4d}  return {last.episode_return:.6g} in {last.length} steps"
        f"  [{ledger.calls} requests, {drive.driver.hits} answers reused{cost}]"
    )


def _report_drive(drive: Drive, outcome: DriveResult) -> None:
    """Print the final report."""
    from policygen.episodes.score import engine_words, sampled_score
    from policygen.llm.prices import dollars

    say("")
    if outcome.stopped:
        lost = outcome.planned - outcome.episodes
        say(f"stopped: {outcome.stopped}; {lost} of {outcome.planned} episodes were not played to their end")
    if drive.driver.ended:
        say(f"driven: {sampled_score(drive.driver.ended, engine_words('copies', drive.task))}")
    if drive.score is not None:
        which = "" if drive.score.exact else " that the model did not play"
        say(f"score of the table of choices: {drive.score}{which}")
        unseen = outcome.cells - outcome.cells_seen
        rest = f"; the other {unseen:,} take {outcome.most_chosen}, the action chosen most often" if unseen else ""
        say(f"  {outcome.cells_seen:,} of {outcome.cells:,} cells were seen{rest}")
    elif drive.task.grid is None:
        name = shlex.quote(drive.config.task)
        say(f"no table: the task has no bins; give it a [grid] in a task file (policygen tasks {name} --draft)")
    else:
        say("no table: no answer stated an action")
    share = outcome.hits / outcome.steps if outcome.steps else 0.0
    say(
        f"{outcome.steps:,} decisions, {outcome.hits:,} of them ({share:.0%}) in situations seen before; "
        f"{outcome.asked:,} situations, {_requests(outcome)}"
    )
    say(
        f"{outcome.repairs} answers had to be repaired; {outcome.fallbacks} situations fell back to another action, "
        f"in {outcome.fallback_uses} decisions"
    )
    if outcome.is_language_model:
        tokens = "unknown" if outcome.tokens_per_episode is None else f"{outcome.tokens_per_episode:,.0f}"
        say(
            f"{outcome.decision_seconds:.2g} s a decision, {outcome.answer_seconds:.2g} s an answer; "
            f"{tokens} tokens and {dollars(outcome.usd_per_episode)} an episode"
        )
    say(f"results: {drive.folder}")


# --- mediate ---------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("rooms", metavar="[TASK]...", nargs=-1)
@click.option(
    "--llm", required=True, metavar="SPEC", help="Planner: provider and model, planner (rules, no key), or replay:DIR."
)
@click.option(
    "--mediator",
    "names",
    multiple=True,
    metavar="NAME|FILE",
    help="always, never, random, hard-coded, learned, or the file of a policy for the task when-to-ask; may be "
    "repeated (default: these five).",
)
@click.option(
    "--episodes", type=click.IntRange(1, 10_000), default=100, help="Episodes for each mediator (default 100)."
)
@click.option(
    "--train", type=click.IntRange(100), default=3_000, help="Episodes to learn a mediator from (default 3000)."
)
@click.option(
    "--cost", type=click.FloatRange(0, 1), default=0.01, help="Cost of a question while learning (default 0.01)."
)
@shared_options(
    "Template of the question: a name in templates/ or a path (default: mediate).",
    "Determines the episodes, and those to learn from (default 0).",
)
@click.option("-o", "--output", type=opt.PATH, help="Also write the table to this file, as Markdown.")
def mediate(rooms: tuple[str, ...], *, names: tuple[str, ...], assignments: tuple[str, ...], **options: Any) -> None:
    """Let a robot in a room with a locked door ask a model for plans, and compare rules for when to ask.

    TASK is SimpleDoorKey, KeyInBox, RandomBoxKey or ColoredDoorKey (default: all four); they need the package minigrid:
    pip install "policygen[minigrid]". The model reads a report of what the robot saw, and answers with options such as
    `go to key, pick up key`, which the robot carries out. A report seen before is not asked about again. An answer
    without a plan gets one repair request. If that fails, the robot explores; the report counts these fallbacks. A
    learned mediator is a table, tuned with the rule-based planner; `show` prints its file, TASK.json in the folder. The
    same command with the same --out continues from the answers stored there; budgets apply per command.
    """
    from policygen.extensions.seats import mediate as mediation
    from policygen.extensions.seats.session import default_folder
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task

    _check_settings(assignments, without=("ablate", "step_timeout"))
    out, output, train, cost = (options.pop(name) for name in ("out", "output", "train", "cost"))
    episodes, concurrency, template = (options.pop(name) for name in ("episodes", "concurrency", "template"))
    chosen = mediation.rooms_of(rooms)
    named = mediation.named_mediators(names or (*mediation.MEDIATORS, mediation.LEARNED))
    task = load_task(mediation.MEDIATOR_TASK)
    config = effective_config(task, mediation.MEDIATOR_TASK, assignments=assignments, options=options)

    def say_learning(room: str) -> None:
        say(f"{room}: learning when to ask from {train:,} episodes with the rule-based planner", err=True)

    def line(*cells: str) -> str:
        return "{:16}{:11} {:20}{:17}{:14}{}".format(*cells)

    session = mediation.Mediation(
        task,
        config,
        mediation.MediationSettings(chosen, named, episodes, train, cost, concurrency, template),
        out or default_folder("on-call", config),
        on_learning=say_learning,
        on_row=lambda row: say(line(row.room, row.mediator, *mediation.row_in_words(row))),
        tell=lambda wait: say(f"  {wait}", err=True),
    )
    provider = session.provider
    who = provider.spec if provider.is_language_model else f"{provider.spec}: rules, not a language model"
    say(f"planner: {who}; {episodes} episodes for each mediator, the same for all")
    opt.say_key(provider)
    say(line("room", "mediator", "doors opened", "return", "steps", "questions"))
    outcome = _carry_out(session)
    _report_mediation(outcome)
    if output is not None:
        words = ["policygen", "mediate", *rooms, "--llm", config.llm, "--seed", str(config.seed)]
        words += [word for name in names for word in ("--mediator", name)]
        words += [] if train == 3_000 else ["--train", str(train)]
        words += [] if cost == mediation.COST else ["--cost", str(cost)]
        words += [] if template is None else ["--template", template]
        words += [word for text in assignments for word in ("--set", text)]
        command = shlex.join([*words, "--episodes", str(episodes), "-o", str(output)])
        write_named(output, mediation.page(outcome, command, cost))
        say(f"table: {output}")
    say(f"results: {session.folder}")


def _report_mediation(outcome: mediation.MediationResult) -> None:
    """Print the final report."""
    from policygen.extensions.seats import mediate as mediation
    from policygen.llm.prices import dollars

    for room, text in outcome.tables:
        say(f"\n{room}, learned:\n{text}")
    say("")
    for verdict in filter(None, (mediation.learned_verdict(outcome, room) for room, _ in outcome.tables)):
        say(verdict)
    if outcome.stopped:
        say(f"stopped: {outcome.stopped}; a mediator whose episodes were not all played is left out")
    say(f"plans for {outcome.asked} different reports: {_requests(outcome)}")
    say(
        f"{outcome.repairs} answers had to be repaired; {outcome.fallbacks} reports fell back to exploring, "
        f"{outcome.fallback_uses} times"
    )
    if outcome.is_language_model:
        say(f"{outcome.tokens_in + outcome.tokens_out:,} tokens, {dollars(outcome.usd)}")
