"""Render a run's prompts in advance, so that faulty templates of the user fail before any request is paid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.idle import Idle
from policygen.episodes.score import Score, score_of_returns
from policygen.errors import PolicygenError
from policygen.llm.messages import Prompt, Reply
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy
from policygen.prompts.render import render_prompt, render_repair
from policygen.proposers.builtin import Builtin, check_search
from policygen.proposers.proposer import read
from policygen.runs.attempt import Attempt, Comparison, Requests, Tuned, saved
from policygen.runs.config import RunConfig
from policygen.runs.state import Context, Search
from policygen.search.origin import own_templates
from policygen.tasks.task import Task, output_names

_PROBLEMS = (Problem(1, "a stand-in", "a policy"), Problem(None, "a stand-in", "a policy"))


def rehearse(search: Search, config: RunConfig) -> None:
    """Render prompts and repairs that a run may need, if any of its templates is the user's own.

    Placeholders replace missing results, so that branches beyond the first prompt are rendered, too.

    Raises TemplateError if a template cannot be rendered; the message names file and line.
    """
    if own_templates(config):
        for context in _contexts(search, config):
            prompt = render_prompt(context, config)
            render_repair(prompt, "no policy", _PROBLEMS, context, config)


def _contexts(search: Search, config: RunConfig) -> Iterator[Context]:
    """Yield contexts of prompts: no result, a failure, a first policy, a tuned one, and the user's comments."""
    now = search.context(len(search.attempts), config)
    yield now
    failed = Attempt(2, None, None, problems=_PROBLEMS, requests=Requests(repairs=1))
    resigned = Attempt(4, None, None, kind="resignation")
    comments = ("A stand-in for a comment.",)
    yield replace(now, number=5, attempts=(*search.attempts, failed, resigned), comments=comments)
    policies = list(_policies(now, config))
    if not policies:
        return
    first, proposed, other = policies[0], policies[-2:][0], policies[-1]
    score, buffer, first_attempt = _score(search), ReplayBuffer(config.buffer_steps), search.attempts[0]
    # The first episodes of the run for all attempts: half terminated, half truncated.
    some = [episode.trajectory for episode in search.buffer][:8]
    some = [replace(t, terminated=k % 2 == 0, truncated=k % 2 == 1) for k, t in enumerate(some)]
    for number in (0, 1, 3, 5):
        buffer.add(number, some)
    played = first_attempt.played
    best = Attempt(1, saved(first), score, played, accepted=True, idea="A stand-in.", coverage=1.0)
    refused = Attempt(
        *(3, saved(other), score, played),
        comparison=Comparison(-1.0, 0 if score.exact else 2, 0.5),
        idea="A stand-in.",
        unstable=1,
        undefined=(("stand_in", 0.5),),
        idle=(Idle("stand_in", "stand_in > 1", "never"),),
    )
    attempts = (first_attempt, best, failed, refused, resigned)
    found = replace(now, best=best, reported_score=score, attempts=attempts, buffer=buffer, comments=comments)
    yield replace(found, number=5)
    better = replace(refused, number=5, accepted=True, comparison=replace(refused.comparison, gain=1.0))
    for tuned in (Tuned("a stand-in"), Tuned("a stand-in", saved(proposed), score)):
        after = replace(better, tuned=tuned)
        yield replace(found, number=config.iterations, best=after, attempts=(*attempts, after), comments=())


def _policies(context: Context, config: RunConfig) -> Iterator[Policy]:
    """Yield a proposal of `builtin`, if it has one, and two policies with a feature of their own."""
    plain = config.model_copy(update={"llm": "builtin", "shape": False, "memory": False})
    empty = replace(context, best=None, reported_score=None, attempts=context.attempts[:1])
    texts = [_with_a_feature(context.task, config, constant) for constant in (0.5, 0.25)]  # as proposed, and tuned
    with suppress(PolicygenError):
        check_search(context.task, plain)
        texts.insert(0, Builtin().complete(Prompt((), empty), 0).text)
    for text in texts:
        if (policy := read(Reply(text, ""), empty, plain).policy) is not None:
            yield policy


def _with_a_feature(task: Task, config: RunConfig, constant: float) -> str:
    lines = [f"let stand_in = {constant} * {task.quantity_names[0]}"] if task.quantity_names else []
    if config.policy == "linear":
        lines += [f"{name} = {'stand_in' if lines else 1}" for name in output_names(task)]
    else:
        actions = [a.labels[0] if a.is_choice else str(a.low) for a in task.actuators]
        header = " | ".join(["stand_in", *(a.name for a in task.actuators)])
        lines += ["bins stand_in: 0", f"| {header} |", f"| * | {' | '.join(actions)} |"]
    return "\n".join(["```", *lines, "```"])


def _score(search: Search) -> Score:
    """Return the score of random actions, as a placeholder for a policy's."""
    score = search.attempts[0].score or score_of_returns(np.array([0.0, 1.0]), (0, 1), "")
    return replace(score, exact=True, ci95=(score.mean, score.mean), returns=(), seeds=()) if search.mdp else score
