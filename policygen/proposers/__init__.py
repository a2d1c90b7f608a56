"""The proposers of policies: language models, teams of models, and the search `builtin`."""
