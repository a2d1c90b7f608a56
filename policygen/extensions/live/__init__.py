"""The pages about runs while they go on, on this machine alone."""
