"""The content of the pages of a run and of a policy, before layout: scores, policy, attempts, costs and settings."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from policygen.episodes.score import Score, kind_of_episodes
from policygen.extensions.compare.words import number
from policygen.extensions.page.attempts import ShownAttempt, score_words, shown_attempts, turns_of
from policygen.extensions.plots.groups import proposals_label
from policygen.extensions.plots.style import with_unit
from policygen.llm import read_spec, reads_prompts, specs_of
from policygen.policies.policy import Policy
from policygen.progress import duration
from policygen.runs.attempt import Attempt, Standing, best_of, costs_of, steps_played
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary
from policygen.runs.steering import Steering, UserMessages
from policygen.tasks.task import Task
from policygen.tasks.trust import why_refused
from policygen.tasks.user_env import NAMESPACE

LONGEST_ABOUT = 1_000  # characters; of a longer description of the task a part is folded away
# Settings that `command_of` writes as options; it writes the others as --set.
_OPTIONS = ("llm", "policy", "seed", "iterations", "refine", "template", "base_url", "max_calls", "max_usd")
# Settings that it also writes if they are the default, which depends on the task or may change.
_ALWAYS = ("llm", "seed", "policy", "episodes", "final_episodes")
_NEVER = ("task", "jobs")  # the task is an argument of the command; `jobs` changes no result


class Headline(NamedTuple):
    """The final score or the best so far, its interval, and its basis, all in words."""

    score: str
    interval: str
    basis: str


@dataclass(frozen=True)
class TaskContent:
    """The content that the pages of runs and policies share: the task."""

    task: Task

    @property
    def about(self) -> tuple[str, str]:
        """The description of the task: the visible part, and the rest, which is folded away."""
        text = self.task.about
        if len(text) <= LONGEST_ABOUT:
            return text, ""
        ends = [found.end() for found in re.finditer(r"[.!?]\s", text[: LONGEST_ABOUT // 2])]
        end = ends[-1] if ends else text.find(" ", LONGEST_ABOUT // 2)
        return (text[:end], text[end:].strip()) if end > 0 else (text, "")

    @property
    def observations(self) -> list[tuple[str, str, str]]:
        """Name, values and meaning of each observation, text and feature of the task."""
        rows = [(with_unit(o.name, o.unit), _range(o.low, o.high), o.about) for o in self.task.observations]
        rows += [(text.name, "a text", text.about) for text in self.task.texts]
        return rows + [(name, text, "a feature of the task") for name, text in self.task.features]

    @property
    def actions(self) -> list[tuple[str, str, str]]:
        """Name, values and meaning of each actuator."""
        return [
            (with_unit(a.name, a.unit), ", ".join(a.labels) if a.is_choice else _range(a.low, a.high), a.about)
            for a in self.task.actuators
        ]


@dataclass(frozen=True)
class PolicyContent(TaskContent):
    """The content of a policy's page; the policy was scored on fresh episodes."""

    kind: str
    score: Score

    @property
    def headline(self) -> Headline:
        """The score, its interval, and its basis."""
        return _headline(self.score)

    @property
    def badge(self) -> str:
        """The word beside the score: `solved` or `not solved`; empty if the task states no threshold."""
        solved = self.task.solved
        return "" if solved is None else "solved" if self.score.mean >= solved else "not solved"

    @property
    def scores(self) -> dict[str, str]:
        """All scores of the policy and of its task, by name."""
        return {
            "score": _with_episodes(self.score, "fresh"),
            **_requirement_rows(self.score),
            **_reference_rows(self.task, self.score),
        }


@dataclass(frozen=True)
class RunContent(TaskContent):
    """The content of a run's page, finished or not."""

    folder: Path
    config: RunConfig
    summary: Summary | None
    attempts: list[Attempt]
    best: Attempt | None  # the attempt with the best policy; None without a policy
    views: list[ShownAttempt]  # the attempts to show
    user: UserMessages  # the comments of the user
    versions: dict[str, str]  # versions of the packages that made the run

    @property
    def kind(self) -> str:
        """The kind of policy."""
        return self.config.policy

    @property
    def policy(self) -> Policy | None:
        """The best policy."""
        return self.best.policy if self.best is not None else None

    @property
    def left_out(self) -> int:
        """Number of attempts that are not shown."""
        return len(self.attempts) - sum(view.attempt is not None for view in self.views)

    @property
    def headline(self) -> Headline:
        """The score, its interval, and its basis."""
        if self.summary is not None and self.summary.final is not None:
            return _headline(self.summary.final, " that the search never saw")
        if self.best is None:
            why = "no reply contained a policy" if self.summary else "no policy has been found yet"
            return Headline("no policy", "", why)
        standing = self.attempts[-1].standing
        count = standing.validated_episodes or standing.best_episodes
        which = "held-out episodes" if standing.validated_mean is not None else "the search's own seeds"
        exact = self.best.score is not None and self.best.score.exact
        basis = "exact" if exact else f"mean return over {count} episodes, {which}"
        value = standing.reported_best
        words = number(value) if value is not None else "not scored"
        return Headline(words, "", f"best so far, {basis}; the run is not finished")

    @property
    def badge(self) -> str:
        """The words beside the score: `unfinished`, `the best known score`, `solved`, `not solved`, or none."""
        summary = self.summary
        if summary is None:
            return "unfinished"
        if summary.optimum_reached:
            return "the best known score"
        if summary.solved is not None and self.best is not None:
            return "solved" if summary.solved else "not solved"
        return ""

    @property
    def scores(self) -> dict[str, str]:
        """All scores of the run and of its task, by name."""
        attempts, best, summary = self.attempts, self.best, self.summary
        final = summary.final if summary is not None else None
        rows = {}
        if summary is not None and final is not None:
            rows["final score"] = _with_episodes(final, "fresh")
            if summary.perturbed is not None:
                rows[f"with {', '.join(summary.perturbed_by)}"] = _with_episodes(summary.perturbed)
            rows |= _requirement_rows(final)
        if attempts and attempts[0].score is not None:
            rows["random actions"] = score_words(attempts[0].score)
        if best is not None and best.score is not None:
            standing, proposed = attempts[-1].standing, best.tuned.proposed_score
            if proposed is not None:
                rows["best policy before tuning"] = score_words(proposed)
                gain = number(best.score.mean - proposed.mean)
                rows["gain of tuning"] = f"{gain} on the search's own seeds ({best.tuned.refinement})"
            if not best.score.exact and standing.best_mean is not None:
                basis = f"over {standing.best_episodes} episodes; selection biases it upwards"
                rows["search score"] = f"{number(standing.best_mean)} {basis}"
            if standing.validated_mean is not None:
                basis = f"over {standing.validated_episodes} episodes not used for the selection"
                rows["held-out score"] = f"{number(standing.validated_mean)} {basis}"
        scored = [(a.score, a.tuned.proposed_score) for a in attempts]
        gains = [after.mean - before.mean for after, before in scored if after is not None and before is not None]
        if len(gains) > 1:
            rows["gain of tuning, per attempt"] = f"{number(sum(gains) / len(gains))} on average"
        return rows | _reference_rows(self.task, final)

    @property
    def replay(self) -> str:
        """The command that replays the recorded replies; empty if the provider reads no prompts."""
        if not reads_prompts(self.config.llm):
            return ""
        place, here = self.folder.resolve(), Path.cwd()
        place = place.relative_to(here) if place.is_relative_to(here) else place
        return command_of(self.config.model_copy(update={"llm": f"replay:{place}"}), self.task)


def read_run(folder: Path) -> RunContent:
    """Read the content of a run's page.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    config, task, summary, attempts = logbook.config(), logbook.task(), logbook.summary(), logbook.attempts()
    best = best_of(attempts)
    turns = turns_of(
        logbook.transcript.exchanges(), frozenset(attempt.number for attempt in attempts if attempt.accepted)
    )
    user = Steering(folder).read()

    def comments_of(number: int) -> tuple[str, ...]:
        return tuple(user.comments[n - 1].text for n in sorted(user.carried.get(number, ())))

    views = [replace(view, comments=comments_of(view.number)) for view in shown_attempts(attempts, best, turns)]
    return RunContent(task, folder, config, summary, attempts, best, views, user, logbook.versions())


def proposals_words(llm: str) -> str:
    """Return the name of the proposer, without folders of the machine that ran it."""
    name, _, argument = llm.partition(":")
    return "a chat window, by hand" if name == "manual" and argument else proposals_label(llm)


def _interval(interval: tuple[float, float] | None) -> str:
    return f"{number(interval[0])} to {number(interval[1])}" if interval is not None else ""


def _with_episodes(score: Score | FinalScore, which: str = "") -> str:
    """Return a score with its interval and its episodes, in words; `which` describes the episodes."""
    episodes = f"{which} {kind_of_episodes(score.engine)}" if which else "episodes"
    basis = ", ".join(filter(None, (_interval(score.ci95), f"over {score.episodes} {episodes}")))
    return f"{number(score.mean)} ({'exact' if score.exact else basis})"


def _requirement_rows(score: Score | FinalScore) -> dict[str, str]:
    return {f"requirement {one.name}": str(one).removeprefix(f"{one.name}: ") for one in score.violations}


def _reference_rows(task: Task, score: Score | FinalScore | None) -> dict[str, str]:
    rows = {}
    if score is not None and not score.exact:
        rows["standard deviation"] = f"{number(score.std)}, of the return per episode"
    if task.solved is not None:
        rows["counts as solved from"] = number(task.solved)
    if task.optimum is not None:
        rows["best known score"] = f"{number(task.optimum.value)} ({task.optimum.source})"
    return rows


def _headline(score: Score | FinalScore, which: str = "") -> Headline:
    """Return the headline of a score on fresh episodes; `which` is added to their description."""
    if score.exact:
        return Headline(number(score.mean), "", "exact: computed from the environment's transition table")
    basis = f"mean return over {score.episodes} fresh {kind_of_episodes(score.engine)}{which}"
    return Headline(number(score.mean), _interval(score.ci95), basis + ", 95% interval" * (score.ci95 is not None))


def _range(low: float, high: float) -> str:
    # Many environments state the largest float where a value is unbounded.
    ends = ["" if abs(end) > 1e30 else f"{end:.4g}" for end in (low, high)]
    return f"{ends[0] or 'unbounded'} to {ends[1] or 'unbounded'}" if any(ends) else "unbounded"


# --- costs, settings and versions -------------------------------------------------------------------------------------


def spending(summary: Summary | None, attempts: Sequence[Attempt]) -> dict[str, str]:
    """Return the costs of a run by name: requests, tokens, episodes, time."""
    costs, standing = costs_of(attempts), attempts[-1].standing if attempts else Standing()
    if summary is not None:  # the summary also counts requests of attempts that never ended
        names = ("requests", "tokens_in", "tokens_out", "usd", "llm_seconds")
        costs = replace(costs, **{name: getattr(summary, name) for name in names})
    failed = sum(attempt.failed for attempt in attempts)
    shown = {"attempts": f"{max(0, len(attempts) - 1)}{f', {failed} of them failed' if failed else ''}"}
    if costs.tokens > 0:
        shown["requests"] = f"{costs.requests:,}, {costs.repairs} of them repairs"
        shown["tokens"] = f"{costs.tokens_in:,} in, {costs.tokens_out:,} out"
        shown["cost"] = "unknown" if costs.usd is None else f"${costs.usd:.4f}"
        shown["time waiting for the model"] = duration(costs.llm_seconds)
    else:
        shown |= {"requests": "none to a model", "cost": "unknown" if costs.usd is None else "nothing"}
    shown["total time"] = duration(summary.wall_seconds if summary is not None else standing.wall_seconds)
    shown["episodes while searching"] = f"{standing.episodes:,}" if attempts else "0"
    shown["steps of the environment"] = str(steps_played(attempts))
    return shown


def command_of(config: RunConfig, task: Task) -> str:
    """Return the command that starts a run with the same settings; empty if only a user's program can start it.

    It includes --trust if a task file names a module or a path.
    """
    if task.gym_id.startswith(NAMESPACE) or any(read_spec(spec).entry is None for spec in specs_of(config.llm)):
        return ""
    words = ["policygen", "run", config.task]
    from_file = config.task != task.gym_id and (":" in task.gym_id or why_refused(task))
    words += ["--trust"] * bool(from_file)
    defaults, of_the_task = RunConfig.model_validate({"task": config.task}).model_dump(), dict(task.run)
    for name, value in config.model_dump(exclude_none=True).items():
        if name in _NEVER or (name not in (*_ALWAYS, *of_the_task) and value == defaults[name]):
            continue
        if name == "llm":
            words += [word for spec in specs_of(value) for word in ("--llm", spec)]
        elif name in _OPTIONS:
            words += [f"--{name.replace('_', '-')}", str(value)]
        else:
            plainly = json.dumps(value) if isinstance(value, bool | dict) or name == "start" else value
            words += ["--set", f"{name}={plainly}"]
    words += [word for one in task.perturb for word in ("--perturb", str(one))]
    return shlex.join(words)
