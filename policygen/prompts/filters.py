"""The filters of templates, which select, shorten and format plain data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.evidence import PARTS
from policygen.episodes.signals import largest_rise
from policygen.prompts.evidence import STILL, EpisodeView
from policygen.quantities.text import format_number, to_digits

MAX_CHANGE_SHARE = 0.1  # a quantity that changes in at most this share of the steps is a set-point or a switch
LEAST_SHOWN = 40  # the largest number of a column is at least so many units of the last decimal place
LEAST_OF_RANGE = 20  # the range of a column is so many, if four digits suffice
MAX_CODE = 99_999  # whole numbers up to this one may be codes of categories and are not rounded
MAX_QUANTITIES = 3  # that determine the `change` window if none is a set-point or switch


def _window(episode: EpisodeView, rows: int, where: str = "end") -> list[dict[str, Any]]:
    """Return `rows` consecutive steps of an episode as records: its `end`, `start`, `middle`, `fault` or `change`.

    `change` is where most changes, see `_most_changed`. `fault` is the first anomaly, with two thirds of the rows
    before it, where its cause is. Without an anomaly it is the end if the episode failed, and otherwise where the
    losses against the mean of the policy's episodes grow (of a single episode, the steps with the least reward).
    """
    last = max(0, episode.length - rows)
    first = {"start": 0, "middle": last // 2, "end": last, "fault": last, "change": last}[where]
    if where == "fault":
        first = min(last, _fault(episode, rows, last))
    elif where == "change":
        first = _change(episode, rows)[1]
    first = max(0, first)
    return _records(episode, range(first, min(episode.length, first + rows)))


def _fault(episode: EpisodeView, rows: int, last: int) -> int:
    """Return the first step of the window `fault`; it may be negative."""
    if episode.anomaly is not None:
        return episode.anomaly.step - 2 * rows // 3
    if episode.failed or last == 0:
        return last
    if (found := episode.shortfall) is None:
        summed = np.concatenate([[0.0], np.cumsum(episode.columns["reward"])])
        return int(np.argmin(summed[rows:] - summed[:-rows]))
    width = max(rows, episode.length // PARTS)
    start = max(0, found.first - width)
    before = [0.0] * max(0, width - found.first)  # zeros, so that a rise can start at step 0
    return start - len(before) + largest_rise([*before, *episode.lost[start : found.last + 1]], width) - 2 * rows // 3


def _records(episode: EpisodeView, steps: Iterable[int]) -> list[dict[str, Any]]:
    """Return steps as records, with the fields that joined steps have."""
    rewards = episode.columns["reward"]
    return [
        {name: column[i] for name, column in episode.columns.items()} | _span(i, i) | {"total": rewards[i]}
        for i in steps
    ]


def _most_changed(episode: EpisodeView, rows: int) -> str:
    """Return the names of the quantities that determine the window `change` of `rows` steps.

    If a quantity such as a set-point changes seldom, the window is around its largest jump, a quarter of it before.
    Otherwise it is where the quantities that reward and ends depend on most (if unknown, all that are shown) change
    most, relative to their ranges.
    """
    return ", ".join(_change(episode, min(rows, episode.length))[0])


def _change(episode: EpisodeView, rows: int) -> tuple[Sequence[str], int]:
    """Return the names for `_most_changed`, and the first step of the window."""
    columns = {name: _as_numbers(episode.columns[name]) for name in (*episode.traced, *episode.outputs)}
    columns = {name: values for name, values in columns.items() if np.ptp(values) > 0}
    jumps = {}
    for name, values in columns.items():
        moves = np.abs(np.diff(values))
        if np.mean(moves > 0) <= MAX_CHANGE_SHARE:
            jumps[name] = float(moves.max() / np.ptp(values)), int(moves.argmax()) + 1
    if jumps:
        name = max(jumps, key=lambda name: jumps[name][0])
        return [name], jumps[name][1] - rows // 4
    names = [name for name in episode.relevant if name in columns][:MAX_QUANTITIES] or list(columns)
    table = np.stack([columns[name] / np.ptp(columns[name]) for name in names]) if names else np.zeros((1, rows))
    windows = np.lib.stride_tricks.sliding_window_view(table, max(1, min(rows, table.shape[1])), axis=1)
    return names, int(np.ptp(windows, axis=2).sum(axis=0).argmax())


def _as_numbers(column: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return a column as numbers; words and tuples of bins are numbered."""
    values = np.asarray(column if isinstance(column[0], float) else list(map(str, column)))
    if values.dtype.kind != "f":
        values = np.unique(values, return_inverse=True)[1]
    return np.nan_to_num(values.astype(np.float64))


def _condensed(episode: EpisodeView, rows: int, where: str = "end") -> list[dict[str, Any]]:
    """Return a window as from `_window`, or a `cycle`, with one row for consecutive steps that hardly differ.

    If the environment ended the episode, the last row, `end`, has the final observation; it replaces the first row if
    there are too many.
    """
    if where == "cycle":
        return _cycle(episode, rows)
    groups = _groups(episode)
    first = 0 if where == "start" else _window(episode, min(rows, episode.length), where)[0]["step"]
    start = max(i for i, (a, _) in enumerate(groups) if a <= first)
    start = max(0, min(start, len(groups) - rows)) if where != "end" else max(0, len(groups) - rows)
    found = _joined(episode, groups[start : start + rows])
    if where != "start" and episode.final and found and found[-1]["last"] == episode.length - 1:
        end = {"steps": "end", "count": 0, "first": episode.length, "last": episode.length - 1, "total": None}
        found = [*found[len(groups) > rows > 1 :], {**episode.final, **end}]
    return found


def _cycle(episode: EpisodeView, rows: int) -> list[dict[str, Any]]:
    """Return one period of the reference signal in the middle of the episode, in `rows` equal parts.

    If the period has at most 2 * `rows` steps, return its first `rows` steps, unmerged.
    """
    period = next(signal.period for signal in episode.signals if signal.name == episode.reference) or 0
    first = max(0, (episode.length - period) // 2)
    if period <= 2 * rows:
        return _joined(episode, [(step, step) for step in range(first, min(first + min(period, rows), episode.length))])
    edges = [first + i * period // rows for i in range(rows + 1)]
    return _joined(episode, [(a, b - 1) for a, b in itertools.pairwise(edges)])


def _joined(episode: EpisodeView, groups: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the record of each group's first step, with `steps` of the group and `total`, the sum of rewards."""
    rewards = episode.columns["reward"]
    records = _records(episode, (first for first, _ in groups))
    spans = [{**_span(a, b), "total": float(sum(rewards[a : b + 1]))} for a, b in groups]
    return [record | span for record, span in zip(records, spans, strict=True)]


def _span(first: int, last: int) -> dict[str, Any]:
    """Return the fields of joined steps, such as `steps`: `7` or `7-12`."""
    steps = f"{first}" if first == last else f"{first}-{last}"
    return {"steps": steps, "count": last - first + 1, "first": first, "last": last}


def _groups(episode: EpisodeView) -> list[tuple[int, int]]:
    """Return the first and the last step of each group of consecutive steps that hardly differ.

    For a table they have the same cell and action; for a linear policy their observations differ at most by `still`.
    """
    columns = episode.columns
    starts = [0]
    if "cell" in columns:
        cells, actions = columns["cell"], columns["action"]
        starts += [i for i in range(1, episode.length) if cells[i] != cells[i - 1] or actions[i] != actions[i - 1]]
    else:
        names = [*episode.still, "reward"]
        table = np.nan_to_num(np.stack([np.asarray(columns[name], float) for name in names], axis=1))
        near = np.array([*episode.still.values(), STILL * np.ptp(table[:, -1])])
        for i in range(1, episode.length):
            text_changed = any(columns[name][i] != columns[name][starts[-1]] for name in episode.texts)
            if text_changed or (np.abs(table[i] - table[starts[-1]]) > near).any():
                starts.append(i)
    return list(zip(starts, [start - 1 for start in starts[1:]] + [episode.length - 1], strict=True))


def _coarse(episode: EpisodeView, rows: int, part: int | None = None) -> list[dict[str, Any]]:
    """Return `rows` evenly spaced steps, first and last included, of an episode or its fifth `part` (0 to 4)."""
    start, end = (0, PARTS) if part is None else (part, part + 1)
    steps = range(start * episode.length // PARTS, end * episode.length // PARTS)
    return _records(episode, _sample(steps, rows))


def _sample(items: Sequence[Any], n: int) -> list[Any]:
    """Return `n` evenly spaced items, the first and the last included (only the last if `n` is 1)."""
    if len(items) <= n:
        return list(items)
    if n <= 1:
        return list(items[-1:])
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)]


def _columns(episode: EpisodeView, most: int) -> list[str]:
    """Return the columns of a trace: step, observations and features, texts, actions, reward.

    Of the observations and features, the `most` most important are kept, and the one of the first anomaly.
    """
    kept = {*episode.traced[:most], *([episode.anomaly.name] if episode.anomaly else [])}
    return ["step", *(name for name in episode.columns if name in kept), *episode.texts, *episode.outputs, "reward"]


def fitting(sizes: Iterable[int], room: int | float) -> int:
    """Return how many leading items of these sizes fit into `room`, at least one."""
    return max(1, sum(total <= room for total in itertools.accumulate(sizes)))


def _within(lines: Sequence[str], characters: int) -> list[str]:
    """Return the first lines, of at most `characters` in total, and a line that counts the others.

    If even the first line is too long, it is cut. With `characters` <= 0, return nothing.
    """
    if characters <= 0:
        return []
    count = fitting(map(len, lines), characters)
    kept = [line if len(line) <= characters else f"{line[:characters].rstrip()} ..." for line in lines[:count]]
    return [*kept, f"... ({len(lines) - count} more left out)"] if count < len(lines) else kept


def _runs(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Join consecutive records that agree in `names`; `steps` is then `7` or `7-12`, and `count` their number."""
    merged = []
    for _, group in itertools.groupby(rows, lambda row: [row[name] for name in names]):
        alike = list(group)
        merged.append({**alike[0], **_span(alike[0]["step"], alike[-1]["step"]), "count": len(alike)})
    return merged


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str], digits: int = 3) -> str:
    """Write records as a Markdown table of the named fields."""
    cells = [list(names), *([_brief(row[name], digits) for name in names] for row in rows)]
    head, *lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([head, "|" + "---|" * len(names), *lines])


def _lines(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Write records as lines of the named fields, separated by spaces; a missing value is `-`.

    The numbers of a column are rounded to the same decimal place, of which the largest number is at least LEAST_SHOWN
    units, and the range LEAST_OF_RANGE, so that small changes of a large number can be seen. Columns of whole numbers
    are exact, because they may be codes.
    """
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        known = [value for value in values if value is not None]
        finite = [abs(value) for value in known if isinstance(value, float) and np.isfinite(value)]
        if len(finite) == len(known) and any(finite) and not all(map(_is_code, finite)):
            places = math.ceil(math.log10(LEAST_SHOWN) - math.log10(max(finite)))
            if (spread := max(known) - min(known)) > 0:
                places = max(places, math.ceil(math.log10(LEAST_OF_RANGE) - math.log10(spread)))
            values = [None if value is None else round(value, places) for value in values]
        columns.append([_brief(value, 4) for value in values])
    return "\n".join(map(" ".join, zip(*columns, strict=True)))


def _named(values: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """Write names with their values: `lean 0.1, spin -2`."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return ", ".join(f"{name} {_brief(value)}" for name, value in pairs)


def _moves(tuned: Mapping[str, Sequence[tuple[float, float]]], most: int = 3) -> str:
    """Write the `most` constants with the largest relative changes: `left 1 to 2, 0.5 to 0.1; right 3 to 4`."""
    moves = [(name, old, new) for name, pairs in tuned.items() for old, new in pairs]
    change = [abs(new - old) / (max(abs(old), abs(new)) or 1.0) for _, old, new in moves]
    lines: dict[str, list[str]] = {}
    for i in sorted(sorted(range(len(moves)), key=lambda i: -change[i])[:most]):
        name, old, new = moves[i]
        lines.setdefault(name, []).append(f"{_brief(old)} to {_brief(new)}")
    return "; ".join(f"{name} {', '.join(pairs)}" for name, pairs in lines.items())


def _items(text: str, characters: int, separator: str = "; ", more: int = 0) -> str:
    """Shorten a list in a text to its first items, of at most `characters`, and count those left out.

    If even the first item is too long, it is cut. `more` counts items that the text already leaves out.
    """
    items = text.split(separator)
    count = fitting((len(item) + len(separator) for item in items), characters + len(separator))
    kept = [_cut(items[0], characters), *items[1:count]]
    left_out = len(items) - count + more
    return separator.join([*kept, f"and {left_out} more"] if left_out else kept)


def _cut(text: str, characters: int, end: str = " ...") -> str:
    """Cut a text to at most `characters`, and mark the cut by `end`."""
    return text if len(text) <= characters else text[: characters - len(end)] + end


def _is_code(value: float | np.floating[Any]) -> bool:
    """Whether a number may be a code: a whole number of at most `MAX_CODE`."""
    return abs(float(value)) <= MAX_CODE and float(value).is_integer()


def _brief(value: Any, digits: int = 3) -> str:
    """Write a value in few characters: numbers with `digits` significant digits, codes exactly, tuples with commas."""
    if value is None:
        return "-"
    if isinstance(value, float | np.floating) and math.isfinite(value):
        return format_number(float(value) if _is_code(value) else to_digits(float(value), digits))
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(_brief(item, digits) for item in value)
    return str(value)


# The functions by their names in templates, which lack the underscore.
FILTERS: dict[str, Callable[..., Any]] = {
    function.__name__[1:]: function
    for function in (
        *(_condensed, _coarse, _window, _most_changed, _within, _sample, _columns, _runs, _table, _lines),
        *(_named, _moves, _items, _cut, _brief),
    )
}
