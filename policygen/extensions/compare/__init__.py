"""Comparing runs: read in `results`, tested and averaged in `comparison`, printed in `tables` and drawn in `figure`."""
