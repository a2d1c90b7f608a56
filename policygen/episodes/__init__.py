"""Episodes: played, kept, scored."""

from __future__ import annotations

from policygen.episodes.score import Score

__all__ = ["Score"]
