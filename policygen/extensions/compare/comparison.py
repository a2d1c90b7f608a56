"""Comparisons: a table with a row for each task and contender, and a sentence about which contender is better.

Requirements come first: a contender that violates hard ones more often than allowed is behind one that violates them
less often. Otherwise mean scores are compared, over the seeds that both contenders have, if any.
"""

# Imports inside functions: pandas and Matplotlib are slow to load.

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.requirements import Violations, excess
from policygen.episodes.score import difference, number, score_of_returns, spread
from policygen.extensions.plots.curves import Curve, GroupCurves, Interval, interval_over_seeds, panels_figure
from policygen.extensions.sweeps.plan import PublishedColumn
from policygen.files import write_named
from policygen.runs.facts import in_brackets

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMATS = ("md", "tex", "csv")
SIGNIFICANCE = 0.05  # largest corrected p-value of a significant difference
# The name of the fact behind each cost.
COSTS = {
    **{"episodes": "episodes", "env_steps": "environment steps", "calls": "requests"},
    **{"usd": "USD", "seconds": "time"},
}
_HEADINGS = {"env_steps": "steps", "calls": "requests", "usd": "USD"}  # where a name is not its heading
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads a text that begins with one of these as a formula


@dataclass(frozen=True, slots=True)
class Result:
    """The values of a run that are compared.

    Attributes:
        score: final score, or what `meaning` says.
        seed: None for a training of another program, which is never paired.
        curve: over the episodes played.
        costs: the total amounts spent; unknown amounts are missing.
        violations: of the task's requirements, in the episodes of the final score.
        notes: the numeric notes of the best policy by heading; see `policygen.runs.notes`.
        meaning: how the score was obtained, if it is not a final score on fresh episodes.
    """

    task: str
    contender: str
    score: float
    seed: int | None
    curve: Curve
    costs: Mapping[str, float]
    violations: tuple[Violations, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A contender on a task.

    Attributes:
        interval: 95% bootstrap interval of the mean; None for a single run.
        by_seed: mean score for each seed.
        violations: of each requirement, over the episodes of all results.
        excess: how much more often than allowed hard requirements are violated; 0 if they are met.
        requirements: the violations in words: `met` without any, empty if the task has no requirement.
    """

    task: str
    contender: str
    results: Sequence[Result]
    scores: list[float]
    mean: float
    interval: Interval | None
    by_seed: dict[int, float]
    violations: list[Violations]
    excess: float
    requirements: str


def _entry(task: str, contender: str, results: Sequence[Result]) -> Entry:
    scores = [result.score for result in results]
    seeds = {result.seed for result in results if result.seed is not None}
    by_seed = {seed: fmean(one.score for one in results if one.seed == seed) for seed in seeds}
    found: dict[str, Violations] = {}
    for one in (one for result in results for one in result.violations):
        known = found.get(one.name, replace(one, violated=0, episodes=0))
        violated, episodes = known.violated + one.violated, known.episodes + one.episodes
        found[one.name] = replace(known, violated=violated, episodes=episodes)
    words = []
    for one in (one for one in found.values() if one.violated):
        limit = f", {100 * one.allowed:.3g}% allowed" if one.excess else ""
        words.append(f"{one.name} violated in {100 * one.share:.3g}% of episodes{limit}")
    violations, said = list(found.values()), "; ".join(words) if words else "met" * bool(found)
    interval = interval_over_seeds(np.array(scores))
    return Entry(
        task, contender, results, scores, fmean(scores), interval, by_seed, violations, excess(violations), said
    )


@dataclass(frozen=True, slots=True)
class Lead:
    """The difference between the means of two contenders on a task, the better one first.

    Attributes:
        gain: mean of `first` minus mean of `second`, over the seeds that both have, if any.
        interval: 95% interval of the gain (Student's t); None without two shared seeds.
        p: two-sided p-value of a paired t-test, corrected by Holm's method for the tests of the comparison; None
            without two shared seeds.
        seeds: number of shared seeds; 0 if runs are not paired.
    """

    first: Entry
    second: Entry
    gain: float
    interval: Interval | None
    p: float | None
    seeds: int

    @property
    def is_sure(self) -> bool:
        """Whether the first is significantly better."""
        return self.p is not None and self.p <= SIGNIFICANCE

    def __str__(self) -> str:
        test = f"p = {_p(self.p)}, " if self.p is not None else ""
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}" if self.seeds else "not paired"
        return f"{self.second.contender} by {number(self.gain)}{in_brackets(self.interval)} ({test}{seeds})"


class Comparison:
    """A comparison of contenders; `print(comparison.sentence)`, or `str` for the table, the notes and the sentence.

    Args:
        published: published scores to show beside the results.
        remarks: notes for the reader, such as omissions and the settings that all runs share.
    """

    def __init__(
        self, results: Sequence[Result], published: Sequence[PublishedColumn] = (), remarks: Sequence[str] = ()
    ) -> None:
        self.results, self.published, self.remarks = results, published, remarks
        self.contenders = list(dict.fromkeys(result.contender for result in results))
        self.amounts = [*dict.fromkeys(name for result in results for name in result.notes), *COSTS]
        by_task: dict[str, dict[str, list[Result]]] = {}
        for result in results:
            by_task.setdefault(result.task, {}).setdefault(result.contender, []).append(result)
        # By task, the best first: those that meet requirements best, then those with the highest mean.
        self.entries: dict[str, list[Entry]] = {}
        for task, own in by_task.items():
            entries = [_entry(task, name, own[name]) for name in self.contenders if name in own]
            self.entries[task] = sorted(entries, key=lambda one: (one.excess, -one.mean))

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the results."""
        return list(self.entries)

    def in_order(self, task: str) -> list[Entry]:
        """Return a task's entries in the order of `contenders`."""
        return sorted(self.entries[task], key=lambda one: self.contenders.index(one.contender))

    @cached_property
    def leads(self) -> list[Lead]:
        """The difference between every two contenders on each of their common tasks."""
        found = [_lead(*pair) for own in self.entries.values() for pair in itertools.combinations(own, 2)]
        corrected = iter(holm([one.p for one in found if one.p is not None]))
        return [one if one.p is None else replace(one, p=next(corrected)) for one in found]

    def behind(self, task: str) -> dict[str, Lead]:
        """Return the lead of a task's best contender over each other contender, by the other's name."""
        return {one.second.contender: one for one in self.leads if one.first is self.entries[task][0]}

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each task and contender, published methods included; unknown values are missing.

        Its columns are `task`, `contender`, `runs`, `mean`, `std`, `low`, `high` (95% interval of the mean over runs),
        `difference`, `difference_low`, `difference_high` (from the task's best contender; missing for the best), `p`,
        `requirements`, the numeric notes, and the mean costs of a run.
        """
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for task, entries in self.entries.items():
            behind = self.behind(task)
            for entry in self.in_order(task):
                low, high = entry.interval or (None, None)
                row = {"task": task, "contender": entry.contender, "runs": len(entry.scores), "mean": entry.mean}
                std = spread(entry.scores) if len(entry.scores) > 1 else None
                row |= {"std": std, "low": low, "high": high, "requirements": entry.requirements}
                if one := behind.get(entry.contender):
                    less, more = one.interval or (None, None)
                    row |= {"difference": -one.gain or 0.0, "p": one.p}
                    row |= {"difference_low": more and -more, "difference_high": less and -less}
                every = [{**one.notes, **one.costs} for one in entry.results]
                for amount in self.amounts:
                    row[amount] = fmean(own[amount] for own in every) if all(amount in own for own in every) else None
                rows.append(row)
            for column in self.published:
                if task in column.scores:
                    mean, std = column.scores[task]
                    row = {"task": task, "contender": column.name, "runs": column.runs, "mean": mean, "std": std}
                    rows.append(row | {"difference": mean - entries[0].mean})
        columns = ["task", "contender", "runs", "mean", "std", "low", "high"]
        columns += ["difference", "difference_low", "difference_high", "p", "requirements", *self.amounts]
        return pd.DataFrame(rows, columns=columns).astype({"runs": "Int64"})

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each run: `task`, `contender`, `seed`, `score`, `requirements`, numeric notes, and costs."""
        import pandas as pd

        rows = []
        for one in self.results:
            words = "; ".join(f"{v.name} {v.violated} of {v.episodes}" for v in one.violations)
            row = {"task": one.task, "contender": one.contender, "seed": one.seed, "score": one.score}
            rows.append({**row, "requirements": words, **one.notes, **one.costs})
        columns = ["task", "contender", "seed", "score", "requirements", *self.amounts]
        return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})

    # --- words -------------------------------------------------------------------------------------------------------

    @cached_property
    def sentence(self) -> str:
        """A sentence that says which contender is better, and whether significantly."""
        return self._on(self.tasks[0]) if len(self.tasks) == 1 else self._on_all()

    def _on(self, task: str) -> str:
        (best, *others), behind = self.entries[task], self.behind(task)
        if best.excess:
            each = "; ".join(f"{one.contender}: {one.requirements}" for one in self.in_order(task))
            return f"No contender meets the hard requirements on {task} ({each})."
        violating = [one for one in (best, *others) if not one.excess and any(v.violated for v in one.violations)]
        first = "".join(f"{one.contender}: {one.requirements}. " for one in violating)
        if not others:
            count = len(best.scores)
            score = f"{number(best.mean)}{in_brackets(best.interval)}"
            return f"{first}{best.contender} scores {score} on {task}; {count} seed{'s' * (count > 1)}."
        parts: dict[str, list[str]] = {}
        for other in others:
            one = behind[other.contender]
            if other.excess:
                words = f"{other.contender}, which violates requirements ({other.requirements})"
                parts.setdefault("better than", []).append(words)
            else:
                how = "better than" if one.is_sure else "not significantly better than" if one.gain else "level with"
                parts.setdefault(how, []).append(str(one) if one.gain else other.contender)
        each = ", and ".join(f"{how} {' and '.join(own)}" for how, own in parts.items())
        return f"{first}On {task} {best.contender} is {each}."

    def _on_all(self) -> str:
        if all(len(entries) == 1 for entries in self.entries.values()):
            return f"Each of the {len(self.tasks)} tasks has only one contender; sweep a second one to compare."
        counted: dict[str, list[str]] = {}
        for task, (best, *others) in self.entries.items():
            behind = self.behind(task)
            sure = all(other.excess or behind[other.contender].is_sure for other in others)
            level = not sure and not any(behind[other.contender].gain for other in others)
            words = f"{best.contender} is {'the best' if sure else 'ahead, but not significantly,'}"
            words = "all are tied" if others and level else words if others else f"{best.contender} has no competitor"
            words += ", but violates requirements" * any(one.violated for one in best.violations)
            counted.setdefault("none meets the hard requirements" if best.excess else words, []).append(task)
        parts = [f"{words} on {len(tasks)} ({', '.join(tasks)})" for words, tasks in counted.items()]
        return f"Of {len(self.tasks)} tasks, {'; '.join(parts)}."

    # --- files -------------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """Draw the learning curves and final scores over the episodes played, with a panel for each task."""
        panels: dict[str, dict[str, GroupCurves]] = {}
        for task in self.tasks:
            panels[task] = {}
            for one in self.in_order(task):
                curves = [run.curve for run in one.results]
                panels[task][one.contender] = GroupCurves(curves, scores=one.scores)
        levels: dict[str, dict[str, float]] = {}
        for task in self.tasks:
            known = [column.scores[task].mean for column in self.published if task in column.scores]
            levels[task] = {"best published score": max(known)} if known else {}
        return panels_figure(panels, levels, "episodes")

    def shown(self) -> pd.DataFrame:
        """Return the table as texts, without empty columns."""
        import pandas as pd

        def known(value: Any, form: Callable[[Any], str] = number) -> str:
            return form(value) if value is not None else ""

        forms = dict.fromkeys(COSTS, "{:,.0f}".format) | {"usd": number, "seconds": "{:,.1f}".format}
        texts = []
        for row in self.table.astype(object).where(self.table.notna(), None).to_dict("records"):
            limits = in_brackets((row["difference_low"], row["difference_high"]))
            text = {"task": row["task"], "contender": row["contender"], "runs": known(row["runs"], str)}
            text["mean return"] = known(row["mean"]) + known(row["std"], lambda std: f" ± {number(std)}")
            text["95% interval"] = in_brackets((row["low"], row["high"])).strip()
            text["difference from best"] = known(row["difference"]) + limits
            text |= {"p": known(row["p"], _p), "requirements": row["requirements"] or ""}
            texts.append(text | {_HEADINGS.get(n, n): known(row[n], forms.get(n, number)) for n in self.amounts})
        frame = pd.DataFrame(texts)
        return frame.loc[:, (frame != "").any()]

    def notes(self) -> list[str]:
        """Return the notes: methods, remarks, and sources."""
        notes = [
            "mean return: mean ± standard deviation over runs; 95% interval: bootstrap interval of the mean over runs"
        ]
        if self.leads:
            shared = "mean return minus that of the task's best contender, over the seeds that both have, if any"
            notes.append(f"difference from best: {shared}; p: two-sided paired t-test, Holm-corrected")
        amounts = [_HEADINGS.get(name, name) for name in self.amounts if self.table[name].notna().any()]
        notes.append(f"{', '.join(amounts)}: mean per run")
        used = [column for column in self.published if any(task in column.scores for task in self.tasks)]
        return [*notes, *self.remarks, *(f"{column.name}: {column.source}" for column in used)]

    def __str__(self) -> str:
        frame = self.shown().map(_markdown).rename(columns=_markdown)
        columns = [[heading, *frame[heading]] for heading in frame.columns]
        widths = [max(map(len, column)) for column in columns]
        rows = [*zip(*columns, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))
        padded = (map(str.ljust, row, widths) for row in rows)  # to be read on a terminal, too
        table = "".join(f"| {' | '.join(row)} |\n" for row in padded)
        notes = "".join(f"- {_markdown(note)}\n" for note in self.notes())
        return f"{table}\n{notes}\n{_markdown(self.sentence)}\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX for booktabs, with the sentence and the notes as comments."""
        frame = self.shown().map(lambda text: " ".join(text.split()))
        names = sum(name in ("task", "contender") for name in frame.columns)
        text = frame.to_latex(index=False, escape=True, column_format="l" * names + "r" * (frame.shape[1] - names))
        text = re.sub(r"(?<=[ \[])-(?=[\d.])", "$-$", text).replace("±", r"$\pm$")
        # At the start of a row, LaTeX would read `[` or `*` as an argument of the preceding `\\\\`.
        lines = [f"{{}}{line}" if line.startswith(("[", "*")) else line for line in text.splitlines()]
        notes = [f"% {' '.join(note.split())}" for note in (self.sentence, *self.notes())]
        return "\n".join(["% needs \\usepackage{booktabs}", *notes, *lines, ""])

    def write(self, path: Path) -> list[Path]:
        """Write the comparison in the one of `FORMATS` that the suffix names; return the paths of the files.

        A .csv comes with NAME-runs.csv, which has a row for each run. Raises LogbookError if a file cannot be written.
        """
        kind = path.suffix.lower().removeprefix(".")
        if kind != "csv":
            write_named(path, str(self) if kind == "md" else self.as_latex())
            return [path]
        runs = path.with_name(f"{path.stem}-runs.csv")
        for place, frame in ((path, self.table), (runs, self.runs)):
            safe = frame.map(lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(_RISKY) else cell)
            write_named(place, safe.to_csv(index=False, lineterminator="\n"))
        return [path, runs]


def _lead(first: Entry, second: Entry) -> Lead:
    """Return the lead of one contender over another, with an uncorrected p-value."""
    shared = tuple(sorted(first.by_seed.keys() & second.by_seed.keys()))
    if not shared:
        return Lead(first, second, first.mean - second.mean, None, None, 0)
    own, theirs = (
        score_of_returns(np.array([one.by_seed[seed] for seed in shared]), shared, "runs") for one in (first, second)
    )
    found, count = difference(own, theirs), len(shared)
    if count < 2:
        return Lead(first, second, found.gain, None, None, count)
    # If all gains are equal, the t-test has no spread to work with: use the sign test.
    p = 2 * min(found.p, 1 - found.p) if found.half else 2.0 ** (1 - count) if found.gain else 1.0
    return Lead(first, second, found.gain, (found.gain - found.half, found.gain + found.half), p, count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for multiple tests (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    left = np.arange(len(p_values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, left * np.asarray(p_values)[order]))
    return corrected.tolist()


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def _markdown(text: str) -> str:
    escaped = " ".join(text.split())
    for sign in "\\|*`<":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
