"""Language models that decide every step of an episode (`drive`), or make plans when asked (`mediate`)."""
