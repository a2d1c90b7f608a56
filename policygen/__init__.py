"""policygen: a language model as the optimiser of small, readable control policies.

    import policygen

    result = policygen.run("cartpole")              # no key needed; or llm="openai:gpt-5-mini"
    print(result.policy.to_text(), result.final)
    policy = policygen.Policy.load(result.folder / "best.json")
    actions = policy.act(observations)               # one observation or a million

The names below are the public library; they load when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policygen.api import (
        RunResult,
        compare,
        data,
        export,
        film,
        make_env,
        parse,
        plant,
        report,
        resume,
        run,
        score,
        simplify,
    )
    from policygen.episodes.score import Score
    from policygen.errors import PolicygenError
    from policygen.extensions.film.film import Film, animate
    from policygen.extensions.film.frames import Look
    from policygen.extensions.plots.curves import plot_runs
    from policygen.extensions.plots.portraits import plot_policy
    from policygen.extensions.training.reward import reward
    from policygen.policies.linear import LinearPolicy
    from policygen.policies.policy import Policy
    from policygen.policies.table import TablePolicy
    from policygen.runs.attempt import Attempt
    from policygen.tasks.load import load_task
    from policygen.tasks.task import Task

__version__ = "0.2.0"

_HOMES = {
    "Attempt": "runs.attempt",
    "Film": "extensions.film.film",
    "LinearPolicy": "policies.linear",
    "Look": "extensions.film.frames",
    "Policy": "policies.policy",
    "PolicygenError": "errors",
    "RunResult": "api",
    "Score": "episodes.score",
    "TablePolicy": "policies.table",
    "Task": "tasks.task",
    "animate": "extensions.film.film",
    "compare": "api",
    "data": "api",
    "export": "api",
    "film": "api",
    "load_task": "tasks.load",
    "make_env": "api",
    "parse": "api",
    "plant": "api",
    "plot_policy": "extensions.plots.portraits",
    "plot_runs": "extensions.plots.curves",
    "report": "api",
    "resume": "api",
    "reward": "extensions.training.reward",
    "run": "api",
    "score": "api",
    "simplify": "api",
}

__all__ = [
    "Attempt",
    "Film",
    "LinearPolicy",
    "Look",
    "Policy",
    "PolicygenError",
    "RunResult",
    "Score",
    "TablePolicy",
    "Task",
    "animate",
    "compare",
    "data",
    "export",
    "film",
    "load_task",
    "make_env",
    "parse",
    "plant",
    "plot_policy",
    "plot_runs",
    "report",
    "resume",
    "reward",
    "run",
    "score",
    "simplify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'policygen' has no attribute {name!r}; public are {', '.join(__all__)}")
    return getattr(importlib.import_module(f"policygen.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
