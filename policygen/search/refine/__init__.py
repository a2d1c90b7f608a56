"""The tuning of a proposal: the model chooses its structure, a numerical search its numbers."""
