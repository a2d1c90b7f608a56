"""The refine methods: ways to tune the numbers of a proposal, each under the name that `--refine` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policygen.registry import Registry, resolved
from policygen.tasks.task import Task

Tune = Callable[..., Any]  # from a Policy, its Trials and a seed to a Refined, or None


@dataclass(frozen=True, slots=True)
class Method:
    """A way to tune the numbers of a policy.

    Attributes:
        tune: the function, or its address `MODULE:NAME`, which is imported at first use. Its arguments are the policy,
            its `Trials` (`search/refine/tunable.py`) and a seed; it returns a `Refined`, or None if there is nothing to
            tune or the episodes are too few.
        for_tables: whether it changes the entries of a table of choices, and not constants.
        most_episodes: the most episodes of the environment for a proposal, of a method that reads all episodes played
            before (`Trials.seen`) in order to need few more; None for a method that plays what the budget allows.
        check: raises a UsageError for a task that it cannot tune.
        suits: whether `auto` stands for it in a run on this task whose steps are limited.
    """

    tune: Tune | str
    for_tables: bool = False
    most_episodes: int | None = None
    check: Callable[[Task], None] = lambda task: None
    suits: Callable[[Task], bool] = lambda task: False

    def __call__(self, policy: Any, trials: Any, seed: int) -> Any:
        """Tune a policy; see `tune`."""
        return resolved(self.tune)(policy, trials, seed)


METHODS: Registry[Method] = Registry("refine method")
METHODS.add("cma", Method("policygen.search.refine.cma:tune"))
METHODS.add("coordinate", Method("policygen.search.refine.tables:coordinate", for_tables=True))
METHODS.add("policy-iteration", Method("policygen.search.refine.tables:policy_iteration", for_tables=True))
