"""Export of policies to other languages: C99, plain Python, JSON, LaTeX."""
