"""Compute the optimal score of a finite, known MDP if its task states none."""

from __future__ import annotations

from dataclasses import replace

from policygen.episodes.exact import best_return, finite_mdp
from policygen.tasks.task import Optimum, Task


def with_optimum(task: Task) -> Task:
    """Return the task with its optimum, if none is stated and it can be computed.

    An unreachable threshold `solved` is removed, with a sentence in `assumed`.
    """
    mdp = finite_mdp(task) if task.optimum is None else None
    if mdp is None:
        return task
    found = best_return(mdp, task.max_steps)
    if found.table_reaches_it:
        source = f"exact, by backward induction over {task.max_steps} steps"
    else:
        source = f"the best table found; a policy that counts steps could reach {found.value:.6g}"
    known = replace(task, optimum=Optimum(found.by_table, source))
    if task.solved is None or task.solved <= found.value + 1e-9:
        return known
    sentence = f"{task.solved:g} is said to count as solved, but no policy scores more than {found.value:.6g}"
    return replace(known, solved=None, assumed=(*task.assumed, sentence))
