"""The search: the main loop, the tuning of proposals, and a run from its start to its end."""
