"""Commands for pages: `report`."""

from __future__ import annotations

from pathlib import Path

import click

from policygen.cli.options import PATH, RunPath, say, trust_option


@click.command()
@click.argument("source", metavar="RUN|SWEEP", type=RunPath())
@click.option("-o", "--output", type=PATH, default=Path("report.html"), help="File (default: report.html).")
@click.option("--film/--no-film", default=True, help="Whether an episode is played for it (default: yes).")
@trust_option
def report(source: Path, output: Path, film: bool, trust: bool) -> None:
    """Write a page about a run or a sweep: one HTML file that needs no network. RUN may be `latest`.

    It has the final score, the learning curve, the policy as text and picture, an episode that plays, what every
    attempt changed, every prompt and reply, cost, settings, and the command that repeats the run. A browser prints it
    as a PDF.
    """
    from policygen.reports.page.render import write_page

    path = write_page(source, output, film=film, trust=trust)
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
