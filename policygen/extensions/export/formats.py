"""The formats of exported policies, and the functions that write them."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC, changed_by_single, tested_steps
from policygen.extensions.export.program import program_of
from policygen.extensions.export.python import PolicyInPython
from policygen.extensions.export.source import PLAIN, Options
from policygen.policies.policy import Policy

FORMATS = ("c", "python")


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
        return PolicyInC(program_of(policy), facts, options).text()
    if options != PLAIN:
        flag = "--float32" if options.float32 else "--on-nan"
        raise UsageError(f"{flag} is for policies exported to c, not to {to}: leave it out")
    return PolicyInPython(program_of(policy), facts).text()


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
