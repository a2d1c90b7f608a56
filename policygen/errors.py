"""The exceptions policygen raises; every one of them is a sentence a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class PolicygenError(Exception):
    """A mistake or an outside fault that the message explains; the CLI prints it and exits non-zero."""


class UsageError(PolicygenError):
    """Wrong input: an option, a path, a name or a file that cannot be used as given."""


class TaskError(UsageError):
    """A task that cannot be found, read, or played."""


class EnvironmentFault(TaskError):
    """The environment itself failed while it was played; the message names it, its file and its line."""


class TemplateError(UsageError):
    """A prompt template that cannot be found or rendered; the message names its file and line."""


class ExpressionError(PolicygenError):
    """An arithmetic expression outside the policy language."""


class PolicyError(PolicygenError):
    """A policy file or text that does not describe a policy."""


class LogbookError(PolicygenError):
    """A run folder that cannot be read or written."""


class PlaceError(LogbookError):
    """A folder or file that was named, and is not what is asked for, or cannot be where it is to be."""


class BudgetExhausted(PolicygenError):
    """The next call or episode would exceed a budget the user set."""


class ProviderError(PolicygenError):
    """The model could not be asked, and asking again would not help (authentication, quota, a bad request)."""


class TransientProviderError(ProviderError):
    """The model could not be asked just now; asking again may help.

    `retry_after` is the wait in seconds that the server asked for, if it did.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RejectedParameter(ProviderError):
    """The model does not take the request parameter `parameter`; the request may succeed without it."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def explain(error: ValidationError, known: Iterable[str] = ()) -> str:
    """All problems of a validated mapping in one line each, keys first.

    Args:
        known: keys of the mapping, of which a mistyped one may mean the nearest.
    """
    from difflib import get_close_matches

    known, parts = list(known), []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"] if not re.match(r"(list|dict)\[|int$", str(part)))
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(where, known, n=1)
            parts.append(f"unknown key `{where}`{f' (did you mean `{near[0]}`?)' if near else ''}")
        elif problem["type"] == "missing":
            parts.append(f"the key `{where}` is missing")
        else:
            parts.append(f"`{where}`: {problem['msg'][0].lower()}{problem['msg'][1:]}")
    return "; ".join(parts)
