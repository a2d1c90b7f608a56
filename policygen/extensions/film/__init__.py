"""Films of policies at work."""
