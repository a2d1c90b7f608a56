"""The templates that a run used: their texts, a digest by which runs are compared, and changes during the run."""

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
    """Return a text that identifies the templates of a run, to compare runs by.

    It is a digest of the templates. If templates changed during the run, it lists all digests, each with its first
    attempt. It is empty for a run that recorded none.
    """
    if not templates_changed(versions):
        return versions[0].digest if versions else ""
    return ", ".join(f"{version.digest} from attempt {version.since}" for version in versions)


def templates_changed(versions: Sequence[TemplateTexts]) -> bool:
    """Whether templates changed during the run, or may have, so that its score belongs to no single version.

    They may have if the first version was recorded after attempt 1: earlier ones are unknown.
    """
    return len(versions) > 1 or (len(versions) == 1 and versions[0].since > 1)


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of changed, new and removed templates."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def texts_to_record(versions: Sequence[TemplateTexts]) -> dict[str, Any]:
    """Return the saved form, as JSON values."""
    return {"versions": [{"since": v.since, "digest": v.digest, "texts": dict(v.texts)} for v in versions]}


def texts_from_record(record: Any) -> tuple[TemplateTexts, ...]:
    """Read the template texts that `texts_to_record` wrote; the first versions of policygen wrote only the list.

    Raises KeyError, TypeError or ValueError if it is damaged.
    """
    found = record["versions"] if isinstance(record, dict) else record
    return tuple(TemplateTexts(int(one["since"]), {str(k): str(v) for k, v in one["texts"].items()}) for one in found)
