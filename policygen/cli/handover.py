"""The commands `export` and `simplify`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from policygen.cli.options import PATH, RunPath, say, trust_option


@click.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option(
    "--to",
    type=click.Choice(["c", "python", "json", "latex", "minari"]),
    required=True,
    help="C99 or Python without libraries, JSON for programs, LaTeX for a paper; minari: the run's episodes.",
)
@click.option("-o", "--output", type=PATH, help="File (default: it is printed); for minari the dataset's id.")
@click.option("--task", "task_name", help="Task of a text file.")
@trust_option
def export(source: Path, to: str, output: Path | None, task_name: str | None, trust: bool) -> None:
    """Write a policy in another language, with its definitions. RUN may be `latest`.

    C is one file of C99 without allocation, fit for a microcontroller; it decides exactly as numpy does, also at edges
    and for NaN. With --to minari the run's replay buffer becomes a Minari dataset.
    """
    if to == "minari":
        _export_episodes(source, output, trust)
        return
    from policygen.extensions.export.formats import exported
    from policygen.files import write_named
    from policygen.runs.reading import read_policy

    text = exported(read_policy(source, task_name, trust=trust), to)
    if output is None:
        say(text.rstrip("\n"))
        return
    write_named(output, text)
    say(output)


def _export_episodes(run: Path, output: Path | None, trust: bool) -> None:
    from policygen.episodes.datasets import write_minari
    from policygen.runs.logbook import Logbook
    from policygen.tasks.spaces import slug
    from policygen.tasks.trust import trusted

    logbook = Logbook(run)
    config, task = logbook.config(), logbook.task()
    name = str(output) if output is not None else f"policygen/{slug(task.name)}-s{config.seed}-v0"
    episodes = [episode.trajectory for episode in logbook.buffer(config.buffer_steps)]
    folder = write_minari(episodes, trusted(task) if trust else task, name)
    say(f"{len(episodes)} episodes, {sum(episode.length for episode in episodes):,} steps: {name} in {folder}")


@click.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("-o", "--output", type=PATH, default=Path("simple.json"), help="File (default: simple.json).")
@click.option("--task", "task_name", help="Task of a text file.")
@click.option("--episodes", type=click.IntRange(2), default=100, help="Episodes per candidate (default 100).")
@click.option(
    "--max-episodes",
    type=click.IntRange(1),
    default=20_000,
    help="Episodes of all candidates together, without checks (default 20000).",
)
@click.option("--margin", type=click.FloatRange(0, 1), default=0.01, help="Share of the score that may be lost (0.01).")
@click.option("--seed", type=click.IntRange(0), default=0, help="Determines the episodes (default 0).")
@trust_option
def simplify(source: Path, output: Path, task_name: str | None, trust: bool, **options: Any) -> None:
    """Find the smallest policy that is not worse: fewer rows, terms and digits. RUN may be `latest`.

    Cells that are never visited may change. Not worse means: on the same episodes the mean loss is at most 1% of the
    score (or of its standard deviation, if larger), and not significant in a one-sided paired t-test (p > 0.05). An
    exact score must not fall. The result is checked on twice as many new episodes; if it fails, up to three larger
    policies are checked, each on new episodes.
    """
    from policygen.extensions.simplify.simplify import simplify as simplified
    from policygen.extensions.simplify.simplify import size_of, words_of
    from policygen.files import write_named
    from policygen.policies.policy import Policy
    from policygen.runs.reading import read_policy
    from policygen.tasks.trust import trusted

    policy = read_policy(source, task_name, trust=trust)
    if trust:
        policy = replace(policy, task=trusted(policy.task))
    told = {str(size_of(policy))}

    def tell(smaller: Policy) -> None:
        if (words := str(size_of(smaller))) not in told:
            told.add(words)
            say(f"  {words}", err=True)

    found = simplified(policy, **options, on_accepted=tell)
    for line in words_of(found, options["margin"]):
        say(line)
    write_named(output, json.dumps(found.policy.to_record(), indent=1))
    say(f"\n{found.policy.to_text(whole=True)}\n\n{output}")
