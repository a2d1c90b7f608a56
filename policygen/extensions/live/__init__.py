"""Live pages of runs, served to this machine only."""
