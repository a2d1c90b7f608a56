"""A search after some attempts, and what its next prompt is made from."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from support import Written, discovered

import policygen
from policygen.llm.messages import Prompt
from policygen.proposers.builtin import Builtin
from policygen.proposers.proposer import Proposer
from policygen.runs.attempt import Attempt
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.request_log import RequestLog
from policygen.runs.state import Context, Search
from policygen.search.assess import assess_random_actions
from policygen.search.loop import new_search, optimize
from policygen.search.run import start
from policygen.search.runner import EpisodeRunner
from policygen.tasks.task import Task

# A pole that is balanced longer tells no more.
POLE = replace(policygen.load_task("cartpole"), max_steps=100)
LONGEST = 200  # steps of an episode in an environment without a task file


_FOUND: dict[str, tuple[Context, RunConfig]] = {}


def searched(name: str, kind: str, provider: Any = None, **settings: Any) -> tuple[Context, RunConfig]:
    """A search after some attempts: what its next prompt is made from. The same search is carried out once."""
    if provider is not None and type(provider) is not Written:
        return _searched(name, kind, provider, settings)
    key = repr((name, kind, provider and provider.texts, sorted(settings.items())))
    if key not in _FOUND:
        _FOUND[key] = _searched(name, kind, provider, settings)
    return _FOUND[key]


def _searched(name: str, kind: str, provider: Any, settings: dict[str, Any]) -> tuple[Context, RunConfig]:
    task = discovered(name)
    if name in gym.registry:
        task = replace(task, max_steps=min(task.max_steps, LONGEST))
    named = {"llm": provider.spec} if provider is not None else {}
    options = {"policy": kind, "episodes": 4, "warmup_episodes": 4, **named, **settings}
    config = effective_config(task, name, options=options)
    search = new_search(task)
    if config.iterations == 1 and provider is None:
        with EpisodeRunner(search, config, Ledger(config)) as runner:
            search.keep(assess_random_actions(runner))
    else:
        list(attempts_of(search, config, provider or Builtin()))
    return search.context(config), config


def attempts_of(search: Search, config: RunConfig, provider: Any) -> Iterator[Attempt]:
    """The attempts of a search, without a run folder."""
    log = RequestLog(Ledger(config))
    with EpisodeRunner(search, config, log.ledger) as runner:
        yield from optimize(search, Proposer(provider, config), log, runner)


def made(task: str | Task, out: str | Path, provider: Any = None, **settings: Any) -> Path:
    """The folder of a finished run, without its picture."""
    loaded = policygen.load_task(task) if isinstance(task, str) else task
    named = {"llm": provider.spec} if provider is not None else {}
    begun = start(loaded, effective_config(loaded, loaded.name, options={**named, **settings}), Path(out), provider)
    for _ in begun.attempts():
        pass
    begun.finish()
    return begun.folder


def texts(prompt: Prompt) -> tuple[str, str]:
    """The two messages of a first prompt."""
    system, request = prompt.messages
    assert (system.role, request.role) == ("system", "user")
    return system.content, request.content


@contextlib.contextmanager
def shallow() -> Iterator[None]:
    """Within it, endless nesting ends after few levels: each passes the error on, and so the time grows squared."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def written(text: str, name: str = "improve") -> Path:
    """A template of the user's own, in the folder where it is looked for first."""
    path = Path("templates") / f"{name}.j2"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
