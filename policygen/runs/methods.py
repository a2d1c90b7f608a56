"""Refine methods, which tune the numbers of a proposal, and the setting `--refine` that names one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policygen.errors import UsageError
from policygen.registry import Registry, resolved
from policygen.tasks.task import Task

Tune = Callable[..., Any]  # from a Policy, its Trials and a seed to a Refined, or None


@dataclass(frozen=True, slots=True)
class Method:
    """A way to tune the numbers of a policy.

    Attributes:
        tune: the function, or its address `MODULE:NAME`, which is imported at first use. Its arguments are the policy,
            its `Trials` (`search/refine/tunable.py`) and a seed; it returns a `Refined`, or None if there is nothing to
            tune or the budget is too small.
        for_tables: whether it changes the entries of a table of choices instead of constants.
        most_episodes: most episodes per proposal of a method that learns from all earlier episodes (`Trials.seen`);
            None for a method that plays as many as the budget allows.
        check: raises a UsageError for a task that it cannot tune.
        suits: whether `auto` means this method if the steps of a run on the task are limited.
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


@dataclass(frozen=True, slots=True)
class Refinement:
    """The tuning of every proposal, written `METHOD[:EPISODES]`; without a method nothing is tuned.

    By default the remaining episodes of `max_episodes` are divided among the remaining proposals; without that limit,
    each gets 500.
    """

    method: str | None = None
    episodes: int | None = None

    @property
    def entry(self) -> Method | None:
        """The method; None for `auto`, which chooses one later, and for none."""
        return METHODS.get(self.method) if self.method is not None else None

    @property
    def for_tables(self) -> bool:
        """Whether the method changes the entries of a table."""
        return self.entry is not None and self.entry.for_tables

    @property
    def most_episodes(self) -> int | None:
        """See `Method`."""
        return self.entry.most_episodes if self.entry is not None else None

    def __str__(self) -> str:
        if self.method is None:
            return "none"
        return self.method if self.episodes is None else f"{self.method}:{self.episodes}"


def read_refinement(value: Any) -> Refinement:
    """Read the setting `METHOD[:EPISODES]`.

    Raises UsageError if the method is unknown, or the number of episodes is not a whole number above 0.
    """
    if isinstance(value, Refinement):
        return value
    text = str(value)
    name, colon, budget = text.partition(":")
    if name not in ("none", "auto", *METHODS):
        raise UsageError(
            f"--refine {text}: there is no method `{name}`; use none, auto, {', '.join(METHODS)}; "
            f"a number after a colon limits the episodes, as in --refine cma:500"
        )
    if colon and not (budget.isdigit() and int(budget) > 0):
        raise UsageError(f"--refine {text}: write a number of episodes after the colon, as in --refine cma:500")
    if name == "none":
        return Refinement()
    return Refinement(name, int(budget) if budget else None)
