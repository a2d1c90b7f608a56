"""Play, store and score episodes."""
