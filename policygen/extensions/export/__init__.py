"""Export of policies to C99, plain Python, JSON and LaTeX; of plants to C99, plain Python and LaTeX."""
