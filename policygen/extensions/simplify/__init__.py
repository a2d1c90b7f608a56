"""The smallest policy that is not worse: rows, terms and digits that do not matter go."""

from __future__ import annotations
