"""Comparing runs: tables, figures and a summary sentence, with intervals and tests."""

from __future__ import annotations
