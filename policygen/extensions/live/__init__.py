"""Live pages of running searches, served on this machine only."""
