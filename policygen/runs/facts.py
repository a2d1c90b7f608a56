"""The facts of a run: one table of its figures, with units and bases, which terminal, page and comparison print."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from policygen.episodes.score import (
    NEGLIGIBLE,
    Score,
    episode_words,
    first_episodes,
    half_interval,
    number,
    reaches,
)
from policygen.llm import read_spec
from policygen.runs import notes
from policygen.runs.attempt import Attempt, Costs, Counts, Standing, best_of, costs_of, steps_played
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import RunView
from policygen.runs.logbook import Logbook, Summary
from policygen.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd

# Sections of the table; each attempt has its own, such as "attempt 3".
RESULT, NOTES, SCORES, COSTS, TASK = "result", "notes", "scores", "costs", "task"
BEST = ("final score", "best so far")  # names of the first fact of a run, finished or not
SOLVED, OPTIMAL = "solved", "reaches the best known score"
# Ending early pays if at least this share of the episodes terminate, within this share of the length of others.
TERMINATED_SHARE, EARLY_SHARE = 0.9, 0.25
_RETURN = "mean return"
# Words for kinds of attempts that do not come from a reply.
_KINDS = {"tuning": "tuned further", "simplified": "simplified after the last iteration"}
_UNBOUNDED = 1e30  # many environments state the largest float where a value is unbounded


class Fact(NamedTuple):
    """A figure of a run, or a text about it; `str` is its value with interval and basis.

    Attributes:
        value: a number, a text, or a truth value; None if it is unknown.
        low, high: its 95% interval; None without one.
        basis: its unit, and what it was computed from, with the count.
    """

    section: str
    name: str
    value: float | str | bool | None
    low: float | None = None
    high: float | None = None
    basis: str = ""

    @property
    def amount(self) -> float | None:
        """The value as a finite number; None if it is not one."""
        known = isinstance(self.value, int | float) and math.isfinite(self.value)
        return float(self.value) if known else None  # type: ignore[arg-type]

    @property
    def short(self) -> str:
        """The value with its interval."""
        words = {None: "unknown", True: "yes", False: "no"}
        if self.value is None or isinstance(self.value, bool):
            return words[self.value]
        if isinstance(self.value, str):
            return self.value
        return number(self.value) + in_brackets((self.low, self.high))

    def __str__(self) -> str:
        return " ".join(filter(None, (self.short, self.basis)))


def in_brackets(interval: tuple[float | None, float | None] | None) -> str:
    """Format an interval that follows a number: ` [12, 50]`; empty without one."""
    low, high = interval or (None, None)
    return f" [{number(low)}, {number(high)}]" if low is not None and high is not None else ""


def plus_minus(values: Sequence[float], form: str, half_form: str = "") -> str:
    """Format the mean of some values with half of Student's 95% interval: `2 ± 2.484`.

    Args:
        form, half_form: formats of the mean and of half the interval (by default the same).
    """
    return f"{np.mean(values):{form}} ± {half_interval(values):{half_form or form}}"


@dataclass(frozen=True)
class RunRecord:
    """The record of a run, from which its facts follow; without a summary the run has not ended."""

    folder: Path
    task: Task
    config: RunConfig
    attempts: Sequence[Attempt]
    summary: Summary | None

    @property
    def final(self) -> Score | None:
        """The final score; None while the run is unfinished, or if it found no policy."""
        return self.summary.final if self.summary is not None else None

    @property
    def best(self) -> Attempt | None:
        """The attempt with the best policy; None without a policy."""
        return best_of(self.attempts)

    @property
    def asks_a_model(self) -> bool:
        """Whether replies come from a language model."""
        if self.summary is not None:
            return self.summary.asks_a_model
        entry = read_spec(self.config.llm).entry
        return entry is None or entry.is_language_model

    @property
    def spent(self) -> Costs:
        """The costs of the requests so far."""
        return self.summary.spent if self.summary is not None else costs_of(self.attempts)

    @property
    def standing(self) -> Standing:
        """The best policy's scores after the last attempt."""
        return self.attempts[-1].standing if self.attempts else Standing()


def facts(run: str | Path | Any) -> pd.DataFrame:
    """Return the facts of a run, finished or not, one per row: those of the whole run, its task, then each attempt.

    The columns are section, name, value, low and high (its 95% interval) and basis (unit and origin).

    Args:
        run: the folder of a run, its result, or a run in progress.

    Raises:
        PathError, LogbookError: it is not a run folder, or is damaged.
    """
    import pandas as pd  # start-up time

    record = read_record(Path(run) if isinstance(run, str | Path) else run.folder)
    rows = [*run_facts(record), *task_facts(record.task), *itertools.chain.from_iterable(all_attempts(record.attempts))]
    return pd.DataFrame(rows, columns=Fact._fields, dtype=object).astype({"low": float, "high": float})


def read_record(folder: Path) -> RunRecord:
    """Read a run from its folder.

    Raises:
        PathError, LogbookError: it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    config, task, attempts = logbook.config(), logbook.task(), logbook.attempts()
    return RunRecord(folder, task, config, attempts, logbook.summary())


def record_of(run: RunView, summary: Summary) -> RunRecord:
    """Return the record of a run in this process."""
    return RunRecord(run.folder, run.search.task, run.config, tuple(run.search.attempts), summary)


def task_facts(task: Task) -> list[Fact]:
    """Return a fact for each observation, text, feature and action of a task: its range or formula, and its meaning."""
    rows = [("observation", o.name, o.unit, _range(o.low, o.high), o.about) for o in task.observations]
    rows += [("text", one.name, "", "any text", one.about) for one in task.texts]
    rows += [("feature", name, "", formula, "") for name, formula in task.features]
    for a in task.actuators:
        rows.append(("action", a.name, a.unit, ", ".join(a.labels) if a.is_choice else _range(a.low, a.high), a.about))
    return [
        Fact(TASK, f"{kind} {name}{f' [{unit}]' if unit else ''}", values, basis=about)
        for kind, name, unit, values, about in rows
    ]


def _range(low: float, high: float) -> str:
    ends = [f"{end:.4g}" if abs(end) <= _UNBOUNDED else "unbounded" for end in (low, high)]
    return " to ".join(ends) if ends != ["unbounded"] * 2 else "unbounded"


def score_fact(section: str, name: str, score: Score, which: str = "", more: str = "") -> Fact:
    """Return the fact of a score; `which` and `more` describe its episodes."""
    if score.exact:
        return Fact(section, name, score.mean, basis=f"(exact) {_RETURN}, from the environment's transition table")
    low, high = score.ci95 or (None, None)
    count = episode_words(score, which) + more
    return Fact(section, name, score.mean, low, high, f"{_RETURN} over {count}{', 95% interval' * bool(score.ci95)}")


def run_facts(run: RunRecord) -> list[Fact]:
    """Return the facts of a run as a whole: its result, scores and costs."""
    return [*_result(run), *_scores(run), *_costs(run)]


def lines_of(figures: Iterable[Fact], *costs: str) -> list[str]:
    """Return a line for each result and note, and for each of the named costs."""
    return [f"{one.name}: {one}" for one in figures if one.section in (RESULT, NOTES) or one.name in costs]


def _result(run: RunRecord) -> Iterator[Fact]:
    summary, task, best, final = run.summary, run.task, run.best, run.final
    if summary is not None and final is not None:
        yield score_fact(RESULT, BEST[0], final, "fresh", " that the search never saw")
        if not final.exact:
            yield Fact(RESULT, "standard deviation", final.std, basis="of the return across these episodes")
        if (perturbed := summary.perturbed) is not None:
            yield score_fact(RESULT, f"with {', '.join(summary.perturbed_by)}", perturbed)
            without = first_episodes(final, perturbed.episodes)
            basis = f"{_RETURN} over episodes with the same seeds"
            yield Fact(RESULT, "without perturbations", without.mean, basis=basis)
        for one in final.violations:
            missed = f"; the requirement allows {100 * one.allowed:g}% and is not met" if one.excess else ""
            yield Fact(RESULT, f"violations of {one.name}", one.violated, basis=one.basis + missed)
    elif summary is not None or best is None:
        basis = "(no reply contained a policy)" if summary is not None else "(no policy has been found yet)"
        yield Fact(RESULT, BEST[summary is None], None, basis=basis)
    else:
        standing = run.standing
        held_out = standing.validated_mean is not None
        count = standing.validated_episodes if held_out else standing.best_episodes
        own = (
            f"{_RETURN} over {count} {'held-out' if held_out else 'search'} episodes" if count else f"(exact) {_RETURN}"
        )
        yield Fact(RESULT, BEST[1], standing.reported_best, basis=f"{own}; the run is not finished")
    if summary is not None and task.solved is not None:
        solved = final is not None and final.mean >= task.solved
        yield Fact(RESULT, SOLVED, solved, basis=f"(needs a {_RETURN} of at least {number(task.solved)})")
    if summary is not None and (optimum := task.optimum) is not None:
        every = final is not None and final.returns and min(final.returns) >= optimum.value
        basis = f"({number(optimum.value)} {_RETURN}, {optimum.source})"
        yield Fact(RESULT, OPTIMAL, bool(every) or reaches(final, optimum.value, NEGLIGIBLE), basis=basis)
    if best is not None:
        kind = f"({_KINDS.get(best.kind, best.kind)})" if best.kind != "proposal" else ""
        yield Fact(RESULT, "best policy", f"attempt {best.number}", basis=kind)
        yield from note_facts(best, NOTES)
        yield from _early_ends(run, best)
    if summary is not None and summary.stopped:
        yield Fact(RESULT, "stopped", summary.stopped)


def _early_ends(run: RunRecord, best: Attempt) -> Iterator[Fact]:
    """Yield a warning if the best policy fails to solve the task and ends its episodes far sooner than others did.

    A search learns this where every step costs more than a failure.
    """
    score, own, task = run.final or best.score, best.played, run.task
    goals = [*([task.solved] if task.solved is not None else ()), *([task.optimum.value] if task.optimum else ())]
    if score is None or not own or any(score.mean >= goal - NEGLIGIBLE * abs(goal) for goal in goals):
        return
    others = {"random ones": run.attempts[0].played} if run.attempts[0].number == 0 else {}
    others |= {f"those of attempt {one.number}": one.played for one in run.attempts if one.accepted and one is not best}
    lengths = {name: float(np.mean(played.lengths)) for name, played in others.items() if played}
    if not lengths or np.mean(own.terminated) < TERMINATED_SHARE:
        return
    longest, mean = max(lengths, key=lambda name: lengths[name]), float(np.mean(own.lengths))
    if mean <= EARLY_SHARE * lengths[longest]:
        words = f"episodes end after {number(mean)} step{'s' * (mean != 1)}, {longest} after {number(lengths[longest])}"
        yield Fact(RESULT, "early ends", words, basis=f"(means over {len(own)} episodes): ending early pays here")


def _scores(run: RunRecord) -> Iterator[Fact]:
    attempts, best, task, standing = run.attempts, run.best, run.task, run.standing
    if attempts and attempts[0].score is not None:
        yield score_fact(SCORES, "random actions", attempts[0].score)
    if best is not None and best.score is not None and not best.score.exact:
        if standing.best_mean is not None:
            basis = f"{_RETURN} over {standing.best_episodes} episodes of the search; selection biases it upwards"
            yield Fact(SCORES, "search score", standing.best_mean, basis=basis)
        if standing.validated_mean is not None:
            basis = f"{_RETURN} over {standing.validated_episodes} episodes that were not used to select it"
            yield Fact(SCORES, "held-out score", standing.validated_mean, basis=basis)
    if best is not None and best.tuned.proposed_score is not None:
        yield score_fact(SCORES, "best policy before tuning", best.tuned.proposed_score)
    if task.solved is not None:
        yield Fact(SCORES, "score that counts as solved", task.solved, basis=_RETURN)
    if task.optimum is not None:
        yield Fact(SCORES, "best known score", task.optimum.value, basis=f"{_RETURN} ({task.optimum.source})")


def _costs(run: RunRecord) -> Iterator[Fact]:
    asked = [attempt for attempt in run.attempts if attempt.number > 0]
    counts, spent = run.attempts[-1].counts if run.attempts else Counts(), run.spent
    seconds = counts.wall_seconds + (run.summary.seconds if run.summary is not None else 0.0)
    yield Fact(COSTS, "attempts", len(asked), basis=f"({sum(one.failed for one in asked)} of them failed)")
    if run.asks_a_model:
        yield from spending(spent)
        yield Fact(COSTS, "repairs", spent.repairs, basis="of the requests")
        yield Fact(COSTS, "waiting", round(spent.llm_seconds, 3), basis=f"s for replies{_long(spent.llm_seconds)}")
    else:
        yield Fact(COSTS, "requests", 0, basis="to a language model")
        yield Fact(COSTS, "USD", 0.0, basis="for no request")
    yield Fact(COSTS, "time", round(seconds, 3), basis=f"s of wall-clock time{_long(seconds)}")
    yield Fact(COSTS, "episodes", counts.episodes, basis="before the final score")
    _, random, tuning, judging = steps_played(run.attempts)
    parts = f"{random:,} with random actions, {tuning:,} for tuning, {judging:,} for evaluating policies"
    yield Fact(COSTS, "environment steps", counts.env_steps, basis=f"before the final score ({parts})")


def spending(spent: Costs | Ledger) -> list[Fact]:
    """Return the facts of the requests to a language model and of their cost."""
    requests = spent.requests if isinstance(spent, Costs) else spent.calls
    return [
        Fact(COSTS, "requests", requests, basis="to a language model, including retries and repairs"),
        *([Fact(COSTS, "replies from the cache", spent.cached, basis="at no cost")] if spent.cached else ()),
        Fact(COSTS, "tokens in", spent.tokens_in, basis="in prompts"),
        Fact(COSTS, "tokens out", spent.tokens_out, basis="in replies"),
        Fact(COSTS, "USD", spent.usd, basis=f"for all requests{' (a price is unknown)' * (spent.usd is None)}"),
    ]


def duration(seconds: float) -> str:
    """Write seconds in readable units: `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _long(seconds: float) -> str:
    return f" ({duration(seconds)})" if seconds >= 60 else ""


# --- attempts --------------------------------------------------------------------------------------------------------


def attempt_facts(attempt: Attempt, costs: Costs) -> list[Fact]:
    """Return the facts of an attempt; `costs` are the run's total costs up to it."""
    score, standing, counts = attempt.shared_score, attempt.standing, attempt.counts
    before = attempt.tuned.proposed_score
    count = len(attempt.played)
    own = f"{_RETURN} over {count} episodes" if count else f"{_RETURN}, exact"
    rows: dict[str, tuple[float | None, str]] = {
        "proposed": (before.mean if before is not None else None, f"{own}, before tuning"),
        "score": (score.mean if score is not None else None, own),
        "std": (score.std if score is not None else None, "standard deviation of the return across episodes"),
        "best": (standing.reported_best, f"{_RETURN} of the best policy so far, held out or exact"),
        "best_search": (standing.best_mean, f"{_RETURN} by which the best policy so far was chosen"),
        "accepted": (int(attempt.accepted), "1 if it became the best"),
        "failed": (int(attempt.failed), "1 if no reply was readable"),
        "calls": (costs.llm_calls, "requests to a language model so far"),
        "tokens_in": (costs.tokens_in, "tokens in prompts so far"),
        "tokens_out": (costs.tokens_out, "tokens in replies so far"),
        "usd": (costs.usd, "USD so far"),
        "episodes": (counts.episodes, "episodes so far"),
        "env_steps": (counts.env_steps, "steps of the environment so far"),
        "wall_seconds": (round(counts.wall_seconds, 3), "s since the start"),
    }
    section = f"attempt {attempt.number}"
    found = {name: Fact(section, name, value, basis=basis) for name, (value, basis) in rows.items()}
    found |= {"score": score_fact(section, "score", score)} if score is not None else {}
    return [*found.values(), *note_facts(attempt, section)]


def note_facts(attempt: Attempt, section: str = NOTES) -> list[Fact]:
    """Return the notes of an attempt that have a heading; if one has a number, its words stand in the basis."""
    where = f"over {len(attempt.played)} episodes of attempt {attempt.number}"
    facts = []
    for note in notes.NOTES.values():
        if not note.heading or (value := note.of(attempt)) is None:
            continue
        words, amount = note.words(value), note.number(value) if note.number is not None else None
        basis = f"({words}) {where}" if amount is not None and words != f"{amount:g}" else where
        facts.append(Fact(section, note.heading, words if amount is None else amount, basis=basis))
    return facts


def all_attempts(attempts: Iterable[Attempt]) -> Iterator[list[Fact]]:
    """Yield the facts of each attempt of a run."""
    costs = Costs()
    for attempt in attempts:
        costs = costs.plus(attempt.requests)
        yield attempt_facts(attempt, costs)


CURVE_COLUMNS = ("attempt", *(one.name for one in attempt_facts(Attempt(0, None, None), Costs())))


def curve_table(attempts: Sequence[Attempt]) -> dict[str, list[float | None]]:
    """Return the columns of the learning curve, with a value per attempt: `CURVE_COLUMNS`, then notes with a number."""
    rows = [{one.name: one.amount for one in own} for own in all_attempts(attempts)]
    notes = dict.fromkeys(name for row in rows for name, amount in row.items() if amount is not None)
    columns = {name: [row.get(name) for row in rows] for name in (*CURVE_COLUMNS[1:], *notes)}
    return {"attempt": [attempt.number for attempt in attempts], **columns}


def curve_csv(attempts: Sequence[Attempt]) -> str:
    """Return the learning curve as CSV; an unknown value is an empty cell."""
    text, table = io.StringIO(), curve_table(attempts)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(["" if value is None else f"{value:.10g}" for value in row])
    return text.getvalue()
