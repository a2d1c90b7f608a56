"""The command `film`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from policygen.cli.options import PATH, RunPath, say, trust_option
from policygen.errors import UsageError


@click.command()
@click.argument("source", metavar="RUN|best.json|POLICY.txt", type=RunPath())
@click.option("-o", "--output", type=PATH, help="A .gif or .mp4 (default: film.gif).")
@click.option("--window", is_flag=True, help="Show it in a window instead; keys pause it and go step by step.")
@click.option(
    "--episodes", type=click.IntRange(1), help="Episodes to play (default 1; with --best, --worst or --median 20)."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Determines the episodes, as for `eval` (default 0).")
@click.option("--best", "which", flag_value="best", help="Film only the episode with the highest return.")
@click.option("--worst", "which", flag_value="worst", help="Film only the one with the lowest.")
@click.option("--median", "which", flag_value="median", help="Film only the one in the middle.")
@click.option("--task", "task_name", help="Task of a text file.")
@trust_option
def film(source: Path, output: Path | None, *, window: bool, task_name: str | None, trust: bool, **choice: Any) -> None:
    """Film a policy: every step with its return, its action, and the row or terms that decided it.

    The episodes are those of `policygen eval` with the same seed. Most environments, MP4 and windows need
    `pip install "policygen[render]"`. MuJoCo draws without a screen by EGL or OSMesa.
    """
    from policygen.extensions.film import film as films
    from policygen.extensions.film.frames import Look, ending_of, frames
    from policygen.extensions.film.window import check_screen, show
    from policygen.extensions.plots.style import check_suffix
    from policygen.runs.reading import read_policy
    from policygen.tasks.trust import trusted

    if window:
        if output is not None:
            raise UsageError("a film goes into a file or into a window: give -o or --window")
        check_screen()
    path = output or Path("film.gif")
    check_suffix(path, films.FORMATS)
    policy = read_policy(source, task_name, trust=trust)
    policy = replace(policy, task=trusted(policy.task)) if trust else policy
    shown = films.takes(policy, **choice)
    if window:
        show(list(frames(policy, shown, Look(width=640))), policy.task.name)
    else:
        path = films.film(policy, shown, path)
    for take in shown:
        episode = take.episode
        what = take.title or "episode"
        said = ", ".join(ending_of(episode, policy.task))
        say(f"{what}: return {episode.episode_return:.6g}, {episode.length} steps, seed {episode.seed}; {said}")
    if not window:
        say(path)
