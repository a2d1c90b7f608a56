"""What can be shown."""

from __future__ import annotations
