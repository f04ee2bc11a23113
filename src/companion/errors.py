"""The error a user sees as one line."""


class Problem(Exception):
    """Something the user can mend; the command prints it as one line and exits with 2."""
