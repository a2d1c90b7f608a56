"""Write a task as a task file, ready to edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import tomli_w

from policygen.tasks.actions import actuators_of
from policygen.tasks.environments import opened
from policygen.tasks.spaces import Actuator, Observation, alike, observations_of, span
from policygen.tasks.task import Task
from policygen.tasks.taskfile import TaskFile


def draft_of(task: Task) -> str:
    """Return the text of a task file that loads to the same task, with the assumptions as comments above."""
    with opened(task, cut=False) as env:
        given, observed = actuators_of(env.action_space)[1], observations_of(env.observation_space)
    other_forms = {
        "about": task.about and f"{task.about}\n",
        "optimum": asdict(task.optimum) if task.optimum else None,
        "observations": [
            _without_empty(name=o.name, unit=o.unit, about=o.about, derived=o.derived) | _other_bounds(o, space)
            for o, space in zip(task.observations, observed, strict=True)
        ],
        "texts": [_without_empty(name=t.name, about=t.about) for t in task.texts],
        "actions": [
            _without_empty(name=a.name, unit=a.unit, about=a.about, labels=list(a.labels), levels=dict(a.levels))
            | _other_bounds(a, space)
            for a, space in zip(task.actuators, given, strict=True)
        ],
        "grid": {
            d.name: d.bins if d.has_integer_bins or not d.edges else list(d.edges)
            for d in (task.grid.dimensions if task.grid else ())
        },
        "requirements": [
            _without_empty(
                **{"name": r.name, "always": r.always, "finally": r.at_end, "after": r.after},
                within=f"{r.within} steps" if r.within is not None else "",
                hard=r.hard,
                allowed=r.allowed,
            )
            for r in task.requirements
        ],
        "perturb": {one.name: [one.low, one.high] for one in task.perturb},
        "heights": list(map(asdict, task.heights)),
        "harvested": None,
    }
    for name in ("kwargs", "starts", "features", "run"):
        other_forms[name] = dict(getattr(task, name))
    stated = _without_empty(
        **{key: other_forms[key] if key in other_forms else getattr(task, key) for key in TaskFile.model_fields}
    )
    assumed = "".join(f"# Assumed: {sentence}.\n" for sentence in task.assumed)
    return assumed + tomli_w.dumps(stated, multiline_strings=True).rstrip()


def file_to_edit(task: Task) -> str:
    """Return the text of a task file to edit; comments name what was found, assumptions and optional keys."""
    groups = [(span(group), group[0]) for group in alike(task.observations)]
    found = [f"{name}, {'whole, ' if o.integer else ''}{o.low:g} to {o.high:g}" for name, o in groups]
    found += [f"{t.name}, a text" for t in task.texts]
    seen = [f"{name}: {o.seen}" for name, o in groups if o.seen]
    takes = [
        f"{a.name}, {f'one of {len(a.labels)}' if a.is_choice else f'{a.low:g} to {a.high:g}'}" for a in task.actuators
    ]
    lines = [
        f"{task.gym_id} as a task for policygen, to edit; a model reads all of it.",
        f"Observed ({len(task.observations) + len(task.texts)}): {_listed(found)}.",
        f"Decided ({len(takes)}): {_listed(takes)}.",
        *(("Seen under random actions (sd: standard deviation):", *seen, *_TO_NAME) if seen else ()),
    ]
    return "".join(f"# {line}\n" for line in lines) + draft_of(task) + _OPTIONAL_KEYS


_MOST_SHOWN = 12
_TO_NAME = (
    "Name each of `observations` below; their order is the environment's. Every prompt quotes the documentation of the",
    "environment until you write an `about`.",
)
_OPTIONAL_KEYS = """

# Optional keys; those that are not a [table] go before the first [table] above:
# about = "What the system is, what is rewarded, how an episode ends."
# hints = ["Close the valve before the heater is on."]
# For --refine model, what the environment documents, in the language of plants:
# reward = "-(level - 1)^2"               the reward of a step
# ends = "level > 2"                      the condition that ends an episode
# starts = { level = "uniform(0, 1)" }    distributions of observations at the start of an episode
# In `observations`: unit = "m/s", about = "positive to the right".
# In `actions`: unit, about, labels = ["left", "right"] of a choice; of a number levels = { off = 0.0, full = 1.0 }, and
# low = 0.0, high = 0.5, to which policies are clipped. Names may be changed; the order is the environment's.
# [features]        quantities computed from others, for policies and bins
# energy = "0.5*velocity^2 + 9.81*height"
# [grid]            bins of a table: edges, or a number of bins for whole numbers from 0
# velocity = [-1.0, 0.0, 1.0]
# [kwargs]          arguments of the environment
# [run]             settings of every run: policy = "linear", iterations = 40, ...
# step_seconds = 0.05                     the length of a step; then a requirement may say `within = "0.4 s"`
# [[requirements]]  what every episode has to meet; a policy that violates it loses every comparison
# name = "no overflow"
# always = "level < 1.5"                  or finally = "abs(level - 1) < 0.1"
# [perturb]         how the real system may differ, drawn anew in each episode
# action_delay = 1
# sensor_noise = 0.02
"""


def _other_bounds(stated: Observation | Actuator, found: Observation | Actuator) -> dict[str, float]:
    """Return the bounds that loading does not find."""
    return {side: getattr(stated, side) for side in ("low", "high") if getattr(stated, side) != getattr(found, side)}


def _listed(words: Sequence[str]) -> str:
    return "; ".join(words[:_MOST_SHOWN]) + f"; and {len(words) - _MOST_SHOWN} more" * (len(words) > _MOST_SHOWN)


def _without_empty(**entry: Any) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value or value == 0}
