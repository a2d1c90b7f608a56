"""Training of language models: datasets made from runs, rewards for replies, and finetuning of local models."""
