"""Prompts for a model that plans for a robot: messages made from a report of what the robot saw."""

from __future__ import annotations

from policygen.errors import TemplateError
from policygen.extensions.worlds.locked.planner import Report
from policygen.extensions.worlds.locked.view import COLOURED
from policygen.llm.messages import Message, Prompt
from policygen.prompts.templates import load_template, render_template

SYSTEM, REQUEST, REPAIR = "mediate_system", "mediate", "mediate_repair"


class PlanQuestions:
    """Renders what a planner is asked in one room; equal reports are equal questions.

    Args:
        room: one of `ROOM_NAMES`.
        template: renders the request instead of `mediate.j2`.
        most: estimated tokens that a prompt may have.

    Raises:
        TemplateError: a template is missing or broken.
    """

    def __init__(self, room: str, *, template: str | None = None, most: int = 6_000) -> None:
        self.room = room
        self._template, self._most = template or REQUEST, most
        for name in (SYSTEM, self._template, REPAIR):
            load_template(name)
        self._system = Message("system", render_template(SYSTEM, {"room": room, "coloured": room == COLOURED}))

    def prompt(self, report: Report) -> Prompt:
        """The question for a report; room and report travel beside it for whoever is no language model.

        Raises:
            TemplateError: it cannot be rendered, or is too long.
        """
        request = render_template(self._template, {"seen": report.seen, "carried": report.carried})
        prompt = Prompt((self._system, Message("user", request)), (self.room, report))
        if prompt.estimated_tokens > self._most:
            raise TemplateError(
                f"the prompt has about {prompt.estimated_tokens:,} tokens and may have {self._most:,}; raise "
                "--set prompt_tokens=N, or show less in the template"
            )
        return prompt

    def repair(self, prompt: Prompt, reply: str, problem: str) -> Prompt:
        """The same question once more, after a reply that says no plan."""
        request = render_template(REPAIR, {"problem": problem})
        return prompt.followed_by(Message("assistant", reply[-2_000:] or "(empty)"), Message("user", request))
