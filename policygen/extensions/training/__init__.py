"""Training of language models: replies scored as rewards, and runs as datasets."""
