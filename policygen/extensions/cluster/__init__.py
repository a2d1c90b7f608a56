"""Sweeps and episodes on Ray and Slurm."""
