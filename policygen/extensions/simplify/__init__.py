"""Simplification: a smaller policy that is not worse, without superfluous rows, terms and digits."""
