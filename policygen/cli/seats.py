"""Shared parts of `drive` and `mediate`: options, and continuation from stored answers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from policygen.cli.options import BASE_URL, PATH, assignment, say
from policygen.errors import PolicygenError, UsageError

if TYPE_CHECKING:
    from policygen.extensions.seats.session import ModelSession, SessionResult
    from policygen.llm import Provider

    Found = TypeVar("Found", bound=SessionResult)


def seat_options(asked: str, seed: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of `drive` and `mediate`.

    Args:
        asked: help of `--template`; `seed`: help of `--seed`.
    """

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--out", type=PATH, help="Folder of the results (default: a new one in results/)."),
            assignment("A setting such as temperature=0, max_output_tokens=500 or price_in=1; may be repeated."),
            click.option("--max-usd", type=float, help="Most US dollars; needs a model whose price is known."),
            click.option("--max-tokens", type=int, help="Most tokens, in and out."),
            click.option("--max-calls", type=int, help="Most requests to the model, repairs and failures included."),
            BASE_URL,
            click.option("--seed", type=click.IntRange(0), help=seed),
            click.option("--template", help=asked),
            click.option(
                "--concurrency",
                type=click.IntRange(1, 64),
                default=4,
                help="Questions under way at a time (default 4).",
            ),
        ):
            command = option(command)
        return command

    return decorated


def check_settings(assignments: Sequence[str], *, without: Sequence[str] = ()) -> None:
    """Refuse settings without effect on this command.

    Raises:
        UsageError: a setting has no effect.
    """
    from policygen.extensions.seats.session import SETTINGS

    known = [name for name in SETTINGS if name not in without]
    for text in assignments:
        if (name := text.partition("=")[0].strip()) not in known:
            raise UsageError(f"--set {name}: has no effect here; these have: {', '.join(known)}")


def tell_key(provider: Provider) -> None:
    """Print which server gets a key, if any."""
    from policygen.llm.base import Keyed

    if isinstance(provider, Keyed) and provider.key_goes_to:
        say(f"  {provider.key_goes_to}")


def carried_out(seat: ModelSession[Found]) -> Found:
    """Carry out a session; after a failure or interruption, print how to continue."""
    try:
        return seat.carry_out()
    except (KeyboardInterrupt, PolicygenError):
        say(
            f"No answer is lost: continue with the same command and --out {shlex.quote(str(seat.folder))}",
            err=True,
        )
        raise


def requests_in_words(outcome: SessionResult) -> str:
    """Describe the number of requests and of answers stored before."""
    who = "requests" if outcome.is_language_model else "requests, none to a language model"
    kept = f", {outcome.cached} answers from earlier" if outcome.cached else ""
    return f"{outcome.requests:,} {who}{kept}"
