"""Sweeps: many runs over tasks, models, templates and seeds; and suites of tasks."""
