"""The proposers of policies: language models, the builtin search, and teams of models."""

from __future__ import annotations
