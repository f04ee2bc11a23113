"""The error a user sees as one line."""


class Problem(Exception):
    """Something the user can mend; the command prints it as one line and exits with 2."""


class Failed(Exception):
    """Chapters or the site did not work out; the command prints it and exits with 1."""
