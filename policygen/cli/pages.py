"""The commands `report` and `serve`."""

from __future__ import annotations

from pathlib import Path

import click

from policygen.cli.options import PATH, RunPath, say, trust_option
from policygen.errors import UsageError


@click.command()
@click.argument("source", metavar="RUN|SWEEP", type=RunPath())
@click.option("-o", "--output", type=PATH, default=Path("report.html"), help="File (default: report.html).")
@click.option("--film/--no-film", default=True, help="Whether to play an episode for the page (default: yes).")
@trust_option
def report(source: Path, output: Path, film: bool, trust: bool) -> None:
    """Write a page about a run or a sweep: one HTML file that needs no network. RUN may be `latest`.

    It shows the final score, the learning curve, the policy as text and picture, an animated episode, the changes of
    every attempt, every prompt and reply, cost, settings, and the command that repeats the run. A browser can print it
    as a PDF.
    """
    from policygen.extensions.page.render import write_page

    path = write_page(source, output, film=film, trust=trust)
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


@click.command()
@click.argument("folder", metavar="RUN|DIR", type=RunPath())
@click.option("--port", type=click.IntRange(0, 65535), default=8421, help="Port (default: 8421; 0 takes a free one).")
def serve(folder: Path, port: int) -> None:
    """Show running and finished runs in a browser: curves, the conversation, and a form to comment and pause.

    Only browsers on this machine can connect; there is no login. It needs `pip install "policygen[serve]"`.
    """
    try:  # the extra `serve`
        from policygen.extensions.live.app import serve as serve_pages
    except ImportError:
        raise UsageError('serving needs more packages; run: pip install "policygen[serve]"') from None
    try:
        serve_pages(folder, port, say)
    except KeyboardInterrupt:
        say("stopped")
