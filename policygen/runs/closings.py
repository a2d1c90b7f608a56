"""The closings of a run: when the search has ended, each may hand back a policy that takes the place of the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policygen.episodes.race import Race
from policygen.policies.policy import Policy
from policygen.registry import Registry


@dataclass(frozen=True, slots=True)
class Successor:
    """The result of a closing.

    Attributes:
        words: describes it; the verdict of the attempt that records it.
        policy: the policy that becomes the best; None if the best one remains.
        race: of `policy` against the best one, on seeds that neither was selected on.
    """

    words: str
    policy: Policy | None = None
    race: Race | None = None


CLOSINGS: Registry[Callable[..., Successor | None] | str] = Registry("closing")
"""The closings, or their addresses `MODULE:NAME`, by the kind of the attempts that record them.

Each gets the `Search` and its `EpisodeRunner`, whose episodes are charged; it returns None if it has nothing to do, and
is called again if the run goes on afterwards.
"""
