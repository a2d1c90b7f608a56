"""Report pages of runs and sweeps, each one self-contained HTML file."""
