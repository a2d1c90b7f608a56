"""The export formats."""

from __future__ import annotations

from collections.abc import Callable

from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC
from policygen.extensions.export.latex import as_latex
from policygen.extensions.export.portable import as_json
from policygen.extensions.export.program import Program, program_of
from policygen.extensions.export.python import PolicyInPython
from policygen.policies.policy import Policy

FORMATS: dict[str, Callable[[Program], str]] = {
    "c": lambda program: PolicyInC(program).text(),
    "python": lambda program: PolicyInPython(program).text(),
    "json": as_json,
    "latex": as_latex,
}


def exported(policy: Policy, to: str) -> str:
    """Write the policy in the format `to`, one of `FORMATS`.

    Raises:
        UsageError: the format is unknown.
        PolicyError: this kind of policy cannot be exported.
    """
    if to not in FORMATS:
        raise UsageError(f"a policy can be exported to {', '.join(FORMATS)}, not to `{to}`")
    return FORMATS[to](program_of(policy))
