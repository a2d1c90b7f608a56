"""`python -m policygen` is the command `policygen`."""

from policygen.cli import main

main()
