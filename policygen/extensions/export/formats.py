"""The formats of exported policies and plants, and the functions that write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC, changed_by_single, tested_steps
from policygen.extensions.export.json_format import as_json
from policygen.extensions.export.latex import as_latex, plant_as_latex
from policygen.extensions.export.plant import PlantInC, PlantInPython
from policygen.extensions.export.program import Program, program_of
from policygen.extensions.export.python import PolicyInPython
from policygen.extensions.export.source import PLAIN, Options
from policygen.extensions.export.st import PolicyInST
from policygen.plants.fit import FittedPlant
from policygen.policies.policy import Policy

FORMATS: dict[str, Callable[[Program, Sequence[str], Options], str]] = {
    "c": lambda program, facts, options: PolicyInC(program, facts, options).text(),
    "python": lambda program, facts, _: PolicyInPython(program, facts).text(),
    "st": lambda program, facts, _: PolicyInST(program, facts).text(),
    "json": lambda program, *_: as_json(program),
    "latex": lambda program, *_: as_latex(program),
}
FORMATS_OF_PLANTS: dict[str, Callable[[FittedPlant], str]] = {
    "c": lambda plant: PlantInC(plant).text(),
    "python": lambda plant: PlantInPython(plant).text(),
    "latex": lambda plant: plant_as_latex(plant.equations),
}


def exported(policy: Policy, to: str, facts: Sequence[str] = (), options: Options = PLAIN) -> str:
    """Return the policy as text in the format `to`, one of `FORMATS`.

    Args:
        facts: sentences about its origin and score, for the first comment of source code.
        options: settings of the C code.

    Raises:
        UsageError: the format is unknown, or an option does not apply to it.
        PolicyError: this kind of policy cannot be exported.
    """
    _check(FORMATS, "policy", to)
    if options != PLAIN and to != "c":
        flag = "--float32" if options.float32 else "--on-nan"
        raise UsageError(f"{flag} is for policies exported to c, not to {to}: leave it out")
    return FORMATS[to](program_of(policy), facts, options)


def c_files(
    policy: Policy, facts: Sequence[str], episodes: Sequence[Trajectory], options: Options
) -> tuple[dict[str, str], str]:
    """Return the files of a policy in C by name (source, header, test program), and a warning or an empty text.

    The header states how many decisions in the episodes single precision changes; if any, the warning says it, too.
    """
    program, changed, warning = program_of(policy), 0, ""
    if options.float32:
        changed = changed_by_single(program, episodes)
        count = sum(actions.size for _, actions in map(tested_steps, episodes))
        facts = [*facts, f"In single precision {changed} of {count} decisions in {len(episodes)} episodes differ."]
        warning = f"{facts[-1]} The test program allows for them." if changed else ""
    code = PolicyInC(program, facts, options)
    texts = {".c": code.source(), ".h": code.header(), "_test.c": code.test_program(episodes, changed)}
    return {f"{code.name}{end}": text for end, text in texts.items()}, warning


def exported_plant(plant: FittedPlant, to: str) -> str:
    """Return the plant as a simulator in C or Python, or as equations in LaTeX.

    Raises:
        UsageError: the format is none of `FORMATS_OF_PLANTS`.
        PolicyError: this plant cannot be exported.
    """
    _check(FORMATS_OF_PLANTS, "plant", to)
    return FORMATS_OF_PLANTS[to](plant)


def _check(formats: Collection[str], what: str, to: str) -> None:
    if to not in formats:
        raise UsageError(f"a {what} can be exported to {', '.join(formats)}, not to `{to}`")
