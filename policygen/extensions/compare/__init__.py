"""Comparing runs: `contenders` reads and names them, `comparison` tests, prints and draws them."""
