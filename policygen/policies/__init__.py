"""Policies. Every kind is imported here, so that `KINDS` is complete whichever module is imported first."""

from __future__ import annotations

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy

__all__ = ["LinearPolicy", "Policy", "TablePolicy"]
