"""The error of a command that cannot go on."""


class CommandError(Exception):
    """Wrong usage, or a file that cannot be read or written. The message is one line for the terminal."""
