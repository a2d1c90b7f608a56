"""The library in a few calls: run a search, go on with it, score, show and hand on what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from policygen.episodes.evaluate import evaluate
from policygen.episodes.guests import score_guest
from policygen.episodes.score import Score, episode_seeds
from policygen.errors import PolicyError, UsageError
from policygen.files import find_run, write_named
from policygen.llm import Provider, joined_specs
from policygen.llm.cache import Cache
from policygen.policies.parse import parse as parse_text
from policygen.policies.policy import Policy
from policygen.runs.config import effective_config, step_timeout_of
from policygen.runs.listeners import Listener
from policygen.runs.reading import read_policy
from policygen.runs.records import Summary
from policygen.runs.settings import Settings
from policygen.runs.state import Attempt
from policygen.search.resume import resume as resume_run
from policygen.search.run import Run, carry_out, start
from policygen.tasks import environments
from policygen.tasks.discovery import task_of
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.load import load_task
from policygen.tasks.task import PolicyKind, Task
from policygen.tasks.trial import refuse_unseeded, seeds_checked
from policygen.tasks.trust import trusted

if TYPE_CHECKING:
    import gymnasium as gym

    from policygen.extensions.compare.tables import Report
    from policygen.extensions.film.film import Which
    from policygen.extensions.simplify.simplify import Simplified

_MOST_LINES = 24  # of a policy that is printed with its result


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """What a run found.

    `policy` is None if no reply was ever a policy; `final` is its score on fresh seeds (or exact).
    """

    policy: Policy | None
    final: Score | None
    attempts: tuple[Attempt, ...]
    summary: Summary
    folder: Path

    def __repr__(self) -> str:
        said = f"{self.summary.task}, final={self.final}, {self.summary.attempts} attempts"
        return f"RunResult({said}, {str(self.folder)!r})"

    def __str__(self) -> str:
        """What was found, on one screen."""
        said = self.summary
        cost = f", {said.usd:.4g} USD" if said.is_language_model and said.usd is not None else ""
        lines = [
            f"{said.task} ({said.gym_id}), {said.policy_kind} policy, proposals from {said.llm}",
            f"{said.attempts} attempts, {said.episodes:,} episodes, {said.llm_calls} calls{cost}",
            f"stopped: {said.stopped}",
            f"final score: {self.final}" if self.final is not None else "no policy was found",
            f"folder: {self.folder}",
        ]
        if self.policy is not None:
            text = self.policy.to_text().splitlines()
            cut = [f"... {len(text) - _MOST_LINES + 1} more lines"] if len(text) > _MOST_LINES else []
            shown = text[: _MOST_LINES - len(cut)]
            lines += ["", *(line if len(line) <= 160 else f"{line[:157]}..." for line in shown), *cut]
        return "\n".join(lines)


def run(
    task: str | Task | gym.Env[Any, Any] | Callable[..., gym.Env[Any, Any]],
    *,
    llm: str | Provider | Sequence[str] = "builtin",
    out: str | Path = "results",
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
    listeners: Sequence[Listener] = (),
    cache: str | Path | None = None,
    trust: bool = False,
    **settings: Unpack[Settings],
) -> RunResult:
    """Search for a policy and score it.

    Args:
        task: a task's name, a path to a task file, a Gymnasium id, or a `Task`; or an environment of your own, or a
            function or class that makes one. Of an object episodes are played one after the other; a function lets
            many be played side by side, and on all cores if it can be pickled. A policy scores the same either way,
            but random actions are drawn in the order of play, so that runs of the two begin otherwise.
        llm: a provider and model such as `openai:gpt-5-mini`, or your own object with the methods of
            `policygen.llm.Provider`. Several names take turns; so do your own objects in a `policygen.llm.Several`.
        out: folder for the run's folder.
        on_attempt: called after every attempt; what it raises ends the run.
        listeners: told what happens (see `policygen.runs.listeners.Listener`); one that fails does not end the run.
        cache: folder of answers that are kept; what is there already is not asked for again.
        trust: a task file may name a module to import, a server that gets the key, and demonstrations that run code.
        settings: see `policygen.runs.settings.Settings`: iterations, episodes, seed, policy, max_calls, ...

    Raises:
        PolicygenError: wrong input, an unusable provider, or a folder that cannot be written.
    """
    loaded = _task(task, step_timeout_of(None, (), settings), trust=trust)
    if not isinstance(llm, str) and isinstance(llm, Sequence):
        llm = joined_specs(llm)
    spec = llm if isinstance(llm, str) else _spec_of(llm)
    config = effective_config(loaded, loaded.name, options={**_plain(settings), "llm": spec})
    answers = Cache(Path(cache)) if cache is not None else None
    config = config.trusted() if trust else config
    begun = start(loaded, config, Path(out), None if isinstance(llm, str) else llm, trust=trust)
    begun.cache = answers
    return _carried_out(begun, listeners, on_attempt)


def make_env(task: str | Task, *, trust: bool = False) -> gym.Env[Any, Any]:
    """A fresh Gymnasium environment of a task, cut at its step limit.

    Args:
        task: a task's name, the path of a task file as text, a Gymnasium id, or a `Task`.
        trust: the task file may name modules to import and paths to read.

    Raises:
        UsageError: it is none of these.
        TaskError: there is no such task, a package that the environment needs is missing, or only a saved task asks for
            it, which nobody has vouched for.
    """
    if not isinstance(task, str | Task):
        raise UsageError(f"say a task's name, its file, a Gymnasium id or a `Task`, not {type(task).__name__}")
    return environments.make_env(_task(task, trust=trust))


def _task(task: Any, step_timeout: float = STEP_TIMEOUT, *, trust: bool = False) -> Task:
    """The task that is meant by whatever names or makes one."""
    if isinstance(task, Task):
        return task
    return load_task(task, trust=trust, step_timeout=step_timeout) if isinstance(task, str) else task_of(task)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def learning_curve() -> tuple[Listener, ...]:
    """The listener that draws a run's learning curve at its end; none where the room that draws is not installed."""
    try:
        from policygen.extensions.plots.curves import LearningCurve
    except ModuleNotFoundError:
        return ()
    return (LearningCurve(),)


def _carried_out(begun: Run, listeners: Sequence[Listener], on_attempt: Callable[[Attempt], None]) -> RunResult:
    summary = carry_out(begun, (*listeners, *learning_curve()), on_attempt)
    best = begun.search.best
    return RunResult(
        best.policy if best is not None else None,
        begun.final,
        tuple(begun.search.attempts),
        summary,
        begun.folder,
    )


def resume(
    folder: str | Path,
    *,
    env: Any = None,
    llm: Provider | None = None,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
    listeners: Sequence[Listener] = (),
    trust: bool = False,
    **settings: Unpack[Settings],
) -> RunResult:
    """Go on with an interrupted run as if it had not been, or with a finished one that gets a larger budget.

    Args:
        folder: the run's folder.
        env: the environment again, or what makes it, where `run` was given one.
        llm: your own object again, where `run` was given one.
        settings: larger budgets, or settings that change no score: prompt_tokens, jobs, base_url, timeout_seconds,
            step_timeout.
        trust: the folder's task may name modules to import and paths to read, and its settings where a key goes.

    Raises:
        PolicygenError: it is no run, it is damaged or finished, or a setting cannot be changed.
    """
    changed = [f"{name}={value}" for name, value in settings.items() if value is not None]
    begun = resume_run(find_run(str(folder)), llm, changed, trust=trust, env=env)
    return _carried_out(begun, listeners, on_attempt)


def _spec_of(provider: Provider) -> str:
    """The name of a provider that the user made."""
    missing = [name for name in ("spec", "model", "is_language_model", "complete") if not hasattr(provider, name)]
    if missing:
        raise UsageError(
            f"llm={type(provider).__name__}(...) has no {' and no '.join(missing)}: a provider has spec, "
            "model, is_language_model, and complete(prompt, max_output_tokens), which returns a Reply or text"
        )
    return provider.spec


def parse(text: str, task: str | Task, kind: PolicyKind | None = None) -> Policy:
    """A policy from text in the policy language.

    Raises:
        PolicyError: the text is not a policy; the message lists every problem with its line.
    """
    loaded = task if isinstance(task, Task) else load_task(task)
    parsed = parse_text(text, loaded, kind)
    if parsed.policy is None:
        raise PolicyError("\n".join(map(str, parsed.problems)))
    return parsed.policy


def score(
    policy: Any,
    task: Any = None,
    *,
    episodes: int = 100,
    seed: int = 0,
    trust: bool = False,
    unseeded: bool = False,
) -> Score:
    """Score a policy on fresh episodes, or exactly where the task is a finite, known MDP.

    Args:
        policy: one of ours; or anything that acts, such as a model of Stable-Baselines3: an object with
            `predict(observation, ...)`, or a function from an observation to an action, as `episodes.guests` says.
            It plays the same episodes as ours.
        task: what to play: a task's name, a task file, a Gymnasium id, a `Task`, an environment, or what makes one; by
            default the policy's own.
        episodes: number of episodes, at least 2.
        seed: chooses the episodes, 0 or more; runs never tune on them.
        trust: the task of a saved policy may name modules to import and paths to read.
        unseeded: the environment may ignore its seed, so that no other policy is scored on the same episodes.

    Raises:
        UsageError: a number out of range, no task, something that cannot act, or an environment that ignores its seed.
        PolicyError: a model or function that fails, or gives no action of the environment.
        TaskError: the environment cannot be made, or fails while playing.
    """
    if episodes < 2:
        raise UsageError(f"a score needs at least 2 episodes to say how sure it is, not {episodes}")
    if seed < 0:
        raise UsageError(f"a seed is 0 or more, not {seed}")
    ours = isinstance(policy, Policy)
    if task is None and not ours:
        raise UsageError("say what to play: policygen.score(model, 'cartpole')")
    if ours and task is not None and not isinstance(task, str | Task):
        played = environments.handed_over(policy.task, task)
    else:
        played = policy.task if task is None else _task(task, trust=trust)
    played = seeds_checked(trusted(played) if trust else played)
    refuse_unseeded(played, accepted=unseeded)
    seeds = episode_seeds(seed, "evaluation", episodes)
    return evaluate(policy, seeds, task=played) if ours else score_guest(policy, played, seeds)


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
    """Write a film of a policy at work as .gif or .mp4; returns the path.

    Args:
        source: a policy, a run's folder, or a saved policy.
        episodes: how many are played; 1, or 20 to choose from.
        seed: chooses the episodes: those that `score` plays.
        which: film only the best, the worst or the median of them.
        trust: the task of a saved policy may name modules to import and paths to read.
        env: the environment, or what makes it, where only a program has it.

    Raises:
        UsageError: a number out of range, or a name that ends otherwise.
        TaskError: the environment cannot be made, draws no pictures, or what it needs for them is missing.
        PolicyError: there is no policy.
    """
    from policygen.extensions.film import film as films
    from policygen.extensions.plots.style import check_suffix

    check_suffix(Path(path), films.FORMATS)
    policy = _policy(source, trust=trust)
    policy = replace(policy, task=environments.handed_over(policy.task, env)) if env is not None else policy
    return films.film(policy, films.takes(policy, episodes=episodes, seed=seed, which=which), path)


def _policy(source: Policy | str | Path, *, trust: bool = False) -> Policy:
    policy = source if isinstance(source, Policy) else read_policy(find_run(str(source)), trust=trust)
    return replace(policy, task=trusted(policy.task)) if trust else policy


def report(source: str | Path, path: str | Path = "report.html", *, film: bool = True, trust: bool = False) -> Path:
    """Write a page about a run or a sweep, one HTML file that needs no network; returns the path.

    Args:
        film: play an episode for it.
        trust: for that the task may name modules to import and paths to read.

    Raises:
        PolicygenError: it is no run and no sweep, it is damaged, or the page cannot be written.
    """
    from policygen.extensions.page.render import write_page

    return write_page(find_run(str(source)), Path(path), film=film, trust=trust)


def compare(*sources: str | Path, by: str | None = None, suite: str | None = None) -> Report:
    """Compare runs, sweeps and other programs' runs: `print(compare(...).sentence)`.

    Args:
        sources: run and sweep folders, or `LABEL:TASK=FILE` of another program.
        by: what tells contenders apart: llm, template, task, policy, refine, ...; by default whatever does.
        suite: whose published columns are shown.

    Raises:
        PolicygenError: there is nothing to compare, or a folder is damaged.
    """
    from policygen.extensions.compare.contenders import read_field
    from policygen.extensions.compare.tables import report_of

    return report_of(read_field([str(source) for source in sources], by=by, suite=suite))


def simplify(
    source: Policy | str | Path, *, episodes: int = 100, seed: int = 0, margin: float = 0.01, trust: bool = False
) -> Simplified:
    """The smallest policy that is not worse, as `.policy`, with both scores.

    Args:
        source: a policy, a run's folder, or a saved policy.
        episodes: for each candidate.
        seed: chooses the episodes.
        margin: share of the score that may be lost.
        trust: the task of a saved policy may name modules to import and paths to read.

    Raises:
        PolicygenError: there is no policy, or it cannot be played.
    """
    from policygen.extensions.simplify.simplify import simplify as simplified

    return simplified(_policy(source, trust=trust), episodes=episodes, seed=seed, margin=margin)


def export(
    source: Policy | str | Path, to: Literal["c", "python", "json", "latex"], path: str | Path | None = None
) -> str:
    """A policy as C99, Python without libraries, JSON or LaTeX; written to `path`, too, if there is one.

    Raises:
        PolicygenError: there is no policy, no such language, or the file cannot be written.
    """
    from policygen.extensions.export.formats import exported

    text = exported(_policy(source), to)
    if path is not None:
        write_named(Path(path), text)
    return text
