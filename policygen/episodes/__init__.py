"""Play, store and score episodes."""

from __future__ import annotations

from policygen.episodes.score import Score

__all__ = ["Score"]
