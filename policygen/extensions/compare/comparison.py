"""A comparison: a table with a row for each task and contender, and a sentence that says which is better, and how sure.

Requirements come first: a contender that violates hard ones more often than allowed is behind one that violates them
less. All scores are compared by their means, over shared seeds where there are some.
"""

# Imports inside functions: pandas and scipy.stats are slow to load.

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.requirements import Violations
from policygen.episodes.score import number
from policygen.extensions.compare.contenders import Compared
from policygen.extensions.compare.results import COSTS, Result
from policygen.extensions.plots.statistics import RESAMPLES, Interval, interval_over_seeds
from policygen.extensions.plots.style import Numbers
from policygen.files import write_named
from policygen.runs.facts import in_brackets

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("md", "tex", "csv")
SIGNIFICANCE = 0.05  # a difference is sure if its corrected p-value is at most this
FLIPS = 20_000  # permutations of a test; if there are fewer, as for 14 pairs, all are tried
PUBLISHED_DIGITS = 0.005  # half a unit of the last digit in published tables
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of means between two contenders on a task.

    Attributes:
        gain: mean of `second` minus mean of `first`, over shared seeds if there are some.
        interval: 95% bootstrap interval of the gain; None for single runs.
        p: p-value of a permutation test, corrected by Holm's method for the number of tests of the comparison.
        seeds: number of shared seeds; 0 if runs are not paired.
    """

    task: str
    first: str
    second: str
    gain: float
    interval: Interval | None
    p: float
    seeds: int

    @property
    def swapped(self) -> Difference:
        """The same difference with `first` and `second` exchanged."""
        interval = (-self.interval[1], -self.interval[0]) if self.interval is not None else None
        return replace(self, first=self.second, second=self.first, gain=-self.gain or 0.0, interval=interval)


class Comparison:
    """A comparison of contenders; `print(comparison.sentence)`, or `str` for the table, the notes and the sentence."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared
        self.notes = compared.notes
        self._results: dict[tuple[str, str], list[Result]] = {}
        for result in sorted(compared.results, key=lambda one: -1 if one.seed is None else one.seed):
            self._results.setdefault((result.task, result.contender), []).append(result)
        self.tasks = list(dict.fromkeys(result.task for result in compared.results))
        self.contenders = list(dict.fromkeys(result.contender for result in compared.results))
        self.noted = list(dict.fromkeys(name for result in compared.results for name in result.notes))

    def of(self, task: str, contender: str) -> list[Result]:
        """Return the results of a contender on a task, in the order of their seeds."""
        return self._results.get((task, contender), [])

    def scores(self, task: str, contender: str) -> Numbers:
        """Return the scores of these results, shape (results,)."""
        return np.array([result.score for result in self.of(task, contender)])

    def violations(self, task: str, contender: str) -> tuple[float, str]:
        """Return by how much a contender violates hard requirements more often than allowed, and words on all of them.

        The words are `met` if none is violated, and empty if there is none.
        """
        found: dict[str, list[Violations]] = {}
        for one in (one for result in self.of(task, contender) for one in result.violations):
            found.setdefault(one.name, []).append(one)
        excess, words = 0.0, []
        for name, own in found.items():
            share = sum(one.violated for one in own) / max(1, sum(one.episodes for one in own))
            above = max(0.0, share - own[0].allowed) if own[0].hard else 0.0
            excess += above
            limit = f", {100 * own[0].allowed:.3g}% allowed" if above else ""
            words += [f"{name} violated in {100 * share:.3g}% of episodes{limit}"] if share else []
        return excess, "; ".join(words) if words else "met" * bool(found)

    def excess(self, task: str, contender: str) -> float:
        """Return the first value of `violations`: 0 if a contender meets the hard requirements."""
        return self.violations(task, contender)[0]

    def leader(self, task: str) -> str:
        """Return the best contender of a task: that which meets requirements best, then that with the highest mean."""
        present = [name for name in self.contenders if self.of(task, name)]
        return max(present, key=lambda name: (-self.excess(task, name), self.scores(task, name).mean()))

    @cached_property
    def differences(self) -> list[Difference]:
        """The difference of every two contenders on each of their common tasks, from the leader to the other."""
        found = []
        for first, second in itertools.combinations(self.contenders, 2):
            common = [task for task in self.tasks if self.of(task, first) and self.of(task, second)]
            found += [_difference(task, self.of(task, first), self.of(task, second)) for task in common]
        p_values = holm([one.p for one in found])
        corrected = [replace(one, p=p) for one, p in zip(found, p_values, strict=True)]
        return [one.swapped if self.leader(one.task) == one.second else one for one in corrected]

    def behind(self, task: str) -> list[Difference]:
        """Return the difference from the leader of a task to each other contender."""
        return [one for one in self.differences if (one.task, one.first) == (task, self.leader(task))]

    def published(self, task: str) -> dict[str, tuple[float, float | None, int | None]]:
        """Return the published mean, standard deviation and number of runs of a task by column."""
        columns = [column for column in self.compared.published if task in column.scores]
        return {column.name: (*column.scores[task], column.runs) for column in columns}

    @cached_property
    def against_published(self) -> dict[str, float]:
        """The p-value, by task, of the leader's mean being unlike each published one, corrected for the tasks."""
        tasks = [task for task in self.tasks if self.published(task)]
        own = {task: self.scores(task, self.leader(task)) for task in tasks}
        p_values = [max(p_against_mean(own[task], *one) for one in self.published(task).values()) for task in tasks]
        return dict(zip(tasks, holm(p_values), strict=True))

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each task and contender, published ones included; unknown values are missing.

        Its columns are `task`, `contender`, `runs`, `mean`, `std`, `low`, `high` (95% interval of the mean over runs),
        `difference`, `difference_low`, `difference_high` (to the leader of the task, whose own are missing), `p`,
        `requirements`, the numbers of notes, and the costs of a run.
        """
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for task in self.tasks:
            behind = {one.second: one for one in self.behind(task)}
            for name in (name for name in self.contenders if self.of(task, name)):
                results, scores = self.of(task, name), self.scores(task, name)
                low, high = interval_over_seeds(scores) or (None, None)
                row = {"task": task, "contender": name, "runs": len(scores), "mean": scores.mean()}
                row |= {"std": scores.std(ddof=1) if len(scores) > 1 else None, "low": low, "high": high}
                if name in behind:
                    one = behind[name]
                    row |= dict(zip(("difference_low", "difference_high"), one.interval or (None, None), strict=True))
                    row |= {"difference": one.gain, "p": one.p}
                row["requirements"] = self.violations(task, name)[1]
                for name, known in self._amounts(results).items():
                    row[name] = np.mean(known) if len(known) == len(results) else None
                rows.append(row)
            best = max((mean for mean, *_ in self.published(task).values()), default=None)
            for name, (mean, std, runs) in self.published(task).items():
                row = {"task": task, "contender": name, "runs": runs, "mean": mean, "std": std}
                row["difference"] = mean - self.scores(task, self.leader(task)).mean()
                rows.append(row | ({"p": self.against_published[task]} if mean == best else {}))
        columns = ["task", "contender", "runs", "mean", "std", "low", "high"]
        columns += ["difference", "difference_low", "difference_high", "p", "requirements", *self.noted, *COSTS]
        return pd.DataFrame(rows, columns=columns).astype({"runs": "Int64"})

    def _amounts(self, results: Sequence[Result]) -> dict[str, list[float]]:
        """Return the known numbers of each note and cost over some results."""
        every = [{**result.notes, **result.costs} for result in results]
        return {name: [one[name] for one in every if name in one] for name in (*self.noted, *COSTS)}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each result: `task`, `contender`, `seed`, `score`, `exact`, `requirements`, and its costs."""
        import pandas as pd

        rows = []
        for one in self.compared.results:
            row = {
                "task": one.task,
                "contender": one.contender,
                "seed": one.seed,
                "score": one.score,
                "exact": one.exact,
            }
            words = "; ".join(f"{v.name} {v.violated} of {v.episodes}" for v in one.violations)
            rows.append(
                {**row, "requirements": words, **dict.fromkeys((*self.noted, *COSTS)), **one.notes, **one.costs}
            )
        return pd.DataFrame(rows).astype({"seed": "Int64"})

    # --- words -------------------------------------------------------------------------------------------------------

    @cached_property
    def sentence(self) -> str:
        """A sentence that says which contender is better, and how sure that is; another one on published scores."""
        words = self._on(self.tasks[0]) if len(self.tasks) == 1 else self._on_all()
        return " ".join(filter(None, (words, self._over_published() if self.against_published else "")))

    def _on(self, task: str) -> str:
        leader = self.leader(task)
        scores = self.scores(task, leader)
        if self.excess(task, leader):
            each = (f"{one}: {self.violations(task, one)[1]}" for one in self.contenders if self.of(task, one))
            return f"No contender meets the hard requirements on {task} ({'; '.join(each)})."
        if not (behind := self.behind(task)):
            score = f"{number(scores.mean())}{in_brackets(interval_over_seeds(scores))}"
            return f"{leader} scores {score} on {task}; {len(scores)} seed{'s' * (len(scores) > 1)}."
        parts: dict[str, list[str]] = {}
        for one in behind:
            basis = f"{one.seeds} seeds" if one.seeds else "not paired"
            ahead = f"{one.second} by {number(-one.gain)}{in_brackets(one.swapped.interval)} (p = {_p(one.p)}, {basis})"
            if self.excess(task, one.second):
                words, how = (
                    f"{one.second}, which violates requirements ({self.violations(task, one.second)[1]})",
                    "better than",
                )
            elif one.gain == 0 and one.interval in (None, (0.0, 0.0)):
                words, how = f"{one.second} ({basis})", "level with"
            else:
                words, how = ahead, "better than" if one.p <= SIGNIFICANCE else "not surely better than"
            parts.setdefault(how, []).append(words)
        return f"On {task} {leader} is {', and '.join(f'{how} ' + ' and '.join(own) for how, own in parts.items())}."

    def _on_all(self) -> str:
        counted: dict[str, list[str]] = {}
        for task in self.tasks:
            leader, behind = self.leader(task), self.behind(task)
            if self.excess(task, leader):
                words = "none meets the hard requirements"
            elif all(self.excess(task, one.second) or one.p <= SIGNIFICANCE for one in behind):
                words = f"{leader} is better than {'all others' if len(self.contenders) > 2 else 'the other'}"
            else:
                level = all(one.gain == 0 for one in behind)
                words = "all are level" if level else f"{leader} is ahead, but not surely,"
            counted.setdefault(words, []).extend([task] * bool(behind or self.excess(task, leader)))
        parts = [f"{words} on {len(tasks)} ({', '.join(tasks)})" for words, tasks in counted.items() if tasks]
        alone = f"{len(self.tasks)} tasks of one contender each; add another one to compare it with."
        return f"Of {len(self.tasks)} tasks, {'; '.join(parts)}." if parts else alone

    def _over_published(self) -> str:
        """Return a sentence on the tasks where the leader is above, level with or below the published means."""
        counted: dict[str, list[str]] = {}
        for task, p in self.against_published.items():
            gain = self.scores(task, self.leader(task)).mean() - max(mean for mean, *_ in self.published(task).values())
            words = "surely above all" if p <= SIGNIFICANCE else "above all, but not surely,"
            words = "below the best" if gain < 0 else words
            words = "level with the best" if abs(gain) < PUBLISHED_DIGITS else words
            words = "against a hard requirement" if self.excess(task, self.leader(task)) else words
            counted.setdefault(words, []).append(task)
        leaders = {self.leader(task) for task in self.against_published}
        who = leaders.pop() if len(leaders) == 1 else "the best contender here"
        parts = [f"{words} on {len(tasks)} ({', '.join(tasks)})" for words, tasks in counted.items()]
        return f"Beside the published scores {who} is {'; '.join(parts)}."

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
        for name in self.noted:
            texts[name] = known(name)
        for cost in COSTS:
            digits = {"usd": 4, "seconds": 1}.get(cost, 0)
            texts[cost] = known(cost, f"{{:,.{digits}f}}".format)
        return texts.loc[:, (texts != "").any()]

    def all_notes(self) -> list[str]:
        """Return the notes, with those on methods and sources."""
        notes = ["mean ± standard deviation over runs; 95% bootstrap interval of the mean"]
        if self.differences:
            shared = "difference of means from the best contender of the task, over shared seeds"
            notes.append(f"beside the best: {shared} if there are some; p: permutation test, Holm-corrected")
        used = [column for column in self.compared.published if any(task in column.scores for task in self.tasks)]
        if used:
            notes.append("p of the best published score: that the best contender is unlike every published mean")
        return [*notes, *self.notes, *(f"{column.name}: {column.source}" for column in used)]

    def __str__(self) -> str:
        frame = self.shown().map(_markdown).rename(columns=_markdown)
        rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.values.tolist()]
        table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        notes = "".join(f"- {_markdown(note)}\n" for note in self.all_notes())
        return f"{table}\n{notes}\n{_markdown(self.sentence)}\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX for booktabs, with the sentence and the notes as comments."""
        frame = self.shown().map(lambda text: " ".join(text.split()))
        text = frame.to_latex(index=False, escape=True)
        # At the start of a row, LaTeX would read `[` or `*` as an argument of the `\\\\` before.
        lines = [f"{{}}{line}" if line.startswith(("[", "*")) else line for line in text.splitlines()]
        notes = [f"% {' '.join(note.split())}" for note in (self.sentence, *self.all_notes())]
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


# --- statistics ------------------------------------------------------------------------------------------------------


def _difference(task: str, ones: Sequence[Result], others: Sequence[Result]) -> Difference:
    """Return the difference between two contenders on a task, with a p-value that is not corrected."""
    first, second = (_by_seed(own) for own in (ones, others))
    if shared := sorted(first.keys() & second.keys()):
        gains = np.array([second[seed] - first[seed] for seed in shared])
        samples, p = [gains], sign_flip_p(gains)
    else:
        mine, theirs = (np.array([result.score for result in own]) for own in (ones, others))
        samples, p = [-mine, theirs], shuffle_p(theirs, mine)
    gain = float(sum(sample.mean() for sample in samples))
    names = ones[0].contender, others[0].contender
    return Difference(task, *names, gain, _interval_of_sum(samples), p, len(shared))


def _by_seed(results: Sequence[Result]) -> dict[int, float]:
    """Return the mean score of each seed."""
    found: dict[int, list[float]] = {}
    for result in results:
        if result.seed is not None:
            found.setdefault(result.seed, []).append(result.score)
    return {seed: float(np.mean(own)) for seed, own in found.items()}


def _interval_of_sum(samples: Sequence[Numbers]) -> Interval | None:
    """Return the 95% percentile bootstrap interval of a sum of means; None if no sample has two values."""
    if all(len(values) < 2 for values in samples):
        return None
    rng = np.random.default_rng(0)
    resampled = (values[rng.integers(len(values), size=(RESAMPLES, len(values)))] for values in samples)
    low, high = np.percentile(sum(values.mean(axis=-1) for values in resampled), [2.5, 97.5])
    return float(low), float(high)


def sign_flip_p(differences: Numbers) -> float:
    """Return the two-sided p-value of a permutation test that flips the signs of paired differences.

    Up to 14 pairs all signs are tried, for more pairs 20,000 random ones (`scipy.stats.permutation_test`).
    """
    from scipy.stats import permutation_test

    if len(differences) < 2:
        return 1.0
    rng, scaled = np.random.default_rng(0), differences / len(differences)
    test = permutation_test((scaled,), np.sum, permutation_type="samples", n_resamples=FLIPS, random_state=rng)
    return float(test.pvalue)


def shuffle_p(ours: Numbers, theirs: Numbers) -> float:
    """Return the two-sided p-value of a permutation test of the means of unpaired runs: 20,000 random shuffles."""
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(np.concatenate([ours, theirs]), (FLIPS, 1)), axis=1)
    shuffled = orders[:, : len(ours)].mean(axis=1) - orders[:, len(ours) :].mean(axis=1)
    extreme = np.count_nonzero(np.abs(shuffled) >= abs(ours.mean() - theirs.mean()) * (1 - 1e-12))
    return float((extreme + 1) / (FLIPS + 1))


def p_against_mean(scores: Numbers, mean: float, std: float | None, runs: int | None) -> float:
    """Return the two-sided p-value of the difference between runs and a published mean; 1.0 for a single run.

    If standard deviation and number of runs are published, this is Welch's t-test, else Student's test against an exact
    mean. Student's test is impossible if all runs have the same score: then a sign test gives 2/2^n, or 1 if that score
    is the mean.
    """
    from scipy.stats import ttest_1samp, ttest_ind_from_stats

    n = len(scores)
    if n < 2:
        return 1.0
    alike = float(np.ptp(scores)) <= 1e-9 * max(1.0, abs(mean))
    if std and runs and runs > 1:
        spread = 0.0 if alike else float(np.std(scores, ddof=1))
        return float(ttest_ind_from_stats(float(scores.mean()), spread, n, mean, std, runs, equal_var=False).pvalue)
    if alike:
        return 1.0 if math.isclose(scores[0], mean, rel_tol=1e-9, abs_tol=1e-9) else 2.0 / 2**n
    return float(ttest_1samp(scores, mean).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for multiple tests (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    left = np.arange(len(p_values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, left * np.asarray(p_values)[order]))
    return corrected.tolist()


# --- numbers as texts ------------------------------------------------------------------------------------------------


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def _markdown(text: str) -> str:
    escaped = " ".join(text.split())
    for sign in "\\|*`<":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
