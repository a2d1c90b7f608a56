"""A model on call: it plans when it is asked, and a mediator decides in every step whether to ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from policygen.errors import PolicyError
from policygen.extensions.seats.answers import Answers, Counts
from policygen.extensions.seats.asker import Asker
from policygen.extensions.seats.mediating_prompts import PlanQuestions
from policygen.extensions.seats.plans import read_plan
from policygen.extensions.worlds.locked.options import EXPLORE, Option, Plan
from policygen.extensions.worlds.locked.planner import Report, planned
from policygen.extensions.worlds.locked.room_episode import Signs
from policygen.llm.base import Diagnosis
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

FALLBACK: Plan = (Option(EXPLORE),)


class Rules:
    """The rule-based planner in the place of a model. It is not a language model, and answers as one does."""

    spec = "planner"
    model = NO_MODEL
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the plan of the rules for the report in the prompt's context."""
        assert isinstance(prompt.context, tuple)
        room, report = prompt.context
        return Reply(f"Plan: {', '.join(map(str, planned(report, room)))}", NO_MODEL, 0, 0, 0.0)

    def diagnose(self) -> Diagnosis:
        """It is always there."""
        return Diagnosis(True, ("rules for rooms with a locked door; not a language model",))


class Planner:
    """Asks a model for plans, once for every report of a room; what was asked before is known.

    An answer that says no plan gets one repair. If that says none either, the plan is to explore, and is counted.
    """

    def __init__(self, asker: Asker, rooms: Mapping[str, PlanQuestions]) -> None:
        self.counts = Counts()
        self._answers = {
            room: Answers(
                asker, self.counts, questions.prompt, repair=questions.repair, read=partial(read_plan, room=room)
            )
            for room, questions in rooms.items()
        }

    def plans(self, room: str, reports: Sequence[Report]) -> list[Plan]:
        """Return the plans for reports of parallel episodes; ask about all new reports together.

        Raises:
            BudgetExhausted, ProviderError: not all could be asked; answers received are kept for the next call.
        """
        plans = [said.plan for said in self._answers[room].to(reports)]
        self.counts.fallback_uses += sum(plan is None for plan in plans)
        return [FALLBACK if plan is None else plan for plan in plans]


# --- when to ask -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mediator:
    """A rule that decides at each step whether to ask the planner; the first step of an episode always asks.

    Attributes:
        asks: whether to ask, from the signs of a step and the episode's own random generator.
        policy: the policy that the rule was made from; None for the other rules.
    """

    name: str
    asks: Callable[[Signs, np.random.Generator], bool]
    policy: Policy | None = None


LEARNED = "learned"
MEDIATORS = {
    mediator.name: mediator
    for mediator in (
        Mediator("always", lambda signs, rng: True),
        Mediator("never", lambda signs, rng: False),  # again: the first plan is the only one
        Mediator("random", lambda signs, rng: signs.ended > 0 or rng.random() < 0.5),
        Mediator("hard-coded", lambda signs, rng: signs.ended > 0),
    )
}


def mediator_of(policy: Policy, task: Task, name: str) -> Mediator:
    """A policy that says when to ask, as a mediator.

    Args:
        task: the task of when to ask.

    Raises:
        PolicyError: it is a policy for something else.
    """
    theirs, ours = (([o.name for o in t.observations], t.actuators) for t in (policy.task, task))
    if theirs != ours or policy.remembers:
        raise PolicyError(
            f"{name} is a policy for {policy.task.name}; a mediator is one for {task.name} that remembers nothing"
        )
    return Mediator(name, lambda signs, rng: bool(policy.act_one(np.array(signs))), policy)
