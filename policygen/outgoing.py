"""Output of text: hide secrets, make control characters visible, align columns."""

from __future__ import annotations

import base64
import html
import itertools
import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

KEY_VARIABLES = ("OPENAI_API_KEY", "OPENAI_COMPATIBLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY")
"""Environment variables that hold API keys; only these are read from a `.env` file."""

HIDDEN = "***"
# Placeholders such as `dummy` or `none` are not secrets; hiding them would blank out words.
_SHORTEST_SECRET = 8

_LOGINS: set[str] = set()  # the logins to hide, in every form in which a server may echo them

_USERINFO = re.compile(r"(?<=://)[^/?#\s\"'`<>]*@")
# C0 and C1 controls except tab and newline, line separators, bidirectional marks (CVE-2021-42574), the byte order mark
# and tag characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
# A lone surrogate cannot be printed at all.
_NOT_SHOWN = re.compile(f"{_UNSAFE.pattern[:-1]}\ud800-\udfff]")


def redacted(text: str) -> str:
    """Return `text` with `***` for the values of all `KEY_VARIABLES`, and for `user:password` in addresses.

    Logins given to `hide_login` are hidden anywhere in the text.
    """
    values = (os.environ.get(name, "").strip() for name in KEY_VARIABLES)
    secrets = {value for value in values if len(value) >= _SHORTEST_SECRET} | _LOGINS
    for secret in sorted(secrets, key=len, reverse=True):  # longest first: one key may begin with another
        text = text.replace(secret, HIDDEN)
    return _USERINFO.sub(f"{HIDDEN}@", text) if "://" in text else text


def hide_login(address: str) -> None:
    """Hide the `user:password` of an address from now on, as text and in base64 (RFC 7617)."""
    userinfo = address.partition("://")[2].partition("/")[0].rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    if not userinfo or userinfo == HIDDEN:
        return
    login = f"{unquote(user)}:{unquote(password)}"
    for form in (base64.b64encode, base64.urlsafe_b64encode):
        _LOGINS.add(form(login.encode(errors="replace")).decode().rstrip("="))
    _LOGINS.update(text for text in (login, userinfo, unquote(password)) if len(text) >= _SHORTEST_SECRET)


def plain(text: str) -> str:
    """Return `text` with visible escapes (`\\x1b`) for characters that control a terminal or cannot be printed.

    These are control characters (except tab and newline), line separators, bidirectional and invisible marks, and lone
    surrogates.
    """
    return _NOT_SHOWN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def shown(text: object) -> str:
    """Return `text` for printing: without secrets and terminal control characters."""
    return plain(redacted(str(text)))


def as_html(text: object) -> str:
    """Return `shown(text)` with the characters of HTML escaped."""
    return html.escape(shown(text))


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with aligned columns; the last cell of a row may be of any length."""
    columns = itertools.zip_longest(*(row[:-1] for row in rows), fillvalue="")
    widths = [max(map(len, column)) + 2 for column in columns]
    return ["".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in rows]


def json_safe(line: str) -> str:
    """Escape in a line of JSON what `plain` escapes, except lone surrogates; the value of the line stays the same."""
    return _UNSAFE.sub(lambda found: re.sub("....", r"\\u\g<0>", found.group().encode("utf-16-be").hex()), line)
