"""Descriptions of the task and its grid for prompts, as plain data; quantities of one kind share a description."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from policygen.quantities.grid import Grid
from policygen.quantities.text import slug
from policygen.tasks.spaces import Actuator, Observation, alike, span
from policygen.tasks.task import Task

View = dict[str, Any]  # names and values for a template
One = TypeVar("One", Observation, Actuator)

# The attributes of a task that templates can read.
_TASK = (
    *("name", "gym_id", "observations", "observed", "texts", "actuators", "acted", "action_space", "max_steps"),
    *("features", "requirements", "perturbed", "about", "hints", "documentation", "facts", "discount", "solved"),
    *("optimum", "step_seconds", "observation_names", "quantity_names"),
)
_SMALL = frozenset(["a", "an", "the", "of", "in", "on", "at", "to", "by", "for", "and", "or", "is", "are", "its"])
_LINKING = frozenset(["at", "between", "in", "of", "on", "the"])
_RATES = frozenset(["angular", "velocity", "rate", "speed"])
FEWEST_ALIKE = 3  # so many neighbours whose descriptions begin alike share a line
FEWEST_EDGES = 5  # so many edges between integers mean that the bins are integers


def task_view(task: Task) -> View:
    """Return a task for templates, without its grid (`grid` is the one in use).

    In `observed` and `acted`, neighbouring observations and actuators share an entry, named by all their names, if
    their descriptions differ only in words of their names, in a last word in brackets, in the body, or in a number.
    """
    changed: View = {
        "observed": observed_together(task.observations),
        "acted": _together(task.actuators, lambda a: replace(a, name="", about="")),
        "requirements": [(one.name, str(one), one.hard) for one in task.requirements],
        "perturbed": [one.described for one in task.perturb],
    }
    return {name: changed[name] if name in changed else getattr(task, name) for name in _TASK}


def observed_together(observations: Sequence[Observation]) -> list[Observation]:
    """Return one observation for each group of neighbours that share a description."""
    told = _rates([replace(group[0], name=span(group)) for group in alike(observations)])
    entries = list[Observation]()
    for of_a_body, run in itertools.groupby(told, lambda o: bool(o.derived)):
        some = list(run)
        entries += _bodies_together(some) if of_a_body else _together(some, _kind)
    return entries


def _kind(o: Observation) -> Observation:
    """Return the properties that observations in one line share; bounds only if they are shown."""
    o = replace(o, name="", about="")
    return o if o.seen else replace(o, low=0.0, high=0.0, integer=False)


def _together(some: Sequence[One], kind: Callable[[One], One]) -> list[One]:
    """Join neighbours of one `kind` whose descriptions differ only in words of their names.

    Of the others, neighbours whose descriptions begin alike are joined, too: `left (tank 1), right (tank 2): level of
    the parts in brackets`.
    """
    entries = list[One]()
    for (_, masked), run in itertools.groupby(some, lambda one: (kind(one), _masked(one.name, _split(one)[0]))):
        group = list(run)
        entries += [_joined(group, masked) if len(group) > 1 else _shortened(group[0])]
    found = list[One]()
    for (_, start), run in itertools.groupby(entries, lambda one: (kind(one), _start(one))):
        group = list(run)
        found += [_of_one_start(group)] if start and len(group) >= FEWEST_ALIKE else group
    return found


def _joined(group: Sequence[One], masked: str) -> One:
    """Return one entry for several, whose description lacks the words in which their names differ."""
    names = [set(_words(one.name)) for one in group]
    own = names[0].difference(names[0].intersection(*names))
    text, _ = _split(group[0])
    if "_" in masked:
        told = ["..." if own & set(_words(word)) else word for word in text.split()]
        told = [word for k, word in enumerate(told) if word != "..." or k == 0 or told[k - 1] != "..."]
        if told[-1] == "...":
            told = told[:-1]
            while told and told[-1] in _SMALL:
                told = told[:-1]
        if told and told[0] == "...":
            told = list(itertools.dropwhile(lambda word: word in {"...", "of", "the"}, told))
        text = " ".join(told)
    if _plain(text) and not set(_words(text)) - names[0] - _SMALL:
        text = ""
    codes = [_split(one)[1] for one in group]
    if len(set(codes)) == 1:
        text, codes = f"{text} ({codes[0]})" if codes[0] and text else text, [""] * len(codes)
    entries = (f"{one.name} ({code})" if code else one.name for one, code in zip(group, codes, strict=True))
    return replace(group[0], name=", ".join(entries), about=text)


def _shortened(one: One) -> One:
    """Return an entry whose description does not begin by repeating its name."""
    text, code = _split(one)
    first, _, rest = text.partition(", ")
    if _plain(first) and set(_words(first)) <= {*_words(one.name), "of", "the", "a"}:
        text = rest
    return replace(one, about=f"{text} ({code})".strip() if code else text)


def _plain(text: str) -> bool:
    """Whether a text consists of words alone, unlike `tip - goal`."""
    return all(letter.isalnum() or letter in " _,." for letter in text)


def _start(one: Observation | Actuator) -> str:
    """Return the first two words of a description; empty if it has no more, or the entry is a joined one."""
    words = one.about.lower().split()
    return " ".join(words[:2]) if len(words) > 2 and "," not in one.name and "(" not in one.about else ""


def _of_one_start(group: Sequence[One]) -> One:
    texts = [one.about.split() for one in group]
    shared = 0
    while all(len(words) > shared + 1 and words[shared] == texts[0][shared] for words in texts):
        shared += 1
    told = (f"{one.name} ({' '.join(words[shared:])})" for one, words in zip(group, texts, strict=True))
    start = " ".join(texts[0][:shared])
    *_, last = start.split()
    end = " the parts in brackets" if last in _LINKING else " ..."
    return replace(group[0], name=", ".join(told), about=start.removesuffix(" the") + end)


def _parts(text: str) -> list[str]:
    """Split a text into words and the characters between them."""
    return ["".join(part) for _, part in itertools.groupby(text, str.isalnum)]


def _words(text: str) -> list[str]:
    return [part for part in _parts(text.lower()) if part.isalnum()]


def _masked(name: str, text: str) -> str:
    """Return a description with `_` for each word of the name."""
    said = set(_words(name))
    return "".join("_" if part.lower() in said else part for part in _parts(text))


def _split(one: Observation | Actuator) -> tuple[str, str]:
    """Split off the last words in brackets from a description; without them if they only repeat the name."""
    text, bracket, last = one.about.rstrip().removesuffix(")").rpartition("(")
    if not one.about.rstrip().endswith(")") or not bracket or not text.strip() or ")" in last:
        return one.about, ""
    return text.rstrip(), "" if set(_words(last)) <= set(_words(one.name)) else last


def _rates(observations: Sequence[Observation]) -> list[Observation]:
    """Join rates whose descriptions say only that they are the rates of other observations.

    A rate has the name of another observation but for its last word, and the unit of that one per second.
    """
    of = {(o.name.rpartition("_")[0], o.unit): o for o in observations if "_" in o.name}
    partners = [of.get((o.name.rpartition("_")[0], o.unit.removesuffix("/s"))) for o in observations]
    told = list[Observation]()
    pairs = zip(observations, partners, strict=True)
    for (is_rate, _), run in itertools.groupby(pairs, lambda pair: (_is_rate(*pair), pair[0].unit)):
        group = list(run)
        ends = dict.fromkeys(other.name for _, other in (group[0], group[-1]) if other is not None)
        about = f"rate of {' to '.join(ends)}" if len(ends) == 1 else f"rates of {' to '.join(ends)}"
        rates = [replace(group[0][0], name=", ".join(o.name for o, _ in group), about=about)]
        told += rates if is_rate else [o for o, _ in group]
    return told


def _is_rate(one: Observation, other: Observation | None) -> bool:
    if other is None or other is one or not one.unit.endswith("/s"):
        return False
    return set(_words(one.about)) <= {*_words(one.name), *_words(other.name), *_words(other.about), *_SMALL, *_RATES}


def _bodies_together(observations: Sequence[Observation]) -> list[Observation]:
    """Join neighbours with the same description, then the same quantities of several bodies."""
    groups = [list(group) for _, group in itertools.groupby(observations, lambda o: (o.about or o.name, o.unit))]
    entries = list[Observation]()
    for (names, about), run in itertools.groupby(groups, _of_any_body):
        first, *others = run
        if others:
            bodies = ", ".join(group[0].derived for group in (first, *others))
            entries.append(replace(first[0], name=f"{names} (BODY: {bodies})", about=about))
        else:
            entries.append(replace(first[0], name=", ".join(o.name for o in first)))
    return entries


def _of_any_body(group: Sequence[Observation]) -> tuple[str, str]:
    """Return names and description of a group, with `BODY` in place of the body's name."""
    names, about = [o.name for o in group], group[0].about
    body = group[0].derived
    if not body or not all(name.startswith(f"{slug(body)}_") for name in names):
        return ", ".join(names), about
    own = len(slug(body))
    return ", ".join(f"BODY{name[own:]}" for name in names), about.replace(f"of body {body}", "of BODY", 1)


def _first_integer(edges: Sequence[float]) -> int | None:
    """Return the integer of bin 0 if each bin is an integer, because the edges lie halfway between them; else None."""
    whole = [edge - 0.5 for edge in edges]
    each = len(edges) >= FEWEST_EDGES and whole == list(range(int(whole[0]), int(whole[0]) + len(edges)))
    return int(whole[0]) if each else None


def grid_view(grid: Grid | None) -> list[View]:
    """Return a grid's dimensions for templates; none without a grid."""
    return [
        {
            "name": d.name,
            "bins": [{"index": i, "label": d.label(i)} for i in range(d.bins)],
            "edges": list(d.edges),
            "plain": d.label(0) == "0",  # bin i is the value i
            "first": _first_integer(d.edges),  # bin i is the value first + i; None if bins are not integers
        }
        for d in (grid.dimensions if grid is not None else ())
    ]
