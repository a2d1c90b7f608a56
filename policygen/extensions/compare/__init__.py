"""Runs compared: how sure the differences are, as tables, pictures and a sentence."""

from __future__ import annotations
