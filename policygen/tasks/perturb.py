"""Perturbations of an environment: their names, and their sizes as options and task files state them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from policygen.errors import UsageError

SENSORS = {
    "sensor_noise": "standard deviation of normal noise on each observation, as a share of its spread",
    "sensor_bias": "constant offset of each observation, of random sign, as a share of its spread",
    "sensor_dropout": "probability that a step shows the observation of the step before again",
}
PHYSICS = {
    "mass": "factor on the masses and inertias of a MuJoCo model",
    "friction": "factor on the friction of a MuJoCo model",
    "motor": "factor on the forces of a MuJoCo model's motors",
}
KINDS = {
    **SENSORS,
    "action_delay": "number of steps after which a decision acts; before the first one does, numbers are 0",
    "actuator_gain": "factor on the action",
    "random_start": "number of random actions that are taken before an episode begins",
    **PHYSICS,
}
OF_SPREAD = ("sensor_noise", "sensor_bias")  # sizes are shares; `NAME.SIGNAL` states the size for one, in its unit
NOMINAL = dict.fromkeys(("actuator_gain", *PHYSICS), 1.0)  # sizes that change nothing; 0 for the others
STEP_COUNTS = ("action_delay", "random_start")  # sizes are whole numbers
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_OPTION = re.compile(rf"([\w.]+)=({_NUMBER})(?:\.\.({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A perturbation whose size is drawn uniformly from `low` to `high` in each episode.

    Attributes:
        name: one of `KINDS`; one of `OF_SPREAD` with a signal, as in `sensor_noise.position`; or `kwargs.NAME` for a
            keyword argument of the environment.
        spread: the measured spread of each observed number, of which the size is a share; empty if not measured yet.
    """

    name: str
    low: float
    high: float
    spread: tuple[float, ...] = field(default=(), compare=False)

    @property
    def kind(self) -> str:
        """Its name without signal: one of `KINDS`, or `kwargs`."""
        return self.name.partition(".")[0]

    @property
    def signal(self) -> str:
        """The observation whose unit the size has, or the keyword argument; empty if the name has none."""
        return self.name.partition(".")[2]

    @property
    def described(self) -> str:
        """Its name, size and meaning, for a prompt."""
        meaning = f"the environment's argument {self.signal}" if self.kind == "kwargs" else KINDS[self.kind]
        if self.signal and self.kind in OF_SPREAD:
            meaning = f"{meaning.partition(', as a share')[0]}, in the unit of {self.signal}"
        size = f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f"{self.name} {size} ({meaning})"

    @property
    def in_words(self) -> str:
        """Its name and size; a share says of what: `sensor_noise=0.02 of the spread`."""
        return f"{self} of the spread" if self.name in OF_SPREAD else str(self)

    def __str__(self) -> str:
        size = f"{self.low:g}" if self.low == self.high else f"{self.low:g}..{self.high:g}"
        return f"{self.name}={size}"


def perturbation(name: str, low: float, high: float, spread: tuple[float, ...] = ()) -> Perturbation:
    """Return a perturbation; raise UsageError if there is none of this name, or a size is not allowed."""
    kind, dot, signal = name.partition(".")
    if not (signal.isidentifier() and kind in (*OF_SPREAD, "kwargs") if dot else name in KINDS):
        raise UsageError(
            f"there is no perturbation `{name:.60}`; known are {', '.join(KINDS)}, kwargs.NAME, and for one signal "
            f"{', '.join(f'{share}.NAME' for share in OF_SPREAD)}"
        )
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"perturbation {name}: {low:g} to {high:g} is not a range; write the lower number first")
    if kind in KINDS and low < 0:
        raise UsageError(f"perturbation {name}: {low:g} is below 0; write 0 or more")
    if name == "sensor_dropout" and high > 1:
        raise UsageError(f"perturbation {name}: {high:g} is above 1; write 1 or less")
    if name in STEP_COUNTS and (low != round(low) or high != round(high)):
        raise UsageError(f"perturbation {name} is a number of steps: write whole numbers")
    return Perturbation(name, low, high, spread)


def read_perturbation(text: str) -> Perturbation:
    """Read `NAME=SIZE` or `NAME=LOW..HIGH`; raise UsageError for anything else, as `perturbation` does."""
    match = _OPTION.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f"--perturb {text:.60}: write NAME=SIZE or NAME=LOW..HIGH, such as action_delay=1..3")
    return perturbation(match[1], float(match[2]), float(match[3] or match[2]))


def needs_spread(perturbations: Iterable[Perturbation]) -> bool:
    """Whether a size is a share of a spread that has not been measured."""
    return any(one.name in OF_SPREAD and not one.spread for one in perturbations)


def most_start_steps(perturbations: Iterable[Perturbation]) -> int:
    """Return the largest number of random steps at the start of an episode."""
    return max((int(one.high) for one in perturbations if one.name == "random_start"), default=0)
