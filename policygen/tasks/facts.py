"""Facts about the controlled system as sentences, read from its simulator."""

from __future__ import annotations

import itertools
import math
import re
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.tasks.box2d import has_world, random_play, world_facts
from policygen.tasks.faults import STEP_TIMEOUT, TimeLimitExceeded, Watchdog
from policygen.tasks.mujoco import has_model, model_facts

MOST_CHARACTERS = 5_000  # of all sentences together
_SECONDS = 10.0  # time limit on the episodes that distinguish constants from state
_LONGEST_LIST = 6  # longer lists of numbers are not constants

# Constants that do not matter to a policy: images, windows, colours, and Gymnasium's own.
_IRRELEVANT = re.compile(
    r"render|screen|viewport|window|surf|image|img|colou?r|font|icon|pixel|label|background|cell_size"
    r"|(pos|offset|gap|top|origin|orientation)$|^spec$|metadata|^nS$|^nA$|^reward_range$|^start_state_index$",
    re.IGNORECASE,
)


def simulator_facts(
    env: gym.Env[Any, Any],
    actions: Sequence[str] = (),
    observations: Sequence[str] = (),
    known: Collection[str] = (),
    step_timeout: float = STEP_TIMEOUT,
) -> tuple[str, ...]:
    """Describe the system in sentences of at most `MOST_CHARACTERS` in all, the most useful first.

    The facts about a MuJoCo model are its time step, actuators, joints, bodies and floor, in SI units and the initial
    pose. Those about any other environment are the constants in its code and, for a Box2D world, bodies, hinges, scales
    and effects of actions. The environment is reset and stepped.

    Args:
        actions: the task's names of the components of an action, in order, or of the choices; `action[i]` if missing.
        observations: the task's names of the components of an observation, in order.
        known: names of constants that the prompt already holds; they are left out.
        step_timeout: limit on one step in seconds.

    Returns:
        The sentences; none if there are no facts or the simulator cannot be read, as facts are optional.
    """
    try:
        if not has_model(env):
            constants = _constants(env, known, step_timeout)
            with Watchdog(step_timeout, lambda: None, env):
                world = world_facts(env, observations, actions) if has_world(env) else []
            return _shortened([*world, *constants])
        with Watchdog(step_timeout, lambda: None, env):
            lines: list[str] = []
            for detail in (2, 1, 0):
                lines = model_facts(env, actions, detail)
                if sum(map(len, lines)) <= MOST_CHARACTERS:
                    break
            return _shortened(lines)
    # The user's code: a simulator that fails here will fail again when it is played, and be reported there.
    except (Exception, SystemExit, TimeLimitExceeded):
        return ()


def _shortened(lines: Sequence[str]) -> tuple[str, ...]:
    if sum(map(len, lines)) <= MOST_CHARACTERS:
        return tuple(lines)
    kept = _first_within(lines, MOST_CHARACTERS - 60)  # leaves room for the remark
    return (*kept, f"(Shortened: {len(lines) - len(kept)} more lines are left out.)")


def _first_within(texts: Sequence[str], characters: int) -> Sequence[str]:
    """Return the first texts that have at most so many characters together."""
    return texts[: sum(end <= characters for end in itertools.accumulate(map(len, texts)))]


def _constants(env: gym.Env[Any, Any], known: Collection[str], step_timeout: float) -> tuple[str, ...]:
    """Return at most one sentence with the constants of the environment and its module: `NAME = value, ...`."""
    seen, changed = _numbers_of(env), set[str]()
    started, steps, episodes = time.monotonic(), 0, 0
    with Watchdog(step_timeout, lambda: (steps, episodes), env):
        for _, action, *_ in random_play(env):
            if action is None:
                episodes += 1
                continue
            steps += 1
            now = _numbers_of(env)
            if episodes == 1:  # attributes may first appear while the first episode is played
                seen = {**seen, **now, **seen}
            changed |= {name for name, value in seen.items() if now.get(name) != value}
            if time.monotonic() - started > _SECONDS:
                break
    # Constants that number the actions (`LEFT = 0, DOWN = 1`) say nothing new, if each action has one.
    unchanged = {name: value for name, value in seen.items() if name not in changed}
    numbering = [name for name, value in unchanged.items() if name.isupper() and value.isdigit()]
    actions = sorted(map(str, range(getattr(env.action_space, "n", 0))))
    known = {*known, *(numbering if sorted(unchanged[name] for name in numbering) == actions else ())}
    head, words = "Constants of the simulator: ", [f"{n} = {text}, " for n, text in unchanged.items() if n not in known]
    if not words:
        return ()
    kept = _first_within(words, MOST_CHARACTERS - len(head) - 40)  # leaves room for the remark
    more = f" (shortened: {len(words) - len(kept)} more)" if len(kept) < len(words) else ""
    return (f"{head}{''.join(kept).removesuffix(', ')}{more}.",)


def _numbers_of(env: gym.Env[Any, Any]) -> dict[str, str]:
    """Return numbers as text, by name: of the module (in upper case), the class and the instance; the last counts."""
    base = env.unwrapped
    module = sys.modules.get(type(base).__module__)
    found: dict[str, Any] = {name: value for name, value in vars(module).items() if name.isupper()} if module else {}
    for owner in reversed(type(base).__mro__):
        if owner is not object and not owner.__module__.startswith("gymnasium.core"):
            found.update(vars(owner))
    found.update(vars(base))
    relevant = {n: value for n, value in found.items() if not n.startswith("_") and not _IRRELEVANT.search(n)}
    return {name: text for name, value in relevant.items() if (text := _plain(value))}


def _plain(value: Any) -> str:
    """Write a finite number, or a short list of them; empty for anything else, booleans included."""
    if isinstance(value, list | tuple) and 1 <= len(value) <= _LONGEST_LIST:
        parts = [_plain(item) if not isinstance(item, list | tuple) else "" for item in value]
        return f"[{', '.join(parts)}]" if all(parts) else ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return ""
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{float(value):.6g}" if math.isfinite(value) else ""
