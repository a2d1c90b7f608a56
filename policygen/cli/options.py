"""Code that commands share: output, paths, and options."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.errors import EnvironmentFault, ExpressionError, PathError, PolicyError, PolicygenError, UsageError
from policygen.files import check_name, find_run
from policygen.outgoing import shown

if TYPE_CHECKING:
    from policygen.extensions.page.render import RunPage
    from policygen.extensions.trackers import Tracker
    from policygen.llm import Provider
    from policygen.runs.config import RunConfig
    from policygen.tasks.task import Task

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def installed(package: str) -> bool:
    """Return whether a package or module of `policygen.extensions` is installed."""
    try:
        return find_spec(f"policygen.extensions.{package}") is not None
    except ModuleNotFoundError:
        return False


def say(text: object, *, err: bool = False) -> None:
    """Print a text, with secrets hidden and control characters made visible; `err`: to standard error."""
    click.echo(shown(text), err=err)


def say_own_templates(*configs: RunConfig) -> None:
    """Print which templates in use differ from the shipped ones, if any."""
    from policygen.llm import reads_prompts
    from policygen.prompts.catalogue import own_templates

    if own := dict.fromkeys(name for config in configs for name in own_templates(config)):
        without_prompts = [config.llm for config in configs if not reads_prompts(config.llm)]
        use = f"; {without_prompts[0].partition(':')[0]} ignores them" if without_prompts else ""
        say(f"  templates of your own: {', '.join(own)}{use}")


def say_key(provider: Provider, indent: str = "  ") -> None:
    """Print which server gets a key, if any."""
    from policygen.llm.base import KeyedProvider

    if isinstance(provider, KeyedProvider) and provider.key_goes_to:
        say(f"{indent}{provider.key_goes_to}")


def fail(message: str, code: int) -> int:
    """Print an error and return the exit code."""
    say(f"Error: {message}", err=True)
    return code


def code_of(error: PolicygenError) -> int:
    """Return the exit code of an error.

    It is 2 for wrong input: an option, name, file or folder. It is 1 for a failure on the way: of a model, an
    environment or a disk, or because a run folder is damaged or in use.
    """
    mistake = isinstance(error, UsageError | PolicyError | ExpressionError | PathError)
    return 2 if mistake and not isinstance(error, EnvironmentFault) else 1


def unknown_option(error: click.NoSuchOption) -> str:
    """Return the error message for an unknown option; if it has the name of a setting, the remedy is `--set`."""
    from policygen.runs.config import CHANGEABLE, RunConfig

    command = error.ctx.command.name if error.ctx is not None else None
    settings = CHANGEABLE if command == "resume" else {*RunConfig.model_fields} - {"task", "seed"}
    name = error.option_name.lstrip("-").replace("-", "_")
    if name not in settings or command not in ("run", "mcp", "prompt", "sweep", "new", "resume"):
        close = " or ".join(error.possibilities or ())
        return f"there is no option {error.option_name}" + (f"; did you mean {close}?" if close else "")
    grid = f", or --grid {name}=A,B for runs of each value" if command == "sweep" else ""
    return f"there is no option {error.option_name}: write --set {name}=VALUE{grid}"


class RunPath(click.Path):
    """A path, or `latest`: the newest run folder in results/."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Convert to a path."""
        return find_run(str(value))


class NamedPath(click.Path):
    """A path with a valid file name."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Convert to a path and check its name."""
        return Path(check_name(value))


def all_of(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options to a command, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def assignment(help_text: str) -> Decorator:
    """Return the option `--set`."""
    return click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help=help_text)


def _switch(name: str, help_text: str) -> Decorator:
    """Return an option that turns a setting on; left out, it leaves the setting as it is."""
    return click.option(name, is_flag=True, default=None, help=help_text)


def _one_model(context: click.Context, option: click.Parameter, specs: tuple[str, ...]) -> str | None:
    """Return the setting `llm`; click itself would take the last of several."""
    if len(specs) > 1:
        words = " ".join(f"--llm {spec}" for spec in specs)
        raise UsageError(f"a run asks one model; compare several with: policygen sweep TASK {words}")
    return specs[0] if specs else None


def _text_of_policy(context: click.Context, option: click.Parameter, path: Path | None) -> str | None:
    """Return the text of the policy at a path."""
    from policygen.runs.reading import policy_text

    return policy_text(path) if path is not None else None


def listeners(track: Sequence[str], report: bool = False) -> Sequence[Tracker | RunPage]:
    """Return the listeners of the options `--track` and `--report`.

    Raises UsageError if the package of a tracker is not installed.
    """
    found: list[Tracker | RunPage] = []
    if track:
        from policygen.extensions.trackers import trackers

        found += trackers(track)
    if report:
        from policygen.extensions.page.render import RunPage

        found.append(RunPage())
    return found


def perturbed(task: Task, texts: tuple[str, ...]) -> Task:
    """Return a task with the perturbations of the option `--perturb`; `none` removes its own.

    Raises UsageError for an unknown perturbation, TaskError for one that does not fit the environment.
    """
    from policygen.tasks.environments import make_env
    from policygen.tasks.faults import close
    from policygen.tasks.perturb import read_perturbation

    if not texts:
        return task
    wanted = () if texts == ("none",) else tuple(read_perturbation(text) for text in texts)
    changed = replace(task, perturb=wanted)
    close(make_env(changed))  # raises if a perturbation does not fit
    return changed


START = click.option(
    "--start",
    metavar="RUN|best.json|POLICY.txt",
    type=RunPath(),
    callback=_text_of_policy,
    help="Begin with this policy: attempt 1 scores and tunes it, and no model is asked for it.",
)
PERTURB = click.option(
    "--perturb",
    "perturb",
    multiple=True,
    metavar="NAME=SIZE|NAME=LOW..HIGH",
    help="Perturb the environment, anew in each episode: action_delay=0..2, sensor_noise=0.05, mass=0.7..1.3, "
    "kwargs.NAME=LOW..HIGH; repeatable (default: as the task file says; none: not at all).",
)
AGENT = "RUN|best.json|POLICY.txt|MODULE:NAME|ppo:MODEL.zip"
PATH = NamedPath()
POLICY = click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
ATTEMPT = click.option("--attempt", type=click.IntRange(1), help="Attempt of RUN (default: the best one).")
TASK_OF_TEXT = click.option("--task", "task_name", help="Task of a text file.")
BASE_URL = click.option("--base-url", help="Address of each compatible: or ollama: model whose SPEC has no @URL.")
NAMED_MODEL = click.option(
    "--llm",
    metavar="SPEC@URL",
    help="Repeat the model of the run, to trust its address or to give the password in it (the run stores none).",
)
CACHE = click.option(
    "--cache",
    type=PATH,
    metavar="DIR",
    help="Store replies in DIR and reuse them (same model, settings, messages, seed, attempt); "
    "no effect on builtin and replays. Delete DIR to clear it.",
)
TRACKED = click.Choice(["tensorboard", "wandb"])
TRACK = click.option(
    "--track",
    type=TRACKED,
    multiple=True,
    help="Also log every attempt to this tracker (an extra of that name); may be repeated.",
)
REPORT = click.option(
    "--report", is_flag=True, help="Write report.html in the run's folder after each attempt; it reloads itself."
)
TRUST = click.option(
    "--trust", is_flag=True, help="Trust the files: they may name a module to import, and a server that gets the key."
)
READ_POLICY = all_of(POLICY, ATTEMPT, TASK_OF_TEXT, TRUST)
MODEL_BUDGETS = all_of(
    click.option("--max-calls", type=int, help="Most requests to the model, repairs and failures included."),
    click.option("--max-tokens", type=int, help="Most tokens, in and out."),
    click.option("--max-usd", type=float, help="Most US dollars; needs a model whose price is known."),
)
BUDGET_OPTIONS = all_of(
    click.option("--iterations", type=int, help="Rounds of requests for proposals (default 20)."),
    click.option("--patience", type=int, help="Stop after this many attempts in a row without a new best."),
    MODEL_BUDGETS,
    click.option("--max-episodes", type=int, help="Most episodes while searching, warm-up included."),
    click.option(
        "--max-steps", type=int, help="Most steps of the environment while searching, before the final score."
    ),
)
RUN_SETTINGS = all_of(  # for the commands `run` and `prompt`
    click.option(
        "--llm",
        multiple=True,
        metavar="SPEC",
        callback=_one_model,
        help="Provider and model, with @URL if it has an address of its own (default: builtin, which is not a language "
        "model); `doctor` lists them. manual: paste replies of a chat window; manual:DIR: save them there as "
        "reply-001.md for prompt-001.md.",
    ),
    BASE_URL,
    click.option(
        "--policy",
        type=click.Choice(["table", "equations", "linear"]),
        help="Kind of policy (default: the task's); linear is another name of equations.",
    ),
    click.option("--grid", type=click.Choice(["free", "fixed"]), help="Whether a reply may choose its own bins."),
    click.option(
        "--episodes", type=int, help="Episodes per score while searching (default 20; up to 400 if episodes are short)."
    ),
    click.option(
        "--ablate", type=click.Choice(["nothing", "knowledge"]), help="Whether to withhold names, units and hints."
    ),
    _switch("--memory", "Let builtin's equations use memory: a clock and integrals."),
    _switch("--shape", "Ask the model for an `objective` that tuning maximises, and a `potential` for --refine q."),
    click.option(
        "--template", help="Template of the prompt for a better policy, such as improve_table: a name or a path."
    ),
    click.option("--seed", type=int, help="Seed of every random draw (default 0)."),
    click.option("--config", "config_file", type=PATH, help="A TOML file of settings."),
    assignment("Any setting (see `run --help`); may be repeated."),
)
