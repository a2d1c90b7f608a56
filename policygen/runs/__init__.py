"""What a run is told, may spend, has and leaves."""

from __future__ import annotations
