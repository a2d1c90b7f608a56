"""Play several actors on the same seeds in one pass, for numerical search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, Decider, Indices, Rows, Trajectory, chunks
from policygen.policies.batched_linear import BatchedLinear, Unlike


def play_together(
    play: Callable[[Actor, Sequence[int]], list[Trajectory]], actors: Sequence[Actor], seeds: Sequence[int], room: int
) -> list[list[Trajectory]]:
    """Play each actor on the same seeds, with at most `room` episodes per call of `play`."""
    if len(seeds) * 2 > room:
        return [play(actor, seeds) for actor in actors]
    played: list[list[Trajectory]] = []
    for some in chunks(actors, room // len(seeds)):
        together = play(BatchedActors(some, len(seeds)), list(seeds) * len(some))
        played += [together[i : i + len(seeds)] for i in range(0, len(together), len(seeds))]
    return played


@dataclass(frozen=True, slots=True)
class BatchedActors:
    """Several actors combined: the first decides the first `each` episodes, the second the next `each`, and so on."""

    actors: Sequence[Actor]
    each: int
    portable: bool = True

    def begin(self, episodes: int, /) -> Decider:
        """Begin new episodes: `each` for every actor."""
        try:
            return BatchedLinear(self.actors, self.each)
        except Unlike:
            pass
        return _DecidingTogether([actor.begin(self.each) for actor in self.actors], self.each)


@dataclass(frozen=True, slots=True)
class _DecidingTogether:
    deciders: Sequence[Decider]
    each: int

    def decide(self, observations: Rows, rows: Indices, /) -> npt.NDArray[Any]:
        """Return the actions of `rows`, which are in ascending order."""
        ends = np.searchsorted(rows, self.each * np.arange(1, len(self.deciders) + 1)).tolist()
        chosen, start = [], 0
        for i, (decider, end) in enumerate(zip(self.deciders, ends, strict=True)):
            if end > start:
                chosen.append(np.asarray(decider.decide(observations[start:end], rows[start:end] - i * self.each)))
            start = end
        return np.concatenate(chosen)
