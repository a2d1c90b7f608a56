"""The library in a few functions: run or resume a search; score, film, report, compare, simplify or export policies."""

# Imports inside functions are of extensions, which may be missing and would make `import policygen` slow.

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym

from policygen.episodes.exact import finite_mdp
from policygen.episodes.race import Course, Scorer
from policygen.episodes.score import Score, episode_seeds
from policygen.episodes.simulator import ParallelSimulator
from policygen.errors import PolicyError, UsageError
from policygen.files import find_run, make_folder, write_named
from policygen.llm import Provider
from policygen.outgoing import as_html, redacted
from policygen.policies.parse import NOTHING_FOUND
from policygen.policies.parse import parse as parse_text
from policygen.policies.policy import Policy
from policygen.runs.attempt import Attempt
from policygen.runs.config import effective_config, load_limits
from policygen.runs.facts import Fact, RunRecord, lines_of, record_of, run_facts
from policygen.runs.listeners import Listener
from policygen.runs.reading import origin_of, policy_text, read_policy
from policygen.search.resume import resume as resume_run
from policygen.search.run import Run, carry_out, start
from policygen.tasks import environments
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.load import load_task, task_of
from policygen.tasks.task import KIND_WORDS, PolicyKind, Task
from policygen.tasks.warmup import seeds_checked

if TYPE_CHECKING:
    from policygen.extensions.compare.comparison import Comparison
    from policygen.extensions.film import Which
    from policygen.extensions.simplify.smaller import Simplified

_MOST_LINES = 20  # of a policy that is printed with its result


class RunResult(RunRecord):
    """The result of a run.

    Attributes:
        folder: the folder of the run's files.
        task, config: the task, and the settings of the run.
        attempts: all attempts; number 0 is random actions.
        summary: the end of the run: final score, reason for stopping, costs.
    """

    @property
    def policy(self) -> Policy | None:
        """The best policy; None if no reply contained one."""
        return self.best.policy if self.best is not None else None

    @property
    def figures(self) -> list[Fact]:
        """The facts of the run as a whole; `policygen.facts` has those of each attempt, too."""
        return run_facts(self)

    def __repr__(self) -> str:
        words = f"{self.task.name}, final={self.final}, {len(self.attempts) - 1} attempts"
        return f"RunResult({words}, {str(self.folder)!r})"

    def __str__(self) -> str:
        """Describe the result on one screen."""
        task, kind, llm = self.task, KIND_WORDS[self.config.policy], redacted(self.config.llm)
        lines = [f"{task.name} ({task.gym_id}), policy: {kind}, proposals from {llm}"]
        lines += lines_of(self.figures, "attempts", "requests", "USD", "episodes")
        if self.policy is None:
            problems = (str(problem) for one in reversed(self.attempts) for problem in one.problems)
            lines.append(f"no result: {next(problems, NOTHING_FOUND)}")
        lines.append(f"folder: {self.folder}")
        if self.policy is not None:
            text = self.policy.to_text().splitlines()
            cut = [f"... {len(text) - _MOST_LINES + 1} more lines"] if len(text) > _MOST_LINES else []
            shown = text[: _MOST_LINES - len(cut)]
            lines += ["", *(line if len(line) <= 160 else f"{line[:157]}..." for line in shown), *cut]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts, notebook = str(self).partition("\n\n")[0], _extension("notebook")
        policy = self.policy._repr_html_() if self.policy is not None else ""
        return f"<pre>{as_html(facts)}</pre>{notebook.curve_html(self.folder) if notebook else ''}<br>{policy}"


def run(
    task: str | Task | gym.Env[Any, Any] | Callable[..., gym.Env[Any, Any]],
    *,
    llm: str | Provider = "builtin",
    out: str | Path = "results",
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
    listeners: Sequence[Listener] = (),
    cache: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> RunResult:
    """Search for a policy and score it.

    Args:
        task: a task's name, a task file, a Gymnasium id, or a `Task`; or your own environment, or a function or class
            that makes one. An environment object plays one episode at a time; a function allows many at once, on all
            cores if it can be pickled. A policy scores the same either way, but random actions are drawn in the order
            of play, so the two runs differ.
        llm: a provider and model such as `openai:gpt-5-mini`, or your own `policygen.llm.Provider`.
        out: parent of the run's folder.
        on_attempt: called after every attempt; its exceptions end the run.
        listeners: notified of events (see `policygen.runs.listeners.Listener`); their exceptions do not end the run.
        cache: folder of cached replies; a request that is cached there is not sent.
        trust: let a task file name modules to import, and a server that gets the key.
        settings: any setting by its name: iterations, episodes, seed, policy, max_calls, ... (`policygen run --help`).

    Raises:
        PolicygenError: wrong input, an unusable provider, or a folder that cannot be written.
    """
    loaded = _task(task, trust=trust, **load_limits(None, (), settings))
    own = None if isinstance(llm, str) else llm
    needed = ("spec", "model", "is_language_model", "complete")
    if own is not None and (missing := [name for name in needed if not hasattr(own, name)]):
        raise UsageError(
            f"llm={type(own).__name__}(...) has no {', '.join(missing)}: a provider needs spec, model, "
            "is_language_model, and complete(prompt, max_output_tokens), which returns a Reply or text"
        )
    values = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    begin = settings.get("start")
    if isinstance(begin, Policy | Path):
        values["start"] = begin.to_text(whole=True) if isinstance(begin, Policy) else policy_text(begin)
    config = effective_config(loaded, loaded.name, options={**values, "llm": own.spec if own else llm})
    config = config.trusted() if trust else config
    return _carry_out(start(loaded, config, Path(out), own, cache=cache), listeners, on_attempt)


def make_env(task: str | Task, *, trust: bool = False) -> gym.Env[Any, Any]:
    """Make the Gymnasium environment of a task, truncated at its step limit.

    Args:
        task: a task's name, a task file, a Gymnasium id, or a `Task`.
        trust: let the task file name modules to import and paths to read.

    Raises:
        UsageError: it is none of these.
        TaskError: there is no such task, a package is missing, or an untrusted task may not use the environment.
    """
    if not isinstance(task, str | Task):
        raise UsageError(f"pass a task's name, its file, a Gymnasium id or a `Task`, not {type(task).__name__}")
    return environments.make_env(_task(task, trust=trust))


def _task(task: Any, *, trust: bool = False, step_timeout: float = STEP_TIMEOUT, max_steps: int | None = None) -> Task:
    """Return the task for a name, a `Task`, an environment or its factory."""
    if isinstance(task, Task):
        return task
    if isinstance(task, str):
        return load_task(task, trust=trust, step_timeout=step_timeout, max_steps=max_steps)
    return task_of(task, step_timeout, max_steps)


def default_listeners(run: Run) -> list[Listener]:
    """Return the listeners that draw the learning curve and, in a Jupyter notebook, show progress, if available."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_notebook = getattr(shell, "kernel", None) is not None  # IPython in a terminal has none
    curves, notebook = _extension("plots.curves"), _extension("notebook") if in_notebook else None
    return [*([notebook.NotebookProgress(run)] if notebook else []), *([curves.LearningCurve()] if curves else [])]


def _extension(name: str) -> Any:
    """Return the module of an extension; None if it is missing."""
    try:
        return importlib.import_module(f"policygen.extensions.{name}")
    except ModuleNotFoundError:
        return None


def _carry_out(active_run: Run, listeners: Sequence[Listener], on_attempt: Callable[[Attempt], None]) -> RunResult:
    summary = carry_out(active_run, (*listeners, *default_listeners(active_run)), on_attempt)
    return RunResult(**vars(record_of(active_run, summary)))


def resume(
    folder: str | Path,
    *,
    env: Any = None,
    llm: Provider | None = None,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
    listeners: Sequence[Listener] = (),
    trust: bool = False,
    **settings: Any,
) -> RunResult:
    """Resume an interrupted run as if it had not been interrupted, or extend a finished one with a larger budget.

    Args:
        folder: the run's folder.
        env: the environment or its factory, if `run` got one.
        llm: your own provider, if `run` got one.
        on_attempt, listeners: as in `run`.
        settings: larger budgets, or settings on which no score depends: prompt_tokens, jobs, base_url,
            timeout_seconds, step_timeout.
        trust: let the folder name modules to import, paths to read, and a server that gets the key.

    Raises:
        PolicygenError: it is not a run, it is damaged, it is finished and gets no larger budget, or a setting cannot
            be changed.
    """
    changes = {name: value for name, value in settings.items() if value is not None}
    active_run = resume_run(find_run(str(folder)), llm, changes, trust=trust, env=env)
    return _carry_out(active_run, listeners, on_attempt)


def parse(text: str, task: str | Task, kind: PolicyKind | None = None) -> Policy:
    """Parse a policy from text in the policy language.

    Args:
        kind: "table" or "linear" (equations); by default the kind that the text has.

    Raises:
        PolicyError: the text is not a policy; the message lists every problem with its line.
    """
    loaded = task if isinstance(task, Task) else load_task(task)
    parsed = parse_text(text, loaded, kind)
    if parsed.policy is None:
        raise PolicyError("\n".join(map(str, parsed.problems)))
    return parsed.policy


def score(policy: Policy, task: Any = None, *, episodes: int = 100, seed: int = 0, trust: bool = False) -> Score:
    """Score a policy on fresh episodes, or exactly if the task is a finite, known MDP.

    Args:
        task: a task's name, a task file, a Gymnasium id, a `Task`, an environment or its factory; by default the
            policy's own.
        episodes: number of episodes, at least 2.
        seed: determines the episodes, 0 or more; no run selects or tunes policies on them.
        trust: let the task of a saved policy name modules to import and paths to read.

    Raises:
        UsageError: a number is out of range.
        TaskError: the environment cannot be made, or fails while playing.
    """
    with contenders((policy,), task, episodes=episodes, seed=seed, trust=trust) as (own,):
        return own(episodes)


@contextmanager
def contenders(
    policies: Sequence[Policy], task: Any, *, episodes: int, seed: int, trust: bool
) -> Iterator[list[Scorer]]:
    """Yield policies, ready to play the episodes of `score`, which names the arguments and errors."""
    if episodes < 2:
        raise UsageError(f"a score with an interval needs at least 2 episodes, not {episodes}")
    if seed < 0:
        raise UsageError(f"a seed is 0 or more, not {seed}")
    own = policies[0].task
    if task is None:
        played = own
    elif isinstance(task, str | Task):
        played = _task(task, trust=trust)
    else:
        played = environments.with_user_env(own, task)
    played = seeds_checked(played.trusted() if trust else played)
    with ParallelSimulator(played) as players:
        course = Course(
            played, episode_seeds(seed, "evaluation", episodes), players.play, players.engine, finite_mdp(played)
        )
        yield [course.scorer(policy) for policy in policies]


def film(
    source: Policy | str | Path,
    path: str | Path,
    *,
    episodes: int | None = None,
    seed: int = 0,
    which: Which | None = None,
    trust: bool = False,
    env: Any = None,
) -> Path:
    """Write a film of a policy as .gif; return the path.

    Args:
        source: a policy, a run's folder, or a saved policy.
        episodes: number of episodes played; by default 1, or 20 if `which` is given.
        seed: determines the episodes, which are those of `score`.
        which: film only the best, the worst or the median of them.
        trust: let the task of a saved policy name modules to import and paths to read.
        env: the environment or its factory, if `run` got one.

    Raises:
        UsageError: a number is out of range, or the path does not end in .gif.
        TaskError: the environment cannot be made or rendered.
        PolicyError: there is no policy.
    """
    from policygen.extensions import film as films
    from policygen.extensions.plots.style import check_suffix

    check_suffix(Path(path), films.FORMATS)
    policy = _policy(source, trust=trust)
    policy = replace(policy, task=environments.with_user_env(policy.task, env)) if env is not None else policy
    return films.film(policy, films.takes(policy, episodes=episodes, seed=seed, which=which), path)


def _policy(source: Policy | str | Path, *, trust: bool = False) -> Policy:
    if not isinstance(source, Policy):
        return read_policy(find_run(str(source)), trust=trust)
    return replace(source, task=source.task.trusted()) if trust else source


def report(run: str | Path, path: str | Path = "report.html") -> Path:
    """Write an HTML page about a run: one file that needs no network; return the path.

    Raises:
        PolicygenError: it is not a run, it is damaged, or the page cannot be written.
    """
    from policygen.extensions.page.render import write_page

    return write_page(find_run(str(run)), Path(path))


def compare(*sources: str | Path, by: str | None = None, suite: str | None = None) -> Comparison:
    """Compare runs and sweeps: `print(compare(...).sentence)`; `.table` is a data frame.

    Args:
        sources: run and sweep folders, or `LABEL:TASK=FILE` for a monitor file of Stable-Baselines3.
        by: the setting that tells contenders apart: llm, template, policy, refine, ...; by default all that differ.
        suite: the suite whose published results are added.

    Raises:
        PolicygenError: there is nothing to compare, or a folder is damaged.
    """
    from policygen.extensions.compare.contenders import read_scores

    return read_scores([str(source) for source in sources], by=by, suite=suite)


def simplify(
    source: Policy | str | Path,
    *,
    episodes: int = 100,
    seed: int = 0,
    trust: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> Simplified:
    """Find the smallest policy that is not worse; return it as `.policy`, with its `.race` against the original.

    Args:
        source: a policy, a run's folder, or a saved policy.
        episodes: number of episodes per candidate; one that is clearly worse plays only a fifth of them.
        seed: determines the episodes.
        trust: let the task of a saved policy name modules to import and paths to read.
        tell: called with a sentence about every accepted policy.

    Raises:
        PolicygenError: there is no policy, or it cannot be played.
    """
    from policygen.extensions.simplify.smaller import simplify as simplified

    policy = _policy(source, trust=trust)
    if episodes < 2:
        raise UsageError("simplifying needs at least 2 episodes")
    with ParallelSimulator(policy.task) as players:
        mdp = finite_mdp(policy.task)

        def course(purpose: str, count: int) -> Course:
            return Course(policy.task, episode_seeds(seed, purpose, count), players.play, players.engine, mdp)

        return simplified(policy, course, episodes, tell=tell)


def export(
    source: Policy | str | Path,
    to: Literal["c", "python", "st"],
    path: str | Path | None = None,
    *,
    float32: bool = False,
) -> str:
    """Export a policy as C99, plain Python or Structured Text (IEC 61131-3); also write it to `path`.

    Args:
        path: a file; for C also a folder, which gets a source file, a header, and a test program that compares the
            decisions of the C code with those in three episodes.
        float32: use single precision for all arithmetic in C; a choice may then differ at a tie.

    Raises:
        PolicygenError: there is no policy, no such language, or the file cannot be written.
    """
    return write_export(source, to, path, float32=float32)[0]


def write_export(
    source: Policy | str | Path, to: str, path: str | Path | None, *, float32: bool
) -> tuple[str, dict[Path, str]]:
    """Do what `export` does; return the text, and for each file that was written what it is."""
    from policygen.extensions.export.c import C_FILES, c_files
    from policygen.extensions.export.formats import LANGUAGES, exported

    policy = _policy(source)
    facts = origin_of(policy, source)
    text = exported(policy, to, facts, float32=float32)
    if path is None:
        return text, {}
    if to != "c" or Path(path).suffix:
        write_named(Path(path), text)
        return text, {Path(path): f"the policy in {LANGUAGES[to]}"}
    with ParallelSimulator(policy.task) as players:
        episodes = players.play(policy, episode_seeds(0, "evaluation", 3))
    make_folder(Path(path), "write elsewhere")
    files = c_files(policy, facts, episodes, float32=float32)
    for name, content in files.items():
        write_named(Path(path) / name, content)
    return text, {Path(path) / name: words for name, words in zip(files, C_FILES.values(), strict=True)}
