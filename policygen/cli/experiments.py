"""Commands for many runs: `sweep`, and `resume` of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policygen.cli.options import BASE_URL, PATH, assignment, say, trust_option
from policygen.errors import UsageError

if TYPE_CHECKING:
    from policygen.sweeps.conduct import Sweep
    from policygen.sweeps.plan import Limits


@click.command()
@click.argument("names", metavar="TASK|SUITE...", nargs=-1, required=True)
@click.option("--llm", "llms", multiple=True, metavar="SPEC", help="Provider and model; may be repeated.")
@click.option("--template", "templates", multiple=True, metavar="T", help="Improve template; may be repeated.")
@click.option("--seeds", default="5", help="How many, from 0 on (default 5), a range 100..109, or a list 1,5,7.")
@assignment("A setting of every run (see `run --help`), such as refine=auto or max_calls=8; may be repeated.")
@BASE_URL
@click.option("--max-calls", type=int, help="Most requests to language models, of all runs together.")
@click.option("--max-tokens", type=int, help="Most tokens, in and out, of all runs together.")
@click.option("--max-usd", type=float, help="Most US dollars, of all runs together; needs models of known price.")
@click.option("--workers", type=click.IntRange(1), default=1, help="Processes that carry out runs (default 1).")
@click.option("--out", type=PATH, help="The sweep's folder (default: results/sweep-NAMES).")
@trust_option
def sweep(names: tuple[str, ...], assignments: tuple[str, ...], out: Path | None, trust: bool, **options: Any) -> None:
    """Carry out a run for every task, model, template and seed.

    Runs that are finished are skipped, interrupted ones are resumed, and the same command with more seeds or tasks adds
    what is missing. Each run is an ordinary folder in the sweep's; `policygen plot` draws its picture.
    """
    from policygen.sweeps.conduct import open_sweep
    from policygen.sweeps.plan import Plan, product_of, read_seeds

    fixed = {"task": "TASK", "llm": "--llm", "template": "--template", "seed": "--seeds", "base_url": "--base-url"}
    for text in assignments:
        if (name := text.partition("=")[0].strip()) in fixed:
            raise UsageError(f"--set {name}: in a sweep that is said by {fixed[name]}")
    product = product_of(names, options["llms"], options["templates"], read_seeds(options["seeds"]))
    limits = _limits(options)
    plan = Plan(products=(product,), settings=assignments, limits=limits)
    again = (f"base_url={options['base_url']}",) if options["base_url"] else ()
    folder = out or Path("results") / f"sweep-{'-'.join(Path(name).stem for name in names)[:60]}"
    _conduct(open_sweep(folder, plan, again=again, workers=options["workers"], trust=trust))


def resume_sweep(
    folder: Path, assignments: tuple[str, ...], budgets: Mapping[str, Any], *, workers: int, trust: bool
) -> None:
    """Go on with a sweep, perhaps with larger limits of what all its runs may spend.

    Raises:
        UsageError: something that would change its runs.
    """
    from policygen.runs.config import CHANGEABLE
    from policygen.sweeps.conduct import open_sweep
    from policygen.sweeps.plan import Limits

    fixed = [name for text in assignments if (name := text.partition("=")[0].strip()) not in CHANGEABLE]
    fixed += [name for name in budgets if budgets[name] is not None and name not in Limits.model_fields]
    if fixed:
        raise UsageError(
            f"{fixed[0]}: a sweep that goes on can change --set {', '.join(CHANGEABLE)}, and --max-calls, --max-tokens "
            f"and --max-usd of all its runs; a single run can have more: policygen resume {folder}/RUN"
        )
    limits = _limits(budgets)
    _conduct(open_sweep(folder, limits=limits, again=assignments, workers=workers, trust=trust))


def _limits(options: Mapping[str, Any]) -> Limits:
    from pydantic import ValidationError

    from policygen.errors import explain
    from policygen.sweeps.plan import Limits

    try:
        return Limits(**{name: options[name] for name in Limits.model_fields})
    except ValidationError as error:
        raise UsageError(f"the options: {explain(error)}") from None


def _conduct(begun: Sweep) -> None:
    from policygen.reports.sweeping import SweepTerminal, closing_words
    from policygen.sweeps.conduct import conduct

    terminal = SweepTerminal(begun)
    say(f"{len(begun.cells)} runs in {begun.folder}")
    try:
        with terminal.watching():
            conduct(begun, terminal)
    except KeyboardInterrupt:
        say(f"\nInterrupted. Nothing is lost; go on with: policygen resume {begun.folder}", err=True)
        raise SystemExit(130) from None
    finally:
        begun.release()
    for line in closing_words(begun):
        say(line, err=not begun.whole)
    if not begun.whole:
        raise SystemExit(1)
