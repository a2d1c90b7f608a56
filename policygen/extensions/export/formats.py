"""The export formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC
from policygen.extensions.export.latex import as_latex, plant_as_latex
from policygen.extensions.export.plant import PlantInC, PlantInPython
from policygen.extensions.export.portable import as_json
from policygen.extensions.export.program import Program, program_of
from policygen.extensions.export.python import PolicyInPython
from policygen.plants.fit import FittedPlant
from policygen.policies.policy import Policy

FORMATS: dict[str, Callable[[Program, Sequence[str]], str]] = {
    "c": lambda program, facts: PolicyInC(program, facts).text(),
    "python": lambda program, facts: PolicyInPython(program, facts).text(),
    "json": lambda program, _: as_json(program),
    "latex": lambda program, _: as_latex(program),
}
FORMATS_OF_PLANTS: dict[str, Callable[[FittedPlant], str]] = {
    "c": lambda plant: PlantInC(plant).text(),
    "python": lambda plant: PlantInPython(plant).text(),
    "latex": lambda plant: plant_as_latex(plant.equations),
}
T = TypeVar("T")


def exported(policy: Policy, to: str, facts: Sequence[str] = ()) -> str:
    """Write the policy in the format `to`, one of `FORMATS`.

    Args:
        facts: sentences about its origin and score, for the first comment of C and Python.

    Raises:
        UsageError: the format is unknown.
        PolicyError: this kind of policy cannot be exported.
    """
    return _format(FORMATS, "policy", to)(program_of(policy), facts)


def c_files(policy: Policy, facts: Sequence[str], episodes: Sequence[Trajectory] = ()) -> dict[str, str]:
    """Return the files of a policy in C by name: source, header and, with episodes, a test program.

    Raises:
        PolicyError: this kind of policy cannot be exported.
    """
    made = PolicyInC(program_of(policy), facts)
    name = made.program.name
    files = {f"{name}.c": made.source(), f"{name}.h": made.header()}
    return {**files, f"{name}_test.c": made.test_program(episodes)} if episodes else files


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
