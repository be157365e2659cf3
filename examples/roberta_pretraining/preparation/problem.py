"""What ends the program in one line."""


class Problem(Exception):
    """Says what was given, what is accepted and what to do."""
