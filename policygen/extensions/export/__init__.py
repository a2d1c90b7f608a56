"""Export of policies as C99, plain Python or Structured Text."""
