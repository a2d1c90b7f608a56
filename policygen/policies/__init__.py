"""What acts. Every kind of policy is imported here, so that `KINDS` knows them all whichever module is asked first."""

from __future__ import annotations

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy

__all__ = ["LinearPolicy", "Policy", "TablePolicy"]
