"""Commands that steer a running run: `comment`, `pause` and `continue`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from policygen.cli.options import RunPath, say
from policygen.errors import UsageError


@click.command()
@click.argument("run_folder", metavar="RUN", type=RunPath())
@click.argument("text", required=False)
@click.option(
    "--until-withdrawn/--once", default=True, help="Number of prompts with the comment (default: until withdrawn)."
)
@click.option(
    "--withdraw", is_flag=False, flag_value="all", metavar="[NUMBER]", help="Withdraw a comment; without NUMBER, all."
)
def comment(run_folder: Path, text: str | None, until_withdrawn: bool, withdraw: str | None) -> None:
    """Add the comment TEXT to a run's prompts from the next one on; without TEXT, list comments. RUN may be `latest`.

    The run need not be active. Its folder records which prompt carried which comment, so a resumed run repeats them.
    """
    from policygen.runs.logbook import Logbook
    from policygen.runs.steering import Steering
    from policygen.search.steer import why_untold

    Logbook(run_folder).config()
    steering = Steering(run_folder)
    if withdraw is not None:
        if text is not None:
            raise UsageError("give either a comment or --withdraw")
        if withdraw != "all" and not withdraw.isdecimal():
            raise UsageError(f"--withdraw {withdraw}: write the comment's number, or nothing for all")
        for gone in steering.withdraw(None if withdraw == "all" else int(withdraw)):
            say(f"withdrawn: {gone.number}. {gone.text}")
        return
    if text is None:
        comments = steering.read().comments
        for one in comments:
            used = (
                f"in the prompt of attempt {', '.join(map(str, one.carried))}" if one.carried else "not in a prompt yet"
            )
            state = "withdrawn, " if one.withdrawn else "once, " if one.once else ""
            say(f"{one.number}. {one.text}  ({state}{used})")
        if not comments:
            add = f'; add one with: policygen comment {shlex.quote(str(run_folder))} "Brake earlier"'
            say(f"no comments{'' if why_untold(run_folder) else add}")
        return
    if why := why_untold(run_folder):
        raise UsageError(why)
    made = steering.say(text, once=not until_withdrawn)
    say(f"comment {made.number}: the next prompt carries it{'' if made.once else ', and those after it'}")


@click.command()
@click.argument("run_folder", metavar="RUN", type=RunPath())
def pause(run_folder: Path) -> None:
    """Pause a run before its next prompt, until `continue`. RUN may be `latest`."""
    _pause(run_folder, True)


@click.command("continue")
@click.argument("run_folder", metavar="RUN", type=RunPath())
def continue_run(run_folder: Path) -> None:
    """Let a paused run continue. If its process has ended, use `resume`."""
    _pause(run_folder, False)


def _pause(folder: Path, paused: bool) -> None:
    from policygen.search.steer import pause as pause_run

    changed = pause_run(folder, paused)
    words = "the run will pause before its next prompt" if paused else "the run continues"
    say(words if changed else f"the run is {'paused already' if paused else 'not paused'}")
