"""Commands for many runs: `sweep` (and `resume` of one), `compare` and `finetune`."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli import options as opt
from policygen.cli.options import say
from policygen.errors import UsageError, explain

if TYPE_CHECKING:
    from policygen.extensions.sweeps.executor import Executor
    from policygen.extensions.sweeps.plan import SweepLimits, SweepPlan


@click.command()
@click.argument("names", metavar="TASK|SUITE|SUITE:TASK...", nargs=-1, required=True)
@click.option(
    "--llm",
    "llms",
    multiple=True,
    metavar="SPEC",
    help="Provider and model, as for `run`; repeat it for runs with each. 'A + B': both take turns in the same run.",
)
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="T",
    help="Template of the prompt for a better policy; repeat it for runs with each.",
)
@click.option("--seeds", default="10", help="Number of seeds from 0 (default 10), a range 100..109, or a list 1,5,7.")
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=A,B",
    help="A setting with several values, as in refine=none,cma:200, for runs with each; repeat it for combinations.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs and an estimate of episodes, requests, cost and time.")
@opt.assignment("A setting of every run (see `run --help`), such as refine=auto or max_calls=8; may be repeated.")
@opt.BASE_URL
@click.option("--iterations", type=int, help="Rounds of each run (default 20, or the suite's).")
@click.option("--episodes", type=int, help="Episodes per score while searching (default 20, or the suite's).")
@click.option("--max-episodes", type=int, help="Most episodes of each run while searching, warm-up included.")
@click.option("--max-calls", type=int, help="Most requests to language models, of all runs together.")
@click.option("--max-tokens", type=int, help="Most tokens, in and out, of all runs together.")
@click.option("--max-usd", type=float, help="Most US dollars, of all runs together; needs models of known price.")
@opt.EXECUTION
@click.option("--out", type=opt.PATH, help="The sweep's folder (default: results/sweep-NAMES).")
@opt.TRUST
def sweep(names: tuple[str, ...], assignments: tuple[str, ...], out: Path | None, **options: Any) -> None:
    """Carry out a run for every task, model, template, setting and seed; SUITE:TASK is a task with a suite's settings.

    Finished runs are skipped, interrupted ones are resumed, and the same command with more seeds or tasks adds the
    missing ones. Each run has a folder of its own in that of the sweep; `policygen plot` draws them, and `policygen
    tasks` lists the suites and their published scores.
    """
    from policygen.extensions.sweeps.plan import SweepPlan, product_of, read_seeds

    check_execution(options)
    fixed = {"task": "TASK", "llm": "--llm", "template": "--template", "seed": "--seeds", "base_url": "--base-url"}
    assigned = {text.partition("=")[0].strip() for text in assignments}
    if (name := next((name for name in fixed if name in assigned), None)) is not None:
        raise UsageError(f"--set {name}: in a sweep, use {fixed[name]}")
    product = product_of(names, options["llms"], options["templates"], read_seeds(options["seeds"]), options["grid"])
    each = {name: options[name] for name in ("iterations", "episodes", "max_episodes") if options[name] is not None}
    assignments += tuple(f"{name}={value}" for name, value in each.items())
    varied = {text.partition("=")[0] for one in product.grid for text in one}
    flags = {name: f"--{name.replace('_', '-')}" for name in each} | {name: f"--set {name}" for name in assigned}
    twice = [(name, f"--{name.replace('_', '-')}") for name in each if name in assigned]
    twice += [(name, f"--grid {name}") for name in sorted(flags.keys() & varied)]
    if twice:
        name, other = twice[0]
        raise UsageError(f"{flags[name]} and {other} set the same value: leave one of them out")
    plan = SweepPlan(products=(product,), settings=assignments, limits=_limits(options))
    overrides = (f"base_url={options['base_url']}",) if options["base_url"] else ()
    folder = out or Path("results") / f"sweep-{'-'.join(Path(name).stem.replace(':', '-') for name in names)[:60]}"
    if options["dry_run"]:
        from policygen.extensions.sweeps.progress import estimate

        for words in estimate(plan, overrides, options["workers"] or 1, trust=options["trust"]):
            say(words)
    else:
        _conduct(folder, plan, overrides, options)


def check_execution(options: Mapping[str, Any]) -> None:
    """Raise UsageError if an option of an executor is given without that executor."""
    if options["address"] is not None and options["on"] != "ray":
        raise UsageError("--address is for a Ray cluster: add --on ray")
    if options["slurm"] and options["on"] != "slurm":
        raise UsageError(f"--slurm {options['slurm'][0]}: add --on slurm")


def resume_sweep(folder: Path, assignments: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Resume a sweep, with larger budgets if `options` has some; raise UsageError if a setting cannot change."""
    from policygen.extensions.sweeps.plan import SweepLimits
    from policygen.runs.config import BUDGETS, CHANGEABLE

    each = [name for name in BUDGETS if name not in SweepLimits.model_fields]  # SweepLimits: of all runs
    fixed = [name for text in assignments if (name := text.partition("=")[0].strip()) not in (*CHANGEABLE, *each)]
    if fixed:
        raise UsageError(
            f"--set {fixed[0]}: a resumed sweep can only change {', '.join(CHANGEABLE)}, increase {', '.join(each)} "
            "of each run, and increase --max-calls, --max-tokens and --max-usd of all together"
        )
    assignments += tuple(f"{name}={options[name]}" for name in each if options.get(name) is not None)
    _conduct(folder, None, (*assignments, *(f"llm={llm}" for llm in options["llms"])), options)


def _limits(options: Mapping[str, Any]) -> SweepLimits:
    from pydantic import ValidationError

    from policygen.extensions.sweeps.plan import SweepLimits

    try:
        return SweepLimits(**{name: options[name] for name in SweepLimits.model_fields})
    except ValidationError as error:
        raise UsageError(f"the options: {explain(error)}") from None


def _executor(folder: Path, options: Mapping[str, Any]) -> Executor:
    """Return the executor of the sweep in a folder."""
    if options["on"] == "local":
        from policygen.extensions.sweeps.executor import ProcessExecutor

        return ProcessExecutor(folder, options["workers"] or 1)
    if options["on"] == "slurm":
        from policygen.extensions.cluster.on_slurm import SlurmExecutor

        return SlurmExecutor(folder, options["slurm"], options["workers"])
    from policygen.extensions.cluster.on_ray import RayExecutor

    return RayExecutor(folder, options["address"], options["workers"])


def _conduct(folder: Path, plan: SweepPlan | None, overrides: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Carry out the sweep in a folder with output on the terminal; exit with 1 if it is not complete.

    If `plan` is None, the folder's own plan is used.
    """
    from policygen.extensions.sweeps.conduct import conduct, open_sweep
    from policygen.extensions.sweeps.plan import idle_templates, protocols
    from policygen.extensions.sweeps.progress import SweepTerminal, closing_words, resume_command
    from policygen.extensions.sweeps.worker import config_of
    from policygen.llm import reads_prompts

    opt.listeners(options["track"])  # raises if one is not installed
    active_sweep = open_sweep(
        folder,
        plan,
        limits=_limits(options) if plan is None else None,
        overrides=overrides,
        trust=options["trust"],
        cache=options["cache"],
    )
    if plan is not None:
        for line in protocols(active_sweep.plan):
            say(line)
        cells = {cell.configuration: cell for cell in active_sweep.cells}
        settings = (*active_sweep.plan.settings, *active_sweep.overrides)
        opt.say_own_templates(*(config_of(cell, settings, trust=options["trust"])[1] for cell in cells.values()))
    on, address, slurm, workers = (options[name] for name in ("on", "address", "slurm", "workers"))
    words = ["--on", on] if on != "local" else []
    words += ["--address", address] if address is not None else []
    words += [word for text in slurm for word in ("--slurm", text)]
    words += ["--workers", str(workers)] if workers is not None else []
    active_sweep.track, active_sweep.executor_options = options["track"], shlex.join(words)
    terminal = SweepTerminal(active_sweep)
    if options["cache"] is not None and not any(reads_prompts(cell.llm) for cell in active_sweep.cells):
        say("warning: --cache has no effect: these runs ask no model", err=True)
    if idle_templates(active_sweep.plan):
        say("warning: the models of this sweep read no prompt: runs with different templates are equal", err=True)
    say(f"{len(active_sweep.cells)} runs in {active_sweep.folder}")
    try:
        with terminal:
            conduct(active_sweep, _executor(active_sweep.folder, options), terminal.tell)
    except KeyboardInterrupt:
        say(f"\nInterrupted. Nothing is lost; continue with: {resume_command(active_sweep)}", err=True)
        raise SystemExit(130) from None
    finally:
        active_sweep.lock.release()
    for line in closing_words(active_sweep):
        say(line, err=not active_sweep.complete)
    if not active_sweep.complete:
        raise SystemExit(1)


@click.command()
@click.argument(
    "sources",
    metavar="RUN|SWEEP|LABEL:TASK=FILE|best.json|POLICY.txt|MODULE:NAME|ppo:MODEL.zip...",
    nargs=-1,
    required=True,
)
@click.option(
    "--by", help="Setting that distinguishes contenders: llm, template, policy, ... (default: those that differ)."
)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=opt.PATH,
    multiple=True,
    help="A .md, .csv, .tex, .html, .json, .png, .pdf or .svg.",
)
@click.option("--suite", help="Show this suite's published columns (default: those of the sweeps' suites).")
@click.option(
    "--columns", type=click.Choice(["1", "2"]), default="2", help="Width of the figure, in columns of a paper."
)
@click.option(
    "--x",
    type=click.Choice(["episodes", "env_steps", "calls", "seconds", "usd"]),
    default="episodes",
    help="Horizontal axis of the curves (default: episodes).",
)
@click.option("--task", help="Play the best policies of the sources on this task (default: that of the first run).")
@click.option("--episodes", type=click.IntRange(2), help="Episodes that policies play (default 100).")
@click.option("--seed", type=click.IntRange(0), help="Determines these episodes, as for `eval` (default 0).")
@opt.TRUST
def compare(sources: tuple[str, ...], by: str | None, outputs: tuple[Path, ...], **options: Any) -> None:
    """Compare runs, sweeps and other programs' runs: differences, their significance, and costs.

    Runs of the same seed are paired. LABEL:TASK=FILE is a run of another program: Stable-Baselines3's monitor.csv,
    ProPS's overall_log, or a CSV with a column `return` and one of `episodes`, `env_steps`, `calls`, `seconds`, `usd`.

    With a policy or another agent among the sources, or with --task, all are played on the same episodes, runs with
    their best policies.
    """
    from policygen.extensions.compare import tables
    from policygen.extensions.compare.contenders import read_or_play
    from policygen.extensions.compare.figure import comparison_figure
    from policygen.extensions.compare.reports import as_markdown
    from policygen.extensions.plots import style

    for output in outputs:
        style.check_suffix(output, (*tables.FORMATS, *style.FORMATS))
    asked = {name: options[name] for name in ("suite", "task", "episodes", "seed", "trust")}
    compared = read_or_play(sources, by=by, **asked)
    for output in outputs:
        if output.suffix.lower().removeprefix(".") in style.FORMATS:
            style.save(comparison_figure(compared, columns=int(options["columns"]), x=options["x"]), output)
        else:
            tables.write_report(compared, output)
    report = tables.report_of(compared, costs=not outputs)
    say(as_markdown(report).rsplit("\n\n", 1)[0])
    for output in outputs:
        say(output)
    say(f"\n{report.sentence}")


@click.command()
@click.argument("runs", metavar="RUN|SWEEP...", nargs=-1, required=True, type=opt.RunPath())
@click.option("--base", required=True, metavar="DIR_OR_NAME", help="Model to train, as in --llm local:DIR_OR_NAME.")
@click.option("--method", type=click.Choice(["sft", "rft", "dpo", "grpo"]), default="sft", help="Kind of training.")
@click.option("-o", "--output", required=True, type=opt.PATH, help="Folder for the trained model.")
@click.option("--test", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="Share of runs to hold out.")
@click.option("--top", type=click.FloatRange(0, 1, min_open=True), help="sft: best share of each task's replies.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Passes over the rows (default 3).")
@click.option("--rounds", type=click.IntRange(1), help="rft: rounds of sampling and training (default 4).")
@click.option("--samples", type=click.IntRange(2), help="rft, grpo: replies for each prompt (default 8).")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="Learning rate (default 1e-4).")
@click.option(
    "--beta", type=click.FloatRange(0), help="dpo, grpo: weight of the divergence from --base (default 0.03)."
)
@click.option("--batch", type=click.IntRange(1), help="Rows of a step (default 8).")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest sampled reply, in tokens (default 512).")
@click.option("--episodes", type=click.IntRange(1), help="Episodes that score a sampled reply (default 10).")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random draw (default 0).")
def finetune(runs: tuple[Path, ...], base: str, output: Path, **stated: Any) -> None:
    """Train a local language model on the requests and replies of runs.

    sft: on replies that became the best policy, or with --top those with the highest scores. dpo: on pairs of a better
    and a worse reply. rft and grpo: on replies that the model samples itself, scored in episodes; that needs a model
    that already writes readable replies, so begin with sft. The folder gets the weights, and a card that compares
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
