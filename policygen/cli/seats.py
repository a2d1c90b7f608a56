"""The commands `drive` and `mediate`: a model decides every step of some episodes, or plans when it is asked."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.files import write_named

if TYPE_CHECKING:
    from policygen.extensions.seats.drive import Driver
    from policygen.extensions.seats.session import Session
    from policygen.runs.config import RunConfig
    from policygen.runs.listeners import Activity

# The run settings that also apply to `drive` and `mediate`, beside --llm.
SETTINGS = ("seed", *opt.REQUESTS, "max_calls", "max_tokens", "prompt_tokens", "step_timeout")
ROOMS = ("SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey")  # as in `robot.py`, which is slow to import
SHARED_OPTIONS = opt.all_of(
    click.option("--concurrency", type=click.IntRange(1, 64), default=4, help="Most questions at a time (default 4)."),
    click.option("--out", type=opt.PATH, help="Folder for the results (default: a new one in results/)."),
)


def _new_folder(name: str, config: RunConfig) -> Path:
    provider = re.sub(r"\W+", "-", config.llm.partition(":")[0])
    return Path("results") / f"{name}-{provider}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.seed}"


def _say_wait(activity: Activity | None) -> None:
    from policygen.llm.retry import Wait

    if isinstance(activity, Wait) and activity.reason:
        say(f"  {activity}", err=True)


def _introduce(what: str, session: Session) -> None:
    """Print what is played, who is asked, and how to continue later."""
    provider = session.provider
    say(f"{what}{provider.spec}{'' if provider.is_language_model else ', which is not a language model'}")
    opt.say_key(provider)
    say(f"  continue later with the same command and --out {shlex.quote(str(session.folder))}: no answer is lost")


@click.command(cls=opt.WithSettings, only=SETTINGS)
@click.argument("task")
@click.option(
    "--llm",
    required=True,
    metavar="SPEC",
    help="The driver: provider and model, policy:RUN|best.json, or replay:DRIVE.",
)
@click.option("--episodes", type=click.IntRange(1), default=10, help="Episodes to play (default 10).")
@click.option("--memory", type=click.IntRange(0, 100), default=0, help="Number of previous steps to show (default 0).")
@SHARED_OPTIONS
@opt.TRUST
def drive(task: str, *, out: Path | None, trust: bool, **options: Any) -> None:
    """Let a model decide every step, and turn its decisions into a table.

    The model sees bins if the task has a grid. It is asked about each situation once; with --memory, a situation
    includes the previous steps. An answer without an action gets one repair request. If that fails, the action chosen
    most often so far is used; the report counts these fallbacks, and the table leaves them out. The folder holds
    best.json, a table of the most frequent action in each cell, for `eval`, `show` and `film`. The same command with
    the same --out continues from the answers stored there; budgets apply per command.
    """
    from policygen.extensions.seats import drive as seat
    from policygen.quantities.text import slug
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task

    episodes, memory, concurrency = (options.pop(name) for name in ("episodes", "memory", "concurrency"))
    loaded = load_task(task, trust=trust)
    config = effective_config(loaded, task, options=options)
    config = config.trusted() if trust else config
    folder = out or _new_folder(f"{slug(loaded.name)}-driven", config)
    driver = seat.open_drive(
        loaded, config, folder, memory=memory, on_episode=_say_episode, concurrency=concurrency, tell=_say_wait
    )
    with closing(driver.session):
        _introduce(f"{loaded.name} ({loaded.gym_id}), {episodes} episodes, decided by: ", driver.session)
        if loaded.grid is None and not loaded.texts:
            say("  the task has no bins, so situations rarely repeat, and there will be no table")
        for sentence in loaded.assumed:
            say(f"  assumed: {sentence}")
        _report_drive(driver, seat.drive(driver, episodes))


def _say_episode(driver: Driver) -> None:
    last, ledger = driver.ended[-1], driver.session.log.ledger
    paid = f", ${ledger.usd:.4f}" if driver.session.provider.is_language_model and ledger.usd is not None else ""
    used = f"{ledger.calls} requests, {driver.hits} answers reused{paid}"
    say(f"{len(driver.ended):4d}  return {last.episode_return:.6g} in {last.length} steps  [{used}]")


def _report_drive(driver: Driver, result: Mapping[str, Any]) -> None:
    """Print the final report; `result` is that of `drive`."""
    from policygen.episodes.score import engine_words, sampled_score
    from policygen.extensions.seats.session import request_words

    say("")
    if result["stopped"]:
        say(f"stopped: {result['stopped']}; {result['episodes']} of {result['planned']} episodes were played")
    if driver.ended:
        say(f"driven: {sampled_score(driver.ended, engine_words('copies', driver.questions.task))}")
    if driver.score is not None:
        which = "" if driver.score.exact else " that the model did not play"
        say(f"score of the table: {driver.score}{which}")
        seen = f"  {result['cells_seen']:,} of {result['cells']:,} cells were seen"
        say(f"{seen}; the others get {result['most_chosen']}, the action chosen most often")
    share = result["hits"] / max(1, result["steps"])
    say(f"{result['steps']:,} decisions, {result['hits']:,} of them ({share:.0%}) in situations seen before")
    say(f"{result['asked']:,} situations: {request_words(result)}; {result['repairs']} answers needed a repair")
    if result["fallback_uses"]:
        say(f"no action for {result['fallbacks']} situations; {result['fallback_uses']} decisions used a fallback")
    if result["is_language_model"]:
        say(f"{result['decision_seconds']:.2g} s a decision, {result['answer_seconds']:.2g} s a request")
    say(f"results: {driver.session.folder}")


@click.command(cls=opt.WithSettings, only=SETTINGS)
@click.argument("rooms", metavar="[TASK]...", nargs=-1, type=click.Choice(ROOMS))
@click.option(
    "--llm", required=True, metavar="SPEC", help="Planner: provider and model, planner (rules, no key), or replay:DIR."
)
@click.option(
    "--mediator",
    "names",
    multiple=True,
    type=click.Choice(("always", "never", "random", "hard-coded", "learned")),
    help="Rule to compare; may be repeated (default: all five).",
)
@click.option(
    "--episodes", type=click.IntRange(1, 10_000), default=100, help="Episodes for each mediator (default 100)."
)
@click.option("--train", type=click.IntRange(100), default=3_000, help="Episodes for tuning `learned` (default 3000).")
@SHARED_OPTIONS
@click.option("-o", "--output", type=opt.PATH, help="Also write the table to this Markdown file.")
def mediate(rooms: tuple[str, ...], *, names: tuple[str, ...], **options: Any) -> None:
    """Compare rules for when a robot asks a model for a plan.

    The robot is in a room with a locked door. TASK is SimpleDoorKey, KeyInBox, RandomBoxKey or ColoredDoorKey
    (default: all four); they need the package minigrid: pip install "policygen[minigrid]". The model reads a report
    of what the robot saw, and answers with options such as `go to key, pick up key`, which the robot carries out. It
    is asked about each report once. An answer without a plan gets one repair request. If that fails, the robot
    explores; the summary counts these fallbacks. The rule `learned` is a table, tuned with the rule-based planner;
    `show` prints its file, TASK.json in the folder. The same command with the same --out continues from the answers
    stored there; budgets apply per command.
    """
    from policygen.extensions.seats import mediate as seat
    from policygen.runs.config import effective_config
    from policygen.tasks.load import load_task

    def line(*cells: str) -> None:
        say("{:16}{:11} {:20}{:17}{:14}{}".format(*cells))

    out, output, concurrency = (options.pop(name) for name in ("out", "output", "concurrency"))
    episodes, train = options.pop("episodes"), options.pop("train")
    task = load_task(seat.MEDIATOR_TASK)
    config = effective_config(task, seat.MEDIATOR_TASK, options=options)
    folder = out or _new_folder("on-call", config)
    with closing(seat.open_mediation(config, folder, concurrency=concurrency, tell=_say_wait)) as session:
        _introduce(f"{episodes} episodes for each mediator, the same for all; plans by: ", session)
        line("room", "mediator", "doors opened", "return", "steps", "questions")
        result = seat.mediate(
            session, rooms, names, episodes=episodes, train=train, on_row=lambda row: line(*seat.row_words(row))
        )
    say("\n" + seat.summary(result))
    if output is not None:
        write_named(output, seat.page(result))
        say(f"table: {output}")
    say(f"results: {session.folder}")
