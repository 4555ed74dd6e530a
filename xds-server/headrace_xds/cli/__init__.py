"""``headrace``: the command line. One command a file; ``main`` imports only the one that runs."""
