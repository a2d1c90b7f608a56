"""The content of a run's report page: scores, policy, attempts and costs as text, before layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from policygen.episodes.score import kind_of_episodes
from policygen.extensions.compare.words import number
from policygen.extensions.page.attempts import AttemptView, attempt_views, score_words, shown_attempts
from policygen.extensions.page.conversation import turns_of
from policygen.extensions.page.spending import Fact, command_of, said, spending, versions_of
from policygen.extensions.plots.groups import proposals_label
from policygen.llm import reads_prompts
from policygen.policies.policy import Policy
from policygen.progress import share_lines
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary
from policygen.runs.steering import Steering, UserComment
from policygen.tasks.task import Task, environment_words

LONGEST_ABOUT = 1_000  # characters of the task's description before the rest is folded away


@dataclass(frozen=True, slots=True)
class ReportedQuantity:
    """An observation, feature or action of the task, as a table row."""

    name: str
    values: str
    about: str


@dataclass(frozen=True)
class RunContent:
    """The content of the page of a run, finished or not.

    Attributes:
        headline: the final score or the best so far; `interval` and `basis` give its uncertainty and origin.
        about: the description of the task: the visible part, and the folded rest.
        left_out: number of attempts that are not shown.
        user: the comments of the user.
    """

    folder: Path
    task: Task
    config: RunConfig
    summary: Summary | None
    attempts: tuple[Attempt, ...]
    best: Attempt | None
    proposals: str
    about: tuple[str, str]
    headline: str
    interval: str
    basis: str
    badge: str
    scores: tuple[Fact, ...]
    observations: tuple[ReportedQuantity, ...]
    actions: tuple[ReportedQuantity, ...]
    limits: tuple[Fact, ...]
    views: tuple[AttemptView, ...]
    left_out: int
    user: UserComment
    spent: tuple[Fact, ...]
    shares: tuple[str, ...]
    settings: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    command: str
    replay: str

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary is not None

    @property
    def tuned(self) -> bool:
        """Whether the numbers of any attempt were tuned."""
        return any(attempt.tuned.proposed_score is not None for attempt in self.attempts)

    @property
    def policy(self) -> Policy | None:
        """The best policy."""
        return self.best.policy if self.best is not None else None


def read_run(folder: Path) -> RunContent:
    """Read the content of a run's page.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    config, task, summary, attempts = logbook.config(), logbook.task(), logbook.summary(), logbook.attempts()
    best = next((attempt for attempt in reversed(attempts) if attempt.accepted), None)
    shown, left_out = shown_attempts(attempts, best)
    kept = frozenset(attempt.number for attempt in attempts if attempt.accepted)
    turns = turns_of(logbook.exchanges(), kept)
    user = Steering(folder).read()
    views = tuple(_told(view, user, config) for view in attempt_views(attempts, shown, best, turns))
    final = summary.final if summary is not None else None
    headline, interval, basis = _headline(final, best, attempts, finished=summary is not None)
    place, here = folder.resolve(), Path.cwd()
    place = place.relative_to(here) if place.is_relative_to(here) else place
    again = config.model_copy(update={"llm": f"replay:{place}"})
    return RunContent(
        folder=folder,
        task=task,
        config=config,
        summary=summary,
        attempts=tuple(attempts),
        best=best,
        proposals=proposals_words(config.llm),
        about=_split(task.about),
        headline=headline,
        interval=interval,
        basis=basis,
        badge=_badge(summary, best),
        scores=tuple(_scores(task, attempts, best, final)),
        observations=tuple(_observations(task)),
        actions=tuple(_actions(task)),
        limits=tuple(_limits(task)),
        views=views,
        left_out=left_out,
        user=user,
        spent=tuple(spending(summary, attempts)),
        shares=tuple(share_lines(summary.shares)) if summary is not None else (),
        settings=tuple(Fact(name, said(value)) for name, value in config.model_dump(exclude_none=True).items()),
        versions=versions_of(folder),
        command=command_of(config, task),
        replay=command_of(again, task) if reads_prompts(config.llm) else "",
    )


def _told(view: AttemptView, user: UserComment, config: RunConfig) -> AttemptView:
    """Add the user's comments that were part of this round's prompts."""
    first = view.number - (view.number - 1) % config.candidates
    numbers = user.carried.get(first, ()) if view.number else ()
    return replace(view, comments=tuple(user.comments[n - 1].text for n in sorted(numbers))) if numbers else view


def proposals_words(llm: str) -> str:
    """Name the proposer, without folders of the machine that ran it."""
    name, _, argument = llm.partition(":")
    return "a chat window, by hand" if name == "manual" and argument else proposals_label(llm)


def _split(text: str) -> tuple[str, str]:
    """Split a long text into its first sentences and the rest."""
    if len(text) <= LONGEST_ABOUT:
        return text, ""
    ends = [found.end() for found in re.finditer(r"[.!?]\s", text[: LONGEST_ABOUT // 2])]
    end = ends[-1] if ends else text.find(" ", LONGEST_ABOUT // 2)
    return (text[:end], text[end:].strip()) if end > 0 else (text, "")


# --- the score -------------------------------------------------------------------------------------------------------


def _headline(
    final: FinalScore | None, best: Attempt | None, attempts: Sequence[Attempt], *, finished: bool
) -> tuple[str, str, str]:
    """Return the score, its interval, and its basis."""
    if final is not None:
        if final.exact:
            return number(final.mean), "", "exact: computed from the environment's transition table"
        return (
            number(final.mean),
            _between(final.ci95),
            f"mean return over {final.episodes} fresh {kind_of_episodes(final.engine)} that the search never saw, "
            "95% interval",
        )
    if best is None:
        return "no policy", "", "no reply contained a policy" if finished else "no policy has been found yet"
    last = attempts[-1]
    exact = best.score is not None and best.score.exact
    value = last.standing.reported_best
    count = last.standing.validated_episodes or last.standing.best_episodes
    which = "held-out episodes" if last.standing.validated_mean is not None else "the search's own seeds"
    basis = "exact" if exact else f"mean return over {count} episodes, {which}"
    return number(value) if value is not None else "not scored", "", f"best so far, {basis}; the run is not finished"


def _between(interval: tuple[float, float] | None) -> str:
    return f"{number(interval[0])} to {number(interval[1])}" if interval is not None else ""


def _badge(summary: Summary | None, best: Attempt | None) -> str:
    if summary is None:
        return "unfinished"
    if summary.optimum_reached:
        return "the best known score"
    if summary.solved is not None and best is not None:
        return "solved" if summary.solved else "not solved"
    return ""


def _scores(task: Task, attempts: Sequence[Attempt], best: Attempt | None, final: FinalScore | None) -> list[Fact]:
    facts = []
    if final is not None:
        words = (
            "exact"
            if final.exact
            else f"{_between(final.ci95)}, over {final.episodes} fresh {kind_of_episodes(final.engine)}"
        )
        facts.append(Fact("final score", f"{number(final.mean)} ({words})"))
    if attempts and attempts[0].score is not None:
        facts.append(Fact("random actions", score_words(attempts[0].score)))
    if best is not None and best.score is not None:
        if best.tuned.proposed_score is not None:
            facts.append(Fact("best policy before tuning", score_words(best.tuned.proposed_score)))
            gain = best.score.mean - best.tuned.proposed_score.mean
            facts.append(Fact("gain of tuning", f"{number(gain)} on the search's own seeds ({best.tuned.refinement})"))
        chosen = attempts[-1].standing.best_mean
        if not best.score.exact and chosen is not None:
            count = attempts[-1].standing.best_episodes
            facts.append(Fact("search score", f"{number(chosen)} over {count} episodes; selection biases it upwards"))
        fresh = attempts[-1].standing.validated_mean
        if fresh is not None:
            count = attempts[-1].standing.validated_episodes
            facts.append(Fact("held-out score", f"{number(fresh)} over {count} episodes not used for the selection"))
    gains = [
        a.score.mean - a.tuned.proposed_score.mean for a in attempts if a.score is not None and a.tuned.proposed_score
    ]
    if len(gains) > 1:
        facts.append(Fact("gain of tuning, per attempt", f"{number(sum(gains) / len(gains))} on average"))
    if final is not None and not final.exact:
        facts.append(Fact("standard deviation", f"{number(final.std)}, of the return per episode"))
    if task.solved is not None:
        facts.append(Fact("counts as solved from", number(task.solved)))
    if task.optimum is not None:
        facts.append(Fact("best known score", f"{number(task.optimum.value)} ({task.optimum.source})"))
    return facts


# --- the task --------------------------------------------------------------------------------------------------------


def _observations(task: Task) -> list[ReportedQuantity]:
    rows = [
        ReportedQuantity(f"{o.name} [{o.unit}]" if o.unit else o.name, _range(o.low, o.high), o.about)
        for o in task.observations
    ]
    rows += [ReportedQuantity(text.name, "a text", text.about) for text in task.texts]
    return rows + [ReportedQuantity(name, text, "a feature of the task") for name, text in task.features]


def _actions(task: Task) -> list[ReportedQuantity]:
    return [
        ReportedQuantity(
            f"{a.name} [{a.unit}]" if a.unit else a.name,
            ", ".join(a.labels) if a.is_choice else _range(a.low, a.high),
            a.about,
        )
        for a in task.actuators
    ]


def _range(low: float, high: float) -> str:
    # Environments often state an unbounded end as the largest float.
    ends = ["" if abs(end) > 1e30 else f"{end:.4g}" for end in (low, high)]
    return f"{ends[0] or 'unbounded'} to {ends[1] or 'unbounded'}" if any(ends) else "unbounded"


def _limits(task: Task) -> list[Fact]:
    facts = [Fact("environment", environment_words(task))]
    return [*facts, Fact("an episode", f"at most {task.max_steps} steps")]
