"""The export formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC
from policygen.extensions.export.latex import as_latex, plant_as_latex
from policygen.extensions.export.plant import PlantInC, PlantInPython
from policygen.extensions.export.portable import as_json
from policygen.extensions.export.program import Program, program_of
from policygen.extensions.export.python import PolicyInPython
from policygen.plants.fit import FittedPlant
from policygen.policies.policy import Policy

FORMATS: dict[str, Callable[[Program], str]] = {
    "c": lambda program: PolicyInC(program).text(),
    "python": lambda program: PolicyInPython(program).text(),
    "json": as_json,
    "latex": as_latex,
}
FORMATS_OF_PLANTS: dict[str, Callable[[FittedPlant], str]] = {
    "c": lambda plant: PlantInC(plant).text(),
    "python": lambda plant: PlantInPython(plant).text(),
    "latex": lambda plant: plant_as_latex(plant.equations),
}
T = TypeVar("T")


def exported(policy: Policy, to: str) -> str:
    """Write the policy in the format `to`, one of `FORMATS`.

    Raises:
        UsageError: the format is unknown.
        PolicyError: this kind of policy cannot be exported.
    """
    return _format(FORMATS, "policy", to)(program_of(policy))


def exported_plant(plant: FittedPlant, to: str) -> str:
    """Write the plant as a simulator in C or Python, or as equations in LaTeX.

    Raises:
        UsageError: the format is none of `FORMATS_OF_PLANTS`.
        PolicyError: this plant cannot be exported.
    """
    return _format(FORMATS_OF_PLANTS, "plant", to)(plant)


def _format(formats: Mapping[str, T], what: str, to: str) -> T:
    if to not in formats:
        raise UsageError(f"a {what} can be exported to {', '.join(formats)}, not to `{to}`")
    return formats[to]
