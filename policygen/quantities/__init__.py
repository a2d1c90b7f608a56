"""Quantities (named numbers): expressions over them, and the grids that divide them into bins."""
