"""Commands for many runs: `sweep`, `compare` and `finetune`."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.errors import UsageError

_OF_SWEEP = ("policy", "refine", "iterations", "episodes", "max_episodes", "max_calls", "max_usd", "base_url")


@click.command(cls=opt.WithSettings, only=_OF_SWEEP)
@click.argument("names", metavar="TASK|SUITE|SUITE:TASK...", nargs=-1, required=True)
@click.option(
    "--llm",
    "llms",
    multiple=True,
    metavar="SPEC",
    help="Provider and model, as for `run`; may be repeated, to run each.",
)
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="T",
    help="Prompt template, as for `run`; may be repeated, to run each.",
)
@click.option("--seeds", default="10", help="Number of seeds from 0 (default 10), a range 100..109, or a list 1,5,7.")
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=A,B",
    help="Setting with several values to run, as in refine=none,cma:200; may be repeated, to run all combinations.",
)
@opt.assignment("Any other setting of every run (see `run --help`); may be repeated.")
@click.option("--workers", type=click.IntRange(1), help="Runs at a time (default 1; on a cluster as many as fit).")
@click.option(
    "--backend",
    type=click.Choice(["local", "ray", "dask", "slurm"]),
    default="local",
    help="Where to run: here (default), with Ray or Dask (here, or on the cluster at RAY_ADDRESS or "
    "DASK_SCHEDULER_ADDRESS), or as Slurm jobs. All machines must share the working directory and --out.",
)
@click.option(
    "--slurm",
    multiple=True,
    metavar="NAME=VALUE",
    help="Long option of sbatch, such as partition=cpu, time=4:00:00, mem=4G, account=A or cpus-per-task=4; may be "
    "repeated.",
)
@opt.CACHE
@opt.TRACK
@click.option("--out", type=opt.PATH, help="The sweep's folder (default: results/sweep-NAMES).")
@opt.TRUST
def sweep(names: tuple[str, ...], assignments: tuple[str, ...], out: Path | None, **options: Any) -> None:
    """Run every combination of task, model, template, setting and seed.

    SUITE:TASK is a task with the settings of a suite; `policygen tasks` lists suites. To continue an interrupted sweep,
    repeat its command: finished runs are skipped, others are resumed or tried again. With more seeds or tasks, the
    command adds their runs. Each run gets a folder within the sweep's; `policygen compare` compares them.
    """
    from policygen.extensions.sweeps.conduct import closing_words, conduct
    from policygen.extensions.sweeps.plan import make_plan, read_seeds
    from policygen.extensions.sweeps.worker import Execution, config_of
    from policygen.llm import reads_prompts

    opt.listeners(options["track"])  # raises if one is not installed
    fixed = {"task": "TASK", "llm": "--llm", "template": "--template", "seed": "--seeds", "base_url": "--base-url"}
    common = {name: value for name, value in opt.settings(options).items() if name in _OF_SWEEP}
    if forbidden := [name for text in assignments if (name := text.partition("=")[0].strip()) in fixed]:
        raise UsageError(f"--set {forbidden[0]}: in a sweep, use {fixed[forbidden[0]]}")
    assignments += tuple(f"{name}={value}" for name, value in common.items())  # the last value of a name counts
    seeds = read_seeds(options["seeds"])
    plan = make_plan(names, options["llms"], options["templates"], seeds, grid=options["grid"], settings=assignments)
    folder = out or Path("results") / f"sweep-{'-'.join(Path(name).stem.replace(':', '-') for name in names)[:60]}"
    configurations = {cell.configuration: cell for cell in plan.cells}.values()
    opt.say_own_templates(*(config_of(cell, plan.settings, trust=options["trust"])[1] for cell in configurations))
    if len(options["templates"]) > 1 and not any(reads_prompts(cell.llm) for cell in plan.cells):
        say("Warning: no model of this sweep reads prompts, so templates make no difference", err=True)
    say(f"{len(plan.cells)} runs in {folder}; each line is a final score (mean return, 95% interval)")
    execution = Execution(**{field.name: options[field.name] for field in fields(Execution)})
    try:
        orders = conduct(folder, plan, execution, say)
    except KeyboardInterrupt:
        say("\nInterrupted. Nothing is lost; repeat the command to continue.", err=True)
        raise SystemExit(130) from None
    complete, lines = closing_words(folder, orders)
    for line in lines:
        say(line, err=not complete)
    if not complete:
        raise SystemExit(1)


@click.command()
@click.argument("sources", metavar="RUN|SWEEP|LABEL:TASK=FILE...", nargs=-1, required=True)
@click.option(
    "--by", help="Setting that tells contenders apart: llm, template, policy, ... (default: all that differ)."
)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=opt.PATH,
    multiple=True,
    help="Also write this .md, .tex, .csv, .png, .pdf or .svg; beside a .csv, NAME-runs.csv has a row for each run. "
    "May be repeated.",
)
@click.option("--suite", help="Also show the scores published for this suite (default: for the suites of the sweeps).")
def compare(sources: tuple[str, ...], by: str | None, outputs: tuple[Path, ...], suite: str | None) -> None:
    """Compare runs and sweeps: scores, differences on shared seeds, and costs.

    Runs with the same seed are paired. LABEL:TASK=FILE is a training by Stable-Baselines3: its monitor.csv, or a folder
    of these.
    """
    from policygen.extensions.compare.comparison import FORMATS
    from policygen.extensions.compare.contenders import read_scores
    from policygen.extensions.plots import style

    for output in outputs:
        style.check_suffix(output, (*FORMATS, *style.FORMATS))
    comparison = read_scores(sources, by=by, suite=suite)
    table, _, sentence = str(comparison).rstrip().rpartition("\n\n")
    say(table)
    for output in outputs:
        is_picture = output.suffix.lower().removeprefix(".") in style.FORMATS
        written = [style.save(comparison.figure(), output)] if is_picture else comparison.write(output)
        say("\n".join(map(str, written)))
    say(f"\n{sentence}")


@click.command()
@click.argument("runs", metavar="RUN|SWEEP...", nargs=-1, required=True, type=opt.RunPath())
@click.option("--base", required=True, metavar="DIR_OR_NAME", help="Model to train, as in --llm local:DIR_OR_NAME.")
@click.option("--method", type=click.Choice(["sft", "rft", "dpo", "grpo"]), default="sft", help="Kind of training.")
@click.option("-o", "--output", required=True, type=opt.PATH, help="Folder for the trained model.")
@click.option("--test", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="Share of runs to hold out.")
@click.option(
    "--top",
    type=click.FloatRange(0, 1, min_open=True),
    help="sft: share of each task's replies to train on, the best ones.",
)
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Passes over the rows (default 3).")
@click.option("--rounds", type=click.IntRange(1), help="rft: rounds of sampling and training (default 4).")
@click.option("--samples", type=click.IntRange(2), help="rft, grpo: replies for each prompt (default 8).")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="Learning rate (default 1e-4).")
@click.option(
    "--beta", type=click.FloatRange(0), help="dpo, grpo: weight of the divergence from --base (default 0.03)."
)
@click.option("--batch", type=click.IntRange(1), help="Rows per step (default 8).")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest sampled reply, in tokens (default 512).")
@click.option("--episodes", type=click.IntRange(1), help="Episodes that score a sampled reply (default 10).")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random draw (default 0).")
def finetune(runs: tuple[Path, ...], base: str, output: Path, **stated: Any) -> None:
    """Train a local language model on the requests and replies of runs.

    sft: on replies that became the best policy or, with --top, on those with the highest scores. dpo: on pairs of a
    better and a worse reply. rft and grpo: on replies that the model itself samples, scored in episodes; they need a
    model whose replies can be read, so begin with sft. The folder gets the weights, and a model card that compares
    replies before and after. Use it with --llm local:DIR. Needs `policygen[finetune]`.
    """
    from policygen.extensions.training.dataset import make_dataset
    from policygen.extensions.training.finetune import FORMS, TrainingSettings
    from policygen.extensions.training.finetune import finetune as train

    method, test, top = (stated.pop(name) for name in ("method", "test", "top"))
    rows, held_out = make_dataset(runs, FORMS[method], top=top, test=test)
    settings = TrainingSettings(method, **{name: value for name, value in stated.items() if value is not None})
    try:
        result = train(rows, held_out, base, out=output, settings=settings, say=say)
    except KeyboardInterrupt:
        say("\nInterrupted. Nothing is saved.", err=True)
        raise SystemExit(130) from None
    say(f"{output}: use it with --llm local:{output}" + (f"; ended early: {result.ended}" if result.ended else ""))
