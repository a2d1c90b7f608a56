"""Find API keys, restrict the hosts they go to, and keep them out of all output."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

from policygen.errors import UsageError
from policygen.llm.base import LLMOptions
from policygen.outgoing import KEY_VARIABLES

# Keys that servers repeat in their messages: masked (sk-ab****yz), or recognised by their prefix.
_MASKED = re.compile(r"[^\s'\"(]*\*{3,}[^\s'\",)]*")
_SHAPED = re.compile(r"\b(?:sk|pk|gsk|xai|nvapi|hf)[-_][A-Za-z0-9_\-]{6,}|\bAIza[A-Za-z0-9_\-]{10,}")
_HIDDEN = "[key]"


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: the variable it came from and its value, which is never printed."""

    name: str
    value: str = field(repr=False)

    def redact(self, text: str) -> str:
        """Return `text` with `[key]` in place of this key (whole, shortened or masked) and of any other key."""
        text = text.replace(self.value, _HIDDEN)
        if len(self.value) >= 12:  # a shorter placeholder could be an ordinary word
            text = re.sub(re.escape(self.value[:8]) + r"[^\s'\",)]*", _HIDDEN, text)
        return _SHAPED.sub(_HIDDEN, _MASKED.sub(_HIDDEN, text))


def keys_from_file(path: Path) -> None:
    """Copy the `KEY_VARIABLES` that the environment lacks from a `.env` file into it.

    Other variables are ignored and nothing is expanded: an untrusted file in the working directory could otherwise
    choose servers, proxies or code that Python loads.

    Raises UsageError if the file cannot be read.
    """
    if not path.is_file():
        return
    try:
        values = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}; keys may be set in the environment instead") from None
    for name in KEY_VARIABLES:
        value = values.get(name)
        if value and "\0" not in value:
            os.environ.setdefault(name, value)


def check_destination(key: Key | None, options: LLMOptions, own: str) -> None:
    """Refuse to send `key` to an address that a file chose, or with request fields from a file.

    The provider's `own` address is allowed, whoever chose it.

    Raises UsageError naming the address or the fields, the file and what to do.
    """
    if key is not None and options.extra_body and options.extra_body_from:
        raise UsageError(
            f"{options.extra_body_from} would send fields of its own (extra_body: {', '.join(options.extra_body)}) "
            f"with the key in {key.name}, which may cost more or involve other servers; if you trust it, add --trust"
        )
    if key is None or options.base_url is None or not options.base_url_from:
        return
    if own and _origin(options.base_url) == _origin(own):
        return
    typed = (
        f"--llm {shlex.quote(options.named_in)}" if options.named_in else f"--base-url {shlex.quote(options.base_url)}"
    )
    raise UsageError(
        f"{options.base_url_from} would send the key in {key.name} to {options.base_url}: a file may not choose where "
        f"a key goes; if you trust this server, add {typed} or --trust, else remove the address from the file"
    )


def _origin(url: str) -> tuple[str, str]:
    """Return scheme and host of an address, in lower case."""
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def find_key(*names: str) -> Key | None:
    """Return the key in the first non-empty environment variable of `names`, or None.

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
    """Return the key that `provider` needs, from the first set variable of `names`.

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
