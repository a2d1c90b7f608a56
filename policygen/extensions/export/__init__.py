"""Export of policies to C99, plain Python and Structured Text."""
