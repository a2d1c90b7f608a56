"""Rooms with a locked door, built on `minigrid`: environments, options for the robot, and a rule-based planner."""
