"""The export formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policygen.errors import UsageError
from policygen.extensions.export.c import as_c
from policygen.extensions.export.latex import as_latex
from policygen.extensions.export.portable import as_json
from policygen.extensions.export.program import Program, program_of
from policygen.extensions.export.python import as_python
from policygen.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Format:
    """An export format: file suffix and writer."""

    suffix: str
    write: Callable[[Program], str]


FORMATS = {
    "c": Format(".c", as_c),
    "python": Format(".py", as_python),
    "json": Format(".json", as_json),
    "latex": Format(".tex", as_latex),
}


def exported(policy: Policy, to: str) -> str:
    """Write the policy in the format `to`, one of `FORMATS`.

    Raises:
        UsageError: the format is unknown.
        PolicyError: this kind of policy cannot be exported.
    """
    if to not in FORMATS:
        raise UsageError(f"a policy can be exported to {', '.join(FORMATS)}, not to `{to}`")
    return FORMATS[to].write(program_of(policy))
