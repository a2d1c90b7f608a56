"""The prompts that a model is shown."""

from __future__ import annotations
