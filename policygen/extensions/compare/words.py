"""A comparison in words: formatted numbers, and sentences that sum it up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from policygen.extensions.compare.comparison import SIGNIFICANCE, Pair, rows_of, standings
from policygen.extensions.compare.contenders import ComparedScores
from policygen.extensions.plots.statistics import Interval

MOST_SENTENCES = 4  # about single pairs
MOST_GUESSED = 100  # a larger estimate of seeds is written as "more than 100"


def number(value: float) -> str:
    """Format a score: three decimals below 10, fewer above, none from 1,000 on; thousands are separated."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    text = f"{value:,.{digits}f}"
    return text[1:] if float(text.replace(",", "")) == 0 and text.startswith("-") else text


def in_brackets(interval: Interval | None) -> str:
    """Format an interval that follows a number: ` [12, 50]`; empty for None."""
    return f" [{number(interval[0])}, {number(interval[1])}]" if interval is not None else ""


def verdict(compared: ComparedScores, pairs: Sequence[Pair]) -> str:
    """Return a few sentences that sum up the comparison."""
    contenders = compared.contenders
    sentences = [_describe_differences(compared, pairs)] if len(contenders) > 1 else []
    sentences += [_against_published(compared, contender) for contender in contenders[:3] if compared.published]
    if found := " ".join(filter(None, sentences)):
        return found
    rows = rows_of(compared)
    if len(rows) != 1:
        return f"{len(rows)} results of one contender; add another contender to compare it with."
    (row,) = rows
    score = f"{number(row.mean)}{in_brackets(row.mean_interval)}"
    return f"{row.contender} scores {score} on {row.task}; {_count(row.runs, compared.unit)}."


def _describe_differences(compared: ComparedScores, pairs: Sequence[Pair]) -> str:
    """Return sentences on the differences between contenders, each over all tasks that the two share."""
    widest = {(pair.first, pair.second): pair for pair in sorted(pairs, key=lambda pair: pair.tasks)}
    found = list(widest.values())
    if not found:
        return "No two contenders have runs of the same task."
    on_the_same_tasks = len({(pair.task, pair.tasks) for pair in found}) == 1
    if len(found) == 1 or len(found) < math.comb(len(compared.contenders), 2) or not on_the_same_tasks:
        return " ".join(map(_in_words, found[:MOST_SENTENCES]))
    gains = dict.fromkeys(compared.contenders, 0.0)
    for pair in found:
        gains[pair.second] += pair.gain
        gains[pair.first] -= pair.gain
    best = max(gains, key=lambda name: gains[name])
    of_best = [pair if pair.second == best else _swap(pair) for pair in found if best in (pair.first, pair.second)]
    above = [pair.first for pair in of_best if pair.corrected <= SIGNIFICANCE and pair.gain > 0]
    unsettled = [pair for pair in of_best if pair.first not in above]
    words = f"{best} has the highest mean of {len(of_best) + 1} on {_where(of_best[0])}"
    words += f", significantly above {' and '.join(above)}" if above else ", but is significantly above none of them"
    words += f"; {_basis(of_best[0])}."
    return " ".join([words, *map(_in_words, unsettled[:MOST_SENTENCES])])


def _swap(pair: Pair) -> Pair:
    """Return the same pair with `first` and `second` swapped."""
    return replace(
        pair,
        first=pair.second,
        second=pair.first,
        gain=-pair.gain if pair.gain else 0.0,
        interval=(-pair.interval[1], -pair.interval[0]) if pair.interval is not None else None,
        better=1 - pair.better,
        runs=pair.runs[::-1],
    )


def _in_words(pair: Pair) -> str:
    """Return a sentence on the difference between two contenders, the better one first."""
    if pair.gain < 0:
        pair = _swap(pair)
    if pair.gain == 0 and (pair.interval is None or pair.interval == (0.0, 0.0)):
        return f"{pair.first} and {pair.second} are level on {_where(pair)}; {_basis(_swap(pair))}."
    lead = f"{number(pair.gain)}{in_brackets(pair.interval)}{' (normalised)' if pair.tasks > 1 else ''}"
    if pair.corrected <= SIGNIFICANCE:
        return f"{pair.second} is better than {pair.first} by {lead} on {_where(pair)}; {_basis(pair)}."
    if pair.more is not None:
        more = f"{more_seeds(pair.more)} more {pair.unit}{'s' * (pair.more != 1)} each would settle it"
        excludes_0 = pair.interval is not None and (pair.interval[0] > 0 or pair.interval[1] < 0)
        if excludes_0 and (pair.seeds or min(pair.runs)) < pair.fewest:
            more += f" (this test needs at least {pair.fewest} {pair.unit}s)"
    elif min(pair.runs) < 2:
        more = "a single run does not show how much runs vary"
    else:
        more = "no practical number of seeds would settle it"
    return (
        f"Whether {pair.second} or {pair.first} is better on {_where(pair)} is open: {pair.second} is ahead by {lead}; "
        f"{_basis(pair)}, {more}."
    )


def more_seeds(count: int) -> str:
    """Format an estimated number of further seeds."""
    return f"about {count}" if count <= MOST_GUESSED else f"more than {MOST_GUESSED}"


def _where(pair: Pair) -> str:
    return f"these {pair.tasks} tasks" if pair.tasks > 1 else pair.task


def _basis(pair: Pair) -> str:
    """Return the number of seeds or runs behind a difference, those of `second` first."""
    if pair.seeds:
        return _count(pair.seeds, pair.unit)
    return f"{pair.runs[1]} and {pair.runs[0]} runs, not paired"


def _count(count: int, unit: str) -> str:
    return f"{count} {unit}{'s' * (count > 1)} each"


def _against_published(compared: ComparedScores, contender: str) -> str:
    """Return a sentence on the tasks where a contender is above, level with or below the published columns."""
    found = standings(compared, contender)
    if not found:
        return ""
    by_rank: dict[str, list[str]] = {}
    for task, rank in found.items():
        by_rank.setdefault(rank, []).append(task)
    above = len(by_rank.get("above", []))
    words = [f"{contender} is significantly above all published columns on {above} of {len(found)} tasks"]
    phrases = {
        "highest": "highest, but not significantly, on",
        "level": "level with the best on",
        "lower": "below the best on",
    }
    for level, phrase in phrases.items():
        if tasks := by_rank.get(level):
            words.append(f"{phrase} {len(tasks)} ({', '.join(tasks)})")
    return ", ".join(words) + "."
