"""Commands for results, from `show` and `eval` to `export` and `simplify`."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.errors import PolicygenError, UsageError
from policygen.files import write_named
from policygen.notices import announced_if_slow

if TYPE_CHECKING:
    from policygen.policies.policy import Policy
    from policygen.tasks.task import Perturbation, Task


@click.command()
@click.option("-o", "--output", type=opt.PATH, help="Also draw a map of its actions: a .png, .svg or .pdf.")
@click.option("--check", is_flag=True, help="Also print proven bounds of its outputs.")
@opt.READ_POLICY
def show(
    source: Path, task_name: str | None, output: Path | None, *, attempt: int | None, trust: bool, check: bool
) -> None:
    """Print a policy as text, and the results of a run.

    A small table is also printed in words and as a map. RUN may be `latest`.
    """
    from policygen.runs.reading import read_policy
    from policygen.tasks.task import KIND_WORDS

    policy = read_policy(source, task_name, attempt=attempt, trust=trust)
    say(f"# {KIND_WORDS[policy.kind]} for {policy.task.name} ({policy.task.gym_id})\n{policy.to_text(whole=True)}")
    say(f"\n# size: {policy.size} numbers and names; features and bins of the task file are not counted")
    if policy.kind == "table":
        say(
            "# Cells give bins, counted from 0: 2, 3-5 (a range), 2,3 (a set), * (any). The first matching row applies."
        )
    if check:
        from policygen.extensions.check import Interval, report

        ranges = {o.name: Interval(o.low, o.high) for o in policy.task.observations}
        say("\n# proved for all observations in these ranges:")
        say("\n".join(report(policy, ranges)))
    if (source / "attempts.jsonl").exists():
        _show_run(source, attempt)
    if opt.installed("plots"):
        from policygen.extensions.plots.words import in_words, text_map

        for lines in filter(None, (in_words(policy), text_map(policy))):
            say("\n".join(["", *(f"# {line}" for line in lines)]))
    if output is not None:
        from policygen.extensions.plots.actions import plot_policy

        say(f"\npicture: {plot_policy(policy, output)}")


def _show_run(run: Path, number: int | None) -> None:
    """Print the plant and the values that were not finite of an attempt (default: the best), and the run's facts."""
    from policygen.runs.facts import lines_of, note_facts, read_record, run_facts

    if opt.installed("plants"):
        from policygen.extensions.plants.plant import FITTED_PLANT

    try:
        record = read_record(run)
        best = record.best if number is None else record.attempts[number]
        if best is not None and opt.installed("plants") and (plant := FITTED_PLANT.of(best)) is not None:
            say(f"\n{plant.to_text()}")
        say("")
        figures = run_facts(record) if number is None or best is None else note_facts(best)
        for words in lines_of(figures, "environment steps"):
            say(f"# {words}")
    except PolicygenError as error:
        say(f"Warning: the run's plant and steps are not shown: {error}", err=True)


@click.command("eval")
@opt.POLICY
@click.option("--task", "task_name", help="Task to play; needed for a text file.")
@click.option("--episodes", type=click.IntRange(2), default=100, help="Fresh episodes (default 100).")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed that determines the episodes (default 0).")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the score as JSON, with the seed and return of every episode."
)
@opt.ATTEMPT
@click.option(
    "--against",
    multiple=True,
    metavar="RUN|best.json|POLICY.txt",
    help="Compare with this policy on the same episodes: hard requirements first, then a one-sided paired t-test "
    "(p <= 0.05) after a fifth of the episodes and, if that is undecided, after all; only after all if the task has "
    "hard requirements. May be repeated.",
)
@opt.PERTURB
@click.option(
    "--robust",
    is_flag=True,
    help="Print the sizes of perturbations that the policy withstands: those of --perturb, else all that fit the task.",
)
@click.option("-o", "--output", type=opt.PATH, help="With --robust: draw the scores into this .png, .svg or .pdf.")
@opt.TRUST
def evaluate(
    source: Path,
    task_name: str | None,
    *,
    as_json: bool,
    robust: bool,
    output: Path | None,
    trust: bool,
    **options: Any,
) -> None:
    """Score a policy, from a run or written by hand, on fresh episodes.

    Where states and transitions are known, the score is computed exactly.
    """
    from policygen.api import contenders
    from policygen.episodes.race import lengths_up_to, race
    from policygen.runs.logbook import score_record
    from policygen.runs.reading import read_opponent, read_policy

    against, attempt, perturb = (options.pop(name) for name in ("against", "attempt", "perturb"))
    policy = read_policy(source, task_name, attempt=attempt, trust=trust)
    task = opt.perturbed(policy.task.trusted() if trust else policy.task, perturb)
    if output is not None and not robust:
        raise UsageError("-o draws the scores of --robust; add --robust")
    if robust:
        if as_json or against:
            raise UsageError("--robust prints a table of mean returns: leave out --json and --against")
        _print_margins(policy, task, task.perturb if perturb else (), output, **options)
        return
    others = {text: read_opponent(text, task, trust=trust) for text in against}
    with contenders((policy, *others.values()), task, trust=trust, **options) as (own, *theirs):
        with announced_if_slow(f"playing {options['episodes']:,} episodes"):
            score = own(options["episodes"])
        # A fifth of the episodes can miss rare violations, which decide before any return.
        strict = any(one.hard for one in task.requirements)
        lengths = (options["episodes"],) if strict else lengths_up_to(options["episodes"])
        races = {text: race(own, one, lengths) for text, one in zip(others, theirs, strict=True)}
    if as_json:
        named = {"task": policy.task.name, "gym_id": policy.task.gym_id, "perturb": list(map(str, task.perturb))}
        differences = [
            {"agent": text, **score_record(found.incumbent), "verdict": found.verdict, **asdict(found.gain)}
            for text, found in races.items()
        ]
        more = {"against": differences} if differences else {}
        say(json.dumps({**named, **score_record(score), **more}))
        return
    under = f" with {', '.join(one.in_words for one in task.perturb)}" if task.perturb else ""
    say(f"{policy.task.name}{under}: mean return {score}, standard deviation {score.std:.4g}")
    if policy.task.solved is not None:
        solved = "yes" if score.mean >= policy.task.solved else "no"
        say(f"solved (mean return of at least {policy.task.solved:g}): {solved}")
    for text, found in races.items():
        say(f"against {text} (mean return {found.incumbent}): {found}")
    for one in score.violations:
        say(f"requirement {one}")
    for text, found in races.items():
        for one in found.incumbent.violations:
            say(f"{text}: requirement {one}")


def _print_margins(
    policy: Policy, task: Task, ranges: Sequence[Perturbation], output: Path | None, *, episodes: int, seed: int
) -> None:
    """Print the sizes of perturbations that a policy withstands, and draw its scores."""
    from policygen.extensions import robust
    from policygen.extensions.plots.style import check_suffix, save

    if output is not None:
        check_suffix(output)
    found = robust.margins(policy, task, robust.sizes_for(task, ranges), episodes=episodes, seed=seed)
    for line in robust.lines(found):
        say(line)
    if output is not None:
        say(save(robust.picture(found), output))


@click.command()
@click.argument("sources", metavar="RUN|SWEEP|best.json|POLICY.txt...", nargs=-1, required=True, type=opt.RunPath())
@click.option(
    "-o", "--output", type=opt.PATH, help="A .png, .svg or .pdf (default: learning_curves.png or episode.png)."
)
@click.option(
    "--x",
    type=click.Choice(["attempt", "calls", "episodes", "env_steps", "tokens", "seconds", "usd"]),
    help="Horizontal axis of curves (default: attempt).",
)
@click.option("--episode", is_flag=True, help="Draw the signals of the best, the median and the worst episode instead.")
@click.option("--episodes", type=click.IntRange(1), help="With --episode: episodes to choose from (default 20).")
@click.option(
    "--seed", type=click.IntRange(0), help="With --episode: seed that determines them, as for `eval` (default 0)."
)
@opt.ATTEMPT
@opt.TASK_OF_TEXT
@opt.TRUST
def plot(sources: tuple[Path, ...], output: Path | None, x: str | None, *, episode: bool, **which: Any) -> None:
    """Draw the learning curves of runs, or the signals of episodes.

    Runs that differ only in their seed share a curve with an interval.

    With --episode, the observations and actions of one policy are drawn over time, with the limits of requirements.
    Signals with the same unit share a panel, so a step response shows the set point with the controlled value. If a
    requirement is violated, the episode furthest from meeting it is drawn, too.
    """
    from policygen.extensions.plots import curves
    from policygen.extensions.sweeps.plan import is_sweep

    stated = [name for name, value in which.items() if name != "trust" and value not in (None, False)]
    if episode:
        if len(sources) > 1 or x is not None:
            raise UsageError(f"--episode draws episodes of one policy: {'name one' if x is None else 'leave out --x'}")
        _plot_episodes(sources[0], output or Path("episode.png"), **which)
        return
    if stated:
        raise UsageError(f"--{stated[0].removesuffix('_name')} is for episodes: add --episode, or leave it out")
    # `results/*` may include other files; a single path must be a run.
    folders = [path for path in sources if (path / "config.toml").is_file() or is_sweep(path)]
    for other in [path for path in sources if path not in folders] if folders else ():
        say(f"Warning: {other} is not a run folder and is left out", err=True)
    say(curves.plot_runs(folders or sources, output or Path("learning_curves.png"), x=x or "attempt"))


def _plot_episodes(
    source: Path, output: Path, *, episodes: int | None, seed: int | None, **policy_options: Any
) -> None:
    from policygen.episodes.requirements import Requirements
    from policygen.extensions.plots.style import check_suffix, save
    from policygen.extensions.plots.traces import EPISODES, best_median_worst, scored_episodes, traces_figure
    from policygen.runs.reading import read_policy

    check_suffix(output)
    policy = read_policy(source, **policy_options)
    played = scored_episodes(policy, episodes or EPISODES, seed or 0)
    shown = best_median_worst(played)
    violated = Requirements(policy.task).count(played) if policy.task.requirements else ()
    seeds = {one.seed for one in shown.values()}
    if furthest := next((one for one in violated if one.violated and one.seed not in seeds), None):
        shown |= {f"furthest from meeting {furthest.name}": one for one in played if one.seed == furthest.seed}
    say(save(traces_figure(policy.task, shown), output))
    for title, one in shown.items():
        say(f"{title}: return {one.episode_return:.6g}, {one.length} steps, seed {one.seed}")
    for requirement in violated:
        say(f"requirement {requirement}")


@click.command()
@click.option("-o", "--output", type=opt.PATH, default=Path("film.gif"), help="GIF file (default: film.gif).")
@click.option(
    "--episodes", type=click.IntRange(1), help="Episodes to play (default 1; with --best, --worst or --median 20)."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, help="Seed that determines the episodes, as for `eval` (default 0)."
)
@click.option("--best", "which", flag_value="best", help="Film only the episode with the highest return.")
@click.option("--worst", "which", flag_value="worst", help="Film only the episode with the lowest return.")
@click.option("--median", "which", flag_value="median", help="Film only the episode with the median return.")
@opt.READ_POLICY
def film(source: Path, output: Path, *, task_name: str | None, attempt: int | None, trust: bool, **choice: Any) -> None:
    """Record a video of a policy: every step, with the return and the signals so far.

    The episodes are those of `policygen eval` with the same seed. Most environments need
    `pip install "policygen[render]"`. Without a screen, MuJoCo renders with EGL (or with MUJOCO_GL=osmesa).
    """
    from policygen.extensions import film as films
    from policygen.extensions.plots.style import check_suffix
    from policygen.runs.reading import read_policy

    check_suffix(output, films.FORMATS)
    policy = read_policy(source, task_name, attempt=attempt, trust=trust)
    shown = films.takes(policy, **choice)
    path = films.film(policy, shown, output)
    for title, one in shown.items():
        facts = f"return {one.episode_return:.6g}, {one.length} steps, seed {one.seed}"
        say(f"{title}: {facts}; {films.ending_of(one, policy.task)}")
    say(path)


@click.command()
@click.argument("run", metavar="RUN", type=opt.RunPath())
@click.option("-o", "--output", type=opt.PATH, default=Path("report.html"), help="File (default: report.html).")
def report(run: Path, output: Path) -> None:
    """Write a page about a run: one HTML file that needs no network. RUN may be `latest`.

    It shows the task, the final score, the learning curve, the policy as text and as a map of its actions, its worst
    episode, every attempt with its changes, prompts and replies, cost and settings. A browser can print it as a PDF.
    """
    from policygen.extensions.page.render import write_page

    path = write_page(run, output)
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


@click.command()
@opt.POLICY
@click.option("--to", type=click.Choice(["c", "python", "st"]), required=True, help="C99, Python, or Structured Text.")
@click.option("--float32", is_flag=True, help="c: compute in single precision.")
@click.option("-o", "--output", type=opt.PATH, help="File, or for c a folder (default: print it).")
@opt.TASK_OF_TEXT
@opt.TRUST
def export(source: Path, to: Any, output: Path | None, task_name: str | None, *, trust: bool, float32: bool) -> None:
    """Write a policy as code: C, Python or Structured Text. RUN may be `latest`.

    C is one file of C99 without allocation, fit for a microcontroller; it makes exactly the decisions that numpy makes,
    also at the edges of bins and for NaN. If -o names a folder, it gets a source file, a header, and a program that
    checks the C code on three episodes. In expressions, NaN counts as 0 and an infinity as ±1,000,000; NaN falls into
    the last bin. With --float32, nothing is computed in double precision, so choices may differ at ties. Structured
    Text (IEC 61131-3) is a function block.
    """
    from policygen import api
    from policygen.runs.reading import read_policy

    # From the folder of a run, the export also tells where the policy comes from.
    is_whole_run = task_name is None and not trust and source.is_dir()
    exported = source if is_whole_run else read_policy(source, task_name, trust=trust)
    text, files = api.write_export(exported, to, output, float32=float32)
    if output is None:
        say(text.rstrip("\n"))
    for file, words in files.items():
        say(f"wrote {file}: {words}")


@click.command()
@opt.POLICY
@click.option("-o", "--output", type=opt.PATH, default=Path("simple.json"), help="File (default: simple.json).")
@opt.TASK_OF_TEXT
@click.option("--episodes", type=click.IntRange(2), default=100, help="Episodes per candidate (default 100).")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed that determines the episodes (default 0).")
@opt.TRUST
def simplify(source: Path, output: Path, task_name: str | None, trust: bool, **options: Any) -> None:
    """Find the smallest policy that is not worse: fewer rows, terms and digits. RUN may be `latest`.

    Cells that are never visited may change. "Not worse" means, on the same episodes: hard requirements are not violated
    more often, and the mean loss is at most 1% of the score (or of its standard deviation, if larger) and not
    significant in a one-sided paired t-test (p > 0.05). An exact score must not fall. The result is compared once more
    on twice as many new episodes; if it loses, up to two larger policies are tried, each on new episodes.
    """
    from policygen import api
    from policygen.runs.reading import read_policy

    policy = read_policy(source, task_name, trust=trust)
    found = api.simplify(policy, **options, tell=lambda words: say(f"  {words}", err=True))
    say(found)
    if found.race is not None:
        for name, score in (("before", found.race.incumbent), ("now", found.race.challenger)):
            say("\n".join([f"{name}: mean return {score}", *(f"requirement {one}" for one in score.violations)]))
    write_named(output, json.dumps(found.policy.to_record(), indent=1))
    say(f"\n{found.policy.to_text(whole=True)}\n\n{output}")
