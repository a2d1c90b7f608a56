"""Language models that run in this process, by transformers or llama.cpp; each needs an extra."""
