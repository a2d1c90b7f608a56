"""The context for turning parsed text into a policy: task, incumbent, available features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policygen.policies.features import Lets
from policygen.policies.lines import Draft
from policygen.quantities.tree import Node, names_in, remembered_in
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from policygen.policies.policy import Policy


@dataclass(frozen=True)
class Revision:
    """The task, the incumbent and the available features for a text; see `parse`."""

    task: Task
    incumbent: Policy | None
    offered: Mapping[str, Node]
    free_grid: bool

    @property
    def inherited(self) -> Mapping[str, Node]:
        """The incumbent's own features."""
        return dict(self.incumbent.lets) if self.incumbent is not None else {}


def read_by(nodes: Iterable[Node]) -> frozenset[str]:
    """The quantities that expressions read, present and remembered ones."""
    return frozenset().union(*(names_in(node) | remembered_in(node) for node in nodes))


def used_features(lets: Mapping[str, Node], wanted: Iterable[str], draft: Draft) -> Lets:
    """The features that are needed, each after those whose present values it needs (a revision may redefine any).

    What is only remembered may stand anywhere: its value is that of the step before.
    """
    ordered: dict[str, Node] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        if name in open_names:
            circle = " -> ".join([*open_names[open_names.index(name) :], name])
            draft.problem(
                None,
                f"a value would need itself ({circle})",
                f"rename one of them, or read `prev({name})`, its last value",
            )
        elif name in lets and name not in ordered:
            open_names.append(name)
            for used in sorted(names_in(lets[name])):
                visit(used)
            open_names.pop()
            ordered[name] = lets[name]

    waiting = sorted(wanted)
    while waiting:
        for name in waiting:
            visit(name)
        # Sorted, and after those that were asked for: the same text always gives the same policy.
        remembered = frozenset().union(*(remembered_in(node) for node in ordered.values()))
        waiting = sorted(name for name in remembered if name in lets and name not in ordered and not draft.problems)
    if len(ordered) > draft.most_features:  # kept ones count: the policy's own text must read back
        draft.problem(None, f"the policy has {len(ordered)} features", f"use at most {draft.most_features}")
    return tuple(ordered.items())


def complete_params(draft: Draft, count: int, what: str) -> list[tuple[int, float]] | None:
    """Line and value of each of `count` params, or None where some are missing or there are more."""
    beyond = [index for index in draft.params if index >= count]
    missing = [index for index in range(count) if index not in draft.params]
    if beyond:
        draft.problem(draft.params[beyond[0]][0], f"found params[{beyond[0]}]", f"indices are 0 to {count - 1}")
    if missing:
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        draft.problem(None, f"{len(missing)} params are missing ({some})", f"give one for each {what}, {count} in all")
    return None if beyond or missing else [draft.params[index] for index in range(count)]
