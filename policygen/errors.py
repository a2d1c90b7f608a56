"""The exceptions of policygen; each message says what happened and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class PolicygenError(Exception):
    """A mistake of the user or a fault outside policygen; the command line prints its message and fails."""


class UsageError(PolicygenError):
    """Wrong input: an unusable option, path, name or file."""


class TaskError(UsageError):
    """A task that cannot be found, read, or played."""


class UntrustedError(TaskError):
    """An untrusted file names a module to import or a file to read."""


class EnvironmentFault(TaskError):
    """An error in the environment's own code; the message names the environment, its file and line."""


class TemplateError(UsageError):
    """A prompt template that cannot be found or rendered; the message names its file and line."""


class ExpressionError(PolicygenError):
    """An arithmetic expression outside the policy language."""


class PolicyError(PolicygenError):
    """A file or text that does not describe a policy."""


class LogbookError(PolicygenError):
    """A run folder that cannot be read or written."""


class PathError(LogbookError):
    """A folder or file that is of the wrong kind, lacks the needed content, or cannot be created."""


class BudgetExhausted(PolicygenError):
    """The next request or episode would exceed a budget that the user set."""


class ProviderError(PolicygenError):
    """A request to a model failed, and a retry would not help (authentication, quota, invalid request)."""


class TransientProviderError(ProviderError):
    """A request to a model failed, but a retry may help.

    `retry_after` is the wait in seconds that the server asked for, if any.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RejectedParameter(ProviderError):
    """The model does not accept the request parameter `parameter`; the request may succeed without it."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def reason_of(error: Exception) -> str:
    """Return the operating system's description of an error, or the message of any other error."""
    return getattr(error, "strerror", None) or str(error)


def explain(error: ValidationError, known: Iterable[str] = ()) -> str:
    """Describe the problems that pydantic found, each with its key, in one line.

    Args:
        known: valid keys, of which the nearest is suggested for a mistyped one.
    """
    known, parts = list(known), []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"] if not re.match(r"(list|dict)\[|int$", str(part)))
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(where, known, n=1)
            parts.append(f"unknown key `{where}`{f' (did you mean `{near[0]}`?)' if near else ''}")
        elif problem["type"] == "missing":
            parts.append(f"the key `{where}` is missing")
        else:
            said = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
            parts.append(f"`{where}`: {said}" if where else said)
    return "; ".join(parts)
