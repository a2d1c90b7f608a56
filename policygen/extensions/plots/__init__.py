"""Pictures and tables of runs and policies."""

from __future__ import annotations
