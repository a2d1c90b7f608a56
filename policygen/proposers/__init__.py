"""What a model may be to a policy."""

from __future__ import annotations
