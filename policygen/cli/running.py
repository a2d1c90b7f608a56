"""The commands of one run: `run`, `mcp`, `resume`."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.cli.preparing import list_tasks
from policygen.errors import PolicygenError, UsageError
from policygen.files import find_run
from policygen.notices import notices

if TYPE_CHECKING:
    from policygen.extensions.page.render import RunPage
    from policygen.extensions.trackers import Tracker
    from policygen.llm import Provider
    from policygen.runs.config import RunConfig
    from policygen.search.run import Run
    from policygen.tasks.task import Task


@click.command(cls=opt.WithSettings)
@click.argument("task")
@opt.OF_A_RUN
def run(task: str, **options: Any) -> None:
    """Search for a policy for TASK: a shipped task, a task file, a Gymnasium id, or MODULE:CLASS.

    Settings can be given as options, in a --config file, or in the [run] table of the task file. Defaults are in
    parentheses.
    """
    _carry_out(*_start(*_load(task, options), options))


@click.command(cls=opt.WithSettings, without=("llm", *opt.REQUESTS))
@click.argument("task", metavar="[TASK|RUN]", default="")
@opt.OF_A_RUN
def mcp(task: str, **options: Any) -> None:
    """Let a coding assistant act as the model in a run.

    It connects by the Model Context Protocol (stdin and stdout). Its tools are tasks, prompt, propose, best and
    report. Without TASK, the assistant chooses one. RUN continues an interrupted run, with larger budgets if given.
    The command needs `pip install "policygen[mcp]"`.
    """
    try:  # the extra `mcp`
        from policygen.extensions.mcp_server import Assistant, serve
    except ImportError:
        raise UsageError('mcp needs more packages; run: pip install "policygen[mcp]"') from None
    from policygen.api import default_listeners
    from policygen.progress import Terminal
    from policygen.search.resume import resume as resume_run
    from policygen.search.run import carry_out

    options["llm"], assistant = "mcp", Assistant(task, list_tasks)

    def play() -> str:
        if ((folder := find_run(assistant.task)) / "config.toml").is_file():
            changes = {name: value for name, value in opt.stated(options).items() if name != "llm"}
            assistant.run = resume_run(folder, assistant, changes, trust=options["trust"])
            more_listeners = opt.listeners(options["track"], options["report"])
        else:
            assistant.run, more_listeners = _start(*_load(assistant.task, options), options, assistant)
        listeners = (Terminal(assistant.run), *default_listeners(assistant.run), *more_listeners, assistant)
        try:
            return carry_out(assistant.run, listeners).stopped
        except (KeyboardInterrupt, PolicygenError):
            say(_resume_command(assistant.run, more_listeners), err=True)
            raise

    serve(assistant, play)


def _load(task: str, options: Mapping[str, Any]) -> tuple[Task, RunConfig]:
    """Return the task of a new run, perturbed as the options say, and the run's settings."""
    from policygen.runs.config import effective_config, load_limits
    from policygen.tasks.load import load_task

    file, assignments, stated = options["config_file"], options["assignments"], opt.settings(options)
    limits = load_limits(file, assignments, stated)
    loaded = opt.perturbed(load_task(task, trust=options["trust"], **limits), options["perturb"])
    return loaded, effective_config(loaded, task, file=file, assignments=assignments, options=stated)


def _start(
    loaded: Task, config: RunConfig, options: Mapping[str, Any], provider: Provider | None = None
) -> tuple[Run, Sequence[Tracker | RunPage]]:
    """Begin a run, print its settings, and return it with the listeners that options ask for."""
    from policygen.runs.tuning import allowance
    from policygen.search.run import start
    from policygen.tasks.load import CUT
    from policygen.tasks.task import KIND_WORDS

    listeners = opt.listeners(options["track"], options["report"])
    started = config.trusted() if options["trust"] else config
    active_run = start(loaded, started, options["out"], provider, cache=options["cache"])
    chosen, more = active_run.config, ""
    if chosen.episodes != config.episodes:
        why = "they are short and vary" if chosen.episodes > config.episodes else "--max-steps allows no more"
        more = f"; {chosen.episodes} episodes per score: {why}"
    cut = [sentence for sentence in active_run.task.assumed if sentence.startswith(CUT)]
    more += "".join(f"; {sentence}" for sentence in cut)
    introduction = f"policy: {KIND_WORDS[config.policy]}, proposals from {active_run.proposer.introduction}"
    say(f"{loaded.name} ({loaded.gym_id}), {introduction}{more}")
    for sentence in active_run.task.assumed:
        if sentence not in cut:
            say(f"  assumed: {sentence}")
    if words := allowance(active_run.task, chosen):
        say(f"  budget: {words}")
    if chosen.max_steps is not None:
        told = ["the best policy is not scored with delay and noise"] if chosen.fragility else []
        if config.patience != chosen.patience:
            told.insert(0, f"the run ends after {chosen.patience} attempts without a new best (--patience)")
        if told:
            say(f"  because of --max-steps: {'; '.join(told)}")
    if active_run.task.perturb:
        say(f"  perturbed in each episode: {', '.join(one.in_words for one in active_run.task.perturb)}")
    opt.say_own_templates(active_run.config)
    return active_run, listeners


# Settings that may change, and `llm`, which may be repeated to trust its address or to give the password in it.
_OF_RESUME = (
    *("llm", "base_url", "iterations", "patience", "max_calls", "max_tokens", "max_usd", "max_episodes", "max_steps"),
    *("jobs", "step_timeout", "prompt_tokens", "timeout_seconds"),
)


@click.command(cls=opt.WithSettings, only=_OF_RESUME)
@click.argument("run_folder", metavar="RUN", type=opt.RunPath())
@opt.assignment("Any of the settings above, or extra_body with its old value, to confirm it; may be repeated.")
@opt.CACHE
@opt.TRACK
@opt.REPORT
@opt.TRUST
def resume(run_folder: Path, **options: Any) -> None:
    """Continue an interrupted run; the result is that of an uninterrupted one.

    With a larger budget, a finished run continues, too. To continue a sweep, repeat its command. Repeat --llm to trust
    its address, or to give the password in it (runs store none).
    """
    from policygen.search.resume import resume as resume_run

    if opt.installed("sweeps"):
        from policygen.extensions.sweeps.plan import is_sweep

        if is_sweep(run_folder):
            raise UsageError(f"{run_folder} is a sweep: repeat the command that began it")
    changes = opt.stated(options)
    listeners = opt.listeners(options["track"], options["report"])
    active_run = resume_run(run_folder, changes=changes, trust=options["trust"], cache=options["cache"])
    attempts = active_run.search.attempts
    say(f"continuing after attempt {attempts[-1].number}" if attempts else "continuing: no attempt was recorded yet")
    opt.say_own_templates(active_run.config)
    _carry_out(active_run, listeners)


def _carry_out(active_run: Any, listeners: Sequence[Tracker | RunPage]) -> None:
    """Carry out a run with output on the terminal, and print its results; exit with 1 if it has no policy."""
    from policygen.api import default_listeners
    from policygen.llm import reads_prompts
    from policygen.progress import Terminal
    from policygen.runs.facts import lines_of, record_of, run_facts
    from policygen.search.run import carry_out

    opt.say_key(active_run.provider)
    if active_run.cache is not None and not reads_prompts(active_run.config.llm):
        say(f"  --cache has no effect: {active_run.config.llm.partition(':')[0]} asks no model")
    hint = _resume_command(active_run, listeners)
    notices.say_exit = lambda sentence: say(f"Error: {sentence}\n{hint}", err=True)
    try:
        summary = carry_out(active_run, (Terminal(active_run), *default_listeners(active_run), *listeners))
    except KeyboardInterrupt:
        say(f"\nInterrupted. {hint}", err=True)
        raise SystemExit(130) from None
    except PolicygenError as error:
        raise SystemExit(opt.fail(f"{error}\n{hint}", opt.code_of(error))) from None
    say("")
    for words in lines_of(run_facts(record_of(active_run, summary)), "replies from the cache", "environment steps"):
        say(words)
    say(f"results: {active_run.folder}")
    if active_run.search.best is None:
        raise SystemExit(1)


def _resume_command(active_run: Any, listeners: Sequence[Tracker | RunPage]) -> str:
    """Return a sentence with the command that resumes an interrupted run."""
    from policygen.llm import read_spec

    config = active_run.config
    keyed = getattr(active_run.provider, "key_goes_to", "")
    words = ["--base-url", config.base_url] if keyed and config.base_url else []
    words += ["--llm", config.llm] if read_spec(config.llm).address else []
    words += ["--cache", str(active_run.cache.folder)] if active_run.cache is not None else []
    words += [word for one in listeners for word in one.option]
    return f"Nothing is lost; continue with: {active_run.logbook.resume_command(*words)}"
