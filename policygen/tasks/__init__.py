"""Tasks: their files, spaces and environments, and facts found out about an environment."""
