"""The page of a run: a self-contained HTML file with its task, scores, attempts, costs, settings and pictures."""

from __future__ import annotations

import base64
import difflib
import functools
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from policygen import __version__
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PathError, PolicygenError, UsageError
from policygen.extensions.plots.actions import action_figure
from policygen.extensions.plots.curves import runs_figure
from policygen.extensions.plots.groups import proposals_label
from policygen.extensions.plots.style import rendered
from policygen.extensions.plots.traces import traces_figure
from policygen.files import check_name, write_named
from policygen.llm import read_spec, reads_prompts
from policygen.llm.messages import Exchange, FailedExchange
from policygen.outgoing import shown
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.facts import (
    OPTIMAL,
    SOLVED,
    Fact,
    RunRecord,
    note_facts,
    read_record,
    run_facts,
    score_fact,
    task_facts,
)
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.tasks.environments import NAMESPACE
from policygen.tasks.task import KIND_WORDS, Task
from policygen.tasks.trust import why_refused

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT = "report.html"
RELOADS = 5  # seconds between reloads of the page of an unfinished run
SHARE_OF_TIME = 0.05  # largest share of a run's time for writing its page
LARGEST_SVG = 250_000  # bytes; a larger figure becomes a PNG
MOST_EPISODES = 12  # of the best policy, behind its pictures
MOST_ATTEMPTS = 100  # for a longer run, the page shows the latest attempts and all that became the best
_MOST_CHANGES = 80  # lines


def write_page(run: Path, output: Path, *, reloads: int | None = None) -> Path:
    """Write the page of a run; return its path.

    Args:
        reloads: seconds after which the page reloads itself; None: never.

    Raises:
        UsageError: the name does not end in .html.
        PathError: the folder is not a run.
        LogbookError: the run is damaged, or the page cannot be written.
    """
    check_name(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {output.name}: end the name in .html (a browser can print it to PDF)")
    if not (run / "config.toml").is_file():
        several = any(run.glob("*/config.toml"))
        hint = f"name one of {run}/*" if several else "`policygen plot` and `compare` take sweeps"
        raise PathError(f"{run} is not a run (it has no config.toml); {hint}")
    logbook, record = Logbook(run), read_record(run)
    css = _environment().get_template("page.css").render()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    facts = run_facts(record)
    variables = {
        "run": record,
        "headline": facts[0],  # the final score, or the best so far
        "badge": _badge(record, facts),
        "facts": facts[1:],
        "task_facts": task_facts(record.task),
        "attempts": _attempt_views(record.attempts, record.best, logbook.transcript.exchanges()),
        "commands": _commands(record),
        "versions": logbook.versions(),
        "pictures": _pictures(record),
        "reloads": reloads,
        "css": Markup(css),
        "style_source": f"'sha256-{digest}'",
        "version": __version__,
    }
    write_named(output, _environment().get_template("run.html.j2").render(variables))
    return output


class RunPage(Listener):
    """Writes `report.html` in the run's folder after each attempt; the page reloads itself until the run has ended.

    Writing takes at most a twentieth of the run's time, except at the end: after quick attempts, the page is not
    written each time.
    """

    option = ("--report",)

    def started(self, run: RunView) -> None:
        """Begin to measure the run's time."""
        self._folder, self._started, self._writing = run.folder, time.monotonic(), 0.0

    def attempted(self, attempt: Attempt) -> None:
        """Write the page, which reloads itself, if there is time."""
        before = time.monotonic()
        if self._writing <= SHARE_OF_TIME * (before - self._started):
            write_page(self._folder, self._folder / REPORT, reloads=RELOADS)
            self._writing += time.monotonic() - before

    def ended(self) -> None:
        """Write the final page, which does not reload itself."""
        write_page(self._folder, self._folder / REPORT)


# --- content ---------------------------------------------------------------------------------------------------------


def _badge(run: RunRecord, facts: Sequence[Fact]) -> str:
    """Return the badge beside the score: `unfinished`, `the best known score`, `solved`, `not solved`, or none."""
    found = {one.name: one.value for one in facts}
    if run.summary is None:
        return "unfinished"
    if found.get(OPTIMAL):
        return "the best known score"
    return "" if SOLVED not in found else SOLVED if found[SOLVED] else f"not {SOLVED}"


def _attempt_views(
    attempts: Sequence[Attempt], best: Attempt | None, exchanges: Iterable[Exchange | FailedExchange]
) -> list[dict[str, Any]]:
    """Return the attempts to show, the latest first.

    Each has the attempt (None until its proposal is scored), its state, the lines that it changes, and the last message
    of each of its prompts with the reply, or the reason why there is none.
    """
    requests: dict[int, list[tuple[str, str]]] = {}
    for one in exchanges:
        if isinstance(one, Exchange):
            text = f"{one.reply.text or '(empty)'}{' (cut off by its length limit)' * one.reply.truncated}"
        else:
            text = f"No reply: {one.error}"
        prompt = one.prompt.messages[-1].content if one.prompt.messages else ""
        requests.setdefault(one.attempt, []).append((prompt, text))
    views: list[dict[str, Any]] = []
    parent = None
    for attempt in attempts:
        if attempt.accepted or attempt.number >= len(attempts) - MOST_ATTEMPTS:
            state = "became the best" if attempt.accepted else "not kept" if attempt.score is not None else "failed"
            state = "start" if not attempt.number else "best" if attempt is best else state
            view = {"number": attempt.number, "attempt": attempt, "state": state}
            views.append(view | {"changes": _changes(attempt, parent), "requests": requests.get(attempt.number, [])})
        parent = attempt if attempt.accepted else parent
    for number in sorted(requests.keys() - {attempt.number for attempt in attempts}):
        view = {"number": number, "attempt": None, "state": "in progress"}
        views.append(view | {"changes": [], "requests": requests[number]})
    return views[::-1]


def _changes(attempt: Attempt, parent: Attempt | None) -> list[str]:
    """Return the lines in which a proposed policy differs from the previous best, with one line of context."""
    if attempt.proposed is None:
        return []
    before = parent.policy.to_text() if parent is not None and parent.policy is not None else ""
    lines = list(difflib.unified_diff(before.splitlines(), attempt.proposed.to_text().splitlines(), n=1, lineterm=""))
    changes = [line for line in lines[2:] if not line.startswith("@@")]  # after a head of two lines
    left_out = len(changes) - _MOST_CHANGES
    return [*changes[:_MOST_CHANGES], *([f" ... ({left_out:,} more lines)"] if left_out > 0 else [])]


def _commands(run: RunRecord) -> dict[str, str]:
    """Return the commands that repeat the run and replay its replies, by caption; an impossible one is empty."""
    found = {"The command for a run with these settings": command_of(run.config, run.task)}
    if reads_prompts(run.config.llm):
        place, here = run.folder.resolve(), Path.cwd()
        place = place.relative_to(here) if place.is_relative_to(here) else place
        replayed = run.config.model_copy(update={"llm": f"replay:{place}"})
        found["The command that replays the recorded replies, without a model"] = command_of(replayed, run.task)
    return found


def command_of(config: RunConfig, task: Task) -> str:
    """Return the command that starts a run with the same settings; empty if only the user's program can.

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


# --- pictures --------------------------------------------------------------------------------------------------------


def curve_picture(folder: Path) -> dict[str, str] | None:
    """Draw the learning curve of a run; None before its first attempt."""
    return _picture("Learning curve", runs_figure, [folder])


def _pictures(run: RunRecord) -> dict[str, dict[str, str] | None]:
    """Return the pictures by name: learning curve, action map, and worst kept episode of the best policy."""
    best = run.best
    found = {"curve": curve_picture(run.folder), "map": None, "worst": None}
    if best is None or best.policy is None:
        return found
    episodes = own_episodes(run.folder, best)
    found["map"] = _picture("Actions of the policy", action_figure, best.policy, episodes)
    if episodes:
        worst = {f"worst of {len(episodes)}": min(episodes, key=lambda episode: episode.episode_return)}
        found["worst"] = _picture("Observations and actions of the worst episode", traces_figure, run.task, worst)
    return found


def own_episodes(folder: Path, best: Attempt) -> list[Trajectory]:
    """Return the first kept episodes of the best policy; empty if the run's buffer cannot be read."""
    try:
        buffer = Logbook(folder).buffer()
    except PolicygenError:  # the page is complete without them
        return []
    return [episode.trajectory for episode in buffer.of_attempt(best.number, len(best.played))][:MOST_EPISODES]


def _picture(alt: str, draw: Callable[..., Figure], *shown_things: Any) -> dict[str, str] | None:
    """Draw a figure, embedded as a `data:` URL; None if there is nothing to draw."""
    try:
        figure = draw(*shown_things)
    except PolicygenError:
        return None
    content, kind = rendered(figure, "svg", facecolor="none"), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = rendered(figure, "png", facecolor="none", dpi=110), "png"
    return {"url": f"data:image/{kind};base64,{base64.b64encode(content).decode()}", "alt": alt}


# --- template --------------------------------------------------------------------------------------------------------


@functools.cache
def _environment() -> jinja2.Environment:
    """Return the Jinja environment of the page, which escapes values and hides secrets and control characters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )
    environment.filters |= {"score": functools.partial(score_fact, "attempt", "score")}
    environment.filters |= {"notes": note_facts, "proposals": proposals_label}
    environment.globals |= {"kind_words": KIND_WORDS}
    return environment


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shown(value).encode(errors="replace").decode()  # a folder name may hold bytes that are not text
