"""The content of the page of a run, before layout: task, scores, attempts, costs, settings."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policygen.episodes.score import Score, kind_of_episodes
from policygen.extensions.compare.comparison import in_brackets, number
from policygen.extensions.plots.style import with_unit
from policygen.llm import read_spec, reads_prompts
from policygen.llm.messages import Exchange, FailedExchange
from policygen.llm.prices import dollars
from policygen.progress import duration
from policygen.runs.attempt import Attempt, Standing, best_of, costs_of, steps_played
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary
from policygen.tasks.task import Task
from policygen.tasks.trust import why_refused
from policygen.tasks.user_env import NAMESPACE

MOST_ATTEMPTS = 100  # of a longer run the page shows only former bests and the latest attempts
_MOST_CHANGES = 80  # lines


@dataclass(frozen=True)
class ShownAttempt:
    """An attempt as the page shows it; `attempt` is None while its proposal is not scored."""

    number: int
    attempt: Attempt | None
    state: str  # its style on the page, too
    changes: tuple[str, ...]  # lines of the proposed policy, each with `+`, `-` or a space before it
    requests: tuple[tuple[str, str], ...]  # the last message of each prompt, and the reply or why there is none


@dataclass(frozen=True)
class RunContent:
    """The content of a run's page, finished or not."""

    folder: Path
    task: Task
    config: RunConfig
    summary: Summary | None
    attempts: list[Attempt]
    best: Attempt | None  # the attempt with the best policy; None without a policy
    views: list[ShownAttempt]  # the attempts to show
    versions: dict[str, str]  # versions of the packages that made the run

    @property
    def headline(self) -> tuple[str, str]:
        """The final score, or the best so far, and what it is."""
        final = self.summary.final if self.summary is not None else None
        if final is not None:
            return score_words(final), _basis(final, "fresh", " that the search never saw")
        if self.best is None:
            return "no policy", "no reply contained a policy" if self.summary else "no policy has been found yet"
        standing, value = self.attempts[-1].standing, self.attempts[-1].standing.reported_best
        held_out = standing.validated_mean is not None
        count = standing.validated_episodes if held_out else standing.best_episodes
        exact = self.best.score is not None and self.best.score.exact
        basis = f"over {count} episodes, {'held out' if held_out else 'those of the search'}"
        words = number(value) if value is not None else "not scored"
        return words, f"best so far, {'exact' if exact else basis}; the run is not finished"

    @property
    def badge(self) -> str:
        """The words beside the score: `unfinished`, `the best known score`, `solved`, `not solved`, or none."""
        if self.summary is None:
            return "unfinished"
        if self.summary.optimum_reached:
            return "the best known score"
        return {True: "solved", False: "not solved", None: ""}[self.summary.solved]

    @property
    def quantities(self) -> list[tuple[str, str, str]]:
        """Name, values and meaning of each observation, text, feature and action of the task."""
        task = self.task
        rows = [(with_unit(o.name, o.unit), _range(o.low, o.high), o.about) for o in task.observations]
        rows += [(text.name, "a text", text.about) for text in task.texts]
        rows += [(name, text, "a feature of the task") for name, text in task.features]
        for a in task.actuators:
            values = ", ".join(a.labels) if a.is_choice else _range(a.low, a.high)
            rows.append((with_unit(a.name, a.unit), values, f"action{f': {a.about}' if a.about else ''}"))
        return rows

    @property
    def scores(self) -> dict[str, str]:
        """All scores of the run and of its task, by name."""
        attempts, best, summary, task = self.attempts, self.best, self.summary, self.task
        rows = {}
        if summary is not None and (final := summary.final) is not None:
            rows["final score"] = f"{score_words(final)}, {_basis(final, 'fresh')}"
            if not final.exact:
                rows["standard deviation"] = f"{number(final.std)}, of the return per episode"
            if (perturbed := summary.perturbed) is not None:
                rows[f"with {', '.join(summary.perturbed_by)}"] = f"{score_words(perturbed)}, {_basis(perturbed)}"
            rows |= {f"requirement {one.name}": str(one).partition(": ")[2] for one in final.violations}
        if attempts and attempts[0].score is not None:
            rows["random actions"] = score_words(attempts[0].score)
        if best is not None and best.score is not None and not best.score.exact:
            standing = attempts[-1].standing
            if standing.best_mean is not None:
                basis = f"over {standing.best_episodes} episodes; selection biases it upwards"
                rows["search score"] = f"{number(standing.best_mean)} {basis}"
            if standing.validated_mean is not None:
                basis = f"over {standing.validated_episodes} episodes not used for the selection"
                rows["held-out score"] = f"{number(standing.validated_mean)} {basis}"
        if best is not None and best.tuned.proposed_score is not None:
            rows["best policy before tuning"] = score_words(best.tuned.proposed_score)
        if task.solved is not None:
            rows["counts as solved from"] = number(task.solved)
        if task.optimum is not None:
            rows["best known score"] = f"{number(task.optimum.value)} ({task.optimum.source})"
        return rows

    @property
    def costs(self) -> dict[str, str]:
        """The costs of the run by name: requests, tokens, episodes, time."""
        attempts, summary = self.attempts, self.summary
        costs, standing = costs_of(attempts), attempts[-1].standing if attempts else Standing()
        if summary is not None:  # the summary also counts requests of attempts that never ended
            names = ("requests", "tokens_in", "tokens_out", "usd", "llm_seconds")
            costs = replace(costs, **{name: getattr(summary, name) for name in names})
        failed = sum(attempt.failed for attempt in attempts)
        rows = {"attempts": f"{max(0, len(attempts) - 1)}{f', {failed} of them failed' if failed else ''}"}
        if costs.tokens > 0:
            rows["requests"] = f"{costs.requests:,}, {costs.repairs} of them repairs"
            rows["tokens"] = f"{costs.tokens_in:,} in, {costs.tokens_out:,} out, {dollars(costs.usd)}"
            rows["time waiting for the model"] = duration(costs.llm_seconds)
        else:
            rows["requests"] = "none to a model"
        rows["total time"] = duration(summary.wall_seconds if summary is not None else standing.wall_seconds)
        rows["episodes while searching"] = f"{standing.episodes:,}"
        rows["steps of the environment"] = str(steps_played(attempts))
        return rows

    @property
    def commands(self) -> dict[str, str]:
        """The commands that repeat the run and that replay its replies, by what they do; empty if there is none."""
        found = {"A run with these settings": command_of(self.config, self.task)}
        if reads_prompts(self.config.llm):
            place, here = self.folder.resolve(), Path.cwd()
            place = place.relative_to(here) if place.is_relative_to(here) else place
            replayed = self.config.model_copy(update={"llm": f"replay:{place}"})
            found["A replay of the recorded replies, without a model"] = command_of(replayed, self.task)
        return found


def read_run(folder: Path) -> RunContent:
    """Read the content of a run's page.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    attempts = logbook.attempts()
    views = _views(attempts, logbook.transcript.exchanges())
    known = logbook.task(), logbook.config(), logbook.summary()
    return RunContent(folder, *known, attempts, best_of(attempts), views, logbook.versions())


def score_words(score: Score | FinalScore) -> str:
    """Format a score with its interval in brackets."""
    return number(score.mean) + (" (exact)" if score.exact else in_brackets(score.ci95))


def _basis(score: Score | FinalScore, which: str = "", more: str = "") -> str:
    """Return what a score was computed from, in words; `which` and `more` describe the episodes."""
    if score.exact:
        return "computed from the environment's transition table"
    return f"over {score.episodes} {which} {kind_of_episodes(score.engine)}{more}, 95% interval".replace("  ", " ")


def _range(low: float, high: float) -> str:
    # Many environments state the largest float where a value is unbounded.
    ends = ["" if abs(end) > 1e30 else f"{end:.4g}" for end in (low, high)]
    return f"{ends[0] or 'unbounded'} to {ends[1] or 'unbounded'}" if any(ends) else "unbounded"


def _views(attempts: list[Attempt], exchanges: Iterable[Exchange | FailedExchange]) -> list[ShownAttempt]:
    """Return the attempts to show, the last first, and before them those in progress."""
    requests: dict[int, list[tuple[str, str]]] = {}
    for one in exchanges:
        if isinstance(one, Exchange):
            reply = one.reply
            text = f"{reply.text or '(empty)'}{' (cut off by its length limit)' if reply.truncated else ''}"
        else:
            text = f"No reply: {one.error}"
        prompt = one.prompt.messages[-1].content if one.prompt.messages else ""
        requests.setdefault(one.attempt, []).append((prompt, text))
    best, parent, views = best_of(attempts), None, []
    for attempt in attempts:
        if attempt.accepted or attempt.number >= len(attempts) - MOST_ATTEMPTS:
            state = "became the best" if attempt.accepted else "not kept" if attempt.score is not None else "failed"
            state = "start" if not attempt.number else "best" if attempt is best else state
            own = tuple(requests.get(attempt.number, ()))
            views.append(ShownAttempt(attempt.number, attempt, state, _changes(attempt, parent), own))
        parent = attempt if attempt.accepted else parent
    open_numbers = sorted(requests.keys() - {attempt.number for attempt in attempts})
    views += [ShownAttempt(number, None, "in progress", (), tuple(requests[number])) for number in open_numbers]
    return views[::-1]


def _changes(attempt: Attempt, parent: Attempt | None) -> tuple[str, ...]:
    """Return the lines in which a proposed policy differs from the best before it, with one line of context."""
    if attempt.proposed is None:
        return ()
    before = parent.policy.to_text() if parent is not None and parent.policy is not None else ""
    lines = list(difflib.unified_diff(before.splitlines(), attempt.proposed.to_text().splitlines(), n=1, lineterm=""))
    changes = [line for line in lines[2:] if not line.startswith("@@")]  # after a head of two lines
    left_out = len(changes) - _MOST_CHANGES
    return (*changes[:_MOST_CHANGES], *([f" ... ({left_out:,} more lines)"] if left_out > 0 else []))


def command_of(config: RunConfig, task: Task) -> str:
    """Return the command that starts a run with the same settings; empty if only a user's program can start it.

    It includes --trust if a task file names a module or a path.
    """
    if task.gym_id.startswith(NAMESPACE) or read_spec(config.llm).entry is None:
        return ""
    words = ["policygen", "run", config.task]
    words += ["--trust"] * bool(config.task != task.gym_id and (":" in task.gym_id or why_refused(task)))
    defaults: dict[str, Any] = RunConfig.model_validate({"task": config.task}).model_dump()
    always = {"seed", "policy", "episodes", "final_episodes", *dict(task.run)}  # defaults that depend on the task
    for name, value in config.model_dump(exclude_none=True).items():
        if name == "llm":
            words += ["--llm", value]
        elif name not in ("task", "jobs") and (name in always or value != defaults[name]):
            plainly = json.dumps(value) if isinstance(value, bool | dict) or name == "start" else value
            words += ["--set", f"{name}={plainly}"]
    words += [word for one in task.perturb for word in ("--perturb", str(one))]
    return shlex.join(words)
