"""Export of policies to other languages: C99, plain Python, JSON, LaTeX."""

from __future__ import annotations
