"""Before a prompt, wait while the run is paused, and add the user's comments to the prompts."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from policygen.errors import LogbookError, TemplateError, UsageError
from policygen.llm import reads_prompts
from policygen.llm.messages import Prompt
from policygen.llm.transcript import Transcript
from policygen.prompts.render import improve_template
from policygen.prompts.templates import used_templates, variables_of
from policygen.runs.config import RunConfig
from policygen.runs.lock import FolderInUse, RunLock
from policygen.runs.logbook import Logbook
from policygen.runs.request_log import RequestLog
from policygen.runs.state import Context
from policygen.runs.steering import Steering

_IDENTIFYING = 40  # characters of a comment by which it is found in a prompt
_ADD = 'add a line to it: {% include "_comments.j2" %}'


def wait_and_comment(context: Context, request_log: RequestLog) -> Context:
    """Wait until the run is not paused, and return the context with the user's comments.

    Raises LogbookError if the file of comments is damaged or cannot be written.
    """
    steering = request_log.steering
    if steering is None:
        return context
    command = f"policygen continue {shlex.quote(str(steering.path.parent))}"

    def tell(paused: bool) -> None:
        request_log.tell(f"paused; continue with: {command}" if paused else "continuing")

    steering.wait(tell)
    request_log.tell(None)
    comments = steering.for_prompt(context.number, answered=request_log.has_recorded_reply)
    return replace(context, comments=comments) if comments else context


def check_shown(context: Context, prompt: Prompt, config: RunConfig, request_log: RequestLog) -> None:
    """Tell the user if a prompt does not show all comments, because its template does not."""
    request = prompt.messages[-1].content
    if any(comment.split("\n")[0][:_IDENTIFYING] not in request for comment in context.comments):
        request_log.tell(f"template {improve_template(config)} does not show comments; {_ADD}")


def pause(folder: Path, paused: bool = True) -> bool:
    """Pause a run before its next prompt, or let it continue; return whether that changed its state.

    Raises:
        UsageError: the run is finished, or all its prompts are sent.
        LogbookError: it is not a run folder, or its file of comments is damaged or cannot be written.
    """
    logbook = Logbook(folder)
    config = logbook.config()
    if logbook.summary() is not None:
        what = "pause" if paused else "continue"
        raise UsageError(
            f"{folder} is finished: there is nothing to {what}; extend it with: {_resume_command(logbook, config)}"
        )
    if paused and _are_all_prompts_sent(folder, config):
        raise UsageError(
            f"{_all_sent_words(config)}: there is no prompt left to wait for; after the run, extend it with: "
            f"{_resume_command(logbook, config)}"
        )
    return Steering(folder).pause(paused)


def why_comment_has_no_effect(folder: Path) -> str:
    """Return why no prompt of a run will carry a comment, as a sentence; empty if one will.

    Raises LogbookError if it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    config = logbook.config()
    if not reads_prompts(config.llm):
        return f"{config.llm.partition(':')[0]} reads no prompts: a comment has no effect on this run"
    if logbook.summary() is not None:
        return (
            f"the run is finished: no prompt will carry a comment; extend it first: {_resume_command(logbook, config)}"
        )
    if _are_all_prompts_sent(folder, config):
        return (
            f"{_all_sent_words(config)}: none will carry a comment; after the run, extend it and comment then: "
            f"{_resume_command(logbook, config)}"
        )
    name = improve_template(config)
    try:
        texts = used_templates((name,), {"kind": config.policy})
    except TemplateError:  # the template is missing here: use the texts recorded by the run
        texts = logbook.templates()
    if not texts or "comments" in variables_of(texts.values()):
        return ""
    return f"template {name} does not show comments; {_ADD}"


def _resume_command(logbook: Logbook, config: RunConfig) -> str:
    return logbook.resume_command("--iterations", str(2 * config.iterations))


def _all_sent_words(config: RunConfig) -> str:
    return f"the prompts of all {config.iterations} iterations are sent"


def _are_all_prompts_sent(folder: Path, config: RunConfig) -> bool:
    """Whether the prompt of the last iteration is sent.

    In an interrupted run a prompt without a reply does not count, because it will be rendered and sent again.
    """
    before_the_last = config.iterations - 1
    sent, answered = Transcript(folder / "transcript.jsonl").last_sent_and_answered()
    if answered > before_the_last or sent <= before_the_last:
        return answered > before_the_last
    try:
        RunLock(folder).release()
    except LogbookError as error:
        return isinstance(error, FolderInUse)
    return False
