"""Contenders that are played for a comparison: policies, best policies of runs, and agents of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.guests import is_guest
from policygen.episodes.score import Score, episode_seeds
from policygen.errors import UsageError
from policygen.extensions.compare.contenders import Field, read_field
from policygen.extensions.compare.results import Result
from policygen.extensions.robust import scores_of
from policygen.extensions.sweeps.plan import cell_folders, is_sweep
from policygen.files import find_run
from policygen.policies.policy import Policy
from policygen.runs.logbook import Logbook
from policygen.runs.reading import best_policy, read_agent
from policygen.tasks.load import load_task
from policygen.tasks.task import Task
from policygen.tasks.trial import refuse_unseeded, seeds_checked
from policygen.tasks.trust import trusted


def read_or_play(
    sources: Sequence[str],
    *,
    by: str | None = None,
    suite: str | None = None,
    task: str | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Field:
    """Read the scores of the sources; or play them all, if one has no score of its own or if a task is named.

    Raises:
        UsageError: an option is of the other way, or see `read_field` and `play_field`.
    """
    asked = {name: value for name, value in {"episodes": episodes, "seed": seed}.items() if value is not None}
    if task is not None or any(map(_has_no_score, sources)):
        if by is not None or suite is not None:
            option = "--by" if by is not None else "--suite"
            raise UsageError(f"{option} is for the scores of runs, and these contenders are played; leave it out")
        return play_field(sources, task, trust=trust, **asked)
    if asked:
        raise UsageError(
            f"--{next(iter(asked))} is for policies that are played; to play those of runs, add --task TASK"
        )
    return read_field(sources, by=by, suite=suite)


def _has_no_score(source: str) -> bool:
    """Whether a source is an agent or a file with a policy."""
    return ("=" not in source and is_guest(source)) or find_run(source).is_file()


def play_field(
    sources: Sequence[str], task_name: str | None = None, *, episodes: int = 100, seed: int = 0, trust: bool = False
) -> Field:
    """Play all contenders on the same episodes; each episode is a result, paired by its seed.

    Args:
        sources: policies (text or saved), runs and sweeps with their best policies, and agents, see `read_agent`.
        task_name: the task to play; by default that of the first run or saved policy.
        seed: determines the episodes, as in `policygen.score`.
        trust: the task may name modules to import and paths to read; needed for a model's file.

    Raises:
        UsageError: the task is not known, or a source is of another environment or cannot be played.
        PolicyError: a policy cannot be read, or an agent fails.
    """
    names, folders = _contenders(sources)
    task = load_task(task_name, trust=trust) if task_name is not None else _task_of(names)
    accepted = task.unseeded or dict(task.run).get("unseeded") is True
    task = seeds_checked(trusted(task) if trust else task)
    refuse_unseeded(task, accepted=accepted)
    other = [name for name in folders if Logbook(Path(name)).task().gym_id != task.gym_id]
    empty = [name for name in folders if name not in other and not (find_run(name) / "best.json").exists()]
    agents = {name: read_agent(name, task, trust=trust) for name in names if name not in (*other, *empty)}
    if not agents:
        raise UsageError(f"there is no policy for {task.name} among the runs; name others, or another --task")
    scores = scores_of(agents, task, episode_seeds(seed, "evaluation", episodes))
    notes = [
        f"all contenders were played on {task.name}, on the same {episodes} episodes (--seed {seed}); "
        "intervals are over episodes"
    ]
    runs = [name for name in folders if name in agents]
    notes += [f"runs were played with their best policies: {', '.join(runs)}"] if runs else []
    notes += [f"left out, of another task: {', '.join(other)}"] if other else []
    notes += [f"left out, because no policy has been found: {', '.join(empty)}"] if empty else []
    mdp = finite_mdp(task)
    for name, agent in agents.items():
        exact = exact_score(agent, mdp, task.max_steps) if mdp is not None and isinstance(agent, Policy) else None
        notes += [f"exact score of {name}: {exact.mean:.4f}"] if exact is not None else []
    results = [result for name, score in scores.items() for result in _results(task, name, score)]
    return Field(tuple(results), notes=tuple(notes), unit="episode")


def _contenders(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return all contenders, a sweep replaced by its runs, and those that are runs."""
    names: list[str] = []
    for source in sources:
        path = find_run(source)
        names += map(str, cell_folders(path)) if is_sweep(path) else [str(path) if path.exists() else source]
    names = list(dict.fromkeys(names))
    return names, [name for name in names if (Path(name) / "config.toml").is_file()]


def _task_of(names: Sequence[str]) -> Task:
    saved = [Path(name) for name in names if Path(name).is_dir() or name.endswith(".json")]
    if not saved:
        raise UsageError(f"{names[0]} does not say which task it is for; add --task TASK")
    return Logbook(saved[0]).task() if saved[0].is_dir() else best_policy(saved[0]).task


def _results(task: Task, name: str, score: Score) -> list[Result]:
    """Return a result for each episode; the first one holds the violations in all of them."""
    return [
        Result(task.name, name, value, None if task.unseeded else seed, violations=score.violations if i == 0 else ())
        for i, (value, seed) in enumerate(zip(score.returns, score.seeds, strict=True))
    ]
