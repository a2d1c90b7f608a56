"""Find API keys, send them to no host but their own unseen, and keep them out of everything that is printed."""

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


def keys_from_file(path: Path) -> None:
    """Set those of the `KEY_VARIABLES` that a `.env` file holds and the environment does not.

    Nothing else is taken from it, and nothing is expanded in it: a file in the working directory may be a stranger's,
    and could otherwise choose servers, proxies or the code that Python loads.

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


def check_destination(key: Key | None, options: LLMOptions, own: str = "") -> None:
    """Refuse to send `key` to an address that a file chose, unless it is the provider's `own`, or with its fields.

    Raises UsageError naming the address or the fields, the file and what to do.
    """
    if key is not None and options.extra_body and options.extra_body_from:
        raise UsageError(
            f"{options.extra_body_from} would send fields of its own (extra_body: {', '.join(options.extra_body)}) "
            f"with the key in {key.name}, which may cost more or involve other servers; if you know them, add --trust"
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
        f"a key goes; if you know this server, say so with {typed} or --trust, else take the address out of the file"
    )


def goes_to(key: Key | None, url: str) -> str:
    """The clause for `Keyed.key_goes_to`, with the host that gets the key and never the key itself."""
    if key is None:
        return ""
    return f"the key in {key.name} goes to {urlsplit(url).netloc.rpartition('@')[2]}"


def _origin(url: str) -> tuple[str, str]:
    """Scheme and host as written, for comparison with an address that is known to be plain."""
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


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
