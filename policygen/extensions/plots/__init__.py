"""Pictures and tables of runs and policies."""
