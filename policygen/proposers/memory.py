"""The memory of `builtin` policies with `--memory`: the phase of a clock, and an integral of each input.

They are features like any other, for the equations to weigh: sine and cosine of the phase, and of twice the phase, give
every output a rhythm of its own amplitude and shift; the integrals of standardised inputs give integral action.
"""

from __future__ import annotations

from collections.abc import Sequence

from policygen.policies.normalise import PREFIX
from policygen.policies.policy import Policy
from policygen.quantities.tree import constants

CLOCK = "clock"
SUM = "sum_"
RATE = 0.3  # radians a step at first: a rhythm of 21 steps
_WAVES = tuple((f"{CLOCK}_{wave}{n}", f"{wave}({n}*{CLOCK})") for n in (1, 2) for wave in ("sin", "cos"))


def terms(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the terms beside the standardised `inputs`."""
    return (*(name for name, _ in _WAVES), *(SUM + name for name in inputs))


def names(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return all names that are defined."""
    return (CLOCK, *terms(inputs))


def lines(inputs: Sequence[str], rate: float) -> list[str]:
    """Return the definitions of these names; tuning changes only the clock's rate in them."""
    return [
        f"let {CLOCK} = mod(prev({CLOCK}) + {rate:.4g}, fixed(2*pi))",
        *(f"let {name} = fixed({wave})" for name, wave in _WAVES),
        *(f"let {SUM}{name} = fixed(clip(prev({SUM}{name}) + 0.05*{PREFIX}{name}, -1, 1))" for name in inputs),
    ]


def rate_of(policy: Policy | None) -> float:
    """Return the rate of a policy's clock in radians per step; `RATE` if it has no clock."""
    clock = dict(policy.lets).get(CLOCK) if policy is not None else None
    found = constants(clock) if clock is not None else ()
    return found[0] if len(found) == 1 else RATE
