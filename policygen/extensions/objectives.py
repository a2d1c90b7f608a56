"""Objectives and potentials for tuning, which replies state: `objective = EXPRESSION`, `potential = EXPRESSION`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.errors import ExpressionError
from policygen.policies.lines import STATEMENTS, Line, Statement
from policygen.policies.parts import Parts
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Measure, Shaping
from policygen.prompts.sections import Section, add_section
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Call, Node, names_in, needed_by, negated, read_by, remembered_in
from policygen.runs.attempt import Attempt
from policygen.runs.notes import SHAPING
from policygen.runs.state import Context

MOST_OBJECTIVES = 3  # prompts show so many of the last objectives, and that of the best policy
EXTREME = 4  # of this many episodes of an attempt, one counts among the best and one among the worst
_ONLY_THE_STATE = "a potential depends only on the state: use quantities alone, and put the rest into an `objective`"


def read_objective(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Shaping | None:
    """Return the objective and the potential, with the features that they need; None if there are problems."""
    task, problems, features = parts.task, parts.problems, parts.features
    quantities = list(dict.fromkeys([*task.quantity_names, *features]))
    read: dict[str, Node] = {}
    for (name, _), line in lines.items():
        try:
            node = parse_expression(line.text, [*quantities, *task.decision_names, REWARD], texts=task.text_names)
        except ExpressionError as error:
            problems.refuse(line.number, error)
            continue
        needed = needed_by(names_in(node), features, now=True) & features.keys()
        remembered = remembered_in(node).union(*(remembered_in(features[feature]) for feature in needed))
        previous, others = min(remembered, default=""), sorted(names_in(node) - set(quantities))
        if name == POTENTIAL and others:
            problems.add(line.number, f"the potential reads `{others[0]}`", _ONLY_THE_STATE)
        elif REWARD in remembered_in(node) and REWARD not in quantities:
            expected = f"use `{REWARD}`, the reward of this step"
            problems.add(line.number, f"`prev({REWARD})` is not remembered", expected)
        elif previous and name == POTENTIAL:
            problems.add(line.number, f"the potential remembers `{previous}`", _ONLY_THE_STATE)
        elif previous and parts.learner:
            expected = "a learner of table entries sees one step at a time: write it without `prev(...)`"
            problems.add(line.number, f"the objective remembers `{previous}`", expected)
        else:
            read[name] = node
    for name in read_by(read.values()):
        parts.without_let.pop(name, None)  # a feature, not a misspelt output
    if not read or problems:
        return None
    lets = parts.needed_features(features, read_by(read.values()))
    defined = tuple((name, to_text(node)) for name, node in lets)
    texts = {name: to_text(node) for name, node in read.items()}
    return Shaping(defined, texts.get(OBJECTIVE, ""), texts.get(POTENTIAL, ""))


def objective_views(context: Context) -> list[dict[str, Any]]:
    """Return the last objectives of tuning and that of the best policy, the oldest first."""
    shaped = [attempt for attempt in context.attempts if SHAPING.of(attempt) is not None and attempt.saved is not None]
    shown = [attempt for attempt in shaped if attempt is context.best or attempt in shaped[-MOST_OBJECTIVES:]]
    best = context.best.number if context.best is not None else 0
    return [
        context.buffer.cached(("objective", attempt.number, best), lambda attempt=attempt: _objective(attempt, context))  # type: ignore[misc]
        for attempt in shown
    ]


def _objective(attempt: Attempt, context: Context) -> dict[str, Any]:
    shaping = SHAPING.of(attempt)
    assert shaping is not None
    groups = _groups(attempt, context) if shaping.objective else []
    objective = Measure(context.task, shaping).objective
    terms = list(map(to_text, summands(objective))) if objective is not None and groups else []
    measures = [Measure(context.task, Shaping(shaping.lets, text)) for text in terms]
    means = [[float(measure.sums(episodes).mean()) for _, episodes in groups] for measure in measures]
    return {
        "number": attempt.number,
        "is_best": attempt is context.best,
        "lines": shaping.to_text().splitlines(),
        "refinement": attempt.tuned.refinement,
        # of each group the name, the number of episodes and the mean return; then the mean sum of each term, and of all
        "groups": [(name, len(some), float(np.mean([t.episode_return for t in some]))) for name, some in groups],
        "terms": list(zip(terms, means, strict=True)),
        "total": [float(np.sum(one)) for one in zip(*means, strict=True)],
    }


def summands(node: Node) -> list[Node]:
    """Return the terms of a sum: `a - 2*b + c` has `a`, `-2*b` and `c`."""
    match node:
        case Call("+", (left, right)):
            return summands(left) + summands(right)
        case Call("-", (left, right)):
            return summands(left) + [_negative(term) for term in summands(right)]
        case Call("neg", (Call("+" | "-", _) as inner,)):
            return [_negative(term) for term in summands(inner)]
    return [node]


def _negative(node: Node) -> Node:
    return negated(node) or Call("neg", (node,))


def _groups(attempt: Attempt, context: Context) -> list[tuple[str, Sequence[Trajectory]]]:
    """Return groups of episodes: an attempt's best and worst (or all, if returns are equal), and the best policy's."""
    own = sorted(_episodes(attempt, context), key=lambda t: -t.episode_return)
    if not own:
        return []
    groups: list[tuple[str, Sequence[Trajectory]]] = [("its", own)]
    if own[0].episode_return > own[-1].episode_return:
        extreme = max(1, len(own) // EXTREME)
        groups = [("its best", own[:extreme]), ("its worst", own[-extreme:])]
    if context.best is not None and attempt is not context.best and (others := _episodes(context.best, context)):
        groups.append(("the best policy's", others))
    return groups


def _episodes(attempt: Attempt, context: Context) -> list[Trajectory]:
    return [episode.trajectory for episode in context.buffer.of_attempt(attempt.number, len(attempt.played))]


STATEMENTS.add("objective", Statement(names=(OBJECTIVE, POTENTIAL), read=read_objective))
add_section(
    Section("objectives", lambda context, config: objective_views(context) if config.shape else [], "after_history")
)
add_section(Section("shaping", lambda context, config: config.shape, "after_language"))
