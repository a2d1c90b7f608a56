"""Policies: tables and equations. This package imports every kind, so that `KINDS` is always complete."""

from __future__ import annotations

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy

__all__ = ["LinearPolicy", "Policy", "TablePolicy"]
