"""A comparison: a table with a row for each task and contender, and a sentence that says which is better, and how sure.

Requirements come first: a contender that violates hard ones more often than allowed is behind one that violates them
less. All scores are compared by their means, over shared seeds where there are some.
"""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from policygen.episodes import requirements
from policygen.episodes.requirements import Violations
from policygen.episodes.score import difference, number, score_of_returns
from policygen.extensions.compare.contenders import Compared
from policygen.extensions.compare.results import COSTS, Result
from policygen.extensions.plots.statistics import Interval, interval_over_seeds
from policygen.extensions.plots.style import Numbers
from policygen.files import write_named
from policygen.runs.facts import in_brackets

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("md", "tex", "csv")
SIGNIFICANCE = 0.05  # a difference is sure if its corrected p-value is at most this
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


@dataclass(frozen=True, slots=True)
class Lead:
    """The difference of means between two contenders on a task, the better one first.

    Attributes:
        gain: mean of `first` minus mean of `second`, over shared seeds if there are some.
        interval: 95% interval of the gain (Student's t); None without two shared seeds.
        p: two-sided p-value of a paired t-test, corrected by Holm's method for the tests of the comparison; None
            without two shared seeds.
        seeds: number of shared seeds; 0 if runs are not paired.
    """

    task: str
    first: str
    second: str
    gain: float
    interval: Interval | None
    p: float | None
    seeds: int

    @property
    def is_sure(self) -> bool:
        """Whether a test says that the first is better."""
        return self.p is not None and self.p <= SIGNIFICANCE

    def __str__(self) -> str:
        test = f"p = {_p(self.p)}, " if self.p is not None else ""
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}" if self.seeds else "not paired"
        return f"{self.second} by {number(self.gain)}{in_brackets(self.interval)} ({test}{seeds})"


class Published(NamedTuple):
    """A published mean; None for a standard deviation or a number of runs that is unknown."""

    mean: float
    std: float | None
    runs: int | None


class Comparison:
    """A comparison of contenders; `print(comparison.sentence)`, or `str` for the table, the notes and the sentence."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared
        self._results: dict[tuple[str, str], list[Result]] = {}
        for result in sorted(compared.results, key=lambda one: -1 if one.seed is None else one.seed):
            self._results.setdefault((result.task, result.contender), []).append(result)
        self.tasks = list(dict.fromkeys(result.task for result in compared.results))
        self.contenders = list(dict.fromkeys(result.contender for result in compared.results))
        self.amounts = [*dict.fromkeys(name for result in compared.results for name in result.notes), *COSTS]

    def of(self, task: str, contender: str) -> list[Result]:
        """Return the results of a contender on a task, in the order of their seeds."""
        return self._results.get((task, contender), [])

    def scores(self, task: str, contender: str) -> Numbers:
        """Return the scores of these results, shape (results,)."""
        return np.array([result.score for result in self.of(task, contender)])

    def violations(self, task: str, contender: str) -> list[Violations]:
        """Return how often a contender violated each requirement, over the episodes of all its results."""
        found: dict[str, Violations] = {}
        for one in (one for result in self.of(task, contender) for one in result.violations):
            known = found.get(one.name, replace(one, violated=0, episodes=0))
            violated, episodes = known.violated + one.violated, known.episodes + one.episodes
            found[one.name] = replace(known, violated=violated, episodes=episodes)
        return list(found.values())

    def excess(self, task: str, contender: str) -> float:
        """Return by how much a contender violates hard requirements more often than allowed; 0 if it meets them."""
        return requirements.excess(self.violations(task, contender))

    def _requirements(self, task: str, contender: str) -> str:
        """Return words on violated requirements: `met` if none is violated, empty if there is none."""
        found, words = self.violations(task, contender), []
        for one in (one for one in found if one.violated):
            limit = f", {100 * one.allowed:.3g}% allowed" if one.excess else ""
            words.append(f"{one.name} violated in {100 * one.share:.3g}% of episodes{limit}")
        return "; ".join(words) if words else "met" * bool(found)

    def ranked(self, task: str) -> list[str]:
        """Return the contenders of a task: by how well they meet requirements, then by their means, the best first."""
        present = [name for name in self.contenders if self.of(task, name)]
        return sorted(present, key=lambda name: (self.excess(task, name), -self.scores(task, name).mean()))

    @cached_property
    def leads(self) -> list[Lead]:
        """The difference of every two contenders on each of their common tasks."""
        pairs = ((task, *pair) for task in self.tasks for pair in itertools.combinations(self.ranked(task), 2))
        found = [_lead(self.of(task, first), self.of(task, second)) for task, first, second in pairs]
        corrected = iter(holm([one.p for one in found if one.p is not None]))
        return [one if one.p is None else replace(one, p=next(corrected)) for one in found]

    def behind(self, task: str) -> dict[str, Lead]:
        """Return the lead of the best contender of a task over each other one, by the name of the other."""
        return {one.second: one for one in self.leads if (one.task, one.first) == (task, self.ranked(task)[0])}

    def published(self, task: str) -> dict[str, Published]:
        """Return the published scores of a task by column."""
        columns = [column for column in self.compared.published if task in column.scores]
        return {column.name: Published(*column.scores[task], column.runs) for column in columns}

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each task and contender, published ones included; unknown values are missing.

        Its columns are `task`, `contender`, `runs`, `mean`, `std`, `low`, `high` (95% interval of the mean over runs),
        `difference`, `difference_low`, `difference_high` (to the best contender of the task, whose own are missing),
        `p`, `requirements`, the numbers of notes, and the costs of a run.
        """
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for task in self.tasks:
            ranked, behind = self.ranked(task), self.behind(task)
            for name in (name for name in self.contenders if name in ranked):
                scores, every = self.scores(task, name), [{**one.notes, **one.costs} for one in self.of(task, name)]
                low, high = interval_over_seeds(scores) or (None, None)
                row = {"task": task, "contender": name, "runs": len(scores), "mean": scores.mean()}
                row |= {"std": scores.std(ddof=1) if len(scores) > 1 else None, "low": low, "high": high}
                if one := behind.get(name):
                    less, more = one.interval or (None, None)
                    row |= {"difference": -one.gain or 0.0, "p": one.p}
                    row |= {"difference_low": more and -more, "difference_high": less and -less}
                row["requirements"] = self._requirements(task, name)
                for amount in self.amounts:
                    row[amount] = fmean(own[amount] for own in every) if all(amount in own for own in every) else None
                rows.append(row)
            for name, known in self.published(task).items():
                row = {"task": task, "contender": name, **known._asdict()}
                rows.append(row | {"difference": known.mean - self.scores(task, ranked[0]).mean()})
        columns = ["task", "contender", "runs", "mean", "std", "low", "high"]
        columns += ["difference", "difference_low", "difference_high", "p", "requirements", *self.amounts]
        return pd.DataFrame(rows, columns=columns).astype({"runs": "Int64"})

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each result: `task`, `contender`, `seed`, `score`, `requirements`, numbers of notes, and costs."""
        import pandas as pd

        columns = ["task", "contender", "seed", "score", "requirements", *self.amounts]
        rows = []
        for one in self.compared.results:
            words = "; ".join(f"{v.name} {v.violated} of {v.episodes}" for v in one.violations)
            fixed = (one.task, one.contender, one.seed, one.score, words)
            rows.append({**dict(zip(columns, fixed, strict=False)), **one.notes, **one.costs})
        return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})

    # --- words -------------------------------------------------------------------------------------------------------

    @cached_property
    def sentence(self) -> str:
        """A sentence that says which contender is better, and how sure that is."""
        return self._on(self.tasks[0]) if len(self.tasks) == 1 else self._on_all()

    def _on(self, task: str) -> str:
        ranked, behind = self.ranked(task), self.behind(task)
        if self.excess(task, ranked[0]):
            each = (f"{one}: {self._requirements(task, one)}" for one in self.contenders if one in ranked)
            return f"No contender meets the hard requirements on {task} ({'; '.join(each)})."
        allowed = [one for one in ranked if not self.excess(task, one)]
        violating = [one for one in allowed if self._requirements(task, one) not in ("", "met")]
        first = "".join(f"{one}: {self._requirements(task, one)}. " for one in violating)
        if not behind:
            scores = self.scores(task, ranked[0])
            score = f"{number(scores.mean())}{in_brackets(interval_over_seeds(scores))}"
            return f"{first}{ranked[0]} scores {score} on {task}; {len(scores)} seed{'s' * (len(scores) > 1)}."
        parts: dict[str, list[str]] = {}
        for name, one in behind.items():
            if self.excess(task, name):
                words = f"{name}, which violates requirements ({self._requirements(task, name)})"
                parts.setdefault("better than", []).append(words)
            else:
                how = "better than" if one.is_sure else "not surely better than" if one.gain else "level with"
                parts.setdefault(how, []).append(str(one) if one.gain else name)
        each = (f"{how} {' and '.join(own)}" for how, own in parts.items())
        return f"{first}On {task} {ranked[0]} is {', and '.join(each)}."

    def _on_all(self) -> str:
        counted: dict[str, list[str]] = {}
        for task in self.tasks:
            (leader, *others), behind = self.ranked(task), self.behind(task)
            sure = others and all(self.excess(task, name) or behind[name].is_sure for name in others)
            words = f"{leader} is {'surely' if sure else 'not surely'} the best" if others else f"{leader} is alone"
            words += ", but violates requirements" * any(one.violated for one in self.violations(task, leader))
            words = "none meets the hard requirements" if self.excess(task, leader) else words
            counted.setdefault(words, []).append(task)
        parts = [f"{words} on {len(tasks)} ({', '.join(tasks)})" for words, tasks in counted.items()]
        return f"Of {len(self.tasks)} tasks, {'; '.join(parts)}."

    # --- files -------------------------------------------------------------------------------------------------------

    def shown(self) -> pd.DataFrame:
        """Return the table as texts, without columns that are empty."""
        frame = self.table.astype(object).where(self.table.notna(), None)
        texts = frame[["task", "contender", "runs"]].map(lambda cell: "" if cell is None else str(cell))
        rows = frame.to_dict("records")

        def known(name: str, form: Callable[[Any], str] = number) -> list[str]:
            return ["" if row[name] is None else form(row[name]) for row in rows]

        spreads = known("std", lambda std: f" ± {number(std)}")
        texts["mean"] = list(map("".join, zip(known("mean"), spreads, strict=True)))
        texts["95% interval"] = [in_brackets((row["low"], row["high"])).strip() for row in rows]
        limits = [in_brackets((row["difference_low"], row["difference_high"])) for row in rows]
        texts["beside the best"] = list(map("".join, zip(known("difference"), limits, strict=True)))
        texts["p"] = known("p", _p)
        texts["requirements"] = known("requirements", str)
        for name in self.amounts:
            digits = {"usd": 4, "seconds": 1}.get(name, 0)
            texts[name] = known(name, f"{{:,.{digits}f}}".format if name in COSTS else number)
        return texts.loc[:, (texts != "").any()]

    def notes(self) -> list[str]:
        """Return the notes, with those on methods and sources."""
        notes = ["mean ± standard deviation over runs; 95% bootstrap interval of the mean"]
        if self.leads:
            shared = "difference of means from the best contender of the task, over shared seeds"
            notes.append(f"beside the best: {shared} if there are some; p: paired t-test, two-sided, Holm-corrected")
        used = [column for column in self.compared.published if any(task in column.scores for task in self.tasks)]
        return [*notes, *self.compared.notes, *(f"{column.name}: {column.source}" for column in used)]

    def __str__(self) -> str:
        frame = self.shown().map(_markdown).rename(columns=_markdown)
        rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.values.tolist()]
        table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        notes = "".join(f"- {_markdown(note)}\n" for note in self.notes())
        return f"{table}\n{notes}\n{_markdown(self.sentence)}\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX for booktabs, with the sentence and the notes as comments."""
        frame = self.shown().map(lambda text: " ".join(text.split()))
        text = frame.to_latex(index=False, escape=True)
        # At the start of a row, LaTeX would read `[` or `*` as an argument of the `\\\\` before.
        lines = [f"{{}}{line}" if line.startswith(("[", "*")) else line for line in text.splitlines()]
        notes = [f"% {' '.join(note.split())}" for note in (self.sentence, *self.notes())]
        return "\n".join(["% needs \\usepackage{booktabs}", *notes, *lines, ""])

    def write(self, path: Path) -> list[Path]:
        """Write the comparison as one of `FORMATS`, by the suffix; return the paths of the files.

        Beside a .csv, NAME-runs.csv has a row for each run. Raises LogbookError if a file cannot be written.
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


def _lead(ones: Sequence[Result], others: Sequence[Result]) -> Lead:
    """Return the lead of a contender over another one on a task, with a p-value that is not corrected."""
    first, second = (_by_seed(own) for own in (ones, others))
    names = ones[0].task, ones[0].contender, others[0].contender
    shared = tuple(sorted(first.keys() & second.keys()))
    if not shared:
        return Lead(*names, fmean(one.score for one in ones) - fmean(one.score for one in others), None, None, 0)
    own, theirs = (score_of_returns(np.array([by[seed] for seed in shared]), shared, "runs") for by in (first, second))
    found, count = difference(own, theirs), len(shared)
    if count < 2:
        return Lead(*names, found.gain, None, None, count)
    # Equal gains leave the t-test without a spread: then the sign test.
    p = 2 * min(found.p, 1 - found.p) if found.half else 2.0 ** (1 - count) if found.gain else 1.0
    return Lead(*names, found.gain, (found.gain - found.half, found.gain + found.half), p, count)


def _by_seed(results: Sequence[Result]) -> dict[int, float]:
    """Return the mean score of each seed."""
    found: dict[int, list[float]] = {}
    for result in results:
        if result.seed is not None:
            found.setdefault(result.seed, []).append(result.score)
    return {seed: fmean(own) for seed, own in found.items()}


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
