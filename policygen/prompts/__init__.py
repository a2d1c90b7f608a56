"""The prompts that a model is shown."""
