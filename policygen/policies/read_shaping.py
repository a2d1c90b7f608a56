"""A draft -> the objective and the potential that are written beside a policy, or what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policygen.errors import ExpressionError
from policygen.policies.lines import Draft
from policygen.policies.revision import Revision, read_by, used_features
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Shaping
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Node, names_in, remembered_in
from policygen.tasks.task import decision_names

_OF_THE_STATE = "a potential is of the state alone: write it over quantities, and the rest into an `objective`"


def read_shaping(draft: Draft, revision: Revision, *, learner: bool) -> dict[str, Node]:
    """The expressions of a draft's objective and potential, as far as they can be read; the draft gets the problems.

    Args:
        learner: a step is judged by itself, so that an objective cannot remember.
    """
    features = {**revision.inherited, **revision.offered, **draft.lets}
    quantities = list(dict.fromkeys([*revision.task.quantity_names, *features]))
    done = list(decision_names(revision.task))
    read: dict[str, Node] = {}
    for name, (number, text) in draft.shaping.items():
        try:
            node = parse_expression(text, [*quantities, *done, REWARD], texts=revision.task.text_names)
        except ExpressionError as error:
            found, _, expected = str(error).partition("; ")
            draft.problem(number, found, expected or "correct the expression")
            continue
        found, expected = _misplaced(name, node, quantities, features, learner=learner)
        if found:
            draft.problem(number, found, expected)
        else:
            read[name] = node
    draft.besides = read_by(read.values())
    return read


def _misplaced(
    name: str, node: Node, quantities: Sequence[str], features: Mapping[str, Node], *, learner: bool
) -> tuple[str, str]:
    """Return the problem if an expression reads a forbidden value, and the remedy; usually two empty texts."""
    if name == POTENTIAL and (others := sorted(names_in(node) - set(quantities))):
        return f"the potential reads `{others[0]}`", _OF_THE_STATE
    if REWARD in remembered_in(node) and REWARD not in quantities:
        return f"`prev({REWARD})` is not remembered", f"use `{REWARD}`, what this step pays"
    recalled = _remembered(node, features)
    if recalled and name == POTENTIAL:
        return f"the potential remembers `{recalled}`", _OF_THE_STATE
    if recalled and learner:
        return (
            f"the objective remembers `{recalled}`",
            "what changes the entries of a table sees one step at a time: leave `prev(...)` out of it",
        )
    return "", ""


def _remembered(node: Node, features: Mapping[str, Node]) -> str:
    """Return a name whose previous value an expression, or a feature that it needs, reads; usually empty."""
    seen, waiting = set[str](), [node]
    while waiting:
        one = waiting.pop()
        if recalled := remembered_in(one):
            return min(recalled)
        new = (names_in(one) & features.keys()) - seen
        seen |= new
        waiting += [features[name] for name in new]
    return ""


def shaping_of(read: Mapping[str, Node], draft: Draft, revision: Revision) -> Shaping | None:
    """The expressions with the features that they need; None where there are none, or these need themselves."""
    if not read or draft.problems:
        return None
    features = {**revision.inherited, **revision.offered, **draft.lets}
    lets = used_features(features, read_by(read.values()), draft)
    if draft.problems:
        return None
    texts = {name: to_text(node) for name, node in read.items()}
    return Shaping(
        tuple((name, to_text(node)) for name, node in lets), texts.get(OBJECTIVE, ""), texts.get(POTENTIAL, "")
    )


def only_shapes(draft: Draft, revision: Revision) -> bool:
    """Whether a text says nothing of a policy, so that the incumbent is to be tuned again as it is."""
    if revision.incumbent is None or not draft.shaping:
        return False
    if draft.equations or draft.rows or draft.header or draft.params or draft.bins:
        return False
    needed = dict(revision.incumbent.reader.needed)
    return all(needed.get(name, node) == node for name, node in draft.lets.items())
