"""The command line: thin commands over the library. Imports inside functions keep the start-up time short."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from policygen import __version__
from policygen.cli.answers import cache_command
from policygen.cli.beginning import new
from policygen.cli.driving import drive
from policygen.cli.experiments import compare, sweep
from policygen.cli.films import film
from policygen.cli.handover import export, simplify
from policygen.cli.mediating import mediate
from policygen.cli.options import (
    BASE_URL,
    PATH,
    RunPath,
    assignment,
    budget_options,
    code_of,
    fail,
    installed,
    run_settings,
    say,
    trust_option,
)
from policygen.cli.pages import report, serve
from policygen.cli.prompting import templates
from policygen.cli.running import resume, run
from policygen.cli.steering import comment, continue_run, pause
from policygen.errors import PolicygenError, UsageError
from policygen.outgoing import exit_message_hook

GROUPS = {
    "Search for a policy": ("run", "resume", "sweep", "drive", "mediate"),
    "Steer a run": ("comment", "pause", "continue"),
    "Look at what was found": ("show", "eval", "plot", "compare", "film", "report", "serve"),
    "Hand it over": ("export", "simplify"),
    "Prepare": ("new", "tasks", "prompt", "doctor", "cache", "templates"),
}


# The extension that a command needs.
NEEDS = {
    **{"sweep": "sweeps", "drive": "seats", "mediate": "seats", "plot": "plots", "compare": "compare", "film": "film"},
    **{"report": "page", "serve": "live", "export": "export", "simplify": "simplify"},
}


class GroupedCommands(click.Group):
    """The commands whose extensions are installed; `--help` lists them under headings, in the order of `GROUPS`."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command; None if it or its extension is missing."""
        return super().get_command(context, name) if name not in NEEDS or installed(NEEDS[name]) else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading."""
        for heading, names in GROUPS.items():
            found = [(name, self.get_command(context, name)) for name in names]
            rows = [(name, command.get_short_help_str(80)) for name, command in found if command is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def main() -> None:
    """Run the command line: errors end in one sentence and a non-zero exit code."""
    warnings.showwarning = _warn
    exit_message_hook.say = lambda sentence: say(f"Error: {sentence}", err=True)
    try:
        code = commands.main(prog_name="policygen", standalone_mode=False)
    except click.exceptions.Abort:
        code = fail("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        code = fail(error.format_message(), error.exit_code)
    except PolicygenError as error:
        code = fail(str(error), code_of(error))
    except KeyboardInterrupt:
        code = fail("interrupted", 130)
    except OSError as error:
        if error.filename is not None:
            raise
        # Standard output cannot be written; discard its buffer, which would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = fail(f"the output cannot be written: {error.strerror}", 1)
    finally:
        exit_message_hook.say = None
    sys.exit(code or 0)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"Warning: {message}", err=True)


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="policygen")
def commands() -> None:
    """A language model as the optimiser of small, readable control policies.

    Start with `policygen run cartpole`: it needs no key. With a key: `policygen run cartpole --llm openai:gpt-5-mini`.
    Exit codes: 0 success; 1 a failure on the way, or no policy found; 2 wrong input; 130 interrupted.
    """


for _command in (
    *(run, resume, sweep, drive, comment, pause, continue_run, compare, film, report, serve, export, simplify, new),
    *(mediate, cache_command, templates),
):
    commands.add_command(_command)


@commands.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("--task", "task_name", help="Task of a text file.")
@click.option("-o", "--output", type=PATH, help="Also draw the policy into a PNG, SVG or PDF.")
@trust_option
def show(source: Path, task_name: str | None, output: Path | None, trust: bool) -> None:
    """Print a policy as text, and a map of it. RUN may be `latest`."""
    from policygen.runs.reading import read_policy
    from policygen.tasks.task import KIND_WORDS
    from policygen.tasks.trust import trusted

    policy = read_policy(source, task_name, trust=trust)
    policy = replace(policy, task=trusted(policy.task)) if trust else policy
    say(f"# {KIND_WORDS[policy.kind]} for {policy.task.name} ({policy.task.gym_id})\n{policy.to_text(whole=True)}")
    if installed("plots"):
        from policygen.extensions.plots.maps import policy_map

        drawn = policy_map(policy)
        say(f"\n{drawn}" if drawn else "\n(no map: too many dimensions or cells to draw as text)")
    if output is not None:
        from policygen.extensions.plots.played import unplayed
        from policygen.extensions.plots.portraits import plot_policy

        say(f"\npicture: {plot_policy(policy, output)}")
        if lack := unplayed(policy, "the picture"):
            say(f"Warning: {lack}", err=True)


@commands.command("eval")
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("--task", "task_name", help="Task to play; needed for a text file.")
@click.option("--episodes", type=click.IntRange(2), default=100, help="Fresh episodes (default 100).")
@click.option("--seed", type=click.IntRange(0), default=0, help="Determines the episodes (default 0).")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the score as JSON, with the seed and return of every episode."
)
@assignment("unseeded=true: score on an environment that ignores its seed.")
@trust_option
def evaluate(
    source: Path,
    task_name: str | None,
    *,
    episodes: int,
    seed: int,
    as_json: bool,
    assignments: tuple[str, ...],
    trust: bool,
) -> None:
    """Score a policy, also one written by hand, on fresh episodes, or exactly if possible."""
    from policygen.api import score as score_of
    from policygen.runs.reading import read_policy
    from policygen.runs.records import score_record

    if other := next((text for text in assignments if text.replace(" ", "") != "unseeded=true"), None):
        raise UsageError(f"--set {other}: has no effect here; only unseeded=true has")
    policy = read_policy(source, task_name, trust=trust)
    # A run has accepted it for its policy, and a task file may accept it.
    said = policy.task.unseeded if task_name is None else dict(policy.task.run).get("unseeded") is True
    score = score_of(policy, episodes=episodes, seed=seed, trust=trust, unseeded=bool(assignments) or said)
    if as_json:
        named = {"task": policy.task.name, "gym_id": policy.task.gym_id}
        say(json.dumps({**named, **score_record(score), "returns": list(score.returns)}))
        return
    say(f"{policy.task.name}: {score}, standard deviation {score.std:.4g}")
    if policy.task.solved is not None:
        solved = "yes" if score.mean >= policy.task.solved else "no"
        say(f"counts as solved from {policy.task.solved:g}: {solved}")


@commands.command()
@click.argument("runs", metavar="RUN|SWEEP...", nargs=-1, required=True, type=RunPath())
@click.option("-o", "--output", type=PATH, default=Path("learning_curves.png"), help="File.")
@click.option(
    "--x",
    type=click.Choice(["attempt", "calls", "episodes", "env_steps", "tokens", "wall_seconds"]),
    default="attempt",
    help="Horizontal axis (default: attempt).",
)
@click.option("--table", "table_file", type=PATH, help="Also write a table of the runs: .md, .csv, .tex or .html.")
def plot(runs: tuple[Path, ...], output: Path, x: str, table_file: Path | None) -> None:
    """Draw the learning curves of runs, or of a sweep's runs, grouped, with intervals."""
    from policygen.extensions.plots.curves import plot_runs
    from policygen.extensions.plots.groups import repeated_runs
    from policygen.extensions.plots.style import check_suffix
    from policygen.extensions.plots.tables import FORMATS, write_table
    from policygen.extensions.sweeps.plan import is_sweep

    if table_file is not None:
        check_suffix(table_file, FORMATS)
    # `results/*` may include other files; a single path must be a run.
    folders = [path for path in runs if (path / "config.toml").is_file() or is_sweep(path)]
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
@budget_options
@trust_option
def prompt(task: str, config_file: Path | None, assignments: tuple[str, ...], trust: bool, **options: Any) -> None:
    """Print the prompt that a model would get: the first one of TASK, or the next one of RUN."""
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
    """List tasks and suites, or describe one: NAME, a task file, or a Gymnasium id."""
    from policygen.cli.describe import describe_task, draft_task, list_tasks

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
    """Check whether a model can be used: the key, the server, and the model's limits."""
    from policygen.llm import PROVIDERS, LLMOptions, connect
    from policygen.llm.base import Keyed

    if llm is None:
        width = max(map(len, PROVIDERS)) + 2
        for name, entry in PROVIDERS.items():
            say(f"{name.ljust(width)}{entry.help}")
        say("\nTry one with: policygen doctor --llm openai:gpt-5-mini")
        return
    provider = connect(llm, LLMOptions(base_url=base_url))
    if isinstance(provider, Keyed) and provider.key_goes_to:
        say(provider.key_goes_to)
    diagnosis = provider.diagnose()
    for line in diagnosis.lines:
        say(line)
    if not diagnosis.ok:
        raise SystemExit(1)
