"""Smaller policies that are not worse: for any policy, and at the end of a run of `builtin` with tables."""

from policygen.runs.state import CLOSINGS

CLOSINGS.add("simplified", "policygen.extensions.simplify.smaller:simplified_best")
