"""Between two rounds: wait while the run is paused, and put what the user says into the prompts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from policygen.llm.messages import Prompt
from policygen.prompts.render import improve_template
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Correspondence
from policygen.runs.listeners import Steered
from policygen.runs.state import Context

_KNOWN_BY = 40  # characters of a comment that are looked for in a prompt


def steered(contexts: Sequence[Context], correspondence: Correspondence) -> list[Context]:
    """The contexts of a round with the user's comments in them, as soon as the run is not paused.

    Raises:
        LogbookError: the file of comments is damaged or cannot be written.
    """
    steering = correspondence.steering
    if steering is None or not contexts:
        return list(contexts)
    way_on = f"policygen continue {shlex.quote(str(steering.path.parent))}"

    def tell(paused: bool) -> None:
        correspondence.tell(Steered(f"paused; go on with: {way_on}") if paused else Steered("going on"))

    steering.wait(tell)
    correspondence.tell(None)
    comments = steering.for_prompt(contexts[0].number, answered=correspondence.answered)
    return [replace(context, comments=comments) for context in contexts] if comments else list(contexts)


def check_shown(
    contexts: Sequence[Context], prompts: Sequence[Prompt], config: RunConfig, correspondence: Correspondence
) -> None:
    """Say so where a template of the user's own does not show comments."""
    for context, prompt in zip(contexts, prompts, strict=True):
        request = prompt.messages[-1].content
        if any(comment.split("\n")[0][:_KNOWN_BY] not in request for comment in context.comments):
            name = improve_template(config)
            correspondence.tell(
                Steered(f'template {name} does not show comments; add a line to it: {{% include "_comments.j2" %}}')
            )
            return
