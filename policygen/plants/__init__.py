"""Plants: equations of motion fitted to the episodes played, and episodes played inside them."""

from __future__ import annotations
