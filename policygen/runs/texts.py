"""The templates that a run used: their texts, and a digest by which runs are compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DIGITS = 8


@dataclass(frozen=True, slots=True)
class TemplateTexts:
    """The texts of the templates in use, by name, from attempt number `since` on."""

    since: int
    texts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Digest of the names and texts: the first hexadecimal digits of their SHA-256."""
        return hashlib.sha256(json.dumps(dict(self.texts), sort_keys=True).encode()).hexdigest()[:DIGITS]


def templates_identity(versions: Sequence[TemplateTexts]) -> str:
    """Return a text that identifies the templates of a run, to compare runs by; empty for a run that recorded none.

    It is a digest of the templates. If they changed during the run, it lists all digests, each with its first attempt.
    They may also have changed if the first version was recorded after attempt 1, because earlier ones are unknown.
    """
    if len(versions) == 1 and versions[0].since <= 1:
        return versions[0].digest
    return ", ".join(f"{version.digest} from attempt {version.since}" for version in versions)


def texts_from_record(record: Any) -> tuple[TemplateTexts, ...]:
    """Read the template texts of `Logbook.write_templates`; the first versions of policygen wrote only the list.

    Raises KeyError, TypeError or ValueError if it is damaged.
    """
    found = record["versions"] if isinstance(record, dict) else record
    return tuple(TemplateTexts(int(one["since"]), {str(k): str(v) for k, v in one["texts"].items()}) for one in found)
