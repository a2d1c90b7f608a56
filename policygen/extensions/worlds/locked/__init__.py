"""Rooms with a locked door, on the package `minigrid`: maps, options that code carries out, and a planner of rules."""
