"""The settings, budget, state and files of a run."""
