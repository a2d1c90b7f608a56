"""A finished policy in another language: C99, plain Python, JSON, LaTeX."""

from __future__ import annotations
