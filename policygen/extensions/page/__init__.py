"""The page about a run or a sweep: one HTML file that needs nothing else."""
