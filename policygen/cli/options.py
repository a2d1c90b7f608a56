"""Code that commands share: output, paths, and options."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from policygen.errors import EnvironmentFault, ExpressionError, PathError, PolicyError, PolicygenError, UsageError
from policygen.files import check_name, find_run
from policygen.outgoing import shown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

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
    """Print which templates in use are not the shipped ones, if any."""
    from policygen.llm import reads_prompts
    from policygen.prompts.templates import own_templates

    if own := dict.fromkeys(name for config in configs for name in own_templates(config)):
        without_prompts = [config.llm for config in configs if not reads_prompts(config.llm)]
        use = f"; {without_prompts[0].partition(':')[0]} ignores them" if without_prompts else ""
        say(f"  templates of your own: {', '.join(own)}{use}")


def say_key(provider: Provider, indent: str = "  ") -> None:
    """Print which server gets the user's key, if any."""
    if key_goes_to := getattr(provider, "key_goes_to", ""):
        say(f"{indent}{key_goes_to}")


def fail(message: str, code: int) -> int:
    """Print an error and return the exit code."""
    say(f"Error: {message}", err=True)
    return code


def code_of(error: PolicygenError) -> int:
    """Return the exit code of an error.

    2 is for invalid input: an option, name, file or folder. 1 is for all other failures: a model, an environment or a
    disk failed, or a run folder is damaged or in use.
    """
    mistake = isinstance(error, UsageError | PolicyError | ExpressionError | PathError)
    return 2 if mistake and not isinstance(error, EnvironmentFault) else 1


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


# Settings of the requests to a model, beside --llm.
REQUESTS = (
    *("base_url", "max_usd", "prices", "temperature", "reasoning_effort", "extra_body", "max_output_tokens"),
    "timeout_seconds",
)

# --- settings of a run -----------------------------------------------------------------------------------------------


class WithSettings(click.Command):
    """A command with options for settings of a run, generated from `RunConfig`.

    Args:
        only: the settings that get an option; by default all.
        without: settings that get none.
    """

    def __init__(self, *args: Any, only: Sequence[str] = (), without: Sequence[str] = (), **more: Any) -> None:
        self._only, self._without, self._complete = only, ("task", *without), False
        super().__init__(*args, **more)

    @cached_property
    def settings(self) -> list[click.Parameter]:
        """The options of the settings."""
        from policygen.runs.config import RunConfig

        fields = RunConfig.model_fields
        return [_option(name, fields[name]) for name in self._only or fields if name not in self._without]

    @property
    def params(self) -> list[click.Parameter]:
        """The command's own parameters and its settings, which are generated when first needed."""
        if not self._complete:
            self._complete = True
            self._own += self.settings
        return self._own

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._own = own

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings in a section of their own."""
        others = [parameter for parameter in self.get_params(context) if parameter not in self.settings]
        for heading, which in (("Settings", self.settings), ("Options", others)):
            rows = [p.get_help_record(context) for p in which if isinstance(p, click.Option)]
            with formatter.section(heading):
                formatter.write_dl([row for row in rows if row is not None], col_max=33)


def _option(name: str, field: FieldInfo) -> click.Option:
    """Return the option for a setting; its value is None if the user leaves it out."""
    from policygen.runs.config import read_assignment

    flag, text = f"--{name.replace('_', '-')}", field.description or ""
    kind = next((kind for kind in get_args(field.annotation) if kind is not NoneType), field.annotation)
    if field.annotation is bool:
        flag, text = (f"--no-{flag[2:]}", f"leave out {text}") if field.default else (flag, text)
        return click.Option([flag, name], is_flag=True, flag_value=not field.default, default=None, help=text)
    if not text.endswith(")") and field.default is not None:
        text += f" ({field.default})"
    more: dict[str, Any] = {"type": kind if kind in (int, float) else str}
    if name == "policy":
        more["type"] = click.Choice(["table", "equations", "linear"])
    elif isinstance(kind, str):  # of a Literal
        more["type"] = click.Choice(get_args(field.annotation))
    elif name == "llm":
        more |= {"multiple": True, "callback": _one_model}
    elif name == "start":
        more |= {"type": RunPath(), "callback": _text_of_policy}
    elif get_origin(kind) is dict:
        more["type"] = lambda value: read_assignment(f"{name}={value}")[1]
    return click.Option([flag], metavar=field.title, help=text, **more)


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the options of a command."""
    from policygen.runs.config import RunConfig

    return {name: value for name, value in options.items() if name in RunConfig.model_fields and value is not None}


def stated(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings from `--set` and from options; an option wins."""
    from policygen.runs.config import read_assignment

    return dict(map(read_assignment, options["assignments"])) | settings(options)


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


# --- options ---------------------------------------------------------------------------------------------------------


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
    from policygen.tasks.environments import opened
    from policygen.tasks.task import read_perturbation

    if not texts:
        return task
    wanted = () if texts == ("none",) else tuple(read_perturbation(text) for text in texts)
    changed = replace(task, perturb=wanted)
    with opened(changed):  # raises if a perturbation does not fit
        return changed


PERTURB = click.option(
    "--perturb",
    "perturb",
    multiple=True,
    metavar="NAME=SIZE",
    help="Perturb every episode, as in action_delay=0..2; repeatable; `none`: not at all (the task's).",
)
PATH = NamedPath()
POLICY = click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
ATTEMPT = click.option("--attempt", type=click.IntRange(1), help="Attempt of RUN (default: the best).")
TASK_OF_TEXT = click.option("--task", "task_name", help="Task of the policy, if it is a text file.")
CACHE = click.option(
    "--cache", type=PATH, metavar="DIR", help="Store replies in DIR; reuse them for identical requests."
)
TRACK = click.option(
    "--track",
    type=click.Choice(["tensorboard", "wandb"]),
    multiple=True,
    help="Log attempts to this tracker, too; may be repeated.",
)
REPORT = click.option("--report", is_flag=True, help="Write report.html after each attempt; the page reloads itself.")
TRUST = click.option(
    "--trust", is_flag=True, help="Let files name modules to import and the server that gets your key."
)
READ_POLICY = all_of(POLICY, ATTEMPT, TASK_OF_TEXT, TRUST)
CONFIG = all_of(
    click.option("--config", "config_file", type=PATH, help="TOML file with settings, NAME = VALUE."),
    assignment("Any of the settings above; may be repeated."),
)
OF_A_RUN = all_of(  # for the commands `run` and `mcp`
    CONFIG,
    click.option(
        "-o", "--out", type=PATH, default=Path("results"), help="Where to make the run's folder (default: results)."
    ),
    PERTURB,
    CACHE,
    TRACK,
    REPORT,
    TRUST,
)
