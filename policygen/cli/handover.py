"""Commands that hand a policy over: `export`."""

from __future__ import annotations

from pathlib import Path

import click

from policygen.cli.options import PATH, RunPath, say, trust_option


@click.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option(
    "--to",
    type=click.Choice(["c", "python", "json", "latex"]),
    required=True,
    help="C99 or Python without libraries, JSON for programs, LaTeX for a paper.",
)
@click.option("-o", "--output", type=PATH, help="File (default: it is printed).")
@click.option("--task", "task_name", help="Task of a text file.")
@trust_option
def export(source: Path, to: str, output: Path | None, task_name: str | None, trust: bool) -> None:
    """Write a policy in another language, definitions and all. RUN may be `latest`.

    C is one file of C99 without allocation, for a microcontroller for one; it decides as numpy does, at edges and for
    values that are no numbers, too.
    """
    from policygen.files import write_atomically
    from policygen.policies.export.formats import exported
    from policygen.runs.reading import read_policy

    text = exported(read_policy(source, task_name, trust=trust), to)
    if output is None:
        say(text.rstrip("\n"))
        return
    write_atomically(output, text)
    say(output)
