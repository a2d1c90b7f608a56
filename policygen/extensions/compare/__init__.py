"""Comparing runs: `contenders` reads and names them, `comparison` tests and prints them, `figure` draws them."""
