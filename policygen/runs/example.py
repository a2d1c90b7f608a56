"""A policy of another task as a worked example in prompts; the run stores it when it starts."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import to_text
from policygen.quantities.tree import read_by
from policygen.tasks.spaces import Actuator

ABOUT_CHARACTERS = 600  # maximum length of `Example.about`


@dataclass(frozen=True, slots=True)
class ExampleQuantity:
    """The meaning of a name in the policy: an observation, or a feature of its task with its `formula`."""

    name: str
    unit: str = ""
    about: str = ""
    formula: str = ""


@dataclass(frozen=True, slots=True)
class ExampleScore:
    """The score of the policy on its own task.

    `episodes` is 0 if the score is exact. `fresh`: whether its search never saw these episodes; if not, the policy was
    chosen by them. `ci95` is the 95% interval of `mean`.
    """

    mean: float
    ci95: tuple[float, float] | None
    episodes: int
    exact: bool
    fresh: bool


@dataclass(frozen=True, slots=True)
class Example:
    """A policy of another task, with everything needed to read it without that task."""

    task: str
    gym_id: str
    about: str  # the first paragraph about the task, shortened
    kind: str
    quantities: tuple[ExampleQuantity, ...]  # the quantities that the policy reads, directly or through features
    actuators: tuple[Actuator, ...]
    lines: tuple[str, ...]  # the policy in the policy language; a table's bins are always among them
    rows: int = 0  # number of rows of a table, the last of `lines`; 0 for equations
    solved: float | None = None
    worth: ExampleScore | None = None  # its score; None if only the policy was saved


def example_of(policy: Policy, worth: ExampleScore | None = None) -> Example:
    """Return `policy` as an example that a prompt may show."""
    task, reader = policy.task, policy.reader
    # The names in the text, which has all of the policy's own features, and in the features of the task that it uses.
    shown = dict((*policy.lets, *reader.needed))
    read = {*shown, *(reader.read or ()), *reader.previous, *read_by(shown.values())}
    quantities = [ExampleQuantity(o.name, o.unit, o.about) for o in task.observations if o.name in read]
    quantities += [ExampleQuantity(n, formula=to_text(node)) for n, node in task.parsed_features if n in read]
    # A table leaves out the bins of its own task, which the reader of an example does not know.
    written = replace(policy, task=replace(task, grid=None)) if isinstance(policy, TablePolicy) else policy
    paragraph = task.about.strip().split("\n\n")[0]
    return Example(
        task.name,
        task.gym_id,
        textwrap.shorten(paragraph, ABOUT_CHARACTERS, placeholder=" ..."),
        policy.kind,
        tuple(quantities),
        task.actuators,
        tuple(written.to_text().splitlines()),
        len(policy.rules) if isinstance(policy, TablePolicy) else 0,
        task.solved,
        worth,
    )


_ADAPTER = TypeAdapter(Example)


def example_from_record(record: Any) -> Example:
    """Read an example from its fields as JSON values; raise ValidationError or PolicyError if it is damaged."""
    example = _ADAPTER.validate_python(record)
    if not example.lines or not 0 <= example.rows <= len(example.lines):
        raise PolicyError("it holds no whole policy")
    return example
