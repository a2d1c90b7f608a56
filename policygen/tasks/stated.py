"""Properties of an environment as constructed: its arguments, map, outcome probabilities, bounds and state encoding."""

from __future__ import annotations

import inspect
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.tasks.documentation import Section, value_text
from policygen.tasks.spaces import Observation

# Arguments that do not matter to a policy: images, files, and those that the time step already reflects.
_IRRELEVANT = re.compile(
    r"render|camera|width|height|xml|frame_skip|^kwargs$|^self$|^desc$|in_observation$|from_observation$"
)
# A mixed-radix encoding such as `((row * 5 + column) * 5 + place) * 4 + goal`.
_FORMULA = re.compile(r"\(*[a-z]\w* \* \w+ \+ [a-z]\w*(?:\) \* \w+ \+ [a-z]\w*)*")
_MANY_VALUES = 50  # an integer with this many values may encode several numbers


def arguments_in_force(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the relevant arguments of the environment's constructor, by name: those given, else defaults."""
    given = dict(env.spec.kwargs) if env.spec else {}
    try:
        parameters = inspect.signature(type(env.unwrapped).__init__).parameters
    except (TypeError, ValueError):  # a class not written in Python
        return {}
    return {
        name: given.get(name, parameter.default)
        for name, parameter in parameters.items()
        if not _IRRELEVANT.search(name) and (name in given or parameter.default is not inspect.Parameter.empty)
    }


def describe_arguments(arguments: Mapping[str, Any], env: gym.Env[Any, Any], about: str = "") -> list[str]:
    """Describe the arguments in force, a map of letters, and the probabilities of an action's outcomes.

    Args:
        about: prose; arguments whose values it states are left out.
    """
    off = {word for name, value in arguments.items() if value is False for word in name.split("_")} - {"is", "enable"}
    # The probability of rain is irrelevant if it never rains.
    relevant = {n: value for n, value in arguments.items() if isinstance(value, bool) or not off & set(n.split("_"))}
    pairs = [f"{name} = {text}" for name, value in relevant.items() if (text := value_text(value))]
    pairs = [pair for pair in pairs if pair not in about]
    sentences = [f"Arguments in force: {', '.join(pairs)}."] if pairs else []
    rows = getattr(env.unwrapped, "desc", None)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind == "S" and rows.dtype.itemsize == 1:
        lines = [b"".join(row).decode("ascii", "replace") for row in rows]
        if not any(set(line) & set("|+") for line in lines):  # the documentation shows maps with walls
            letters = set("".join(lines))
            legend = " (S start, F frozen, H hole, G goal)" if letters <= set("SFHG") else ""
            sentences.append(f"The map, row by row from the top{legend}: {' '.join(lines)}.")
    return sentences + _outcome_probabilities(env)


def _outcome_probabilities(env: gym.Env[Any, Any]) -> list[str]:
    """Describe the probabilities of the outcomes that most actions have; nothing if unknown, or there is only one."""
    known = getattr(env.unwrapped, "P", None)
    if not isinstance(known, dict) or not all(isinstance(actions, dict) for actions in known.values()):
        return []
    outcomes = Counter(
        tuple(sorted(Fraction(float(chance)).limit_denominator(1000) for chance, *_ in results))
        for actions in known.values()
        for results in actions.values()
    )
    usual = outcomes.most_common(1)[0][0] if outcomes else ()
    if len(usual) < 2:
        return []
    if len(set(usual)) == 1:
        return [f"An action has {len(usual)} outcomes of probability {usual[0]} each."]
    return [f"The outcomes of an action have probabilities {', '.join(map(str, usual[::-1]))}."]


def with_limits(observation: Observation) -> Observation:
    """Add the limits of a real number to its meaning, unless they are infinite or the meaning implies them."""
    low, high, about = observation.low, observation.high, observation.about
    if observation.integer or about.startswith("1 while") or not (math.isfinite(low) and math.isfinite(high)):
        return observation
    limits = f"{low + 0.0:.4g} to {high:.4g}"
    return replace(observation, about=f"{about}, {limits}" if about else limits)


def encoding_of(found: Sequence[Observation], section: Section | None, env: gym.Env[Any, Any]) -> tuple[str, str]:
    """Return the meaning of a single observed integer that encodes several, and a sentence on how to decode it.

    Both come from a formula in the documentation. Without one that can be decoded, the meaning is empty, and the
    sentence is general, or empty for fewer than `_MANY_VALUES` values. Both are empty if the environment observes
    anything but one integer.
    """
    if len(found) != 1 or not found[0].integer or found[0].high - found[0].low + 1 < 2:
        return "", ""
    state, values = found[0].name, int(found[0].high - found[0].low + 1)
    formula = _FORMULA.search(section.text) if section else None
    if formula and (parts := _decoded(formula[0].strip(), state, env)):
        lets = "; ".join(f"{name} = {text}" for name, text in parts)
        return (
            f"{values} values; it is {formula[0].strip()}",
            f"{state} stands for several numbers, which `let` can decode: {lets}; a table over some of these needs few"
            " rows.",
        )
    if values < _MANY_VALUES:
        return "", ""
    return "", (
        f"{state} has {values} values and may stand for several numbers; if its encoding is known, decode it, as in"
        f" `let column = mod(floor({state}/20), 5)`, and a table over the parts needs few rows"
    )


def _decoded(formula: str, state: str, env: gym.Env[Any, Any]) -> list[tuple[str, str]]:
    """Return name and expression of each part of a mixed-radix formula; empty if it cannot be decoded."""
    base: Any = env.unwrapped
    shape: Any = getattr(base, "shape", None)
    columns = getattr(base, "ncol", shape[1] if isinstance(shape, tuple) and len(shape) == 2 else None)
    digits: list[tuple[str, int]] = []
    while match := re.fullmatch(r"\(?(.+?)\)? \* (\w+) \+ ([a-z_]\w*)", formula):
        radix = int(match[2]) if match[2].isdigit() else columns if match[2] == "ncols" else None
        if not isinstance(radix, int):
            return []
        digits.append((match[3], radix))
        formula = match[1]
    if not digits or not re.fullmatch(r"\(*([a-z_]\w*)", formula):
        return []
    divisor, rest, parts = 1, state, []
    for name, radix in digits:
        parts.append((name, f"mod({rest}, {radix})"))
        divisor *= radix
        rest = state if divisor == 1 else f"floor({state}/{divisor})"
    return [(formula.lstrip("("), rest), *parts[::-1]]
