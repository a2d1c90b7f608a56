"""policygen: a language model as the optimiser of small, readable control policies.

    import policygen

    result = policygen.run("cartpole")              # no key needed; or llm="openai:gpt-5-mini"
    print(result.policy.to_text(), result.final)
    policy = policygen.Policy.load(result.folder / "best.json")
    actions = policy.act(observations)               # one observation or a million

The names below are the public library; they are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` makes a name public for type checkers
    from policygen.api import RunResult as RunResult
    from policygen.api import compare as compare
    from policygen.api import export as export
    from policygen.api import film as film
    from policygen.api import make_env as make_env
    from policygen.api import parse as parse
    from policygen.api import report as report
    from policygen.api import resume as resume
    from policygen.api import run as run
    from policygen.api import score as score
    from policygen.api import simplify as simplify
    from policygen.episodes.score import Score as Score
    from policygen.errors import PolicygenError as PolicygenError
    from policygen.extensions.plots.actions import plot_policy as plot_policy
    from policygen.extensions.plots.curves import plot_runs as plot_runs
    from policygen.extensions.training.dataset import make_dataset as make_dataset
    from policygen.extensions.training.reward import reward as reward
    from policygen.policies.linear import LinearPolicy as LinearPolicy
    from policygen.policies.policy import Policy as Policy
    from policygen.policies.table import TablePolicy as TablePolicy
    from policygen.runs.attempt import Attempt as Attempt
    from policygen.runs.facts import facts as facts
    from policygen.tasks.load import load_task as load_task
    from policygen.tasks.task import Task as Task

__version__ = "0.3.0"

_PUBLIC = {
    "api": "RunResult compare export film make_env parse report resume run score simplify",
    "episodes.score": "Score",
    "errors": "PolicygenError",
    "extensions.plots.actions": "plot_policy",
    "extensions.plots.curves": "plot_runs",
    "extensions.training.dataset": "make_dataset",
    "extensions.training.reward": "reward",
    "policies.linear": "LinearPolicy",
    "policies.policy": "Policy",
    "policies.table": "TablePolicy",
    "runs.attempt": "Attempt",
    "runs.facts": "facts",
    "tasks.load": "load_task",
    "tasks.task": "Task",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'policygen' has no attribute {name!r}; the public names are {', '.join(__all__)}")
    return getattr(importlib.import_module(f"policygen.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
