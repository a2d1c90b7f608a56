"""The settings, budget, state and records of a run."""

from __future__ import annotations
