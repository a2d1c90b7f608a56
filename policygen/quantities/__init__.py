"""Named numbers: arithmetic over them, and the bins of a table."""

from __future__ import annotations
