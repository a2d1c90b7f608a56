"""Episodes as Ray tasks, on all machines of the cluster that this process has joined."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.episodes.players import Piece, Play, PlayerKilled
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError

RETRIES = 2  # of an episode whose process or machine died


def by_ray(play: Play, work: Sequence[Piece], jobs: int) -> list[list[Trajectory] | None]:
    """Play each piece as a Ray task; see `policygen.episodes.players.Elsewhere`.

    Ray limits how many run at a time, one per processor; `jobs` only set how finely lists of seeds were cut.

    Raises:
        PlayerKilled: a process or machine died repeatedly.
    """
    import ray

    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_played)
    shared = ray.put(play)
    pending = [task.remote(shared, *piece) for piece in work]
    try:
        played: list[list[Trajectory] | None] = ray.get(pending)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, PolicygenError):  # Ray's own message is a traceback
            raise error.cause from None
        raise
    except ray.exceptions.RayError:
        raise PlayerKilled from None
    return played


def _played(play: Play, actor: object, seeds: list[int]) -> list[Trajectory] | None:
    return play(actor, seeds)  # type: ignore[arg-type]
