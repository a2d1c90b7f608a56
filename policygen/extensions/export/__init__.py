"""Export of policies to C99, Python, Structured Text, JSON and LaTeX; of plants to C99, Python and LaTeX."""
