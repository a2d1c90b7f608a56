"""The command line: every command is a thin layer over the library; heavy modules load when a command needs them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen import __version__
from policygen.cli.answers import cache_command
from policygen.cli.beginning import new
from policygen.cli.driving import drive
from policygen.cli.experiments import compare, resume_sweep, sweep
from policygen.cli.films import film
from policygen.cli.handover import export, simplify
from policygen.cli.options import (
    BASE_URL,
    CACHE,
    PATH,
    TRACK,
    Place,
    RunPath,
    assignment,
    budget_options,
    fail,
    place_options,
    run_settings,
    say,
    trust_option,
)
from policygen.cli.pages import report, serve
from policygen.cli.prompting import templates
from policygen.cli.steering import comment, continue_run, pause
from policygen.errors import PolicygenError, UsageError
from policygen.outgoing import LAST_WORD

if TYPE_CHECKING:
    from policygen.runs.listeners import Listener

GROUPS = {
    "Search for a policy": ("run", "resume", "sweep", "drive"),
    "Steer a run": ("comment", "pause", "continue"),
    "Look at what was found": ("show", "eval", "plot", "compare", "film", "report", "serve"),
    "Hand it over": ("export", "simplify"),
    "Prepare": ("new", "tasks", "prompt", "doctor", "bench", "cache", "templates"),
}


class GroupedCommands(click.Group):
    """`--help` lists the commands under headings, in the order of `GROUPS`."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading."""
        for heading, names in GROUPS.items():
            rows = [(name, self.commands[name].get_short_help_str(80)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


def main() -> None:
    """Entry point: mistakes end in one sentence and a non-zero exit."""
    warnings.showwarning = _warn
    LAST_WORD.say = lambda sentence: say(f"Error: {sentence}", err=True)
    try:
        code = commands.main(prog_name="policygen", standalone_mode=False)
    except click.exceptions.Abort:
        code = fail("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        code = fail(error.format_message(), error.exit_code)
    except UsageError as error:
        code = fail(str(error), 2)
    except PolicygenError as error:
        code = fail(str(error), 1)
    except KeyboardInterrupt:
        code = fail("interrupted", 130)
    except OSError as error:
        if error.filename is not None:
            raise
        # Standard output cannot be written, and what waits in its buffer must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = fail(f"the output cannot be written: {error.strerror}", 1)
    finally:
        LAST_WORD.say = None
    sys.exit(code or 0)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"Warning: {message}", err=True)


class RunCommand(click.Command):
    """`policygen run --help` ends with every setting that `--set` and config files know."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings."""
        from policygen.runs.config import RunConfig

        with formatter.section("Settings (--set NAME=VALUE, or NAME = VALUE in a config file)"):
            formatter.write_dl([(name, field.description or "") for name, field in RunConfig.model_fields.items()])


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="policygen")
def commands() -> None:
    """A language model as the optimiser of small, readable control policies.

    Start with `policygen run cartpole`: it needs no key. With a key: `policygen run cartpole --llm openai:gpt-5-mini`.
    """


@commands.command(cls=RunCommand)
@click.argument("task")
@run_settings
@trust_option
@budget_options
@click.option("--candidates", type=int, help="Proposals asked for in each round (default 1).")
@click.option("--repairs", type=int, help="Format repairs asked for per malformed reply (default 2).")
@click.option(
    "--refine",
    help="Tune proposals: METHOD[:EPISODES]; none, auto, cma, ars; tables: coordinate, q, sarsa, policy-iteration.",
)
@click.option("--jobs", type=int, help="Processes that play episodes (default: all cores).")
@click.option("--conversation", type=click.Choice(["fresh", "continued"]), help="Whether prompts carry earlier turns.")
@click.option("--out", type=PATH, default=Path("results"), help="Folder for the run's folder.")
@CACHE
@TRACK
def run(
    task: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    *,
    out: Path,
    trust: bool,
    cache: Path | None,
    track: tuple[str, ...],
    **options: Any,
) -> None:
    """Search for a policy for TASK: a name, a task file, or a Gymnasium id."""
    from policygen.llm import reads_prompts
    from policygen.llm.cache import Cache
    from policygen.reports.trackers import trackers
    from policygen.runs.config import effective_config, step_timeout_of
    from policygen.search.run import start
    from policygen.tasks.load import load_task

    limit = step_timeout_of(config_file, assignments, {})
    loaded = load_task(task, trust=trust, step_timeout=limit)
    config = effective_config(loaded, task, file=config_file, assignments=assignments, options=options)
    told, answers = trackers(track), Cache(cache) if cache is not None else None
    begun = start(loaded, config.trusted() if trust else config, out, trust=trust)
    begun.cache = answers
    kind = f"{config.policy} policy"
    say(f"{loaded.name} ({loaded.gym_id}), {kind}, proposals from {begun.proposer.introduction}")
    for sentence in begun.task.assumed:
        say(f"  assumed: {sentence}")
    if (example := begun.search.example) is not None:
        use = "" if reads_prompts(config.llm) else f"; {config.llm} ignores it"
        say(f"  example: a {example.kind} policy for {example.task}{use}")
    if shown := begun.search.demonstrations:
        use = "" if reads_prompts(config.llm) else f"; {config.llm} ignores them"
        best = max(episode.trajectory.episode_return for episode in shown)
        say(f"  demonstrations: {len(shown)} episodes, the best returned {best:.4g}{use}")
    _carry_out(begun, told)


commands.add_command(new)
commands.add_command(sweep)
commands.add_command(compare)
commands.add_command(film)
commands.add_command(drive)
commands.add_command(cache_command)
commands.add_command(templates)
commands.add_command(export)
commands.add_command(report)
commands.add_command(serve)
commands.add_command(simplify)
commands.add_command(comment)
commands.add_command(pause)
commands.add_command(continue_run)


@commands.command()
@click.argument("run_folder", metavar="RUN|SWEEP", type=RunPath())
@assignment("Go on with another prompt_tokens, jobs, base_url, timeout_seconds or step_timeout; may be repeated.")
@budget_options
@place_options
@trust_option
@CACHE
@TRACK
def resume(
    run_folder: Path,
    assignments: tuple[str, ...],
    *,
    place: Place,
    trust: bool,
    cache: Path | None,
    track: tuple[str, ...],
    **budgets: Any,
) -> None:
    """Go on with the interrupted run in folder RUN, as if it had not been interrupted, or with a sweep.

    With a larger budget a finished run goes on, too, as if it had been asked for at first. A sweep's budget is that of
    all its runs.
    """
    from policygen.llm.cache import Cache
    from policygen.reports.missing import make_missing
    from policygen.reports.trackers import trackers
    from policygen.search.resume import resume as resume_run
    from policygen.sweeps.plan import is_sweep

    if is_sweep(run_folder):
        resume_sweep(run_folder, assignments, budgets, place=place, trust=trust, cache=cache)
        return
    place.check_unused()
    assignments += tuple(f"{name}={value}" for name, value in budgets.items() if value is not None)
    if not assignments and (made := make_missing(run_folder)):
        say(f"the run was finished but for {', '.join(made)}; now it is whole")
        return
    told, answers = trackers(track), Cache(cache) if cache is not None else None
    begun = resume_run(run_folder, assignments=assignments, trust=trust)
    begun.cache = answers
    say(f"going on after attempt {len(begun.search.attempts) - 1}")
    _carry_out(begun, told)


def _carry_out(begun: Any, told: Sequence[Listener]) -> None:
    from policygen.llm.base import Keyed
    from policygen.reports.curves import LearningCurve
    from policygen.reports.progress import Terminal, share_lines
    from policygen.search.run import carry_out

    if isinstance(begun.provider, Keyed) and begun.provider.key_goes_to:
        say(f"  {begun.provider.key_goes_to}")
    LAST_WORD.say = lambda sentence: say(f"Error: {sentence}\n{_way_on(begun)}", err=True)
    try:
        summary = carry_out(begun, (Terminal(begun), LearningCurve(), *told))
    except (KeyboardInterrupt, PolicygenError) as error:
        hint = _way_on(begun)
        if isinstance(error, KeyboardInterrupt):
            say(f"\nInterrupted. {hint}", err=True)
            raise SystemExit(130) from None
        raise SystemExit(fail(f"{error}\n{hint}", 1)) from None
    say(f"\nstopped: {summary.stopped}")
    for line in share_lines(summary.shares):
        say(line)
    if summary.cached:
        say(f"{summary.cached} answers came from the cache and cost nothing; {summary.llm_calls} requests were sent")
    best = begun.search.best
    if best is None or best.policy is None:
        say(f"no policy was found; what was asked and answered is in {begun.folder}")
        raise SystemExit(1)
    seeds = "" if begun.final.exact else " that the search never saw"
    remarks = [{True: "solved", False: "not solved"}[summary.solved]] if summary.solved is not None else []
    remarks += ["the best known score"] if summary.optimum_reached else []
    remark = f" ({', '.join(remarks)})" if remarks else ""
    say(f"final score: {begun.final}{seeds}{remark}")
    say(f"best policy: attempt {best.number}, {begun.folder / 'best.json'}")
    say(f"results: {begun.folder}")


def _way_on(begun: Any) -> str:
    """How an interrupted run goes on."""
    from policygen.llm import specs_of
    from policygen.llm.base import Keyed

    chosen = begun.config.base_url if isinstance(begun.provider, Keyed) and begun.provider.key_goes_to else None
    words = ["policygen", "resume", str(begun.folder), *(["--set", f"base_url={chosen}"] if chosen else [])]
    words += ["--cache", str(begun.cache.folder)] if begun.cache is not None else []
    # A module or a folder for prompts was named by the user, or vouched for: a file alone may name neither.
    manual = any(spec.startswith("manual:") for spec in specs_of(begun.config.llm))
    words += ["--trust"] * (":" in begun.task.gym_id or manual)
    return f"Nothing is lost; go on with: {shlex.join(words)}"


@commands.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("--task", "task_name", help="Task of a text file.")
@click.option("-o", "--output", type=PATH, help="Also draw the policy into a PNG, SVG or PDF.")
@trust_option
def show(source: Path, task_name: str | None, output: Path | None, trust: bool) -> None:
    """Print a policy as text, and a map of it. RUN may be `latest`."""
    from policygen.reports.maps import policy_map
    from policygen.runs.reading import read_policy

    policy = read_policy(source, task_name, trust=trust)
    say(f"# {policy.kind} policy for {policy.task.name} ({policy.task.gym_id})\n{policy.to_text(whole=True)}")
    drawn = policy_map(policy)
    say(f"\n{drawn}" if drawn else "\n(no map: too many dimensions or cells to draw as text)")
    if output is not None:
        from policygen.reports.portraits import plot_policy

        say(f"\npicture: {plot_policy(policy, output)}")


@commands.command("eval")
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("--task", "task_name", help="Task to play; needed for a text file.")
@click.option("--episodes", type=click.IntRange(2), default=100, help="Fresh episodes (default 100).")
@click.option("--seed", type=click.IntRange(0), default=0, help="Chooses the episodes (default 0).")
@click.option("--json", "as_json", is_flag=True, help="Print the score as JSON.")
@trust_option
def evaluate(source: Path, task_name: str | None, *, episodes: int, seed: int, as_json: bool, trust: bool) -> None:
    """Score a policy on fresh episodes, or exactly where that is possible; it may be written by hand."""
    from policygen.api import score as score_of
    from policygen.runs.reading import read_policy
    from policygen.runs.records import score_record

    policy = read_policy(source, task_name, trust=trust)
    score = score_of(policy, episodes=episodes, seed=seed, trust=trust)
    if as_json:
        say(json.dumps({"task": policy.task.name, "gym_id": policy.task.gym_id, **score_record(score)}))
        return
    say(f"{policy.task.name}: {score}, standard deviation {score.std:.4g}")
    if policy.task.solved is not None:
        solved = "yes" if score.mean >= policy.task.solved else "no"
        say(f"counts as solved from {policy.task.solved:g}: {solved}")


@commands.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option("-o", "--output", type=PATH, default=Path("learning_curves.png"), help="File.")
@click.option(
    "--x",
    type=click.Choice(["attempt", "calls", "episodes", "env_steps", "tokens", "wall_seconds"]),
    default="attempt",
    help="What the horizontal axis counts (default: attempt).",
)
@click.option("--table", "table_file", type=PATH, help="Also write a table of the runs: .md, .csv, .tex or .html.")
def plot(runs: tuple[Path, ...], output: Path, x: str, table_file: Path | None) -> None:
    """Draw the learning curves of one or many runs, grouped, with intervals."""
    from policygen.reports.curves import plot_runs
    from policygen.reports.groups import repeated_runs
    from policygen.reports.style import check_suffix
    from policygen.reports.tables import FORMATS, write_table

    if table_file is not None:
        check_suffix(table_file, FORMATS)
    # `results/*` also names what is no run; a single path that is none is a mistake.
    folders = [path for path in runs if (path / "config.toml").is_file()]
    for other in [path for path in runs if path not in folders] if folders else ():
        say(f"Warning: {other} is not a run folder and is left out", err=True)
    runs = tuple(folders) or runs
    for folder in repeated_runs(runs):
        say(f"Warning: {folder} repeats the settings and seed of another run; it is not a new sample", err=True)
    say(plot_runs(runs, output, x=x))
    if table_file is not None:
        say(write_table(runs, table_file))


@commands.command()
@click.argument("task", metavar="TASK|RUN")
@run_settings
@trust_option
def prompt(task: str, config_file: Path | None, assignments: tuple[str, ...], trust: bool, **options: Any) -> None:
    """Print the prompt a model would get: the first one of TASK, or the next one of the unfinished or finished RUN."""
    from policygen.search.preview import preview

    shown = preview(task, config_file, assignments, options, trust=trust)
    for message in shown.prompt.messages:
        say(f"--- {message.role} ---\n{message.content}")
    say(shown.remark, err=True)


@commands.command()
@click.argument("name", required=False)
@click.option("--draft", is_flag=True, help="Print NAME as a task file to edit.")
@trust_option
def tasks(name: str | None, draft: bool, trust: bool) -> None:
    """List the tasks and suites, or say all about one: NAME, a task file, or a Gymnasium id."""
    from policygen.reports.describe import describe_task, draft_task, list_tasks

    if draft and not name:
        raise UsageError("--draft needs a task: policygen tasks Hopper-v5 --draft > envs/mine.toml")
    if draft and name:
        say(draft_task(name, trust=trust))
    else:
        say(describe_task(name, trust=trust) if name else list_tasks())


@commands.command()
@click.option("--llm", help="Provider and model to try; without it, all providers are listed.")
@BASE_URL
def doctor(llm: str | None, base_url: str | None) -> None:
    """Say whether a model can be used: is the key there, does the server answer, what does it take."""
    from policygen.llm import PROVIDERS, LLMOptions, connect
    from policygen.llm.base import Keyed

    if llm is None:
        width = max(map(len, PROVIDERS)) + 2
        for name, entry in PROVIDERS.items():
            say(f"{name.ljust(width)}{entry.help}")
        say("\nTry one with: policygen doctor --llm PROVIDER:MODEL")
        return
    provider = connect(llm, LLMOptions(base_url=base_url))
    if isinstance(provider, Keyed) and provider.key_goes_to:
        say(provider.key_goes_to)
    diagnosis = provider.diagnose()
    for line in diagnosis.lines:
        say(line)
    if not diagnosis.ok:
        raise SystemExit(1)


@commands.command()
@click.option("--quick", is_flag=True, help="Smaller work, fewer repeats, nothing judged: a first impression.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and no table.")
@click.option(
    "--out",
    type=PATH,
    default=Path("results") / "benchmarks",
    help="Folder for speed.csv, speed.md and speed.png of a full run (default: results/benchmarks).",
)
def bench(quick: bool, as_json: bool, out: Path) -> None:
    """Measure how fast lookup, evaluation, prompts and memory are, side by side with other ways of doing the same."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # before numpy loads: lookups are compared on one thread
    from policygen.reports.speed import rows as ratios
    from policygen.reports.speed.bench import run_all

    rows = []
    for row in run_all(quick=quick):
        rows.append(row)
        say(ratios.line_of(row), err=True)
    say(ratios.as_json(rows) if as_json else "\n" + ratios.as_markdown(rows))
    if not quick:
        ratios.write_results(rows, out)
