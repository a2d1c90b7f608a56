"""Quantities, which are named numbers: expressions over them, and the bins of a table."""
