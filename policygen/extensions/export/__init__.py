"""Export of policies to C99 and plain Python."""
