"""Runs on Ray and on Slurm."""
