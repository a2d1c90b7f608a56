"""The loop."""

from __future__ import annotations
