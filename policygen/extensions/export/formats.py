"""The formats of exported policies, and the function that writes them."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.errors import UsageError
from policygen.extensions.export.c import PLAIN, Options, PolicyInC
from policygen.extensions.export.python import PolicyInPython
from policygen.extensions.export.st import PolicyInST
from policygen.policies.policy import Policy

FORMATS = ("c", "python", "st")


def exported(policy: Policy, to: str, facts: Sequence[str] = (), options: Options = PLAIN) -> str:
    """Return the policy as text in the format `to`, one of `FORMATS`.

    Args:
        facts: sentences about its origin and score, for the first comment.
        options: settings of C.

    Raises:
        UsageError: the format is unknown, or an option does not apply to it.
        PolicyError: this kind of policy cannot be exported.
    """
    if to not in FORMATS:
        raise UsageError(f"a policy can be exported to {', '.join(FORMATS)}, not to `{to}`")
    if to == "c":
        return PolicyInC(policy, facts, options).text()
    if options != PLAIN:
        flag = "--float32" if options.float32 else "--on-nan"
        raise UsageError(f"{flag} is for policies exported to c, not to {to}: leave it out")
    return (PolicyInST if to == "st" else PolicyInPython)(policy, facts).text()
