"""Simplification: a smaller policy that is not worse, without superfluous rows, terms and digits."""

from __future__ import annotations
