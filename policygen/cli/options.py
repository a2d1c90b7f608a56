"""What the commands share: how they speak, the paths they take, and options that several have."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.errors import EnvironmentFault, ExpressionError, PlaceError, PolicyError, PolicygenError, UsageError
from policygen.files import check_name, find_run
from policygen.outgoing import shown

if TYPE_CHECKING:
    from policygen.runs.config import RunConfig


def installed(room: str) -> bool:
    """Whether a room of `policygen.extensions` is there; a kernel by itself has none of them."""
    try:
        return find_spec(f"policygen.extensions.{room}") is not None
    except ModuleNotFoundError:
        return False


def say(text: object, *, err: bool = False) -> None:
    """Print, with secrets hidden and control characters made visible."""
    click.echo(shown(text), err=err)


def say_own_templates(*configs: RunConfig) -> None:
    """Name the templates in force that are not the shipped ones: a folder `templates/` overrides them."""
    from policygen.llm import reads_prompts
    from policygen.search.origin import own_templates

    if own := dict.fromkeys(name for config in configs for name in own_templates(config)):
        deaf = [config.llm for config in configs if not reads_prompts(config.llm)]
        use = f"; {deaf[0].partition(':')[0]} ignores them" if deaf else ""
        say(f"  templates that are not the shipped ones: {', '.join(own)}{use}")


def fail(message: str, code: int) -> int:
    """Say what went wrong; returns the exit code."""
    say(f"Error: {message}", err=True)
    return code


def code_of(error: PolicygenError) -> int:
    """The exit code of an error.

    2 is a mistake in what was asked for: a wrong option, name, file or folder. 1 is what went wrong on the way: a
    model, an environment or a disk that failed, a run folder that is damaged or in use.
    """
    mistake = isinstance(error, UsageError | PolicyError | ExpressionError | PlaceError)
    return 2 if mistake and not isinstance(error, EnvironmentFault) else 1


class RunPath(click.Path):
    """A path, or `latest`: the newest run folder in results/."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """The path that is meant."""
        return find_run(str(value))


class NamedPath(click.Path):
    """A path that may be the name of a file."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """The path, once its name is checked."""
        return Path(check_name(value))


PATH = NamedPath(path_type=Path)
BASE_URL = click.option(
    "--base-url", help="Address of the compatible: or ollama: models without one of their own (compatible:MODEL@URL)."
)

AGAIN = click.option(
    "--llm",
    "llms",
    multiple=True,
    metavar="SPEC@URL",
    help="Say the models again, which vouches for their addresses and gives passwords, which are not stored.",
)

CACHE = click.option(
    "--cache",
    type=PATH,
    metavar="DIR",
    help="Keep answers in DIR, and ask nobody for one that is there (same model, settings, messages, seed, attempt); "
    "builtin and replays ask nobody anyway.",
)

TRACK = click.option(
    "--track",
    type=click.Choice(["tensorboard", "wandb", "mlflow"]),
    multiple=True,
    help="Also write every attempt for this tracker (an extra of that name); may be repeated.",
)


def assignment(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--set`."""
    return click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help=help_text)


def _joined(context: click.Context, option: click.Parameter, specs: tuple[str, ...]) -> str | None:
    from policygen.llm import joined_specs

    return joined_specs(specs) if specs else None


def run_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `run` and `prompt` share."""
    for option in (
        assignment("Any setting (see `run --help`); may be repeated."),
        click.option("--config", "config_file", type=PATH, help="A TOML file of settings."),
        click.option("--seed", type=int, help="Seed of every random draw (default 0)."),
        click.option("--template", help="Improve template: a name in templates/ or a path."),
        click.option(
            "--normalise",
            is_flag=True,
            default=None,
            help="Offer observations as n_NAME, minus their running mean and over their spread (linear policies).",
        ),
        click.option(
            "--shape",
            is_flag=True,
            default=None,
            help="Ask the model for an `objective` to tune each proposal for, and a `potential` for --refine q.",
        ),
        click.option(
            "--memory",
            is_flag=True,
            default=None,
            help="Let builtin's linear policies remember: a clock and integrals to weigh.",
        ),
        click.option(
            "--example",
            metavar="RUN|best.json",
            help="Show the model a policy found on another task; RUN may be `latest`. builtin ignores it.",
        ),
        click.option(
            "--demonstrations",
            metavar="DATASET|FILE.npz|ppo:MODEL.zip",
            help="Show episodes of others among the best: of a Minari dataset, a run, a Stable-Baselines3 model (also "
            "sac, td3, dqn, a2c, ddpg; its file runs code: needs --trust), or a file of your own by numpy.savez: "
            "episodes joined to observations (a row more each than steps), actions, rewards; lengths, terminated.",
        ),
        click.option("--ablate", type=click.Choice(["nothing", "knowledge"]), help="What the model is not told."),
        click.option(
            "--episodes", type=int, help="Episodes per score while searching (default 20, up to 400 short ones)."
        ),
        click.option("--grid", type=click.Choice(["free", "fixed"]), help="Whether a reply may choose its own bins."),
        click.option("--policy", type=click.Choice(["table", "linear"]), help="Kind of policy (default: the task's)."),
        BASE_URL,
        click.option(
            "--llm",
            multiple=True,
            metavar="SPEC",
            callback=_joined,
            help="Provider and model, with @URL at that address (default: builtin, which is not a language model); "
            "`doctor` lists them. manual: you paste replies of a chat window; manual:DIR: you save them there, "
            "as reply-001.md for prompt-001.md. "
            "Repeated, the models take turns, by what their proposals gained for their cost (--set choose=round: one "
            "after the other).",
        ),
    ):
        command = option(command)
    return command


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The budgets of a run."""
    for option in (
        click.option("--max-episodes", type=int, help="Most episodes while searching, warm-up included."),
        click.option("--max-usd", type=float, help="Most US dollars; needs a model whose price is known."),
        click.option("--max-tokens", type=int, help="Most tokens, in and out."),
        click.option("--max-calls", type=int, help="Most requests to the model, repairs and failures included."),
        click.option("--patience", type=int, help="Stop after so many attempts without a new best."),
        click.option("--iterations", type=int, help="Rounds of asking (default 20)."),
    ):
        command = option(command)
    return command


def trust_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option by which a user vouches for a file that came from elsewhere."""
    return click.option(
        "--trust",
        is_flag=True,
        help="The files are yours, or you know them: they may name a module to import, and a server that gets the key.",
    )(command)


@dataclass(frozen=True)
class Place:
    """Who carries out the runs of a sweep: processes here or a cluster, and how many at a time."""

    on: str
    address: str | None
    workers: int | None
    slurm: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The same as it is typed."""
        words = ["--on", self.on] if self.on != "local" else []
        words += ["--address", self.address] if self.address is not None else []
        words += [word for text in self.slurm for word in ("--slurm", text)]
        words += ["--workers", str(self.workers)] if self.workers is not None else []
        return shlex.join(words)

    def check_unused(self) -> None:
        """Refuse what a single run does not know."""
        if self.on != "local" or self.address is not None or self.slurm:
            raise UsageError("--on, --address and --slurm are for sweeps; a single run is carried out here")
        if self.workers is not None:
            raise UsageError("--workers is for sweeps; for a single run it is --set jobs=N")


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that make up a `Place`, which the command gets as `place`."""

    @functools.wraps(command)
    def placed(*arguments: Any, on: str, address: str | None, workers: int | None, **options: Any) -> Any:
        slurm: tuple[str, ...] = options.pop("slurm")
        if address is not None and on != "ray":
            raise UsageError("--address is of a Ray cluster: add --on ray")
        if slurm and on != "slurm":
            raise UsageError(f"--slurm {slurm[0]}: add --on slurm")
        return command(*arguments, place=Place(on, address, workers, slurm), **options)

    for option in (
        click.option(
            "--slurm",
            multiple=True,
            metavar="NAME=VALUE",
            help="An option of sbatch by its long name, such as partition=cpu, time=4:00:00, mem=4G, account=A or "
            "cpus-per-task=4; may be repeated.",
        ),
        click.option(
            "--address", help="A running Ray cluster, HOST:PORT or auto (default: one begun on this machine)."
        ),
        click.option(
            "--on",
            type=click.Choice(["local", "ray", "slurm"]),
            default="local",
            help="What carries out a sweep's runs: processes here (default), a Ray cluster, or job arrays of Slurm "
            "(extras of these names); machines share the working directory and the sweep's folder.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="A sweep's runs at a time (default 1; on Ray its processors; in Slurm's queue 1000).",
        ),
    ):
        placed = option(placed)
    return placed
