"""Find API keys in the environment and keep them out of everything that is printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from policygen.errors import UsageError

# What servers echo of a key: a masked word (sk-ab****yz), or the well-known shapes of keys.
_MASKED = re.compile(r"[^\s'\"(]*\*{3,}[^\s'\",)]*")
_SHAPED = re.compile(r"\b(?:sk|pk|gsk|xai|nvapi|hf)[-_][A-Za-z0-9_\-]{6,}|\bAIza[A-Za-z0-9_\-]{10,}")
_HIDDEN = "[key]"


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: the variable it came from and its value, which is never printed."""

    name: str
    value: str = field(repr=False)

    def redact(self, text: str) -> str:
        """`text` without this key, whole, shortened or masked, and without anything else shaped like a key."""
        text = text.replace(self.value, _HIDDEN)
        if len(self.value) >= 12:  # a shorter stand-in key could be an ordinary word
            text = re.sub(re.escape(self.value[:8]) + r"[^\s'\",)]*", _HIDDEN, text)
        return _SHAPED.sub(_HIDDEN, _MASKED.sub(_HIDDEN, text))


def find_key(*names: str) -> Key | None:
    """The first of the environment variables `names` that holds something, or None.

    Raises UsageError if the value cannot be a key (an HTTP header cannot carry it).
    """
    for name in names:
        value = os.environ.get(name, "").strip()
        if value:
            if not re.fullmatch(r"[!-~]+", value):
                raise UsageError(f"the value of {name} holds a space or an unusual character: copy the key again")
            return Key(name, value)
    return None


def require_key(provider: str, *names: str) -> Key:
    """The key that `provider` needs, from the first of the variables `names` that is set.

    Raises UsageError naming the variable and how to set it.
    """
    key = find_key(*names)
    if key is None:
        others = "".join(f" (or {name})" for name in names[1:])
        raise UsageError(
            f"{provider} needs an API key: set {names[0]}{others} in the environment, "
            f"or write the line {names[0]}=... into a file named .env in this folder"
        )
    return key
