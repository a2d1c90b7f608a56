"""The input of a comparison: the results of runs, or of contenders that are played for it.

A contender that is played is a policy, the best policy of a run, or an agent of another library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from policygen.episodes.agents import ENGINE, is_agent, play_agent
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import Score, engine_words, episode_seeds, score_with_violations
from policygen.errors import PathError, UsageError
from policygen.extensions.compare.names import short_names, short_paths
from policygen.extensions.compare.results import Result, read_other_program, result_of
from policygen.extensions.plots import groups
from policygen.extensions.plots.style import Numbers
from policygen.extensions.sweeps.plan import cell_folders, is_sweep, read_plan
from policygen.extensions.sweeps.suites import PublishedColumn, load_suite
from policygen.files import check_name, find_resource, find_run
from policygen.llm import reads_prompts
from policygen.policies.policy import Policy
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.reading import best_policy, read_agent
from policygen.tasks.load import load_task
from policygen.tasks.task import Task
from policygen.tasks.trial import seeds_checked
from policygen.tasks.trust import trusted

BY = (*("llm", "template", "task", "policy", "refine", "ablate", "grid", "conversation", "shape", "memory"),)
_OTHER_PROGRAM = re.compile(r"(?P<label>[^=:]+)(?::(?P<task>[^=]+))?=(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class ComparedScores:
    """The results and published scores of a comparison.

    Attributes:
        published: published columns of the runs' suites, for the compared tasks.
        notes: remarks for the reader, such as omissions and the settings that all runs share.
        unit: what a result stands for and is paired by: the `seed` of a run, or an `episode` that all contenders play.
    """

    results: tuple[Result, ...]
    published: tuple[PublishedColumn, ...] = ()
    notes: tuple[str, ...] = ()
    unit: Literal["seed", "episode"] = "seed"

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the results."""
        return list(dict.fromkeys(result.task for result in self.results))

    @property
    def contenders(self) -> list[str]:
        """The contenders, in the order of the results."""
        return list(dict.fromkeys(result.contender for result in self.results))

    def of(self, task: str, contender: str) -> list[Result]:
        """Return the results of a contender on a task that have a score, in the order of their seeds."""
        found = [r for r in self.results if (r.task, r.contender) == (task, contender) and r.score is not None]
        return sorted(found, key=lambda result: -1 if result.seed is None else result.seed)

    def scores(self, task: str, contender: str) -> Numbers:
        """Return the scores of these results, shape (results,)."""
        return np.array([result.score for result in self.of(task, contender)], dtype=np.float64)

    def published_means(self, task: str) -> list[float]:
        """Return the published means of a task."""
        return [column.scores[task].mean for column in self.published if task in column.scores]


def contender_names(compared: ComparedScores) -> dict[str, str]:
    """Return a short name for each contender, for LaTeX tables and axes."""
    if compared.unit == "episode":
        return short_paths(compared.contenders)
    return short_names(compared.contenders, [column.name for column in compared.published])


def read_scores(sources: Sequence[str], *, by: str | None = None, suite: str | None = None) -> ComparedScores:
    """Read all sources: run folders, sweep folders, and `LABEL:TASK=PATH` for runs of other programs.

    Args:
        by: the setting that separates contenders, one of `BY`; by default all settings in which runs of a task differ.
        suite: the suite of the published columns; by default the suites of the sweeps.

    Raises:
        UsageError: a source or name is unknown, or the scores cannot be compared.
        PathError: no run is finished.
        LogbookError: a run is damaged.
    """
    if by is not None and by not in BY:
        raise UsageError(f"--by {by}: compare by one of {', '.join(BY)}")
    folders: list[Path] = []
    other_programs: list[tuple[str, str, Path]] = []
    suites = [suite] if suite else []
    for source in sources:
        path = Path(check_name(source))
        named = _OTHER_PROGRAM.fullmatch(source) if not path.exists() else None
        if named is not None:
            other_programs.append((named["label"].strip(), (named["task"] or "").strip(), Path(named["path"])))
        elif is_sweep(path):
            folders += cell_folders(path)
            suites += [] if suite else [cell.suite for cell in read_plan(path).cells if cell.suite]
        elif (path / "config.toml").is_file():
            folders.append(path)
        elif path.is_dir() and any((one / "config.toml").is_file() or is_sweep(one) for one in path.iterdir()):
            raise UsageError(f"{path} is a folder of runs, not a run: write {path}/*")
        else:
            raise UsageError(f"{source} is not a run or a sweep; name runs of other programs as LABEL:TASK=PATH")
    members = [groups.read_member(folder) for folder in groups.unique_runs(folders)]
    finished = [member for member in members if member.finished]
    results = [result_of(member, name) for member, name in zip(finished, _contenders_of(finished, by), strict=True)]
    unfinished, empty = len(members) - len(finished), sum(result.score is None for result in results)
    notes = [f"{unfinished} unfinished runs are left out"] if unfinished else []
    notes += [f"{empty} runs found no policy and have no score"] if empty else []
    results += [_other_program_result(*one, results) for one in other_programs]
    if not results:
        raise PathError("no run is finished, so there is nothing to compare; finish runs with policygen resume")
    notes += _in_common(finished, by)
    notes += _templates_without_effect(finished)
    unseeded = dict.fromkeys(member.task.name for member in finished if member.task.unseeded)
    notes += [f"scores of {', '.join(unseeded)} are over unseeded episodes"] if unseeded else []
    meanings = dict.fromkeys((result.meaning, result.contender) for result in results if result.meaning)
    notes += [f"{words}: {label}" for words, label in meanings]
    published, missing = _published(list(dict.fromkeys(suites)), results)
    return ComparedScores(tuple(results), published, (*notes, *missing))


def _published(suites: Sequence[str], results: Sequence[Result]) -> tuple[tuple[PublishedColumn, ...], list[str]]:
    """Return the suites' published columns for the compared tasks; if there are none, a note on other suites."""
    tasks, names = {result.task for result in results}, {result.contender for result in results}
    published = []
    for column in (column for name in suites for column in load_suite(name).published):
        if scores := {task: score for task, score in column.scores.items() if task in tasks}:
            name = f"{column.name} (published)" if column.name in names else column.name
            published.append(replace(column, name=name, scores=scores))
    return tuple(published), []


def _differ(members: Sequence[groups.Member], values: Sequence[object]) -> bool:
    """Return whether some runs of the same task have different values; `values` has one for each run."""
    found: dict[str, object] = {}
    tasks = [member.task.name for member in members]
    return any(found.setdefault(task, value) != value for task, value in zip(tasks, values, strict=True))


def _differing(members: Sequence[groups.Member]) -> list[str]:
    """Return the settings that may change a score and in which runs of one task differ."""
    names = [name for name in RunConfig.model_fields if name not in groups.WITHOUT_EFFECT | {"task", "seed"}]
    return [name for name in names if _differ(members, [str(getattr(member.config, name)) for member in members])]


def _contenders_of(members: Sequence[groups.Member], by: str | None) -> list[str]:
    """Return the name of the contender that each run belongs to; see `read_scores`."""
    if by is not None:
        return ["all runs" if by == "task" else _in_words(member.config, by, alone=True) for member in members]
    differing = _differing(members)
    # The model is left out if all runs share it and differ in another setting.
    distinguishing = [name for name in differing if name != "llm"]
    known = [member for member in members if member.templates]  # templates may have been edited between runs
    edited = "template" not in differing and _differ(known, [member.templates for member in known])
    names = []
    for member in members:
        parts = [] if distinguishing and "llm" not in differing else [groups.proposals_label(member.config.llm)]
        parts += [_in_words(member.config, name) for name in distinguishing]
        parts += [f"templates {member.templates}"] if edited and member.templates else []
        names.append(", ".join(filter(None, parts)))
    return names


def _in_words(config: RunConfig, name: str, *, alone: bool = False) -> str:
    """Return a setting and its value in words; `alone`: the words are the whole name of a contender."""
    value = getattr(config, name)
    if name in ("llm", "policy"):
        return str(groups.proposals_label(value) if name == "llm" else groups.policy_words(value))
    if value is None or value is False:
        return f"default {name}" if value is None else f"without {name}"
    return name if value is True else f"{value}" if alone and name == "template" else f"{name} {value}"


def _in_common(members: Sequence[groups.Member], by: str | None) -> list[str]:
    """Return notes on settings that all runs share and that are not defaults, and on settings that are averaged."""
    llms = {member.config.llm for member in members}
    common = [groups.proposals_label(llms.pop())] if len(llms) == 1 else []
    for name, info in RunConfig.model_fields.items():
        values = [getattr(member.config, name) for member in members]
        if name in ("task", "llm", "seed", "policy", "jobs") or not values or values[0] == info.default:
            continue
        if all(value == values[0] for value in values):
            common.append(f"{name} {values[0]}")
    notes = [f"all runs: {', '.join(common)}"] if common else []
    pooled = [name for name in _differing(members) if name != by] if by is not None else []
    return notes + ([f"runs that differ in {', '.join(pooled)} are averaged, as --by {by} asks"] if pooled else [])


def _templates_without_effect(members: Sequence[groups.Member]) -> list[str]:
    """Return notes on providers that read no prompt, if their runs differ in the template."""
    without_prompts: dict[str, list[groups.Member]] = {}
    for member in members:
        if not reads_prompts(member.config.llm):
            without_prompts.setdefault(member.config.llm.partition(":")[0], []).append(member)
    return [
        f"{name} reads no prompt: templates make no difference to its runs"
        for name, own in sorted(without_prompts.items())
        if _differ(own, [member.config.template for member in own])
    ]


def _other_program_result(label: str, task: str, path: Path, results: Sequence[Result]) -> Result:
    """Return the result of another program for a comparison with `results`; an empty `task` is taken from the file."""
    run = read_other_program(path, label)
    name = task or run.task
    if not name:
        raise UsageError(f"{path} does not name its task: write {label}:TASK={path}")
    known = {result.task for result in results}
    if name not in known:  # a Gymnasium id stands for the compared task with this environment
        by_id = {load_task(one).gym_id: one for one in known if not task and find_resource("envs", one, ".toml")}
        name = by_id.get(name, name)
    where = f"{label}:{task}={path}" if task else f"{label}={path}"
    if known and name not in known:
        tasks = ", ".join(sorted(known))
        raise UsageError(f"{where}: no run has the task {name!r}; write {label}:TASK={path}, with TASK one of {tasks}")
    if label in {result.contender for result in results}:
        raise UsageError(f"{where}: another contender is called {label!r}; write another label")
    return replace(run, task=name)


# --- contenders that are played --------------------------------------------------------------------------------------


def read_or_play(
    sources: Sequence[str],
    *,
    by: str | None = None,
    suite: str | None = None,
    task: str | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> ComparedScores:
    """Read the scores of the sources; or play them all, if one has no score of its own or if a task is named.

    Args:
        sources: as for `read_scores`; or, to be played, policies (text or saved), runs and sweeps (for their best
            policies), and agents (see `read_agent`).
        task: the task to play; by default that of the first run or saved policy.
        episodes: number of episodes to play, 100 by default.
        seed: determines these episodes, as in `policygen.score`; 0 by default.
        trust: whether the user trusts the task, and the files of models.

    Raises:
        UsageError: an option does not apply, no run has a policy for the task, or a source cannot be played.
        PolicyError: a policy cannot be read, or an agent fails.
    """
    asked = {name: value for name, value in {"episodes": episodes, "seed": seed}.items() if value is not None}
    # Agents and files of policies have no score of their own.
    if task is not None or any(("=" not in one and is_agent(one)) or find_run(one).is_file() for one in sources):
        if by is not None or suite is not None:
            option = "--by" if by is not None else "--suite"
            raise UsageError(f"{option} is for the scores of runs, but these contenders are played; leave it out")
        return _play_scores(sources, task, trust=trust, **asked)
    if asked:
        raise UsageError(
            f"--{next(iter(asked))} is for policies that are played; to play those of runs, add --task TASK"
        )
    return read_scores(sources, by=by, suite=suite)


def _play_scores(
    sources: Sequence[str], task_name: str | None, *, trust: bool, episodes: int = 100, seed: int = 0
) -> ComparedScores:
    """Play all contenders on the same episodes; each episode is a result, paired by its seed."""
    names: list[str] = []
    for source in sources:
        path = find_run(source)
        names += map(str, cell_folders(path)) if is_sweep(path) else [str(path) if path.exists() else source]
    names = list(dict.fromkeys(names))
    folders = [name for name in names if (Path(name) / "config.toml").is_file()]
    task = load_task(task_name, trust=trust) if task_name is not None else _task_of(names)
    task = seeds_checked(trusted(task) if trust else task)
    other = [name for name in folders if Logbook(Path(name)).task().gym_id != task.gym_id]
    empty = [name for name in folders if name not in other and not (Path(name) / "best.json").exists()]
    agents = {name: read_agent(name, task, trust=trust) for name in names if name not in (*other, *empty)}
    if not agents:
        raise UsageError(f"none of the runs has a policy for {task.name}; name other runs, or another --task")
    scores = _scores_of(agents, task, episode_seeds(seed, "evaluation", episodes))
    notes = [
        f"all contenders were played on {task.name}, on the same {episodes} episodes (--seed {seed}); "
        "intervals are over episodes"
    ]
    listed = {
        "runs were played with their best policies": [name for name in folders if name in agents],
        "left out, of another task": other,
        "left out, because no policy has been found": empty,
    }
    notes += [f"{words}: {', '.join(runs)}" for words, runs in listed.items() if runs]
    if (mdp := finite_mdp(task)) is not None:
        own = {name: agent for name, agent in agents.items() if isinstance(agent, Policy)}
        exact = {name: exact_score(policy, mdp, task.max_steps) for name, policy in own.items()}
        notes += [f"exact score of {name}: {score.mean:.4f}" for name, score in exact.items() if score is not None]
    results = []
    for name, score in scores.items():
        violations = score.violations  # in all episodes, so they belong to the first result only
        for value, episode_seed in zip(score.returns, score.seeds, strict=True):
            paired_by = None if task.unseeded else episode_seed
            results.append(Result(task.name, name, value, paired_by, violations=violations))
            violations = ()
    return ComparedScores(tuple(results), notes=tuple(notes), unit="episode")


def _scores_of(agents: Mapping[str, Any], task: Task, seeds: Sequence[int]) -> dict[str, Score]:
    """Score policies, and agents of other libraries, on the same episodes, one per seed."""
    found = {}
    with Players(task) as players:
        for name, agent in agents.items():
            own = isinstance(agent, Policy)
            episodes = players.play(agent, seeds) if own else play_agent(agent, task, seeds)
            found[name] = score_with_violations(task, episodes, players.engine if own else engine_words(ENGINE, task))
    return found


def _task_of(names: Sequence[str]) -> Task:
    """Return the task of the first run or saved policy."""
    saved = [Path(name) for name in names if Path(name).is_dir() or name.endswith(".json")]
    if not saved:
        raise UsageError(f"{names[0]} does not say which task it is for; add --task TASK")
    return Logbook(saved[0]).task() if saved[0].is_dir() else best_policy(saved[0]).task
